package bridge

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"mcpd/bridge/jsonrpc"
)

// response writes the answer to one POST: a JSON body where the answer comes
// first, an event stream as soon as anything comes before it. Only the
// goroutine of its HTTP request uses it.
type response struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	json, sse bool // media types that the client takes
	streaming bool
	unflushed bool // events were written that the client cannot see yet
	lastWrite time.Time
	timer     *time.Timer // of the pump that waits for what is to be written; nil before the first
	// sink takes each message in place of w, for a request that a session makes;
	// w, rc and json are not set then.
	sink func(data []byte, edits []jsonrpc.Edit) error
}

// The values of header fields that are the same in each answer. A http.Header
// takes slices, and these are full, so that an append copies.
var typeJSON = []string{"application/json"}

// countedUpTo is the length, in bytes, up to which net/http itself counts a
// body that is written in one go, at less cost than being told its length.
const countedUpTo = 2 << 10

// deadlineAbove is the size from which a JSON body gets a write deadline: a
// smaller one fits into the socket's buffer.
const deadlineAbove = 32 << 10

// stream begins the event stream.
func (rs *response) stream() {
	if rs.streaming {
		return
	}
	h := rs.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	rs.w.WriteHeader(http.StatusOK)
	rs.streaming = true
	rs.lastWrite = time.Now()
}

// event writes one message to the stream. Who waits after it flushes first.
func (rs *response) event(data []byte, newlines bool, edits []jsonrpc.Edit) error {
	if rs.sink != nil {
		return rs.sink(data, edits)
	}
	rs.stream()
	_ = rs.rc.SetWriteDeadline(time.Now().Add(eventWriteTimeout))
	if _, err := rs.w.Write([]byte("event: message\ndata: ")); err != nil {
		return errClientGone
	}
	if newlines {
		// A raw CR would end the data line for a reader of the stream.
		data = jsonrpc.AppendLine(nil, data, edits...)
		data, edits = data[:len(data)-1], nil
	}
	if err := rs.edited(data, edits); err != nil {
		return err
	}
	if _, err := rs.w.Write([]byte("\n\n")); err != nil {
		return errClientGone
	}
	rs.unflushed = true
	return nil
}

// keepAlive writes a comment, which clients skip.
func (rs *response) keepAlive() error {
	if rs.sink != nil {
		return nil
	}
	rs.stream()
	_ = rs.rc.SetWriteDeadline(time.Now().Add(eventWriteTimeout))
	if _, err := rs.w.Write([]byte(":\n\n")); err != nil {
		return errClientGone
	}
	return rs.flush()
}

func (rs *response) flush() error {
	rs.unflushed = false
	if err := rs.rc.Flush(); err != nil {
		return errClientGone
	}
	rs.lastWrite = time.Now()
	return nil
}

// finish takes the write deadline back, which would otherwise outlive the
// stream on a connection that is kept alive. What is left to write then has to
// be out before.
func (rs *response) finish() {
	if rs.unflushed {
		_ = rs.flush()
	}
	_ = rs.rc.SetWriteDeadline(time.Time{})
}

// edited writes data with the edits spliced in, without putting the whole
// together first. Edits must not overlap.
func (rs *response) edited(data []byte, edits []jsonrpc.Edit) error {
	slices.SortStableFunc(edits, func(a, b jsonrpc.Edit) int { return a.Span.Start - b.Span.Start })
	at := 0
	for _, e := range edits {
		if _, err := rs.w.Write(data[at:e.Span.Start]); err != nil {
			return errClientGone
		}
		if _, err := rs.w.Write(e.New); err != nil {
			return errClientGone
		}
		at = e.Span.End
	}
	if _, err := rs.w.Write(data[at:]); err != nil {
		return errClientGone
	}
	return nil
}

// message writes the final answer, with status where that still can be said.
func (rs *response) message(status int, data []byte, newlines bool, edits []jsonrpc.Edit) error {
	if rs.streaming || !rs.json {
		return rs.event(data, newlines, edits)
	}
	size := len(data)
	for _, e := range edits {
		size += len(e.New) - (e.Span.End - e.Span.Start)
	}
	h := rs.w.Header()
	h["Content-Type"] = typeJSON
	if size > countedUpTo {
		h.Set("Content-Length", strconv.Itoa(size))
	}
	if size > deadlineAbove {
		_ = rs.rc.SetWriteDeadline(time.Now().Add(bodyReadTimeout))
		defer rs.finish()
	}
	rs.w.WriteHeader(status)
	return rs.edited(data, edits)
}

// fault answers with an error of mcpd's own. On a stream that has begun the
// status is gone, and the error is the last event.
func (rs *response) fault(id []byte, f *Fault) {
	body := appendFault(nil, id, f)
	if rs.streaming || f.Status == http.StatusOK && !rs.json {
		_ = rs.event(body, false, nil)
		return
	}
	h := rs.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if f.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((f.RetryAfter+time.Second-1)/time.Second)))
	}
	rs.w.WriteHeader(f.Status)
	_, _ = rs.w.Write(body)
}

// pump waits for the messages of a mailbox and gives each to handle, until
// handle reports the last one. In quiet times it keeps the stream open, and
// begins it where the client may not wait longer for a first byte.
type pump struct {
	rs    *response
	box   *mailbox
	begin time.Time // from which total counts
	// inactivity and total bound the wait; 0 is no bound.
	inactivity, total time.Duration
	// handle takes over a message. Any message counts as activity.
	handle func(in *inbound) (last bool, err error)
	// revoked is asked in quiet times whether the stream must end; nil never.
	revoked func() bool
	// asks are the questions of the request, nil where it can have none. While
	// one is open, neither bound counts.
	asks *asking
}

func (p *pump) run(ctx context.Context) error {
	now := time.Now()
	active, wrote := now, now
	timer := p.rs.timer
	if timer == nil {
		timer = time.NewTimer(p.wait(now, active, wrote))
		p.rs.timer = timer
	} else {
		timer.Reset(p.wait(now, active, wrote))
	}
	defer timer.Stop()
	for {
		in, err := p.box.take()
		if err != nil {
			return err
		}
		if in != nil {
			last, err := p.handle(in)
			if last || err != nil {
				return err
			}
			if active = time.Now(); p.expired(active) {
				return &timeoutError{after: p.total, total: true}
			}
			continue
		}
		if p.rs.unflushed {
			// Events that come in a burst go out in few writes.
			if err := p.rs.flush(); err != nil {
				return err
			}
		}
		select {
		case <-p.box.wake:
		case <-ctx.Done():
			return goneOr(ctx, true)
		case <-timer.C:
			now := time.Now()
			if p.rs.lastWrite.After(wrote) {
				wrote = p.rs.lastWrite
			}
			switch {
			case p.expired(now):
				return &timeoutError{after: p.total, total: true}
			case p.asks.isOpen():
				active = now
				if left, waits := p.asks.left(now); waits && left <= 0 {
					p.asks.dismiss(p.asks.whyUnanswered())
				}
			case p.inactivity > 0 && now.Sub(active) >= p.inactivity:
				return &timeoutError{after: p.inactivity}
			case p.revoked != nil && p.revoked():
				return errRevoked
			case now.Sub(wrote) >= keepAliveInterval:
				wrote = now
				if p.rs.sse {
					if err := p.rs.keepAlive(); err != nil {
						return err
					}
				}
			}
			timer.Reset(p.wait(now, active, wrote))
		}
	}
}

func (p *pump) expired(now time.Time) bool { return p.total > 0 && p.spent(now) >= p.total }

// spent is how long the request has taken so far, without the time in which
// its client was asked something.
func (p *pump) spent(now time.Time) time.Duration { return now.Sub(p.begin) - p.asks.waited(now) }

// wait is how long nothing has to be done unless a message comes.
func (p *pump) wait(now, active, wrote time.Time) time.Duration {
	d := keepAliveInterval - now.Sub(wrote)
	if p.total > 0 {
		d = min(d, p.total-p.spent(now))
	}
	if p.inactivity > 0 {
		d = min(d, p.inactivity-now.Sub(active))
	}
	if left, waits := p.asks.left(now); waits {
		d = min(d, left)
	}
	return max(d, time.Millisecond)
}
