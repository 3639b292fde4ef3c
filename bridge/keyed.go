package bridge

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"mcpd/bridge/jsonrpc"
	"mcpd/bridge/ledger"
)

// A keyed call is a tools/call with an idempotency key. It belongs to the
// Upstream and not to the HTTP request that brought it: a client that goes away
// neither cancels it nor loses its result, and a client that asks again gets
// what the first one would have got.

// longestKey bounds an idempotency key, in bytes.
const longestKey = 1024

// errSettled ends the waiting for a keyed call: its ending can be read.
var errSettled = errors.New("the call has ended")

// keyOf finds the idempotency key of a tools/call, "" where it has none.
func keyOf(in *incoming, tool ToolPolicy) (key string, member jsonrpc.Member, err error) {
	data := in.data()
	member = jsonrpc.Lookup(data, in.msg.Param.Arguments.Value, tool.Key)
	raw := member.Of(data)
	switch {
	case raw == nil, !tool.Inject && string(raw) == "null":
		return "", jsonrpc.Member{}, nil
	case raw[0] == '"':
		if key, err = jsonrpc.Unquote(data, member.Value); err == nil && key != "" && len(key) <= longestKey {
			return key, member, nil
		}
	}
	return "", jsonrpc.Member{}, refuseCall(in, invalidParams(
		"the argument %s is the idempotency key of tool %s: it must be a string of 1 to %d bytes", clip(tool.Key), clip(in.name), longestKey))
}

// refuseCall gives an error about a call the status that its client expects.
func refuseCall(in *incoming, f *Fault) *Fault {
	if in.era == EraLegacy {
		return asLegacy(f)
	}
	return f
}

// callKeyed answers a call that has an idempotency key. state is what it brings
// with answers to questions of the server, else nil.
func (u *Upstream) callKeyed(rs *response, in *incoming, state *requestState, tool ToolPolicy, key string, member jsonrpc.Member) error {
	if u.ledger == nil {
		return unavailable(time.Second, "server %q: there is no ledger, so calls with an idempotency key are refused", u.name)
	}
	data, arguments := in.data(), in.msg.Param.Arguments.Value
	withoutKey := jsonrpc.RemoveMembers(data, arguments, member)
	digest, err := ledger.DigestOf(editedSpan(data, arguments, withoutKey))
	if err != nil {
		return refuseCall(in, invalidParams("%v", err))
	}
	call := ledger.Call{
		Principal: in.principal.ID, Server: u.name, Tool: in.name, Key: key,
		Digest: digest, Arguments: summary(data, arguments, tool.Key),
	}
	if state != nil {
		if err := u.deliverKeyed(in, state); err != nil {
			return err
		}
	}
	release, err := u.admit(in.principal)
	if err != nil {
		return err
	}
	defer func() { release() }()
	for {
		found, err := u.ledger.Begin(call)
		if err != nil {
			return u.ledgerFault(err)
		}
		switch found.Verdict {
		case ledger.Replay:
			if found.Answer == nil {
				return u.told(rs, in, outcomeDone, u.resultGone(in, &found.Record))
			}
			return u.answerStored(rs, in, found.Answer, true)
		case ledger.Conflict:
			return u.told(rs, in, outcomeConflict, conflictText(in, tool, &found.Record))
		case ledger.Uncertain:
			return u.told(rs, in, outcomeUnknown, u.stillUnknown(in, &found.Record))
		}
		box := newMailbox(u.limits.Load().StreamBufferBytes)
		owned := found.Verdict == ledger.Started
		if owned {
			run := &keyedRun{u: u, entry: found.Entry, box: box, sse: rs.sse, release: release}
			run.in = detach(in)
			if tool.Inject {
				run.edits = withoutKey
			}
			if run.hadState = state != nil; run.hadState {
				run.edits = append(run.edits, withoutState(in)...)
			}
			unbind := func() {}
			if run.asks = u.newAsking(run.in, nil, time.Now(), in.patience(u.limits.Load())); run.asks != nil {
				run.asks.keyed = true
				unbind = u.askings.bind(found.Entry, run.asks)
			}
			release = func() {} // the slot is the run's now
			if !u.spawn(func() {
				defer unbind()
				run.run()
			}) {
				unbind()
				err := unavailable(time.Second, "server %q is being stopped or removed", u.name)
				run.abort(err)
				run.release()
				return err
			}
		}
		found.Entry.OnSettled(func() { box.end(errSettled) })
		asks, stop := u.watchQuestions(in, box, found.Entry, state != nil && rs.sse)
		err = u.watch(rs, in, box, found.Entry)
		stop()
		if errors.Is(err, errAsked) {
			if err = gather(in.http.Context(), found.Entry); err == nil {
				if answered, err := asks.ask(rs, in); answered {
					return err
				}
				continue // the server took it back
			}
		}
		if !errors.Is(err, errSettled) {
			return err
		}
		switch ending := found.Entry.Ending(); {
		case ending.How == ledger.Answered, ending.How == ledger.Passed:
			return u.answerStored(rs, in, ending.Answer, !owned)
		case ending.How == ledger.Lost:
			return u.told(rs, in, outcomeUnknown, u.lostText(in, ending.Why, &ending.Record))
		case ending.Why != nil:
			return ending.Why
		}
		// Somebody else only looked it up at the same moment.
	}
}

// deliverKeyed hands in the answers that a repeat brings. Where nothing waits for
// them any more the call is a repeat as any other.
func (u *Upstream) deliverKeyed(in *incoming, state *requestState) error {
	if err := state.check(in); err != nil {
		return err
	}
	a := u.askings.byID(state.Call)
	if a == nil {
		return nil
	}
	_, err := a.deliver(in, state)
	if errors.Is(err, errUsed) {
		return nil
	}
	return err
}

// withoutState gives the edits that take the answers to questions out of a call.
func withoutState(in *incoming) []jsonrpc.Edit {
	data, param := in.data(), &in.msg.Param
	var gone []jsonrpc.Member
	for _, m := range []jsonrpc.Member{param.InputResponses, param.RequestState} {
		if m.Present() {
			gone = append(gone, m)
		}
	}
	return jsonrpc.RemoveMembers(data, in.msg.Params.Value, gone...)
}

// watchQuestions ends box when the server asks something that a client of this
// call can answer.
func (u *Upstream) watchQuestions(in *incoming, box *mailbox, e *ledger.Entry, reads bool) (a *asking, stop func()) {
	a = u.askings.of(e)
	if a == nil || in.era != EraModern {
		return nil, func() {}
	}
	token := in.msg.Meta.ProgressToken.Of(in.data())
	return a, a.watch(box, reads && jsonrpc.ValidID(token))
}

// gather waits for more questions. errSettled says that the call has ended.
func gather(ctx context.Context, e *ledger.Entry) error {
	timer := time.NewTimer(gatherTime)
	defer timer.Stop()
	select {
	case <-e.Settled():
		return errSettled
	case <-ctx.Done():
		return goneOr(ctx, true)
	case <-timer.C:
		return nil
	}
}

// detach makes a copy of a request that outlives the handling of it.
func detach(in *incoming) *incoming {
	c := *in
	c.body = &buffer{b: bytes.Clone(in.data())}
	c.id = c.msg.ID.Of(c.body.b)
	return &c
}

// editedSpan gives a part of a text with the edits applied.
func editedSpan(data []byte, s jsonrpc.Span, edits []jsonrpc.Edit) []byte {
	if !s.Present() {
		return nil
	}
	moved := make([]jsonrpc.Edit, len(edits))
	for i, e := range edits {
		moved[i] = jsonrpc.Edit{Span: jsonrpc.Span{Start: e.Start - s.Start, End: e.End - s.Start}, New: e.New}
	}
	return jsonrpc.AppendEdited(nil, s.Of(data), moved...)
}

// watch carries what comes before the answer to one client, until the call has
// ended (errSettled), the client is gone, or it reads too slowly.
func (u *Upstream) watch(rs *response, in *incoming, box *mailbox, e *ledger.Entry) error {
	p := pump{rs: rs, box: box, begin: time.Now(), handle: func(got *inbound) (bool, error) {
		defer got.release()
		return false, rs.notification(in, got)
	}}
	err := p.run(in.http.Context())
	box.end(errClientGone) // what still comes is for nobody
	var lost *lostError
	switch {
	case errors.As(err, &lost):
		return u.told(rs, in, outcomeUnknown, u.lostText(in, err, &ledger.Record{ID: e.ID()}))
	case errors.Is(err, errSlowReader):
		return unavailable(time.Second, "server %q: %v; the call goes on, and the same call with the same key gets its result", u.name, err)
	}
	return err
}

// notification writes a notification of the server under the client's own
// progress token.
func (rs *response) notification(in *incoming, got *inbound) error {
	if !rs.sse {
		return nil
	}
	var edits []jsonrpc.Edit
	if token := got.msg.Param.ProgressToken; token.Present() {
		edits = []jsonrpc.Edit{{Span: token.Value, New: in.msg.Meta.ProgressToken.Of(in.data())}}
	}
	return rs.event(got.data, got.msg.HasNewline, edits)
}

// keyedRun makes one keyed call. The Upstream owns its goroutine.
type keyedRun struct {
	u       *Upstream
	in      *incoming // a copy
	edits   []jsonrpc.Edit
	entry   *ledger.Entry
	box     *mailbox // of the client that began it
	sse     bool     // whether that client takes notifications
	release func()   // gives the slot back
	asks    *asking  // nil where its client cannot be asked
	// hadState is whether the client brought answers, to questions that nobody
	// waits for any more.
	hadState bool
}

func (r *keyedRun) run() {
	defer r.release()
	u, ctx, limits := r.u, r.u.life, r.u.limits.Load()
	var begin time.Time
	pause := firstPause
	for try := 1; ; try++ {
		conn, err := u.acquireWithin(ctx, begin, limits.MaxRequestTime)
		if err != nil {
			if ctx.Err() != nil {
				err = goneOr(ctx, false)
			}
			r.abort(err)
			return
		}
		if begin.IsZero() {
			begin = time.Now()
		}
		sent, err := r.attempt(ctx, conn, limits, begin)
		var lost *lostError
		unseen := errors.Is(err, errDraining) || errors.As(err, &lost) && !lost.sent
		switch {
		case err == nil:
			return
		case unseen && try < attempts:
			if err := wait(ctx, pause); err != nil {
				r.abort(goneOr(ctx, false))
				return
			}
			pause = min(2*pause, longestPause)
		case unseen, !sent:
			r.abort(err)
			return
		default:
			u.note("the loss of a keyed call could not be recorded", r.entry.Lost(err))
			return
		}
	}
}

func (r *keyedRun) abort(why error) {
	r.u.note("a keyed call that was not made could not be taken out of the ledger", r.entry.Abort(why))
}

// note logs what the ledger could not do. The client's answer is right all the same.
func (u *Upstream) note(what string, err error) {
	if err != nil {
		u.logger.Error(what, "error", err)
	}
}

// attempt hands the call to one process. After an error, sent tells whether
// anything can have reached the process; without one the entry has ended.
func (r *keyedRun) attempt(ctx context.Context, conn *Conn, limits *Limits, begin time.Time) (sent bool, err error) {
	u, in := r.u, r.in
	if in.era == EraModern {
		if conn.Era() == EraLegacy && !r.hadState {
			if err := refuseState(in); err != nil {
				return false, err
			}
		}
		if err := u.checkMirrors(ctx, in, conn, limits.RequestTimeout); err != nil {
			return false, err
		}
	}
	if err := r.entry.Sending(); err != nil {
		return false, u.ledgerFault(err)
	}
	quiet := &response{sse: r.sse}
	severity, named := u.severity(in, quiet)
	quiet.sse = false
	ex := &exchange{method: in.method, box: newMailbox(limits.StreamBufferBytes), severity: severity}
	if t := in.msg.Meta.ProgressToken; t.Present() && jsonrpc.ValidID(t.Of(in.data())) && r.sse {
		ex.progressToken = t.Of(in.data())
	}
	if named && conn.legacy != nil {
		conn.legacy.lowerLevel(severity)
	}
	if conn.Era() == EraLegacy && conn.interactive != InteractiveOff && r.asks != nil {
		ex.asks = r.asks
		ex.asks.bind(conn, ex)
	}
	err = conn.startInTurn(ctx, ex, limits.RequestTimeout, func(id uint64) line {
		return lineOfRequest(in, append(u.upward(in, conn, ex, id), r.edits...))
	})
	if err != nil {
		return false, err
	}
	p := pump{
		rs: quiet, box: ex.box, begin: begin, inactivity: limits.RequestTimeout, total: limits.MaxRequestTime, asks: ex.asks,
		handle: func(got *inbound) (bool, error) {
			if got.msg.Kind == jsonrpc.Notification {
				if !r.asks.reader(r.box).put(got) {
					got.release()
				}
				return false, nil
			}
			defer got.release()
			if got.msg.Kind == jsonrpc.Request {
				r.asked(got)
				return false, nil
			}
			r.answered(conn, got)
			return true, nil
		},
	}
	if err = p.run(ctx); err != nil {
		conn.cancel(ex, cancelReason(err))
	}
	return true, err
}

// asked shows a question to the clients that wait for the call. One that the
// client who began it cannot be asked is refused to the server: the call is not
// given up for it, and its result will be recorded.
func (r *keyedRun) asked(got *inbound) {
	if added, _ := r.asks.add(r.in, got); added {
		r.asks.wake()
	}
}

// answered ends the entry with the server's answer.
func (r *keyedRun) answered(conn *Conn, got *inbound) {
	var edits []jsonrpc.Edit
	if conn.Era() == EraLegacy {
		edits = modernise(got, r.in.method, conn.server.info)
	}
	line := jsonrpc.AppendLine(nil, got.data, edits...)
	answer := line[:len(line)-1]
	if jsonrpc.EqualString(got.data, got.msg.Res.ResultType.Value, "input_required") {
		// The tool has not run to its end, and what it asks can be answered only
		// once: nothing of this is final.
		r.u.note("a keyed call that needs input could not be taken out of the ledger", r.entry.PassOn(answer))
		return
	}
	r.u.note("the answer of a keyed call could not be recorded", r.entry.Done(answer))
}

// spawn runs fn as a goroutine that End waits for.
func (u *Upstream) spawn(fn func()) bool {
	u.load.Lock()
	defer u.load.Unlock()
	if u.load.ended {
		return false
	}
	u.detached.Go(fn)
	return true
}

// End closes the Upstream and waits for the keyed calls, whose clients may have
// gone. When ctx ends, those that are left are given up, and recorded as unknown
// where the server may have seen them.
func (u *Upstream) End(ctx context.Context) {
	u.Close()
	u.load.Lock()
	u.load.ended = true
	u.load.Unlock()
	giveUp := context.AfterFunc(ctx, func() { u.stopLife(ErrStopping) })
	u.detached.Wait()
	u.sessions.finish()
	giveUp()
	u.stopLife(ErrStopping)
}

// metaReplayed marks a result that was made for an earlier request.
const metaReplayed = "mcpd/replayed"

// answerStored writes a recorded answer to the client that asks now.
func (u *Upstream) answerStored(rs *response, in *incoming, answer []byte, replayed bool) error {
	var m jsonrpc.Message
	if err := jsonrpc.Scan(answer, &m); err != nil {
		return u.ledgerFault(errors.New("an answer in it is no JSON-RPC message"))
	}
	if in.era == EraLegacy && jsonrpc.EqualString(answer, m.Res.ResultType.Value, "input_required") {
		return u.needsInput()
	}
	edits := []jsonrpc.Edit{{Span: m.ID.Value, New: in.id}}
	if replayed {
		edits = append(edits, markReplayed(answer, &m)...)
	}
	status := http.StatusOK
	if m.Kind == jsonrpc.Error && in.era == EraModern {
		status = statusOfChildError(string(m.Err.Code.Of(answer)))
	}
	return rs.message(status, answer, m.HasNewline, edits)
}

// markReplayed gives the edits that mark a result. An error has no place for it.
func markReplayed(answer []byte, m *jsonrpc.Message) []jsonrpc.Edit {
	const mark = `"` + metaReplayed + `":true`
	meta := m.Res.Meta
	switch {
	case !isObject(answer, m.Result.Value):
		return nil
	case isObject(answer, meta.Value):
		return jsonrpc.EditMembers(answer, meta.Value, []byte(mark), jsonrpc.Lookup(answer, meta.Value, metaReplayed))
	case meta.Present():
		return []jsonrpc.Edit{{Span: meta.Value, New: []byte(`{` + mark + `}`)}}
	default:
		return []jsonrpc.Edit{jsonrpc.InsertMembers(answer, m.Result.Value, []byte(`"_meta":{`+mark+`}`))}
	}
}

// ledgerFault says that a keyed call was not made because of the ledger.
func (u *Upstream) ledgerFault(err error) error {
	if errors.Is(err, ledger.ErrFull) {
		return unavailable(time.Minute, "server %q: %v ([ledger] max_bytes), so the call was not made; "+
			"room comes when entries expire, and when unknown outcomes are settled with mcpd ledger resolve", u.name, err)
	}
	return unavailable(5*time.Second, "server %q: the call was not made: %v", u.name, err)
}
