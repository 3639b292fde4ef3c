package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"mcpd/bridge/header"
	"mcpd/bridge/jsonrpc"
)

// serve answers one message of a client for this server.
func (u *Upstream) serve(rs *response, in *incoming) error {
	in.era = eraOfClient(in)
	if in.msg.Kind == jsonrpc.Notification {
		return u.notification(rs, in)
	}
	u.requests.Add(1)
	if in.era == EraLegacy {
		return u.serveLegacy(rs, in)
	}
	if err := checkHeaders(in); err != nil {
		return err
	}
	if isRemoved(in.method) {
		return unknownMethod(in.method)
	}
	if in.method == methodListen {
		return u.listen(rs, in)
	}
	return u.call(rs, in)
}

func unknownMethod(method string) *Fault {
	return faultf(http.StatusNotFound, codeMethodNotFound, "method not found: %s", clip(method))
}

// eraOfClient decides which family of revisions a request belongs to: modern
// when it names a version in its _meta, or in its header any version that is
// no legacy one. An initialize without modern metadata is legacy whatever its
// headers say, since some clients put their newest version there.
func eraOfClient(in *incoming) Era {
	if in.msg.Meta.ProtocolVersion.Present() {
		return EraModern
	}
	if in.method == methodInitialize {
		return EraLegacy
	}
	values := in.http.Header[headerProtocolVersion]
	if len(values) == 0 || len(values) == 1 && isLegacyVersion(values[0]) {
		return EraLegacy
	}
	return EraModern
}

// checkHeaders compares the headers of a modern request with its body and
// checks the required metadata, in the order that basic/transports/
// streamable-http and basic/index imply. Nothing of the request has run.
func checkHeaders(in *incoming) error {
	data, m, h := in.data(), &in.msg, in.http.Header
	version, err := single(h, headerProtocolVersion)
	if err != nil {
		return err
	}
	method, err := single(h, headerMethod)
	if err != nil {
		return err
	}
	if method != in.method {
		return mismatch("%s header %s does not match body value %s", headerMethod, clip(method), clip(in.method))
	}
	if err := checkName(in); err != nil {
		return err
	}
	inBody, unreadable := textOf(in, m.Meta.ProtocolVersion, h[headerProtocolVersion])
	if unreadable == nil && inBody != version {
		return mismatch("%s header %s does not match body value %s", "MCP-Protocol-Version", clip(version), clip(inBody))
	}
	switch {
	case unreadable != nil:
		return invalidParams("params._meta must hold %q, a string", metaProtocolVersion)
	case !isObject(data, m.Meta.ClientCapabilities.Value):
		return invalidParams("params._meta must hold %q, an object", metaClientCapabilities)
	case m.Meta.ClientInfo.Present() && !isObject(data, m.Meta.ClientInfo.Value):
		return invalidParams("params._meta[%q] must be an object", metaClientInfo)
	case !isModernVersion(inBody):
		return unsupportedVersion(inBody)
	}
	if t := m.Meta.ProgressToken; t.Present() && !jsonrpc.ValidID(t.Of(data)) {
		return invalidParams("params._meta.progressToken must be a string or an integer")
	}
	if t := m.Meta.LogLevel; t.Present() {
		if level, err := jsonrpc.Unquote(data, t.Value); err != nil || logSeverity(level) < 0 {
			return invalidParams("params._meta[%q] is not a log level", metaLogLevel)
		}
	}
	return nil
}

// single gives the value of a header that must be there exactly once.
func single(h http.Header, name string) (string, error) {
	values := h[name]
	switch len(values) {
	case 1:
		return values[0], nil
	case 0:
		return "", mismatch("the %s header is required", name)
	default:
		return "", mismatch("the %s header is there %d times", name, len(values))
	}
}

// checkName compares Mcp-Name with params.name or params.uri.
func checkName(in *incoming) error {
	var source jsonrpc.Member
	switch in.method {
	case methodToolsCall, methodPromptsGet:
		source = in.msg.Param.Name
	case methodResourcesRead:
		source = in.msg.Param.URI
	default:
		return nil
	}
	value, err := single(in.http.Header, headerName)
	if err != nil {
		return err
	}
	decoded, err := header.DecodeValue(value)
	if err != nil {
		return mismatch("the %s header cannot be read: %v", headerName, err)
	}
	in.name, err = textOf(in, source, []string{decoded})
	if err != nil {
		return mismatch("%s header %s has no counterpart in the body", headerName, clip(decoded))
	}
	if decoded != in.name {
		return mismatch("%s header %s does not match body value %s", headerName, clip(decoded), clip(in.name))
	}
	return nil
}

func mismatch(format string, args ...any) *Fault {
	return faultf(http.StatusBadRequest, codeHeaderMismatch, "Header mismatch: "+format, args...)
}

func invalidParams(format string, args ...any) *Fault {
	return faultf(http.StatusBadRequest, codeInvalidParams, format, args...)
}

func isObject(data []byte, s jsonrpc.Span) bool {
	return s.Present() && data[s.Start] == '{'
}

// notification takes a message that wants no answer. Those of the core
// protocol mean nothing without a session, so only what it does not define is
// passed on, to a server that is up.
func (u *Upstream) notification(rs *response, in *incoming) error {
	if err := u.passNotification(in); err != nil {
		return err
	}
	rs.w.WriteHeader(http.StatusAccepted)
	return nil
}

func (u *Upstream) passNotification(in *incoming) error {
	if isServerNotification(in.method) {
		return faultf(http.StatusBadRequest, codeInvalidRequest, "%s is sent by servers, not by clients", clip(in.method))
	}
	switch in.method {
	case notifyInitialized, notifyRootsChanged:
	case notifyCancelled:
		if in.era == EraLegacy {
			u.legacyCalls.cancel(in.principal.ID, in.msg.Param.RequestID.Of(in.data()))
		}
	default:
		conn, _ := u.subs.state()
		if conn == nil {
			return unavailable(time.Second, "server %q is not up; a notification is not kept for later", u.name)
		}
		buf := newBuffer(len(in.data()))
		buf.b = jsonrpc.AppendLine(buf.b, in.data(), u.otherEra(in, conn, -1)...)
		if err := conn.notify(buf); err != nil {
			return unavailable(time.Second, "server %q: %v", u.name, err)
		}
	}
	return nil
}

// attempts bound how often a request is handed to another process before
// anything of it was sent.
const (
	attempts     = 25
	firstPause   = 2 * time.Millisecond
	longestPause = 250 * time.Millisecond
)

// call carries one request to the server and its answer back. What was lost
// with its process is sent again only where that is safe: a read once, any
// other request only when the process cannot have seen it.
func (u *Upstream) call(rs *response, in *incoming) error {
	state := u.openState(in)
	if state != nil && !state.Keyed {
		return u.resume(rs, in, state)
	}
	if in.method == methodToolsCall {
		if tools := u.retry.Load().Tools; len(tools) > 0 && tools[in.name].Key != "" {
			key, member, err := keyOf(in, tools[in.name])
			switch {
			case err != nil:
				return err
			case key != "":
				return u.callKeyed(rs, in, state, tools[in.name], key, member)
			}
		}
	}
	if state != nil {
		return invalidParams("params.requestState belongs to a call with an idempotency key, which this one is not")
	}
	var err error
	if in.slot, err = u.admit(in.principal); err != nil {
		return err
	}
	defer in.giveBack()
	ctx, limits := in.http.Context(), u.limits.Load()
	var begin time.Time // of the first attempt: all of them share one deadline
	pause, repeated := firstPause, false
	for try := 1; ; try++ {
		conn, err := u.acquireWithin(ctx, begin, limits.MaxRequestTime)
		if err != nil {
			if ctx.Err() != nil {
				return goneOr(ctx, false)
			}
			return err
		}
		if begin.IsZero() {
			begin = time.Now()
		}
		if err = u.exchange(ctx, rs, in, conn, limits, begin); err == nil {
			return nil
		}
		var lost *lostError
		isLost := errors.As(err, &lost)
		switch {
		case errors.Is(err, errDraining), isLost && !lost.sent:
			if try >= attempts {
				return err
			}
			if err := wait(ctx, pause); err != nil {
				return goneOr(ctx, false)
			}
			pause = min(2*pause, longestPause)
		case isLost && !repeated && u.mayRepeat(in, conn) && u.repeats.take(u.retry.Load().RepeatsPerMinute):
			repeated = true
		default:
			return u.outcomeUnknown(rs, in, err)
		}
	}
}

// acquireWithin is acquire for a request that began at begin and may take
// total. One that has not begun yet waits as long as the server's start may take.
func (u *Upstream) acquireWithin(ctx context.Context, begin time.Time, total time.Duration) (*Conn, error) {
	if begin.IsZero() {
		return u.acquire(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, begin.Add(total))
	defer cancel()
	return u.acquire(ctx)
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outcomeUnknown answers a tools/call that may or may not have taken effect.
// The model gets a tool result it can act on, not a transport error that a
// client might answer by calling again.
func (u *Upstream) outcomeUnknown(rs *response, in *incoming, err error) error {
	if in.method != methodToolsCall || whatHappened(err) == "" {
		return err
	}
	return u.told(rs, in, outcomeUnknown, u.lostText(in, err, nil))
}

// whatHappened says why the effect of a call is uncertain, "" where it is not.
func whatHappened(err error) string {
	var (
		lost     *lostError
		timeout  *timeoutError
		oversize *oversizeError
		broken   *brokenAnswerError
	)
	switch {
	case errors.As(err, &lost):
		return lost.Error()
	case errors.As(err, &timeout):
		return "there was " + timeout.Error()
	case errors.As(err, &oversize):
		return oversize.Error()
	case errors.As(err, &broken):
		return broken.Error()
	case errors.Is(err, errSlowReader):
		return errSlowReader.Error()
	}
	return ""
}

// exchange sends the request to one process and carries what comes back.
func (u *Upstream) exchange(ctx context.Context, rs *response, in *incoming, conn *Conn, limits *Limits, begin time.Time) error {
	data, m := in.data(), &in.msg
	if in.era == EraModern {
		if conn.Era() == EraLegacy {
			if err := refuseState(in); err != nil {
				return err
			}
		}
		switch {
		case in.method == methodDiscover && conn.Era() == EraLegacy:
			return rs.result(in.id, discoverResult(&conn.server))
		case in.method == methodToolsCall:
			if err := u.checkMirrors(ctx, in, conn, limits.RequestTimeout); err != nil {
				return err
			}
		}
	}
	if (in.era == EraLegacy || in.inSession) && in.method == methodToolsCall {
		u.learnTools(ctx, in, conn, limits.RequestTimeout)
	}
	severity, named := u.severity(in, rs)
	ex := &exchange{method: in.method, box: newMailbox(limits.StreamBufferBytes), severity: severity}
	if t := m.Meta.ProgressToken; t.Present() && jsonrpc.ValidID(t.Of(data)) && rs.sse {
		ex.progressToken = t.Of(data)
	}
	if named && conn.legacy != nil {
		conn.legacy.lowerLevel(severity)
	}
	if ex.asks = u.newAsking(in, conn, begin, in.patience(limits)); ex.asks != nil {
		ex.asks.bind(conn, ex)
	}
	err := conn.startInTurn(ctx, ex, limits.RequestTimeout, func(id uint64) line {
		return lineOfRequest(in, u.upward(in, conn, ex, id))
	})
	if err != nil {
		return err
	}
	if in.era == EraLegacy {
		done := u.legacyCalls.add(in.principal.ID, in.id, ex, conn)
		defer done()
	}
	return u.carry(ctx, rs, in, conn, ex, begin, limits)
}

// checkMirrors compares the Mcp-Param headers with the arguments. The server's
// own tool list may have to be read for that, which counts as its time.
func (u *Upstream) checkMirrors(ctx context.Context, in *incoming, conn *Conn, most time.Duration) error {
	if in.inSession {
		return nil // it came without headers
	}
	if conn.tools.mirrorsNothing(in.name) {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := conn.tools.check(bounded, in.http.Header, in.name, in.msg.Param.Arguments.Of(in.data()))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return goneOr(ctx, false)
	case bounded.Err() != nil:
		return faultf(http.StatusGatewayTimeout, CodeTimeout,
			"server %q did not give its tool list within request_timeout (%v), so the tool was not called", u.name, most)
	}
	return err
}

func cancelReason(err error) string {
	var timeout *timeoutError
	switch {
	case errors.Is(err, errClientGone):
		return "the client disconnected"
	case errors.As(err, &timeout):
		return timeout.Error()
	}
	return err.Error()
}

// severity is the least severe log level that a request wants, -1 for none,
// and whether the client named it.
func (u *Upstream) severity(in *incoming, rs *response) (severity int, named bool) {
	if !rs.sse {
		return -1, false
	}
	if in.era == EraLegacy {
		return u.levels.of(in.principal.ID)
	}
	level, err := jsonrpc.Unquote(in.data(), in.msg.Meta.LogLevel.Value)
	if err != nil {
		return -1, false
	}
	return logSeverity(level), true
}

// upward gives the edits that make a client's request one for the server:
// mcpd's own id and progress token, and the metadata of the other era.
func (u *Upstream) upward(in *incoming, conn *Conn, ex *exchange, id uint64) []jsonrpc.Edit {
	m := &in.msg
	upstream := strconv.AppendUint(in.idUpstream[:0], id, 10)
	edits := append(in.edits[:0], jsonrpc.Edit{Span: m.ID.Value, New: upstream})
	if t := m.Meta.ProgressToken; t.Present() {
		edits = append(edits, jsonrpc.Edit{Span: t.Value, New: upstream})
	}
	return append(edits, u.otherEra(in, conn, ex.severity)...)
}

// otherEra gives the edits that make a client's message one of the server's
// era, where that is another one.
func (u *Upstream) otherEra(in *incoming, conn *Conn, severity int) []jsonrpc.Edit {
	switch {
	case in.era == EraModern && conn.Era() == EraLegacy:
		return stripModern(in.data(), &in.msg)
	case in.era == EraLegacy && conn.Era() == EraModern:
		return addModern(in.data(), &in.msg, severity)
	}
	return nil
}

// answer writes the server's answer to the client that asked.
func (u *Upstream) answer(rs *response, in *incoming, conn *Conn, got *inbound) error {
	if in.era == EraLegacy {
		return u.answerLegacy(rs, in, got)
	}
	status := http.StatusOK
	edits := append(in.edits[:0], jsonrpc.Edit{Span: got.msg.ID.Value, New: in.id})
	switch {
	case conn.Era() == EraLegacy:
		edits = append(edits, modernise(got, in.method, conn.server.info)...)
		if got.msg.Kind == jsonrpc.Error && string(got.msg.Err.Code.Of(got.data)) == "-32601" {
			status = http.StatusNotFound
		}
	case got.msg.Kind == jsonrpc.Error:
		status = statusOfChildError(string(got.msg.Err.Code.Of(got.data)))
	case in.method == methodDiscover:
		edits = append(edits, commonVersions(got)...)
	}
	if in.method == methodToolsList {
		edits = append(edits, u.injectKeys(got)...)
	}
	return rs.message(status, got.data, got.msg.HasNewline, edits)
}

// commonVersions takes out of a discover result the versions that mcpd itself
// does not speak: a client that chose one could not use it here.
func commonVersions(got *inbound) []jsonrpc.Edit {
	list := jsonrpc.Lookup(got.data, got.msg.Result.Value, "supportedVersions")
	var all []string
	if json.Unmarshal(list.Of(got.data), &all) != nil {
		return nil
	}
	common := slices.DeleteFunc(slices.Clone(all), func(v string) bool { return !isModernVersion(v) && !isLegacyVersion(v) })
	if len(common) == len(all) {
		return nil
	}
	text, err := json.Marshal(common)
	if err != nil {
		return nil
	}
	return []jsonrpc.Edit{{Span: list.Value, New: text}}
}

// result answers with a result of mcpd's own.
func (rs *response) result(id, result []byte) error {
	return rs.message(http.StatusOK, resultLine(id, result), false, nil)
}

func resultLine(id, result []byte) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(b, `,"result":`...)
	b = append(b, result...)
	return append(b, '}')
}
