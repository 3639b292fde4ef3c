package bridge

import (
	"context"
	"sync"
	"time"
)

// RetryPolicy says which calls of a server may be made a second time.
type RetryPolicy struct {
	Tools map[string]ToolPolicy // by the tool's name
	// TrustAnnotations takes the server's readOnlyHint for the truth.
	TrustAnnotations bool
	// RepeatsPerMinute bounds how often mcpd itself repeats what was lost, all
	// callers together; 0 is DefaultRepeatsPerMinute, below 0 is none.
	RepeatsPerMinute int
}

// ToolPolicy is what the configuration says of one tool.
type ToolPolicy struct {
	// Key is the argument that carries the idempotency key, "" for none.
	Key string
	// Inject is whether that argument is mcpd's own: it is added to the tool's
	// advertised schema, and the server never sees it.
	Inject bool
	// ReadOnly is whether the tool changes nothing, so that it may be repeated.
	ReadOnly bool
}

// DefaultRepeatsPerMinute is the bound where the configuration names none.
const DefaultRepeatsPerMinute = 60

// SetRetryPolicy replaces the policy. p and what is in it must not change after.
func (u *Upstream) SetRetryPolicy(p RetryPolicy) {
	if p.RepeatsPerMinute == 0 {
		p.RepeatsPerMinute = DefaultRepeatsPerMinute
	}
	u.retry.Store(&p)
}

// mayRepeat reports whether a request that was lost with its process has no
// effect, so that it may be sent to the next one.
func (u *Upstream) mayRepeat(in *incoming, conn *Conn) bool {
	if isRead(in.method) {
		return true
	}
	if in.method != methodToolsCall {
		return false
	}
	p := u.retry.Load()
	return p.Tools[in.name].ReadOnly || p.TrustAnnotations && conn.tools.readOnly(in.name)
}

// learnTools makes sure that the server's annotations of its tools are known
// before a call that may be lost.
func (u *Upstream) learnTools(ctx context.Context, in *incoming, conn *Conn, most time.Duration) {
	if !u.retry.Load().TrustAnnotations {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	// Without them the call is not repeated; nothing else comes of it.
	_, _, _ = conn.tools.entry(ctx, in.name, time.Time{})
}

// repeats counts what mcpd repeats by itself.
type repeats struct {
	mu      sync.Mutex
	made    uint64
	refused uint64
	recent  []time.Time // of the last minute, oldest first
}

// take asks for one repeat.
func (r *repeats) take(most int) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	old := 0
	for old < len(r.recent) && now.Sub(r.recent[old]) >= time.Minute {
		old++
	}
	r.recent = append(r.recent[:0], r.recent[old:]...)
	if len(r.recent) >= most {
		r.refused++
		return false
	}
	r.recent = append(r.recent, now)
	r.made++
	return true
}

func (r *repeats) counts() (made, refused uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made, r.refused
}
