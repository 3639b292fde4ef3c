package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpd/bridge/jsonrpc"
)

// Pipes are the two ends that a Conn talks over, handed to it by the owner of
// the process.
type Pipes struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	// Junk takes each line on stdout that is not a message. It must not keep
	// the slice.
	Junk func(line []byte)
}

// Load says how busy a Conn is.
type Load struct {
	Calls         int       // requests that wait for their answer
	Subscriptions int       // subscriptions that clients listen on
	LastActivity  time.Time // last byte in either direction
}

// Conn is the conversation with one process of a server. It owns the request
// ids and progress tokens on the pipe and the table of requests in flight.
// All in-flight state is guarded by mu and changes in add, remove and end.
type Conn struct {
	name       string
	version    string // mcpd's own, told to the server
	logger     *slog.Logger
	maxMessage int64
	out        *writer
	in         io.ReadCloser
	junk       func([]byte)
	events     eventSink
	activity   atomic.Int64 // UnixNano

	// The handshake writes server and legacy, then era; after that they are
	// only read. The reader is already at work by then, so era is atomic.
	era    atomic.Pointer[Era]
	server serverInfo
	legacy *legacyConn // nil for a modern server

	tools *toolSchemas // x-mcp-header annotations of the server's tools

	interactive Interactive
	turn        chan struct{} // holds one where requests take turns; else nil

	mu      sync.Mutex
	lastID  uint64
	pending map[uint64]*exchange
	calls   int // pending exchanges that are not subscriptions
	// questions are what a legacy server asks.
	questions questions
	draining  bool
	drained   chan struct{}
	lingers   time.Time // until when requests that were given up may still log
	// cancelled are the subscriptions cancelled last, by their id modulo the
	// length: servers that keep to the protocol do not answer them.
	cancelled [64]cancelledListen
	ended     error
	done      chan struct{}

	wg sync.WaitGroup // reader, writer and the goroutines of spawn
	// life ends with the Conn and bounds mcpd's own requests on it.
	life     context.Context
	stopLife context.CancelFunc
}

type cancelledListen struct {
	id    uint64
	group *group
}

// eventSink takes what a server tells without being asked.
type eventSink interface {
	// clientSubscriptions counts the subscriptions that clients listen on.
	clientSubscriptions() int
	// subscriptionEvent takes a message that names a subscription.
	subscriptionEvent(c *Conn, g *group, in *inbound)
	// subscriptionAnswered tells that a server answered a subscription that
	// was cancelled before.
	subscriptionAnswered(c *Conn, g *group)
	// subscriptionFailed tells that a subscription's answer cannot be used.
	subscriptionFailed(c *Conn, g *group, reason error)
	// legacyEvent takes a change notification of a legacy server.
	legacyEvent(c *Conn, method string, in *inbound)
	// logLine takes a line for the server's own log.
	logLine(line string)
}

// exchange is one request on the pipe, from its sending until its answer.
type exchange struct {
	id     uint64
	method string
	box    *mailbox // where messages go; nil for a subscription
	group  *group   // the subscription, for subscriptions/listen
	// progressToken is the client's own token as raw JSON, nil without one.
	progressToken []byte
	// severity is the least severity of log messages asked for, -1 for none.
	severity int
	out      outbound
	own      bool // mcpd's own request
	// asks takes the questions of the server; nil where its client cannot be
	// asked. It does not change any more once the exchange has started.
	asks *asking
	// hasTurn is whether it holds Conn.turn, until it is not pending any more.
	hasTurn bool
}

func newConn(name, version string, p Pipes, limits Limits, events eventSink, logger *slog.Logger) *Conn {
	c := &Conn{
		name: name, version: version, logger: logger, maxMessage: limits.MaxMessageBytes,
		in: p.Stdout, junk: p.Junk, events: events,
		pending: make(map[uint64]*exchange),
		drained: make(chan struct{}),
		done:    make(chan struct{}),
	}
	if c.interactive = limits.Interactive; c.interactive == InteractiveSerialize {
		c.turn = make(chan struct{}, 1)
	}
	// The life of a Conn is not the life of any one request's context.
	c.life, c.stopLife = context.WithCancel(context.Background())
	c.out = newWriter(p.Stdin, limits.MaxQueueBytes, c.end)
	c.tools = newToolSchemas(c)
	c.touch()
	c.wg.Go(c.out.run)
	c.wg.Go(c.read)
	return c
}

// Done is closed when the conversation is over.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the conversation is over, nil while it is not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Load reports how busy the conversation is. mcpd's own subscription to
// changes of the tool list does not count.
func (c *Conn) Load() Load {
	c.mu.Lock()
	calls := c.calls
	c.mu.Unlock()
	return Load{
		Calls:         calls,
		Subscriptions: c.events.clientSubscriptions(),
		LastActivity:  time.Unix(0, c.activity.Load()),
	}
}

// Era reports which family of protocol revisions the server speaks.
func (c *Conn) Era() Era {
	if e := c.era.Load(); e != nil {
		return *e
	}
	return EraUnknown
}

// Probe asks the server for a sign of life. Any answer is one, also an error.
func (c *Conn) Probe(ctx context.Context) error {
	method, params := methodDiscover, c.modernParams()
	if c.Era() == EraLegacy {
		method, params = methodPing, nil
	}
	answer, err := c.roundTrip(ctx, method, params)
	if err != nil {
		return fmt.Errorf("no answer to %s: %w", method, err)
	}
	answer.release()
	return nil
}

// Drain stops taking requests and waits until none is in flight. Open
// subscriptions do not hold it up: they move to the next Conn.
func (c *Conn) Drain(ctx context.Context) error {
	c.mu.Lock()
	if !c.draining {
		c.draining = true
		if c.calls == 0 {
			close(c.drained)
		}
	}
	c.mu.Unlock()
	select {
	case <-c.drained:
		return nil
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the conversation: what is in flight fails with cause, both pipes
// are closed, and all goroutines have ended when it returns. Idempotent.
func (c *Conn) Close(cause error) {
	if cause == nil {
		cause = errClosed
	}
	c.end(cause)
	_ = c.in.Close()
	c.wg.Wait()
}

// end retires everything in flight. It does not wait, so the Conn's own
// goroutines may call it.
func (c *Conn) end(cause error) {
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return
	}
	c.ended = cause
	pending := c.pending
	c.pending, c.calls = nil, 0
	if c.draining {
		select {
		case <-c.drained:
		default:
			close(c.drained)
		}
	}
	c.mu.Unlock()

	// The writer is stopped first: what could be withdrawn after that was
	// never seen by the server.
	c.out.close(cause)
	c.stopLife()
	close(c.done)
	for _, ex := range pending {
		if ex.box != nil {
			ex.box.end(&lostError{cause: cause, sent: !c.out.withdraw(&ex.out)})
		}
	}
}

// spawn runs fn as a goroutine that Close waits for. fn must end when c.life
// does.
func (c *Conn) spawn(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return false
	}
	c.wg.Go(fn)
	return true
}

func (c *Conn) touch() { c.activity.Store(time.Now().UnixNano()) }

// start registers ex and queues its message, which compose builds around the
// upstream id. When it fails, the server has seen nothing of it.
func (c *Conn) start(ex *exchange, compose func(dst []byte, id uint64) []byte) error {
	return c.startLine(ex, func(id uint64) line {
		buf := newBuffer(0)
		buf.b = compose(buf.b, id)
		return line{buf: buf}
	})
}

// startLine is start for a line that may be in pieces.
func (c *Conn) startLine(ex *exchange, compose func(id uint64) line) error {
	c.mu.Lock()
	switch {
	case c.ended != nil:
		c.mu.Unlock()
		return errDraining
	case c.draining && ex.group == nil:
		c.mu.Unlock()
		return errDraining
	}
	c.lastID++
	ex.id = c.lastID
	c.pending[ex.id] = ex
	if ex.group == nil {
		c.calls++
	}
	c.mu.Unlock()

	l := compose(ex.id)
	c.touch()
	if err := c.out.send(&ex.out, l); err != nil {
		c.remove(ex.id)
		if errors.Is(err, errQueueFull) {
			return unavailable(time.Second, "server %q: %v", c.name, err)
		}
		return errDraining
	}
	return nil
}

// startInTurn is startLine for the request of a client. Where requests take turns it
// waits for its own, for most at the longest.
func (c *Conn) startInTurn(ctx context.Context, ex *exchange, most time.Duration, compose func(id uint64) line) error {
	if c.turn == nil || c.Era() != EraLegacy {
		return c.startLine(ex, compose)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case c.turn <- struct{}{}:
	case <-c.done:
		return errDraining
	case <-ctx.Done():
		return goneOr(ctx, false)
	case <-timer.C:
		return unavailable(time.Second, "server %q takes one request at a time (interactive = \"serialize\"), "+
			"and the one before did not end within request_timeout (%v)", c.name, most)
	}
	ex.hasTurn = true
	err := c.startLine(ex, compose)
	if err != nil {
		c.mu.Lock()
		c.endTurn(ex)
		c.mu.Unlock()
	}
	return err
}

// endTurn lets the next request begin. c.mu is held.
func (c *Conn) endTurn(ex *exchange) {
	if ex.hasTurn {
		ex.hasTurn = false
		<-c.turn
	}
}

// remove takes an exchange out of the table; nil when it is not there.
func (c *Conn) remove(id uint64) *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	ex, ok := c.pending[id]
	if !ok {
		return nil
	}
	delete(c.pending, id)
	c.questions.forgetAll(ex)
	c.endTurn(ex)
	if ex.group == nil {
		c.calls--
		if c.draining && c.calls == 0 {
			close(c.drained)
		}
	}
	return ex
}

// lingerAfterCancel is how long a request that was given up is still taken for
// a possible author of log messages.
const lingerAfterCancel = 5 * time.Second

// linger notes that the server may still be at work on ex.
func (c *Conn) linger(ex *exchange) {
	legacy := c.Era() == EraLegacy && ex.group == nil
	if ex.severity < 0 && !legacy {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ex.severity >= 0 {
		c.lingers = time.Now().Add(lingerAfterCancel)
	}
	if legacy {
		c.questions.abandon(ex.id)
	}
}

// cancel gives a request up: the server is told, unless it has not seen the
// request yet, and whatever still comes for it is dropped.
func (c *Conn) cancel(ex *exchange, reason string) {
	if ex.asks != nil {
		c.dismissAll(ex, reason)
	}
	if c.remove(ex.id) == nil || c.out.withdraw(&ex.out) {
		return
	}
	c.linger(ex)
	if ex.group != nil {
		c.mu.Lock()
		c.cancelled[ex.id%uint64(len(c.cancelled))] = cancelledListen{id: ex.id, group: ex.group}
		c.mu.Unlock()
	}
	buf := newBuffer(0)
	buf.b = append(buf.b, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`...)
	buf.b = strconv.AppendUint(buf.b, ex.id, 10)
	buf.b = append(buf.b, `,"reason":`...)
	buf.b = jsonrpc.AppendQuote(buf.b, reason)
	buf.b = append(buf.b, "}}\n"...)
	if err := c.notify(buf); err != nil {
		c.logger.Debug("a cancellation could not be sent", "error", err)
	}
}

// fail ends a request whose answer came but cannot be used.
func (c *Conn) fail(id uint64, reason error) {
	ex := c.remove(id)
	switch {
	case ex == nil:
	case ex.group != nil:
		c.events.subscriptionFailed(c, ex.group, reason)
	default:
		c.linger(ex)
		ex.box.end(reason)
	}
}

// notify queues one complete line that needs no answer. It takes over buf.
func (c *Conn) notify(buf *buffer) error {
	c.touch()
	return c.out.send(new(outbound), line{buf: buf})
}

// roundTrip sends one of mcpd's own requests and waits for its answer. params
// is raw JSON or nil.
func (c *Conn) roundTrip(ctx context.Context, method string, params []byte) (*inbound, error) {
	ex, err := c.begin(method, params)
	if err != nil {
		return nil, err
	}
	return c.await(ctx, ex)
}

// begin sends one of mcpd's own requests; await must follow.
func (c *Conn) begin(method string, params []byte) (*exchange, error) {
	ex := &exchange{method: method, box: newMailbox(c.maxMessage), severity: -1, own: true}
	return ex, c.start(ex, func(dst []byte, id uint64) []byte { return appendRequest(dst, id, method, params) })
}

// await waits for the answer to a request of begin. When ctx ends first, the
// request is cancelled.
func (c *Conn) await(ctx context.Context, ex *exchange) (*inbound, error) {
	for {
		in, err := ex.box.take()
		if err != nil {
			return nil, err
		}
		if in != nil {
			if in.msg.Kind == jsonrpc.Result || in.msg.Kind == jsonrpc.Error {
				return in, nil
			}
			in.release()
			continue
		}
		select {
		case <-ex.box.wake:
		case <-ctx.Done():
			c.cancel(ex, "mcpd gave up waiting")
			return nil, ctx.Err()
		}
	}
}

func appendRequest(dst []byte, id uint64, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = strconv.AppendUint(dst, id, 10)
	dst = append(dst, `,"method":`...)
	dst = jsonrpc.AppendQuote(dst, method)
	if params != nil {
		dst = append(dst, `,"params":`...)
		dst = append(dst, params...)
	}
	return append(dst, "}\n"...)
}

// modernParams is the params member of mcpd's own modern requests. Each extra
// is one more member as raw JSON.
func (c *Conn) modernParams(extra ...string) []byte {
	b := append([]byte(nil), `{"_meta":{"`+metaProtocolVersion+`":"`+version20260728+`","`+metaClientInfo+`":{"name":"mcpd","version":`...)
	b = jsonrpc.AppendQuote(b, c.version)
	b = append(b, `},"`+metaClientCapabilities+`":{}}`...)
	for _, e := range extra {
		b = append(b, ',')
		b = append(b, e...)
	}
	return append(b, '}')
}

// read is the goroutine that owns stdout. EOF ends the Conn.
func (c *Conn) read() {
	r := newLineReader(c.in, c.maxMessage)
	for {
		buf, size, err := r.next()
		if size > 0 {
			c.touch()
		}
		switch {
		case buf != nil && size > c.maxMessage:
			c.oversize(buf.b, size)
			buf.release()
		case buf != nil:
			c.receive(buf)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server closed its output")
			}
			c.end(err)
			return
		}
	}
}

// sampleOfOversize is how much of each end of a line over the limit is kept
// to find out whose answer it was.
const sampleOfOversize = 4 << 10

// oversize fails the request whose answer was too large, where the ends of
// the line tell which it was.
func (c *Conn) oversize(ends []byte, size int64) {
	c.logger.Warn("a message of the server is over max_message_bytes and was dropped",
		"bytes", size, "limit", c.maxMessage)
	c.events.logLine(fmt.Sprintf("mcpd: dropped a message of %d bytes: max_message_bytes is %d", size, c.maxMessage))
	id, isAnswer, found := answerID(ends)
	if !isAnswer {
		return
	}
	c.mu.Lock()
	if !found && c.calls == 1 {
		// There is only one that it can be the answer to.
		for _, ex := range c.pending {
			if ex.group == nil {
				id, found = ex.id, true
			}
		}
	}
	c.mu.Unlock()
	if found {
		c.fail(id, &oversizeError{limit: c.maxMessage})
	}
}

// answerID finds the id of an answer that cannot be scanned: it is too large,
// so that only both ends of it are known, or it is not quite JSON. It looks
// only where an id of the envelope can be: in front of the result, or as last
// but the version, where no quote can end a string and no brace an object.
func answerID(ends []byte) (id uint64, isAnswer, found bool) {
	rest, ok := behind(trimBOM(ends), "{")
	if !ok {
		return 0, false, false
	}
	for {
		if r, ok := behind(rest, `"jsonrpc"`, ":", `"2.0"`, ","); ok {
			rest = r
			continue
		}
		r, ok := behind(rest, `"id"`, ":")
		if !ok || found {
			break
		}
		r = bytes.TrimLeft(r, " \t")
		digits := len(r) - len(bytes.TrimLeft(r, "0123456789"))
		id, found = upstreamID(r, jsonrpc.Span{End: digits})
		if rest, ok = behind(r[digits:], ","); !ok || !found {
			return 0, false, false
		}
	}
	_, isResult := behind(rest, `"result"`, ":")
	_, isError := behind(rest, `"error"`, ":")
	if !isResult && !isError {
		return 0, false, false
	}
	if found {
		return id, true, true
	}
	rest, _ = before(ends, "}")
	if r, ok := before(rest, ",", `"jsonrpc"`, ":", `"2.0"`); ok {
		rest = r
	}
	rest = bytes.TrimRight(rest, " \t\r")
	digits := rest[len(bytes.TrimRight(rest, "0123456789")):]
	if _, ok := before(rest[:len(rest)-len(digits)], ",", `"id"`, ":"); ok {
		id, found = upstreamID(digits, jsonrpc.Span{End: len(digits)})
	}
	return id, true, found
}

// behind gives what follows the tokens, each of which may have white space in
// front of it.
func behind(b []byte, tokens ...string) ([]byte, bool) {
	for _, token := range tokens {
		var ok bool
		if b, ok = bytes.CutPrefix(bytes.TrimLeft(b, " \t\r"), []byte(token)); !ok {
			return nil, false
		}
	}
	return b, true
}

// before gives what comes before the tokens, which end b.
func before(b []byte, tokens ...string) ([]byte, bool) {
	for i := len(tokens) - 1; i >= 0; i-- {
		var ok bool
		if b, ok = bytes.CutSuffix(bytes.TrimRight(b, " \t\r"), []byte(tokens[i])); !ok {
			return nil, false
		}
	}
	return b, true
}

// trimBOM takes a byte order mark away: it is no part of the message.
func trimBOM(line []byte) []byte { return bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF")) }

// receive sorts one line of stdout. It owns buf.
func (c *Conn) receive(buf *buffer) {
	in := newInbound()
	in.buf, in.data = buf, bytes.Trim(trimBOM(buf.b), " \t\r")
	if len(in.data) == 0 {
		in.release()
		return
	}
	if err := jsonrpc.Scan(in.data, &in.msg); err != nil {
		c.refuse(in, err)
		in.release()
		return
	}
	switch in.msg.Kind {
	case jsonrpc.Result, jsonrpc.Error:
		c.receiveAnswer(in)
	case jsonrpc.Notification:
		c.receiveNotification(in)
	case jsonrpc.Request:
		if !c.receiveRequest(in) {
			in.release()
		}
	default:
		in.release()
	}
}

// refuse deals with a line that is no message: it goes to the server's log
// and to no client. Where it was clearly meant as an answer, the request it
// belongs to fails at once instead of waiting for nothing.
func (c *Conn) refuse(in *inbound, cause error) {
	if c.junk != nil {
		c.junk(in.data)
	}
	var (
		envelope *jsonrpc.EnvelopeError
		syntax   *jsonrpc.SyntaxError
		id       uint64
		found    bool
	)
	switch {
	case errors.As(cause, &envelope):
		// Programs also log in JSON, with ids of their own.
		if !in.msg.Method.Present() && (in.msg.Result.Present() || in.msg.Error.Present()) {
			id, found = upstreamID(in.data, in.msg.ID.Value)
		}
	case errors.As(cause, &syntax):
		// Some servers write NaN, or half of a surrogate pair.
		id, _, found = answerID(in.data)
	}
	if found {
		c.fail(id, &brokenAnswerError{cause: cause})
	}
}

// upstreamID reads an id that this Conn gave out.
func upstreamID(data []byte, s jsonrpc.Span) (uint64, bool) {
	raw := s.Of(data)
	if len(raw) > 2 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1] // some servers hand numbers back as strings
	}
	if len(raw) == 0 || len(raw) > 20 {
		return 0, false
	}
	var n uint64
	for _, d := range raw {
		if d < '0' || d > '9' {
			// Some servers hand numbers back in another spelling (1.0).
			f, err := strconv.ParseFloat(string(raw), 64)
			if err != nil || f < 0 || f > 1<<53 || f != float64(uint64(f)) {
				return 0, false
			}
			return uint64(f), true
		}
		n = n*10 + uint64(d-'0')
	}
	return n, true
}

func (c *Conn) receiveAnswer(in *inbound) {
	var ex *exchange
	id, ok := upstreamID(in.data, in.msg.ID.Value)
	if ok {
		ex = c.remove(id)
	}
	if ex == nil {
		// Late, twice, or never asked for.
		if ok {
			c.mu.Lock()
			delete(c.questions.abandoned, id)
			c.mu.Unlock()
		}
		if g := c.takeCancelled(id); ok && g != nil {
			c.events.subscriptionAnswered(c, g)
		}
		if !in.msg.ID.Value.Present() && in.msg.Kind == jsonrpc.Error {
			c.events.logLine("mcpd: the server reported an error without an id: " + clip(string(in.data)))
		}
		in.release()
		return
	}
	if ex.group != nil {
		in.share()
		c.events.subscriptionEvent(c, ex.group, in)
		return
	}
	if !ex.box.put(in) {
		in.release()
	}
}

// takeCancelled gives the cancelled subscription that had an id, once.
func (c *Conn) takeCancelled(id uint64) *group {
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := &c.cancelled[id%uint64(len(c.cancelled))]
	if slot.group == nil || slot.id != id {
		return nil
	}
	g := slot.group
	*slot = cancelledListen{}
	return g
}

func (c *Conn) receiveNotification(in *inbound) {
	m := &in.msg
	method, err := jsonrpc.Unquote(in.data, m.Method.Value)
	if err != nil {
		in.release()
		return
	}
	switch {
	case method == notifyProgress:
		c.deliverProgress(in)
	case method == notifyMessage:
		c.deliverLog(in)
	case method == notifyCancelled && c.Era() == EraLegacy:
		// It takes a question of its own back.
		if id := m.Param.RequestID.Value; id.Present() {
			c.forget(string(id.Of(in.data)))
		}
		in.release()
	case method == notifyCancelled && m.Param.RequestID.Value.Present():
		if g := c.groupOf(in.data, m.Param.RequestID.Value); g != nil {
			if id, ok := upstreamID(in.data, m.Param.RequestID.Value); ok {
				c.remove(id)
			}
			in.share()
			c.events.subscriptionEvent(c, g, in)
			return
		}
		in.release()
	case m.Meta.SubscriptionID.Value.Present():
		if g := c.groupOf(in.data, m.Meta.SubscriptionID.Value); g != nil {
			in.share()
			c.events.subscriptionEvent(c, g, in)
			return
		}
		in.release()
	case c.Era() == EraLegacy:
		in.share()
		c.events.legacyEvent(c, method, in)
	default:
		// It belongs to no request and to no subscription, so it is nobody's.
		c.events.logLine("mcpd: dropped a notification that belongs to no request: " + clip(method))
		in.release()
	}
}

// subscriptionCount counts the open subscriptions/listen requests.
func (c *Conn) subscriptionCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) - c.calls
}

func (c *Conn) groupOf(data []byte, s jsonrpc.Span) *group {
	id, ok := upstreamID(data, s)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ex := c.pending[id]; ex != nil {
		return ex.group
	}
	return nil
}

// deliverProgress hands progress to the request that asked for it, and to
// no other: the token on the pipe is that request's upstream id.
func (c *Conn) deliverProgress(in *inbound) {
	id, ok := upstreamID(in.data, in.msg.Param.ProgressToken.Value)
	var box *mailbox
	if ok {
		c.mu.Lock()
		if ex := c.pending[id]; ex != nil && ex.progressToken != nil {
			box = ex.box
		}
		c.mu.Unlock()
	}
	if box == nil || !box.put(in) {
		in.release()
	}
}

// longestLogLine bounds what one log message adds to the server's log, in
// bytes.
const longestLogLine = 8 << 10

// deliverLog hands a log message to the one request that can have caused it.
// A log message names no request: with several askers in flight it would be a
// guess, and the guess could show one client's data to another.
func (c *Conn) deliverLog(in *inbound) {
	severity := -1
	if level, err := jsonrpc.Unquote(in.data, in.msg.Param.Level.Value); err == nil {
		severity = logSeverity(level)
	}
	c.mu.Lock()
	askers := 0
	if time.Now().Before(c.lingers) {
		askers++
	}
	var asker *exchange
	for _, ex := range c.pending {
		if ex.severity >= 0 {
			asker = ex
			askers++
		}
	}
	c.mu.Unlock()
	if askers == 1 && asker != nil && severity >= asker.severity && asker.box.put(in) {
		return
	}
	text := in.msg.Params.Of(in.data)
	c.events.logLine("log message: " + string(text[:min(len(text), longestLogLine)]))
	in.release()
}

// receiveRequest answers what a server asks, or passes it on: then it has taken
// over in. Only legacy servers may ask.
func (c *Conn) receiveRequest(in *inbound) (taken bool) {
	method, err := jsonrpc.Unquote(in.data, in.msg.Method.Value)
	if err != nil {
		return false
	}
	if c.Era() == EraModern {
		c.events.logLine("mcpd: dropped a request from the server, which its protocol revision forbids: " + clip(method))
		return false
	}
	id := in.msg.ID.Of(in.data)
	switch {
	case method == methodPing:
		c.write([]byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":{}}`))
	case isQuestion(method) && c.interactive != InteractiveOff:
		return c.receiveQuestion(in, method)
	default:
		c.events.logLine("mcpd: refused a request from the server: " + clip(method))
		c.write(appendFault(nil, id, faultf(0, codeMethodNotFound,
			"mcpd declared no capability for %s: it cannot be passed on to a client", clip(method))))
	}
	return false
}
