package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
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
	if !isObject(data, obj) {
		return filter{}, "", fmt.Errorf("params.notifications must be an object")
	}
	var rest []string
	seen := make(map[string]bool)
	for name, member := range jsonrpc.Members(data, obj) {
		if seen[name] {
			return filter{}, "", fmt.Errorf("params.notifications has the member %s twice", clip(name))
		}
		seen[name] = true
		raw := member.Of(data)
		if string(raw) == "null" {
			continue // as if it were not there
		}
		var target any
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

// minus gives what is in f but not in o.
func (f filter) minus(o filter) filter {
	rest := filter{tools: f.tools && !o.tools, prompts: f.prompts && !o.prompts, resources: f.resources && !o.resources}
	for _, uri := range f.uris {
		if _, ok := slices.BinarySearch(o.uris, uri); !ok {
			rest.uris = append(rest.uris, uri)
		}
	}
	return rest
}

// union gives what is in either.
func (f filter) union(o filter) filter {
	all := filter{tools: f.tools || o.tools, prompts: f.prompts || o.prompts, resources: f.resources || o.resources}
	all.uris = slices.Concat(f.uris, o.uris)
	slices.Sort(all.uris)
	all.uris = slices.Compact(all.uris)
	return all
}

// listener is one open subscriptions/listen stream of a client. All but box is
// guarded by subscriptions.mu.
type listener struct {
	box     *mailbox
	asked   filter
	parts   []*group // what its filter is made of at the server
	acked   bool     // the acknowledgement is in the box
	granted filter
}

// group is one subscription at the server, shared by all listeners that it
// serves. It lives on one Conn after the other.
//
// A client's filter is taken apart: all list changes are one subscription, each
// resource is one. So no list and no resource is ever in two subscriptions on
// one pipe, which matters because there are servers that keep but one
// subscriber of each per connection, and forget it when any subscription that
// named it ends. Only a filter with members that mcpd does not know is sent as
// the client wrote it.
type group struct {
	key       string
	filter    filter
	params    []byte // raw params as the client wrote them; nil to make them from filter
	permanent bool   // kept without listeners: mcpd itself listens for its tool schemas
	listeners map[*listener]struct{}

	conn    *Conn
	ex      *exchange     // its request on a modern Conn
	settled chan struct{} // closed once conn acknowledged or ended it
	live    bool          // conn acknowledged it
	acked   bool          // some Conn acknowledged it
	granted filter
	ack     *inbound // the server's acknowledgement of a group with params
	refused error    // why it is no subscription; it is over then
	// renewing says that its request was cancelled only to be sent again.
	renewing bool
	held     []string // URIs subscribed at a legacy server
}

// subscriptions owns the listeners of one Upstream and their subscriptions at
// the server. mu guards all of it; it is never held across I/O. Lock order:
// subscriptions.mu, then legacyConn.mu, then Conn.mu, then mailbox.mu.
type subscriptions struct {
	u       *Upstream
	clients atomic.Int64 // listeners

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
	filter filter
	// params and key are set for a filter that mcpd does not wholly know: it
	// is sent as it is, and shared by those that have the same key.
	params []byte
	key    string
}

const keyOfLists = "lists"

// parts names the groups that a request is made of.
func (r listenRequest) parts() []*group {
	if r.params != nil {
		return []*group{{key: "as written:" + r.key, filter: r.filter, params: r.params}}
	}
	var parts []*group
	if r.filter.tools || r.filter.prompts || r.filter.resources || len(r.filter.uris) == 0 {
		parts = append(parts, listsGroup())
	}
	for _, uri := range r.filter.uris {
		parts = append(parts, &group{key: "uri:" + uri, filter: filter{uris: []string{uri}}})
	}
	return parts
}

func listsGroup() *group {
	return &group{key: keyOfLists, filter: filter{tools: true, prompts: true, resources: true}}
}

// subscribe adds a listener. What it is told comes through its mailbox: first
// the acknowledgement, or an error.
func (s *subscriptions) subscribe(l *listener, r listenRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.clients.Add(1)
	l.asked = r.filter
	var fresh []*group
	for _, part := range r.parts() {
		g := s.groups[part.key]
		if g == nil {
			g = s.add(part)
			fresh = append(fresh, g)
		}
		g.listeners[l] = struct{}{}
		l.parts = append(l.parts, g)
	}
	if s.conn != nil {
		for _, g := range fresh {
			s.begin(g, s.conn)
		}
	}
	s.tell(l)
	return nil
}

func (s *subscriptions) add(g *group) *group {
	g.listeners = make(map[*listener]struct{})
	s.groups[g.key] = g
	return g
}

// tell acknowledges a listener once all parts of its filter are settled:
// granted is what those grant that the server took.
func (s *subscriptions) tell(l *listener) {
	if l.acked || len(l.parts) == 0 {
		return
	}
	var (
		granted filter
		ack     *inbound
		refusal error
		live    bool
	)
	for _, g := range l.parts {
		switch {
		case g.refused != nil:
			refusal = g.refused
		case !g.live || isDone(g.conn):
			return
		default:
			live, ack = true, g.ack
			granted = granted.union(g.granted.intersect(l.asked))
		}
	}
	if !live {
		s.detach(l)
		if errors.Is(refusal, errNothingGranted) {
			l.box.put(acknowledgement(filter{}), completion())
		} else {
			l.box.end(refusal)
		}
		return
	}
	if ack == nil {
		ack = acknowledgement(granted)
	}
	l.acked, l.granted = true, granted
	l.box.put(ack)
}

func isDone(c *Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// unsubscribe removes a listener; the last one of a group takes the
// subscription at the server with it.
func (s *subscriptions) unsubscribe(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detach(l)
}

func (s *subscriptions) detach(l *listener) {
	if l.parts == nil {
		return
	}
	s.clients.Add(-1)
	for _, g := range l.parts {
		delete(g.listeners, l)
		if len(g.listeners) == 0 && !g.permanent {
			s.drop(g)
		}
	}
	l.parts = nil
}

// drop forgets a group and ends its subscription at the server.
func (s *subscriptions) drop(g *group) {
	if s.groups[g.key] == g {
		delete(s.groups, g.key)
	}
	if g.key == keyOfLists && g.conn != nil && g.conn.legacy == nil {
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
	g.conn, g.ex, g.held, g.live, g.renewing = nil, nil, nil, false, false
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
	for _, key := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[key]
		if g == nil {
			continue // it went with another one that could not be begun
		}
		s.leave(g)
		if g.permanent = false; len(g.listeners) == 0 {
			delete(s.groups, g.key)
			continue
		}
		s.begin(g, conn)
	}
	s.watchTools(conn)
}

// watchTools has mcpd itself listen for changes of the tool list, whose schemas
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
	g := s.groups[keyOfLists]
	if g != nil {
		g.permanent = true
		return
	}
	g = s.add(listsGroup())
	g.permanent = true
	s.begin(g, conn)
}

// begin subscribes a group at conn.
func (s *subscriptions) begin(g *group, conn *Conn) {
	if s.groups[g.key] != g {
		return // its last listener went with a part that could not be begun
	}
	g.conn, g.live = conn, false
	settled := make(chan struct{})
	g.settled = settled
	if conn.legacy != nil {
		if !conn.spawn(func() { s.beginLegacy(g, conn) }) {
			s.leave(g)
		}
		return
	}
	params := g.params
	if params == nil {
		params = conn.modernParams(`"notifications":` + string(g.filter.appendJSON(nil)))
	}
	ex := &exchange{method: methodListen, group: g, severity: -1}
	g.ex = ex
	if err := conn.start(ex, func(dst []byte, id uint64) []byte { return appendRequest(dst, id, methodListen, params) }); err != nil {
		g.ex = nil
		if errors.Is(err, errDraining) {
			s.leave(g) // the Conn is over; the next one will carry the group
		} else {
			s.refuse(g, err)
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
	s.refuse(g, faultf(http.StatusGatewayTimeout, CodeTimeout,
		"server %q did not acknowledge the subscription within %v", s.u.name, controlTimeout))
}

// end ends a group by the server's will: the streams that it serves end with
// their result.
func (s *subscriptions) end(g *group) {
	result := completion()
	for l := range g.listeners {
		l.box.put(result)
		s.detach(l)
	}
	s.drop(g)
}

// refuse ends a group that is no subscription at the server. Listeners that
// were told that they listen get the graceful result. For the others it is a
// part that is not granted, and why nothing is when that was all of it.
func (s *subscriptions) refuse(g *group, reason error) {
	g.refused = reason
	s.drop(g)
	result := completion()
	for l := range g.listeners {
		if l.acked {
			l.box.put(result)
			s.detach(l)
		} else {
			s.tell(l)
		}
	}
}

// errNothingGranted is a subscription that the server acknowledged with nothing
// and ended, as there is nothing to tell.
var errNothingGranted = errors.New("the server granted nothing of it")

// vanish takes a group away that was granted nothing and ended. Streams that
// have other parts stay.
func (s *subscriptions) vanish(g *group) {
	g.refused = errNothingGranted
	s.drop(g)
	for l := range g.listeners {
		switch {
		case !l.acked:
			s.tell(l)
		case !slices.ContainsFunc(l.parts, func(part *group) bool { return part.refused == nil }):
			l.box.put(completion())
			s.detach(l)
		}
	}
}

// answered takes the answer to a subscription that was cancelled. A server that
// gives one may be of those that then forget who listens for lists on the
// connection, whatever the subscription was for: so that one is made anew. Its
// listeners are told to read again, as with a new process.
func (s *subscriptions) answered(c *Conn, g *group) {
	if g.key == keyOfLists {
		s.renewed(c, g)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewLists(c)
}

// renewTimeout is how long the answer to a subscription that was cancelled is
// waited for. A server that keeps to the protocol gives none.
const renewTimeout = time.Second

// renewLists cancels the subscription to lists. It is made again once the
// server has answered, as only then it has surely forgotten the old one.
func (s *subscriptions) renewLists(c *Conn) {
	g := s.groups[keyOfLists]
	if g == nil || g.conn != c || g.ex == nil || !g.live {
		return
	}
	g.renewing, g.live = true, false
	settled := make(chan struct{})
	g.settled = settled
	c.cancel(g.ex, "it is made anew")
	g.ex = nil
	c.spawn(func() {
		timer := time.NewTimer(renewTimeout)
		defer timer.Stop()
		select {
		case <-settled:
		case <-c.life.Done():
		case <-timer.C:
			s.renewed(c, g)
		}
	})
}

// renewed makes the subscription to lists again.
func (s *subscriptions) renewed(c *Conn, g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.renewing && g.conn == c && s.groups[g.key] == g {
		s.settle(g)
		g.renewing = false
		s.begin(g, c)
	}
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
		g.ex = nil
		if g.live && g.granted.equal(filter{}) {
			s.vanish(g)
		} else {
			s.end(g)
		}
		if g.key != keyOfLists {
			s.renewLists(c)
		}
		return
	case jsonrpc.Error:
		g.ex = nil
		s.refuse(g, &refusedError{in})
		if g.key != keyOfLists {
			s.renewLists(c)
		}
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
		s.end(g)
	case !g.live:
		// Nothing may come before the acknowledgement.
	default:
		if method == notifyToolsChanged {
			c.tools.invalidate()
		}
		s.deliver(g, method, in, nil)
	}
}

// deliver hands a change to the listeners of a group that were granted it, but
// for those in told, which it adds to; nil keeps no account.
func (s *subscriptions) deliver(g *group, method string, in *inbound, told map[*listener]bool) {
	if !g.granted.allows(method) {
		return
	}
	for l := range g.listeners {
		if !l.acked || told[l] || !l.granted.allows(method) {
			continue
		}
		if told != nil {
			told[l] = true
		}
		l.box.put(in)
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
	s.refuse(g, reason)
}

// acknowledge takes what the server granted. The first time, listeners are
// told so. After a restart they are told to read again what may have changed
// unseen; where what they had been granted has changed, their stream ends, so
// that they listen anew and see the new grant.
func (s *subscriptions) acknowledge(g *group, granted filter, ack *inbound) {
	s.settle(g)
	asked := granted.intersect(g.filter)
	again, before := g.acked, g.granted
	g.live, g.acked, g.granted, g.ack = true, true, asked, nil
	if g.params != nil && ack != nil && asked.equal(granted) {
		g.ack = ack
	}
	if g.key == keyOfLists && g.conn.legacy == nil {
		g.conn.tools.watch(asked.tools)
	}
	changed := before.minus(asked).union(asked.minus(before))
	var notices map[string]*inbound
	for l := range g.listeners {
		switch {
		case !l.acked:
			s.tell(l)
		case !again:
			// It was told without this part, and cannot be told of it now.
		case changed.touches(l.asked):
			l.box.put(completion())
			s.detach(l)
		default:
			if notices == nil {
				notices = rereadNotices(asked)
			}
			l.box.put(noticesFor(l.granted.intersect(asked), notices)...)
		}
	}
}

// touches reports whether f and o have anything in common.
func (f filter) touches(o filter) bool { return !f.intersect(o).equal(filter{}) }

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
	// Who listens to a resource and to one below it hears once.
	told := make(map[*listener]bool)
	for _, g := range s.groups {
		if g.conn != c || !g.live {
			continue
		}
		switch method {
		case notifyResourceUpdated:
			if slices.ContainsFunc(g.granted.uris, func(sub string) bool { return covers(sub, uri) }) {
				s.deliver(g, method, in, told)
			}
		case notifyToolsChanged, notifyPromptsChanged, notifyResourcesChanged:
			s.deliver(g, method, in, told)
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
		s.end(g)
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

// rereadNotices are the messages that tell a listener to read again what it
// was granted, by method and, for resources, by URI.
func rereadNotices(granted filter) map[string]*inbound {
	notices := make(map[string]*inbound)
	for method := range granted.topics() {
		b := []byte(`{"jsonrpc":"2.0","method":"`)
		uri, isURI := strings.CutPrefix(method, uriTopic)
		if isURI {
			b = append(b, notifyResourceUpdated...)
		} else {
			b = append(b, method...)
		}
		b = append(b, `","params":{"_meta":{"`+metaSubscriptionID+`":0}`...)
		if isURI {
			b = append(b, `,"uri":`...)
			b = jsonrpc.AppendQuote(b, uri)
		}
		notice := newShared(append(b, "}}"...))
		notice.uncounted = true
		notices[method] = notice
	}
	return notices
}

func noticesFor(granted filter, notices map[string]*inbound) []*inbound {
	var out []*inbound
	for topic := range granted.topics() {
		out = append(out, notices[topic])
	}
	return out
}

// uriTopic marks a topic that is a resource.
const uriTopic = "uri:"

// topics goes through what can change: the method of each list's notification,
// and each resource's URI behind uriTopic.
func (f filter) topics() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, list := range []struct {
			on     bool
			method string
		}{{f.tools, notifyToolsChanged}, {f.prompts, notifyPromptsChanged}, {f.resources, notifyResourcesChanged}} {
			if list.on && !yield(list.method) {
				return
			}
		}
		for _, uri := range f.uris {
			if !yield(uriTopic + uri) {
				return
			}
		}
	}
}
