package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"mcpd/bridge/jsonrpc"
)

// legacyConn is what a Conn with a legacy server needs on top: subscriptions
// counted per URI, and the log level, which is one for the whole connection.
type legacyConn struct {
	c *Conn

	mu    sync.Mutex
	uris  map[string]*subscribedURI
	level int // least severe level set with logging/setLevel, or none set: len(logLevels())
}

type subscribedURI struct {
	refs    int
	settled chan struct{} // closed when the server has answered
	failed  bool          // written before settled is closed
}

func newLegacyConn(c *Conn) *legacyConn {
	return &legacyConn{c: c, uris: make(map[string]*subscribedURI), level: len(logLevels())}
}

// subscribe asks the server for updates of each URI, once for all listeners,
// and returns those that it granted. Each of them is to be released.
func (l *legacyConn) subscribe(uris []string) (granted []string) {
	states := make([]*subscribedURI, len(uris))
	for i, uri := range uris {
		states[i] = l.hold(uri)
	}
	for i, uri := range uris {
		select {
		case <-states[i].settled:
		case <-l.c.life.Done():
			return granted
		}
		if states[i].failed {
			l.forget(uri, states[i])
			continue
		}
		granted = append(granted, uri)
	}
	return granted
}

// hold counts one more holder of uri; the first one subscribes. The requests
// are sent under mu, so that the server sees them in the order of the counts.
func (l *legacyConn) hold(uri string) *subscribedURI {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.uris[uri]; s != nil {
		s.refs++
		return s
	}
	s := &subscribedURI{refs: 1, settled: make(chan struct{})}
	l.uris[uri] = s
	if !l.request(methodResourcesSubscribe, uriParams(uri), func(ok bool) {
		s.failed = !ok
		close(s.settled)
	}) {
		s.failed = true
		close(s.settled)
	}
	return s
}

// request sends one of mcpd's own requests; done is told whether it succeeded.
// It reports false when the Conn is over, and done is not called then.
func (l *legacyConn) request(method string, params []byte, done func(ok bool)) bool {
	ex, err := l.c.begin(method, params)
	if err != nil {
		return false
	}
	return l.c.spawn(func() {
		ctx, cancel := context.WithTimeout(l.c.life, controlTimeout)
		defer cancel()
		in, err := l.c.await(ctx, ex)
		ok := err == nil && in.msg.Kind == jsonrpc.Result
		if err == nil && !ok {
			l.c.logger.Debug("the server refused a request of mcpd", "method", method, "error", describe(in))
		}
		in.release()
		done(ok)
	})
}

// release gives held URIs back; the last holder of one unsubscribes.
func (l *legacyConn) release(uris []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, uri := range uris {
		s := l.uris[uri]
		if s == nil {
			continue
		}
		if s.refs--; s.refs == 0 {
			delete(l.uris, uri)
			l.request(methodResourcesUnsubscribe, uriParams(uri), func(bool) {})
		}
	}
}

// forget gives back a URI that the server did not grant.
func (l *legacyConn) forget(uri string, s *subscribedURI) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.refs--; s.refs == 0 && l.uris[uri] == s {
		delete(l.uris, uri)
	}
}

func (l *legacyConn) subscriptionCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.uris)
}

func uriParams(uri string) []byte {
	return append(jsonrpc.AppendQuote([]byte(`{"uri":`), uri), '}')
}

// lowerLevel makes the server log from severity on. The level is one for all
// requests on the connection, so it only ever becomes more verbose: what a
// request did not ask for is dropped on its way down.
func (l *legacyConn) lowerLevel(severity int) {
	if declared, _ := l.c.server.capability("logging", ""); !declared {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if severity >= l.level {
		return
	}
	params := append(jsonrpc.AppendQuote([]byte(`{"level":`), logLevels()[severity]), '}')
	if l.request(methodSetLevel, params, func(bool) {}) {
		l.level = severity
	}
}

// stripModern gives the edits that turn a modern request into one for a
// legacy server: its protocol keys leave _meta, all other keys stay.
func stripModern(data []byte, m *jsonrpc.Message) []jsonrpc.Edit {
	if !m.Param.Meta.Present() {
		return nil
	}
	var keys []jsonrpc.Member
	for _, k := range []jsonrpc.Member{
		m.Meta.ProtocolVersion, m.Meta.ClientCapabilities, m.Meta.ClientInfo, m.Meta.LogLevel, m.Meta.SubscriptionID,
	} {
		if k.Present() {
			keys = append(keys, k)
		}
	}
	return jsonrpc.RemoveMembers(data, m.Param.Meta.Value, keys...)
}

// modernise gives the edits that turn a legacy server's answer to method into
// a modern one: resultType, serverInfo, caching hints, and the error code of a
// missing resource.
func modernise(in *inbound, method string, info json.RawMessage) []jsonrpc.Edit {
	m := &in.msg
	if m.Kind == jsonrpc.Error {
		code := m.Err.Code.Value
		if string(code.Of(in.data)) == fmt.Sprint(codeResourceNotFound) {
			return []jsonrpc.Edit{{Span: code, New: fmt.Append(nil, codeInvalidParams)}}
		}
		return nil
	}
	if !m.Result.Present() || in.data[m.Result.Value.Start] != '{' {
		return nil
	}
	var edits []jsonrpc.Edit
	var add []string
	if !m.Res.ResultType.Present() {
		add = append(add, `"resultType":"complete"`)
	}
	if isCacheable(method) {
		if !m.Res.TTL.Present() {
			add = append(add, `"ttlMs":0`)
		}
		if !m.Res.CacheScope.Present() {
			add = append(add, `"cacheScope":"private"`)
		}
	}
	if len(info) > 0 {
		member := `"` + metaServerInfo + `":` + string(info)
		switch {
		case !m.Res.Meta.Present():
			add = append(add, `"_meta":{`+member+`}`)
		case in.data[m.Res.Meta.Value.Start] == '{' && !m.ResMeta.ServerInfo.Present():
			edits = append(edits, jsonrpc.InsertMembers(in.data, m.Res.Meta.Value, []byte(member)))
		}
	}
	if len(add) > 0 {
		edits = append(edits, jsonrpc.InsertMembers(in.data, m.Result.Value, []byte(strings.Join(add, ","))))
	}
	return edits
}

// discoverResult answers server/discover for a legacy server from what its
// initialize result told.
func discoverResult(s *serverInfo) []byte {
	b := []byte(`{"resultType":"complete","supportedVersions":[`)
	for i, v := range append(modernVersions(), legacyVersions()...) {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonrpc.AppendQuote(b, v)
	}
	b = append(b, `],"capabilities":`...)
	b = append(b, modernCapabilities(s.capabilities)...)
	if len(s.instructions) > 0 && s.instructions[0] == '"' {
		b = append(b, `,"instructions":`...)
		b = append(b, s.instructions...)
	}
	b = append(b, `,"ttlMs":0,"cacheScope":"private"`...)
	if len(s.info) > 0 {
		b = append(b, `,"_meta":{"`+metaServerInfo+`":`...)
		b = append(b, s.info...)
		b = append(b, '}')
	}
	return append(b, '}')
}

// modernCapabilities leaves out what a legacy server declared but modern
// clients cannot use: the tasks of 2025-11-25, which are another protocol now.
func modernCapabilities(raw json.RawMessage) []byte {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil || all == nil {
		return []byte(`{}`)
	}
	delete(all, "tasks")
	out, err := json.Marshal(all)
	if err != nil {
		return []byte(`{}`)
	}
	return out
}
