package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpd/bridge/jsonrpc"
)

// filter is what a listener asked for, or was granted
// (basic/patterns/subscriptions, "Notification Filter").
type filter struct {
	tools, prompts, resources bool
	uris                      []string // sorted, each once
}

// parseFilter reads a notifications object. Members it does not know are
// returned as text, in order of their names: they make filters differ.
func parseFilter(data []byte, obj jsonrpc.Span) (f filter, unknown string, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(obj.Of(data), &members); err != nil || members == nil {
		return filter{}, "", fmt.Errorf("params.notifications must be an object")
	}
	var rest []string
	for name, raw := range members {
		var target any
		if string(raw) == "null" {
			continue // as if it were not there
		}
		switch name {
		case "toolsListChanged":
			target = &f.tools
		case "promptsListChanged":
			target = &f.prompts
		case "resourcesListChanged":
			target = &f.resources
		case "resourceSubscriptions":
			target = &f.uris
		default:
			rest = append(rest, name+":"+string(raw))
			continue
		}
		if err := json.Unmarshal(raw, target); err != nil {
			return filter{}, "", fmt.Errorf("params.notifications.%s has the wrong type", name)
		}
	}
	if slices.Contains(f.uris, "") {
		return filter{}, "", fmt.Errorf("params.notifications.resourceSubscriptions must hold URIs")
	}
	slices.Sort(f.uris)
	f.uris = slices.Compact(f.uris)
	slices.Sort(rest)
	return f, strings.Join(rest, ","), nil
}

func (f filter) equal(o filter) bool {
	return f.tools == o.tools && f.prompts == o.prompts && f.resources == o.resources && slices.Equal(f.uris, o.uris)
}

// intersect gives what is in both.
func (f filter) intersect(o filter) filter {
	both := filter{tools: f.tools && o.tools, prompts: f.prompts && o.prompts, resources: f.resources && o.resources}
	for _, uri := range f.uris {
		if _, ok := slices.BinarySearch(o.uris, uri); ok {
			both.uris = append(both.uris, uri)
		}
	}
	return both
}

// allows reports whether a notification may go to a listener that was granted f.
// Methods that the core protocol does not define belong to extensions and are
// carried; request-scoped ones never are.
func (f filter) allows(method string) bool {
	switch method {
	case notifyToolsChanged:
		return f.tools
	case notifyPromptsChanged:
		return f.prompts
	case notifyResourcesChanged:
		return f.resources
	case notifyResourceUpdated:
		return len(f.uris) > 0
	case notifyProgress, notifyMessage, notifyCancelled:
		return false
	}
	return true
}

func (f filter) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	comma := func() {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
	}
	for _, flag := range []struct {
		name string
		on   bool
	}{{"toolsListChanged", f.tools}, {"promptsListChanged", f.prompts}, {"resourcesListChanged", f.resources}} {
		if flag.on {
			comma()
			dst = append(dst, `"`+flag.name+`":true`...)
		}
	}
	if len(f.uris) > 0 {
		comma()
		dst = append(dst, `"resourceSubscriptions":[`...)
		for i, uri := range f.uris {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = jsonrpc.AppendQuote(dst, uri)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// listener is one open subscriptions/listen stream of a client.
type listener struct {
	box   *mailbox
	acked bool // the acknowledgement is in the box; guarded by subscriptions.mu
}

// group is one subscription at the server, shared by all listeners that asked
// for exactly the same. It lives on one Conn after the other.
type group struct {
	key       string
	filter    filter
	params    []byte // raw params for the server, without a progress token
	internal  bool   // mcpd's own, see watchTools
	listeners map[*listener]struct{}

	conn    *Conn
	ex      *exchange     // its request on a modern Conn
	settled chan struct{} // closed once conn acknowledged or ended it
	live    bool          // conn acknowledged it
	acked   bool          // some Conn acknowledged it
	granted filter
	ack     *inbound
	held    []string // URIs subscribed at a legacy server
}

// subscriptions owns the listeners of one Upstream and their subscriptions at
// the server. mu guards all of it; it is never held across I/O. Lock order:
// subscriptions.mu, then legacyConn.mu or toolSchemas.mu, then Conn.mu, then
// mailbox.mu or writer.mu.
type subscriptions struct {
	u       *Upstream
	clients atomic.Int64 // groups that clients listen on

	mu     sync.Mutex
	conn   *Conn
	groups map[string]*group
	closed bool
}

func newSubscriptions(u *Upstream) *subscriptions {
	return &subscriptions{u: u, groups: make(map[string]*group)}
}

// listenRequest is what the HTTP side read from a subscriptions/listen.
type listenRequest struct {
	key    string
	filter filter
	params []byte
}

// subscribe adds a listener. What it is told comes through its mailbox: first
// the acknowledgement, or an error.
func (s *subscriptions) subscribe(l *listener, r listenRequest) (*group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	g := s.groups[r.key]
	if g == nil {
		g = &group{key: r.key, filter: r.filter, params: r.params, listeners: make(map[*listener]struct{})}
		s.groups[r.key] = g
		s.clients.Add(1)
		g.listeners[l] = struct{}{}
		if s.conn != nil {
			s.begin(g, s.conn)
		}
		return g, nil
	}
	g.listeners[l] = struct{}{}
	if g.live && !isDone(g.conn) {
		l.acked = true
		l.box.put(g.ack)
	}
	return g, nil
}

func isDone(c *Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// unsubscribe removes a listener; the last one takes the subscription at the
// server with it.
func (s *subscriptions) unsubscribe(g *group, l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(g.listeners, l)
	if len(g.listeners) == 0 && s.groups[g.key] == g {
		s.drop(g)
	}
}

// drop forgets a group and ends its subscription at the server.
func (s *subscriptions) drop(g *group) {
	if s.groups[g.key] == g {
		delete(s.groups, g.key)
		if !g.internal {
			s.clients.Add(-1)
		}
	}
	if g.internal && g.conn != nil {
		g.conn.tools.watch(false)
	}
	s.leave(g)
}

// leave ends the group's subscription on its Conn, if there is one.
func (s *subscriptions) leave(g *group) {
	if g.conn == nil {
		return
	}
	if g.ex != nil {
		g.conn.cancel(g.ex, "nobody listens any more")
	}
	if g.conn.legacy != nil {
		g.conn.legacy.release(g.held)
	}
	s.settle(g)
	g.conn, g.ex, g.held, g.live = nil, nil, nil, false
}

func (s *subscriptions) settle(g *group) {
	if g.settled != nil {
		close(g.settled)
		g.settled = nil
	}
}

// adopt makes conn the Conn of all subscriptions. Their requests are queued
// before adopt returns, ahead of whatever is sent to conn later.
func (s *subscriptions) adopt(conn *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.conn = conn
	for _, g := range s.groups {
		s.leave(g)
		if g.internal {
			delete(s.groups, g.key)
			continue
		}
		s.begin(g, conn)
	}
	s.watchTools(conn)
}

// watchTools subscribes mcpd itself to changes of the tool list, whose schemas
// say which headers a tools/call must carry.
func (s *subscriptions) watchTools(conn *Conn) {
	_, changes := conn.server.capability("tools", "listChanged")
	if conn.legacy != nil {
		conn.tools.watch(changes) // it tells without being asked
		return
	}
	if !changes {
		return
	}
	f := filter{tools: true}
	g := &group{
		key: "mcpd", filter: f, internal: true,
		params: conn.modernParams(`"notifications":` + string(f.appendJSON(nil))),
	}
	s.groups[g.key] = g
	s.begin(g, conn)
}

// begin subscribes a group at conn.
func (s *subscriptions) begin(g *group, conn *Conn) {
	g.conn, g.live = conn, false
	settled := make(chan struct{})
	g.settled = settled
	if conn.legacy != nil {
		if !conn.spawn(func() { s.beginLegacy(g, conn) }) {
			s.leave(g)
		}
		return
	}
	ex := &exchange{method: methodListen, group: g, severity: -1}
	g.ex = ex
	if err := conn.start(ex, func(dst []byte, id uint64) []byte { return appendRequest(dst, id, methodListen, g.params) }); err != nil {
		g.ex = nil
		if errors.Is(err, errDraining) {
			s.leave(g) // the Conn is over; the next one will carry the group
		} else {
			s.finish(g, err)
		}
		return
	}
	conn.spawn(func() { s.expectAck(g, conn, settled) })
}

// expectAck ends a subscription that the server does not acknowledge: its
// listeners would otherwise believe for ever that nothing changes.
func (s *subscriptions) expectAck(g *group, conn *Conn, settled <-chan struct{}) {
	timer := time.NewTimer(controlTimeout)
	defer timer.Stop()
	select {
	case <-settled:
		return
	case <-conn.life.Done():
		return
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.conn != conn || g.live {
		return
	}
	s.u.logger.Warn("the server did not acknowledge a subscription", "after", controlTimeout)
	s.finish(g, faultf(http.StatusGatewayTimeout, CodeTimeout,
		"server %q did not acknowledge the subscription within %v", s.u.name, controlTimeout))
}

// finish ends a group from the server's side: listeners that were told that
// they listen get the graceful result, the others get why they do not.
func (s *subscriptions) finish(g *group, refusal error) {
	result := completion()
	for l := range g.listeners {
		if l.acked || refusal == nil {
			l.box.put(result)
		} else {
			l.box.end(refusal)
		}
	}
	clear(g.listeners)
	s.drop(g)
}

// refusedError is a server's own error in place of an acknowledgement.
type refusedError struct{ in *inbound }

func (e *refusedError) Error() string { return describe(e.in) }

// event takes a message of a server that names a subscription.
func (s *subscriptions) event(c *Conn, g *group, in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.conn != c || s.groups[g.key] != g {
		return // it ended or moved while the message was on its way
	}
	switch in.msg.Kind {
	case jsonrpc.Result:
		s.settle(g)
		g.ex = nil
		s.finish(g, nil)
		return
	case jsonrpc.Error:
		s.settle(g)
		g.ex = nil
		if g.internal {
			s.drop(g)
			return
		}
		s.finish(g, &refusedError{in})
		return
	}
	method, err := jsonrpc.Unquote(in.data, in.msg.Method.Value)
	switch {
	case err != nil:
	case method == notifyAcknowledged:
		granted, _, err := parseFilter(in.data, in.msg.Param.Notifications.Value)
		if err != nil {
			s.u.logLine("mcpd: the acknowledgement of a subscription cannot be read: " + err.Error())
			return
		}
		if !g.live {
			s.acknowledge(g, granted, in)
		}
	case method == notifyCancelled:
		g.ex = nil
		s.finish(g, nil)
	case !g.live:
		// Nothing may come before the acknowledgement.
	case g.internal:
		if method == notifyToolsChanged {
			c.tools.invalidate()
		}
	case g.granted.allows(method):
		for l := range g.listeners {
			if l.acked {
				l.box.put(in)
			}
		}
	}
}

// failed ends a subscription whose answer cannot be used.
func (s *subscriptions) failed(c *Conn, g *group, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.conn != c || s.groups[g.key] != g {
		return
	}
	g.ex = nil
	s.finish(g, reason)
}

// acknowledge takes what the server granted. The first time, listeners are
// told so. After a restart they are told to read again what may have changed
// unseen; where the grant itself changed, their stream ends, so that they
// listen anew and see the new one.
func (s *subscriptions) acknowledge(g *group, granted filter, ack *inbound) {
	s.settle(g)
	asked := granted.intersect(g.filter)
	if ack == nil || !asked.equal(granted) {
		ack = acknowledgement(asked)
	}
	again := g.acked
	if again && !asked.equal(g.granted) {
		result := completion()
		for l := range g.listeners {
			if l.acked {
				l.box.put(result)
				delete(g.listeners, l)
			}
		}
		again = false
	}
	g.live, g.acked, g.granted, g.ack = true, true, asked, ack
	if g.internal {
		g.conn.tools.watch(asked.tools)
		return
	}
	if len(g.listeners) == 0 {
		s.drop(g)
		return
	}
	var notices []*inbound
	if again {
		notices = rereadNotices(asked)
	}
	for l := range g.listeners {
		if !l.acked {
			l.acked = true
			l.box.put(ack)
			continue
		}
		l.box.put(notices...)
	}
}

// beginLegacy subscribes a group at a legacy server: list changes come by
// themselves where the server declared them, resources are asked for one by
// one.
func (s *subscriptions) beginLegacy(g *group, c *Conn) {
	var granted filter
	_, tools := c.server.capability("tools", "listChanged")
	_, prompts := c.server.capability("prompts", "listChanged")
	_, resources := c.server.capability("resources", "listChanged")
	_, subscribe := c.server.capability("resources", "subscribe")
	granted.tools, granted.prompts, granted.resources = g.filter.tools && tools, g.filter.prompts && prompts, g.filter.resources && resources
	if subscribe {
		granted.uris = c.legacy.subscribe(g.filter.uris)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.conn != c || s.groups[g.key] != g || g.live {
		c.legacy.release(granted.uris)
		return
	}
	g.held = granted.uris
	s.acknowledge(g, granted, nil)
}

// legacyEvent hands a change notification of a legacy server to the groups
// that were granted it.
func (s *subscriptions) legacyEvent(c *Conn, method string, in *inbound) {
	if method == notifyToolsChanged {
		c.tools.invalidate()
	}
	uri := ""
	if method == notifyResourceUpdated {
		var err error
		if uri, err = jsonrpc.Unquote(in.data, in.msg.Param.URI.Value); err != nil {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if g.conn != c || !g.live {
			continue
		}
		switch method {
		case notifyResourceUpdated:
			if !slices.ContainsFunc(g.granted.uris, func(sub string) bool { return covers(sub, uri) }) {
				continue
			}
		case notifyToolsChanged, notifyPromptsChanged, notifyResourcesChanged:
			if !g.granted.allows(method) {
				continue
			}
		default:
			continue
		}
		for l := range g.listeners {
			if l.acked {
				l.box.put(in)
			}
		}
	}
}

// covers reports whether an update of uri belongs to a subscription of sub: it
// is the same resource or one below it. Legacy updates name no subscription.
func covers(sub, uri string) bool {
	rest, ok := strings.CutPrefix(uri, sub)
	return ok && (rest == "" || strings.HasSuffix(sub, "/") || rest[0] == '/' || rest[0] == '#' || rest[0] == '?')
}

// close ends every stream with its result, for good.
func (s *subscriptions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, g := range s.groups {
		if g.internal {
			s.drop(g)
			continue
		}
		s.finish(g, nil)
	}
}

// state gives the current Conn and how many subscriptions it holds.
func (s *subscriptions) state() (*Conn, int) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil || isDone(conn) {
		return nil, 0
	}
	n := conn.subscriptionCount()
	if conn.legacy != nil {
		n += conn.legacy.subscriptionCount()
	}
	return conn, n
}

// newShared scans a message that mcpd made itself, for any number of readers.
func newShared(data []byte) *inbound {
	in := &inbound{data: data}
	if err := jsonrpc.Scan(data, &in.msg); err != nil {
		panic(fmt.Sprintf("bridge: made an invalid message: %v: %s", err, data))
	}
	return in
}

// Messages of mcpd's own carry 0 where each listener's id is put in.
func completion() *inbound {
	return newShared([]byte(`{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","_meta":{"` + metaSubscriptionID + `":0}}}`))
}

func acknowledgement(granted filter) *inbound {
	b := []byte(`{"jsonrpc":"2.0","method":"` + notifyAcknowledged + `","params":{"_meta":{"` + metaSubscriptionID + `":0},"notifications":`)
	b = granted.appendJSON(b)
	return newShared(append(b, "}}"...))
}

// rereadNotices tells a listener to read again everything that it was granted.
func rereadNotices(granted filter) []*inbound {
	var notices []*inbound
	add := func(method, uri string) {
		b := []byte(`{"jsonrpc":"2.0","method":"` + method + `","params":{"_meta":{"` + metaSubscriptionID + `":0}`)
		if uri != "" {
			b = append(b, `,"uri":`...)
			b = jsonrpc.AppendQuote(b, uri)
		}
		notices = append(notices, newShared(append(b, "}}"...)))
	}
	if granted.tools {
		add(notifyToolsChanged, "")
	}
	if granted.prompts {
		add(notifyPromptsChanged, "")
	}
	if granted.resources {
		add(notifyResourcesChanged, "")
	}
	for _, uri := range granted.uris {
		add(notifyResourceUpdated, uri)
	}
	return notices
}
