package bridge

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"mcpd/bridge/jsonrpc"
	"mcpd/bridge/ledger"
)

// The questions of a legacy server reach a modern client as input_required
// results (basic/patterns/mrtr). The request at the server goes on meanwhile,
// though the client's HTTP request has ended: it is parked until the client
// comes with the answers, or does not.

// gatherTime is how long is waited for more questions after one, so that those
// that a server asks at once are shown at once.
const gatherTime = 25 * time.Millisecond

// mostParked bounds the requests of one principal at one server that wait for
// answers of its clients.
const mostParked = 32

// asking is what a legacy server asks about one request.
type asking struct {
	u         *Upstream
	principal string
	keyed     bool
	begin     time.Time // of the request
	timeout   time.Duration

	mu         sync.Mutex
	id         string // names it in requestState, "" before the first question
	conn       *Conn
	ex         *exchange
	open       []asked // in the order in which they were asked
	lastKey    int
	generation uint64
	since      time.Time     // from when on any is open; zero while none is
	past       time.Duration // in which any was open, before that
	parked     *parked       // nil while a client waits, or where the call is keyed
	watchers   map[*mailbox]struct{}
	progressTo *mailbox // of the client of a keyed call that answered last and wants progress
}

// asked is a question that waits for its answer.
type asked struct {
	key    string // in inputRequests
	id     string // the server's own, raw JSON
	method string
	params []byte // raw JSON, nil for none
	needs  capability
}

// errAsked ends the waiting for a keyed call for now: its client is asked.
var errAsked = errors.New("the server asks the client something")

// parked is a request that no client waits for just now.
type parked struct {
	release func() // gives the slot back; nil when that was done
	resumed chan struct{}
}

// capability is a client capability, and the member of it that is needed.
type capability struct{ name, part string }

func (c capability) String() string {
	if c.part == "" {
		return c.name
	}
	return c.name + "." + c.part
}

// in reports whether a client declared the capability.
func (c capability) in(data []byte, declared jsonrpc.Span) bool {
	member := jsonrpc.Lookup(data, declared, c.name)
	if !isObject(data, member.Value) {
		return false
	}
	if c.part == "" || isObject(data, jsonrpc.Lookup(data, member.Value, c.part).Value) {
		return true
	}
	if c == (capability{"elicitation", "form"}) {
		for range jsonrpc.Members(data, member.Value) {
			return false
		}
		return true // an empty object stands for forms (client/elicitation, "Capabilities")
	}
	return false
}

// missing is the fault for a client that cannot be asked what has to be asked.
func (c capability) missing(server string) *Fault {
	f := faultf(http.StatusBadRequest, codeMissingCapability,
		"server %q needs the client capability %s to go on with this request, which the client did not declare", server, c)
	inner := `{}`
	if c.part != "" && c.part != "form" {
		inner = `{"` + c.part + `":{}}`
	}
	f.Data = []byte(`{"requiredCapabilities":{"` + c.name + `":` + inner + `}}`)
	return f
}

// needed tells which capability a question needs.
func needed(method string, data []byte, params jsonrpc.Span) capability {
	switch method {
	case methodElicit:
		if jsonrpc.EqualString(data, jsonrpc.Lookup(data, params, "mode").Value, "url") {
			return capability{"elicitation", "url"}
		}
		return capability{"elicitation", "form"}
	case methodSample:
		if jsonrpc.Lookup(data, params, "tools").Present() || jsonrpc.Lookup(data, params, "toolChoice").Present() {
			return capability{"sampling", "tools"}
		}
		return capability{"sampling", ""}
	default:
		return capability{"roots", ""}
	}
}

// newAsking gives what takes the questions about a request; nil where its client
// cannot be asked at all.
func (u *Upstream) newAsking(in *incoming, conn *Conn, begin time.Time, timeout time.Duration) *asking {
	if in.era != EraModern || !mayAsk(in.method) || u.sealer == nil {
		return nil
	}
	if conn != nil && (conn.Era() != EraLegacy || conn.interactive == InteractiveOff) {
		return nil
	}
	return &asking{u: u, principal: in.principal.ID, begin: begin, timeout: timeout}
}

// bind tells at which process the request is now.
func (a *asking) bind(conn *Conn, ex *exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn, a.ex = conn, ex
}

// add takes a question for the client of in, or refuses it to the server. lacking
// tells what that client did not declare: a keyed call goes on without, since its
// result will be recorded; any other has to be given up.
func (a *asking) add(in *incoming, got *inbound) (added bool, lacking *capability) {
	method, err := jsonrpc.Unquote(got.data, got.msg.Method.Value)
	if err != nil {
		return false, nil
	}
	q := asked{
		id: string(got.msg.ID.Of(got.data)), method: method,
		params: bytes.Clone(got.msg.Params.Of(got.data)), needs: needed(method, got.data, got.msg.Params.Value),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	declared := q.needs.in(in.data(), in.msg.Meta.ClientCapabilities.Value)
	if !declared && !a.keyed {
		return false, &q.needs
	}
	why := "the client did not declare the capability " + q.needs.String()
	if declared {
		why = a.u.askings.register(a)
	}
	if why != "" {
		if a.conn.forget(q.id) {
			a.conn.refuseQuestion([]byte(q.id), method, why)
		}
		return false, nil
	}
	a.lastKey++
	q.key = "q" + strconv.Itoa(a.lastKey)
	a.open = append(a.open, q)
	if a.since.IsZero() {
		a.since = time.Now()
	}
	return true, nil
}

// prune forgets the questions that the server took back. a.mu is held.
func (a *asking) prune() {
	a.open = slices.DeleteFunc(a.open, func(q asked) bool { return !a.conn.isOpen(q.id) })
	if len(a.open) == 0 && !a.since.IsZero() {
		a.past += time.Since(a.since)
		a.since = time.Time{}
	}
}

// isOpen reports whether the server waits for an answer. nil has none.
func (a *asking) isOpen() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prune()
	return len(a.open) > 0
}

// waited is for how long the server has waited for answers so far.
func (a *asking) waited(now time.Time) time.Duration {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		return a.past
	}
	return a.past + now.Sub(a.since)
}

// left is how long the client still has for the open questions.
func (a *asking) left(now time.Time) (d time.Duration, waits bool) {
	if a == nil {
		return 0, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		return 0, false
	}
	return a.timeout - now.Sub(a.since), true
}

// dismiss tells the server that its open questions get no answer.
func (a *asking) dismiss(why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.open {
		a.conn.dismiss(q.id, q.method, why)
	}
	a.prune()
}

// whyUnanswered is what a server is told whose questions were not answered.
func (a *asking) whyUnanswered() string {
	return "the client did not answer within question_timeout (" + a.timeout.String() + ")"
}

// inputRequired composes the result that asks the client, with the
// requestState for its repeat. a.mu is held.
func (a *asking) inputRequired(in *incoming) ([]byte, error) {
	digest, err := repeatable(in)
	if err != nil {
		return nil, err
	}
	state, err := a.u.sealState(in, &requestState{
		Epoch: a.u.askings.epoch, Call: a.id, Generation: a.generation, Keyed: a.keyed,
		Expires: a.since.Add(a.timeout).Unix(), Method: in.method, Digest: digest,
	})
	if err != nil {
		return nil, err
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), in.id...)
	b = append(b, `,"result":{"resultType":"input_required","inputRequests":{`...)
	for i, q := range a.open {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `"`+q.key+`":{"method":"`+q.method+`"`...)
		if q.params != nil {
			b = append(b, `,"params":`...)
			b = q.appendParams(b, in)
		}
		b = append(b, '}')
	}
	b = append(b, `},"requestState":`...)
	b = jsonrpc.AppendQuote(b, state)
	if info := a.conn.server.info; len(info) > 0 {
		b = append(b, `,"_meta":{"`+metaServerInfo+`":`...)
		b = append(append(b, info...), '}')
	}
	return append(b, "}}"...), nil
}

// appendParams gives the params of a question as the modern revision has them:
// without progress, which has no way back, and without what only legacy
// revisions know or this client did not declare and may do without.
func (q *asked) appendParams(b []byte, in *incoming) []byte {
	all := jsonrpc.Span{End: len(q.params)}
	var gone []jsonrpc.Member
	for name, member := range jsonrpc.Members(q.params, all) {
		switch {
		case name == "_meta", q.method == methodElicit && name == "elicitationId":
			gone = append(gone, member)
		case q.method == methodSample && name == "includeContext" &&
			!(capability{"sampling", "context"}).in(in.data(), in.msg.Meta.ClientCapabilities.Value):
			gone = append(gone, member)
		}
	}
	return jsonrpc.AppendEdited(b, q.params, jsonrpc.RemoveMembers(q.params, all, gone...)...)
}

// park ends the client's HTTP request with the open questions, while the
// request at the server goes on. It reports false where none is open any more.
func (a *asking) park(rs *response, in *incoming) (bool, error) {
	a.mu.Lock()
	a.prune()
	if len(a.open) == 0 {
		a.mu.Unlock()
		return false, nil
	}
	message, err := a.inputRequired(in)
	if err != nil {
		a.mu.Unlock()
		return false, err
	}
	p := &parked{release: in.takeSlot(), resumed: make(chan struct{})}
	a.parked = p
	a.ex.box.setQuiet(true)
	a.conn.setProgressToken(a.ex, nil)
	left := a.timeout - time.Since(a.since)
	a.mu.Unlock()
	if !a.u.spawn(func() { a.watchParked(p, left) }) {
		a.giveUp(p, ErrStopping.Error())
		return true, &lostError{cause: ErrStopping, sent: true}
	}
	if err := rs.message(http.StatusOK, message, true, nil); err != nil {
		a.giveUp(p, "the client disconnected")
		return true, err
	}
	return true, nil
}

// watchParked gives a parked request up when its client does not come back.
func (a *asking) watchParked(p *parked, left time.Duration) {
	timer := time.NewTimer(left)
	defer timer.Stop()
	over := a.conn.Done()
	for {
		select {
		case <-p.resumed:
			return
		case <-timer.C:
			a.giveUp(p, a.whyUnanswered())
			return
		case <-a.u.askings.closed:
			a.giveUp(p, ErrStopping.Error())
			return
		case <-over:
			// It uses nothing at the server any more, but its client has yet to be told.
			over = nil
			a.mu.Lock()
			p.free()
			a.mu.Unlock()
		}
	}
}

func (p *parked) free() {
	if p.release != nil {
		p.release()
		p.release = nil
	}
}

func (a *asking) giveUp(p *parked, why string) {
	a.mu.Lock()
	if a.parked != p {
		a.mu.Unlock()
		return
	}
	a.parked = nil
	p.free()
	a.mu.Unlock()
	a.u.askings.remove(a)
	a.conn.cancel(a.ex, why)
}

// end is for a request that is not parked and has ended.
func (a *asking) end() {
	if a != nil {
		a.u.askings.remove(a)
	}
}

// errUsed is a requestState whose answers were delivered before.
var errUsed = errors.New("the requestState was used before")

// used refuses it.
func used() *Fault {
	return invalidParams("params.requestState was used before, or its request has ended: nothing waits for these answers")
}

// watch ends a mailbox as soon as anything is open, until stop. wantsProgress
// makes it the one that progress goes to from now on.
func (a *asking) watch(box *mailbox, wantsProgress bool) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if wantsProgress {
		a.progressTo = box
	}
	if a.prune(); len(a.open) > 0 {
		box.end(errAsked)
		return func() {}
	}
	if a.watchers == nil {
		a.watchers = make(map[*mailbox]struct{})
	}
	a.watchers[box] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, box)
	}
}

// reader is the mailbox that progress goes to, first where nobody has answered yet.
func (a *asking) reader(first *mailbox) *mailbox {
	if a == nil {
		return first
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.progressTo != nil {
		return a.progressTo
	}
	return first
}

// wake tells those who watch that something is open.
func (a *asking) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for box := range a.watchers {
		box.end(errAsked)
	}
	clear(a.watchers)
}

// ask answers one client of a keyed call with the open questions. It reports
// false where none is open any more.
func (a *asking) ask(rs *response, in *incoming) (bool, error) {
	a.mu.Lock()
	a.prune()
	if len(a.open) == 0 {
		a.mu.Unlock()
		return false, nil
	}
	for _, q := range a.open {
		if !q.needs.in(in.data(), in.msg.Meta.ClientCapabilities.Value) {
			a.mu.Unlock()
			return true, q.needs.missing(a.u.name)
		}
	}
	message, err := a.inputRequired(in)
	a.mu.Unlock()
	if err != nil {
		return true, err
	}
	return true, rs.message(http.StatusOK, message, true, nil)
}

// deliver gives the server the answers that the client brings. Those that are
// missing stay open. What cannot be an answer is refused, and nothing of it is
// delivered then. p is what was parked.
func (a *asking) deliver(in *incoming, st *requestState) (p *parked, err error) {
	data := in.data()
	responses := in.msg.Param.InputResponses.Value
	if responses.Present() && !isObject(data, responses) {
		return nil, invalidParams("params.inputResponses must be an object")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.generation != st.Generation || !a.keyed && a.parked == nil {
		return nil, errUsed
	}
	answers := make([][]byte, len(a.open))
	for i, q := range a.open {
		member := jsonrpc.Lookup(data, responses, q.key)
		if !member.Present() {
			continue
		}
		if why := notAnAnswer(q.method, data, member.Value); why != "" {
			return nil, invalidParams("params.inputResponses[%q] is no answer to %s: %s", q.key, q.method, why)
		}
		answers[i] = member.Of(data)
	}
	if p = a.parked; p != nil {
		if p.release == nil {
			// Its process has ended meanwhile.
			if p.release, err = a.u.admit(in.principal); err != nil {
				return nil, err
			}
		}
		close(p.resumed)
		a.parked = nil
	}
	a.generation++
	for i, q := range a.open {
		if answers[i] != nil {
			a.conn.reply(q.id, answers[i])
		}
	}
	a.prune()
	return p, nil
}

// notAnAnswer says why a value cannot be the result of a question, "" where it
// can.
func notAnAnswer(method string, data []byte, s jsonrpc.Span) string {
	if !isObject(data, s) {
		return "it is not an object"
	}
	member := func(name string) jsonrpc.Span { return jsonrpc.Lookup(data, s, name).Value }
	isString := func(name string) bool { v := member(name); return v.Present() && data[v.Start] == '"' }
	switch method {
	case methodElicit:
		action, err := jsonrpc.Unquote(data, member("action"))
		if err != nil || action != "accept" && action != "decline" && action != "cancel" {
			return "action must be accept, decline or cancel"
		}
		if content := member("content"); content.Present() && !isObject(data, content) {
			return "content must be an object"
		}
	case methodSample:
		content := member("content")
		if role, err := jsonrpc.Unquote(data, member("role")); err != nil || role != "assistant" && role != "user" {
			return "role must be assistant or user"
		}
		if !isObject(data, content) && (!content.Present() || data[content.Start] != '[') {
			return "content must be an object or an array"
		}
		if !isString("model") {
			return "model must be a string"
		}
	case methodRoots:
		roots := member("roots")
		if !roots.Present() || data[roots.Start] != '[' {
			return "roots must be an array"
		}
		for root := range jsonrpc.Elements(data, roots) {
			if !isObject(data, root) {
				return "a root is not an object"
			}
			if uri := jsonrpc.Lookup(data, root, "uri").Value; !uri.Present() || data[uri.Start] != '"' {
				return "a root has no uri"
			}
		}
	}
	return ""
}

// carry waits for the answer to a request that was sent, and writes it and what
// comes before it. When the server asks something, that is the answer for now.
func (u *Upstream) carry(ctx context.Context, rs *response, in *incoming, conn *Conn, ex *exchange, begin time.Time, limits *Limits) (err error) {
	parked := false
	defer func() {
		if !parked {
			if err != nil {
				conn.cancel(ex, cancelReason(err))
			}
			ex.asks.end()
		}
	}()
	asked, gathering := false, false
	handle := func(got *inbound) (bool, error) {
		defer got.release()
		switch got.msg.Kind {
		case jsonrpc.Notification:
			return false, rs.notification(in, got)
		case jsonrpc.Request:
			added, lacking := ex.asks.add(in, got)
			if lacking != nil {
				return true, lacking.missing(u.name)
			}
			asked = asked || added
			return asked && !gathering, nil
		default:
			asked = false
			return true, u.answer(rs, in, conn, got)
		}
	}
	for {
		asked, gathering = false, false
		p := pump{
			rs: rs, box: ex.box, begin: begin, inactivity: limits.RequestTimeout, total: limits.MaxRequestTime,
			asks: ex.asks, handle: handle,
		}
		if err := p.run(ctx); err != nil || !asked {
			return err
		}
		gathering = true
		gather := pump{rs: rs, box: ex.box, begin: time.Now(), total: gatherTime, handle: handle}
		var enough *timeoutError
		if err := gather.run(ctx); !errors.As(err, &enough) {
			return err // the answer came, or nobody is there to get it
		}
		if parked, err = ex.asks.park(rs, in); parked || err != nil {
			return err
		}
	}
}

// resume goes on with a parked request.
func (u *Upstream) resume(rs *response, in *incoming, st *requestState) error {
	if err := st.check(in); err != nil {
		return err
	}
	a := u.askings.byID(st.Call)
	if a == nil {
		return u.gone(rs, in, st)
	}
	ctx, limits := in.http.Context(), u.limits.Load()
	a.mu.Lock()
	conn, ex := a.conn, a.ex
	a.mu.Unlock()
	if in.method == methodToolsCall {
		if err := u.checkMirrors(ctx, in, conn, limits.RequestTimeout); err != nil {
			return err
		}
	}
	p, err := a.deliver(in, st)
	switch {
	case errors.Is(err, errUsed):
		return used()
	case err != nil:
		return err
	}
	in.slot = p.release
	defer in.giveBack()
	if a.isOpen() {
		// The rest of the answers is asked for once more.
		again, err := a.park(rs, in)
		if err != nil && !again {
			conn.cancel(ex, err.Error())
			a.end()
		}
		if again || err != nil {
			return err
		}
	}
	ex.box.setQuiet(false)
	if t := in.msg.Meta.ProgressToken; t.Present() && rs.sse {
		conn.setProgressToken(ex, t.Of(in.data()))
	}
	return u.outcomeUnknown(rs, in, u.carry(ctx, rs, in, conn, ex, a.begin, limits))
}

// gone answers a repeat whose request is not there any more.
func (u *Upstream) gone(rs *response, in *incoming, st *requestState) error {
	if st.Epoch == u.askings.epoch {
		return used()
	}
	const what = "mcpd or the server's configuration was renewed while the server waited for the client's answers"
	if in.method != methodToolsCall {
		return invalidParams("params.requestState is not valid any more: %s; begin the request anew", what)
	}
	return u.told(rs, in, outcomeUnknown, u.lostText(in, &lostError{cause: errors.New(what), sent: true}, nil))
}

// setProgressToken says whether the client that now waits for ex wants progress.
func (c *Conn) setProgressToken(ex *exchange, token []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ex.progressToken = token
}

// takeSlot hands over the duty to give the slot back.
func (in *incoming) takeSlot() func() {
	release := in.slot
	in.slot = nil
	return release
}

func (in *incoming) giveBack() {
	if release := in.takeSlot(); release != nil {
		release()
	}
}

// askings are the requests of one Upstream whose clients were asked something.
type askings struct {
	epoch  string
	closed chan struct{} // closed when nothing may wait any longer

	mu          sync.Mutex
	over        bool
	all         map[string]*asking
	byEntry     map[*ledger.Entry]*asking // those of keyed calls, asked or not
	byPrincipal map[string]int
}

func newAskings() *askings {
	return &askings{
		epoch: randomID(), closed: make(chan struct{}),
		all: make(map[string]*asking), byEntry: make(map[*ledger.Entry]*asking), byPrincipal: make(map[string]int),
	}
}

// register makes a known to clients, or says why it may not be. a.mu is held.
func (t *askings) register(a *asking) (why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.over:
		return ErrStopping.Error()
	case a.id != "":
		return ""
	case t.byPrincipal[a.principal] >= mostParked:
		return strconv.Itoa(mostParked) + " requests of this client's user already wait for answers"
	}
	a.id = randomID()
	t.all[a.id] = a
	t.byPrincipal[a.principal]++
	return ""
}

func (t *askings) remove(a *asking) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[a.id] != a {
		return
	}
	delete(t.all, a.id)
	if t.byPrincipal[a.principal]--; t.byPrincipal[a.principal] <= 0 {
		delete(t.byPrincipal, a.principal)
	}
}

// bind makes the asking of a keyed call known to all who wait for the call.
func (t *askings) bind(e *ledger.Entry, a *asking) (unbind func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byEntry[e] = a
	return func() {
		t.mu.Lock()
		delete(t.byEntry, e)
		t.mu.Unlock()
		t.remove(a)
	}
}

func (t *askings) of(e *ledger.Entry) *asking {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byEntry[e]
}

func (t *askings) byID(id string) *asking {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[id]
}

// waiting counts the requests whose clients owe an answer.
func (t *askings) waiting() int {
	t.mu.Lock()
	all := make([]*asking, 0, len(t.all))
	for _, a := range t.all {
		all = append(all, a)
	}
	t.mu.Unlock()
	n := 0
	for _, a := range all {
		if a.isOpen() {
			n++
		}
	}
	return n
}

// close gives up all that waits for answers.
func (t *askings) close() {
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return
	}
	t.over = true
	close(t.closed)
	var keyed []*asking
	for _, a := range t.all {
		if a.keyed {
			keyed = append(keyed, a)
		}
	}
	t.mu.Unlock()
	for _, a := range keyed {
		a.dismiss(ErrStopping.Error())
	}
}
