package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"mcpd/bridge/jsonrpc"
)

// Legacy clients are served at the same endpoint without a session. What they
// cannot have without one (requests from the server, change notifications) is
// not among the capabilities they are shown, and is refused when asked for.

// serveLegacy answers one request of a legacy client.
func (u *Upstream) serveLegacy(rs *response, in *incoming) error {
	data, m := in.data(), &in.msg
	switch in.method {
	case methodPing:
		return rs.result(in.id, []byte(`{}`))
	case methodInitialize:
		return u.initialize(rs, in)
	case methodSetLevel:
		level, err := jsonrpc.Unquote(data, m.Param.Level.Value)
		if err != nil || logSeverity(level) < 0 {
			return asLegacy(invalidParams("params.level is not a log level"))
		}
		u.levels.set(in.principal.ID, logSeverity(level))
		return rs.result(in.id, []byte(`{}`))
	case methodResourcesSubscribe, methodResourcesUnsubscribe:
		return asLegacy(faultf(http.StatusOK, codeMethodNotFound,
			"%s is not possible at this endpoint: it has no session on which updates could be delivered; "+
				"clients of protocol %s listen with %s", in.method, version20260728, methodListen))
	case methodListen, methodDiscover:
		return asLegacy(faultf(http.StatusOK, codeMethodNotFound,
			"method not found: %s needs protocol %s, named in the MCP-Protocol-Version header and in params._meta",
			in.method, version20260728))
	}
	if t := m.Meta.ProgressToken; t.Present() && !jsonrpc.ValidID(t.Of(data)) {
		return asLegacy(invalidParams("params._meta.progressToken must be a string or an integer"))
	}
	if in.method == methodToolsCall {
		in.name, _ = jsonrpc.Unquote(data, m.Param.Name.Value)
	}
	return u.call(rs, in)
}

// asLegacy gives an error the status that legacy clients expect for JSON-RPC
// errors: to them a 4xx speaks of the transport or of a lost session.
func asLegacy(f *Fault) *Fault {
	f.Status = http.StatusOK
	return f
}

// initialize answers the handshake from what the server told in its own. No
// session begins.
func (u *Upstream) initialize(rs *response, in *incoming) error {
	result, _, err := u.handshake(in, legacyCapabilities)
	if err != nil {
		return err
	}
	return rs.result(in.id, result)
}

// handshake makes the result of initialize, and gives the revision in it. shown
// turns the server's capabilities into those that the client is told.
func (u *Upstream) handshake(in *incoming, shown func(json.RawMessage) []byte) (result []byte, version string, err error) {
	wanted, err := jsonrpc.Unquote(in.data(), in.msg.Param.ProtocolVersion.Value)
	if err != nil {
		return nil, "", asLegacy(invalidParams("initialize needs params.protocolVersion, a string"))
	}
	release, err := u.admit(in.principal)
	if err != nil {
		return nil, "", err
	}
	defer release()
	conn, err := u.acquire(in.http.Context())
	if err != nil {
		if in.http.Context().Err() != nil {
			err = goneOr(in.http.Context(), false)
		}
		return nil, "", err
	}
	version = version20251125
	if isLegacyVersion(wanted) {
		version = wanted
	}
	if conn.Era() == EraLegacy {
		// Its results have the shape of its own revision, so no newer one
		// may be promised. Revisions are dates and sort as text.
		version = min(version, conn.server.version)
	}
	b := []byte(`{"protocolVersion":`)
	b = jsonrpc.AppendQuote(b, version)
	b = append(b, `,"capabilities":`...)
	b = append(b, shown(conn.server.capabilities)...)
	b = append(b, `,"serverInfo":`...)
	if len(conn.server.info) > 0 {
		b = append(b, conn.server.info...)
	} else {
		b = append(jsonrpc.AppendQuote(append(b, `{"name":`...), u.name), `,"version":""}`...)
	}
	if i := conn.server.instructions; len(i) > 0 && i[0] == '"' {
		b = append(b, `,"instructions":`...)
		b = append(b, i...)
	}
	return append(b, '}'), version, nil
}

// legacyCapabilities shows what works without a session.
func legacyCapabilities(raw json.RawMessage) []byte {
	return capabilitiesBut(raw, "listChanged", "subscribe")
}

// sessionCapabilities shows what works in a session.
func sessionCapabilities(raw json.RawMessage) []byte { return capabilitiesBut(raw) }

// capabilitiesBut leaves out what legacy clients do not know, and these members
// of each capability.
func capabilitiesBut(raw json.RawMessage, without ...string) []byte {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return []byte(`{}`)
	}
	shown := make(map[string]json.RawMessage)
	for name, value := range all {
		switch name {
		case "tools", "prompts", "resources":
			var members map[string]json.RawMessage
			if json.Unmarshal(value, &members) != nil {
				continue
			}
			for _, member := range without {
				delete(members, member)
			}
			if text, err := json.Marshal(members); err == nil && members != nil {
				shown[name] = text
			}
		case "completions", "logging", "experimental":
			shown[name] = value
		}
	}
	text, err := json.Marshal(shown)
	if err != nil {
		return []byte(`{}`)
	}
	return text
}

// addModern gives the edits that add to a legacy request the metadata that a
// modern server needs. No client capability is claimed: without a session the
// client could not be asked anything.
func addModern(data []byte, m *jsonrpc.Message, severity int) []jsonrpc.Edit {
	members := []byte(`"` + metaProtocolVersion + `":"` + version20260728 + `","` + metaClientCapabilities + `":{}`)
	if severity >= 0 {
		members = append(members, `,"`+metaLogLevel+`":"`+logLevels()[severity]+`"`...)
	}
	return addMeta(data, m, members, m.Meta.ClientCapabilities, m.Meta.LogLevel)
}

// addMeta gives the edits that add members to the metadata of a legacy request,
// in place of others.
func addMeta(data []byte, m *jsonrpc.Message, members []byte, others ...jsonrpc.Member) []jsonrpc.Edit {
	switch {
	case isObject(data, m.Param.Meta.Value):
		return jsonrpc.EditMembers(data, m.Param.Meta.Value, members, others...)
	case m.Param.Meta.Present(): // it is no object, so no server could read it
		return []jsonrpc.Edit{{Span: m.Param.Meta.Value, New: wrap(`{`, members, `}`)}}
	case m.Params.Present():
		return []jsonrpc.Edit{jsonrpc.InsertMembers(data, m.Params.Value, wrap(`"_meta":{`, members, `}`))}
	default:
		return []jsonrpc.Edit{jsonrpc.InsertMembers(data, m.Object, wrap(`"params":{"_meta":{`, members, `}}`))}
	}
}

func wrap(before string, b []byte, after string) []byte {
	return append(append([]byte(before), b...), after...)
}

// answerLegacy writes an answer to a legacy client.
func (u *Upstream) answerLegacy(rs *response, in *incoming, got *inbound) error {
	if jsonrpc.EqualString(got.data, got.msg.Res.ResultType.Value, "input_required") {
		return u.needsInput()
	}
	edits := []jsonrpc.Edit{{Span: got.msg.ID.Value, New: in.id}}
	if in.method == methodToolsList {
		edits = append(edits, u.injectKeys(got)...)
	}
	return rs.message(http.StatusOK, got.data, got.msg.HasNewline, edits)
}

// needsInput tells a legacy client that a server has a question for it.
func (u *Upstream) needsInput() error {
	return asLegacy(faultf(http.StatusOK, codeInvalidRequest,
		"server %q needs input from the user to go on, which this endpoint cannot ask a client of protocol %s for; "+
			"a client of protocol %s can answer it", u.name, version20251125, version20260728))
}

// legacyLevels keeps the log level that legacy clients set. Without a session
// a level belongs to the principal, not to one client of it.
type legacyLevels struct {
	mu sync.Mutex
	by map[string]int
}

// defaultSeverity is what a legacy client gets that set no level ("info").
const defaultSeverity = 1

// mostPrincipals bounds the table of levels; rights are few, so it is never
// reached in earnest.
const mostPrincipals = 1024

func (l *legacyLevels) set(principal string, severity int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil || len(l.by) >= mostPrincipals {
		l.by = make(map[string]int)
	}
	l.by[principal] = severity
}

// of gives the level of a principal, and whether a client of it chose it.
func (l *legacyLevels) of(principal string) (severity int, chosen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.by[principal]; ok {
		return s, true
	}
	return defaultSeverity, false
}

// legacyCalls finds the request that a legacy client cancels by its own id.
// Clients of one principal may use the same ids: then it is not certain which
// request is meant, and none is cancelled.
type legacyCalls struct {
	mu    sync.Mutex
	calls map[*exchange]legacyCall
}

type legacyCall struct {
	principal string
	id        []byte
	conn      *Conn
}

// errCancelled ends a request that its own client cancelled.
var errCancelled = errors.New("the client cancelled the request")

func (l *legacyCalls) add(principal string, id []byte, ex *exchange, conn *Conn) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[*exchange]legacyCall)
	}
	l.calls[ex] = legacyCall{principal: principal, id: id, conn: conn}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.calls, ex)
	}
}

// shortestDistinctID is the length, in bytes of JSON, from which a string is
// taken for an id that no other client uses, like a UUID. Numbers that clients
// count up name another client's request as easily as their own.
const shortestDistinctID = 18

func (l *legacyCalls) cancel(principal string, id []byte) {
	if len(id) < shortestDistinctID || id[0] != '"' {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var found *exchange
	for ex, call := range l.calls {
		if call.principal == principal && bytes.Equal(call.id, id) {
			if found != nil {
				return
			}
			found = ex
		}
	}
	if found != nil {
		l.calls[found].conn.cancel(found, errCancelled.Error())
		found.box.end(errCancelled)
	}
}
