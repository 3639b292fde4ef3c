package bridge

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"mcpd/bridge/header"
	"mcpd/bridge/jsonrpc"
)

const (
	// schemaMaxAge is how long the tool list of a server that announces no
	// changes is trusted.
	schemaMaxAge = time.Minute
	// schemaMinAge keeps requests that fail the check from making mcpd ask
	// for the list each time.
	schemaMinAge = time.Second
	// schemaRetry is after how long a list that could not be read is asked
	// for again.
	schemaRetry = 5 * time.Second
	// schemaMaxPages bounds one reading of a paginated list.
	schemaMaxPages = 100
)

// toolSchemas caches which arguments of which tools are mirrored into
// Mcp-Param headers, as the server's own tools/list says. One reading runs at
// a time; who needs it waits for it.
type toolSchemas struct {
	c *Conn

	mu      sync.Mutex
	tools   map[string]header.ToolEntry // nil: not read yet
	readAt  time.Time
	failed  bool          // the last reading
	stale   bool          // the server announced a change since
	watched bool          // the server announces changes, and mcpd listens
	begun   int           // readings begun so far
	reading chan struct{} // closed when the reading under way ends
}

func newToolSchemas(c *Conn) *toolSchemas { return &toolSchemas{c: c} }

// invalidate notes that the list changed.
func (t *toolSchemas) invalidate() {
	t.mu.Lock()
	t.stale = true
	t.mu.Unlock()
}

// watch notes whether changes are heard of.
func (t *toolSchemas) watch(on bool) {
	t.mu.Lock()
	t.watched = on
	t.stale = true
	t.mu.Unlock()
}

// check compares the Mcp-Param headers of a tools/call with its arguments.
// A mismatch is judged again by a fresh list before it counts.
func (t *toolSchemas) check(ctx context.Context, h http.Header, tool string, arguments []byte) error {
	if declared, _ := t.c.server.capability("tools", ""); !declared && t.c.server.capabilities != nil {
		return nil
	}
	entry, readAt, err := t.entry(ctx, tool, time.Time{})
	if err != nil {
		return err
	}
	mismatch := header.Check(h, arguments, entry.Params)
	if mismatch == nil {
		return nil
	}
	if time.Since(readAt) > schemaMinAge {
		if entry, _, err = t.entry(ctx, tool, readAt); err != nil {
			return err
		}
		mismatch = header.Check(h, arguments, entry.Params)
	}
	if mismatch == nil {
		return nil
	}
	return faultf(http.StatusBadRequest, codeHeaderMismatch, "%v", mismatch)
}

// mirrorsNothing reports that check would find nothing to compare and have
// nobody to ask, which is so for almost every call.
func (t *toolSchemas) mirrorsNothing(tool string) bool {
	if declared, _ := t.c.server.capability("tools", ""); !declared && t.c.server.capabilities != nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tools != nil && !t.stale && len(t.tools[tool].Params) == 0 && time.Since(t.readAt) <= t.maxAge()
}

// entry gives what is known of a tool from a reading later than after.
func (t *toolSchemas) entry(ctx context.Context, tool string, after time.Time) (header.ToolEntry, time.Time, error) {
	t.mu.Lock()
	before := t.begun
	for {
		// A reading that began after the question is recent enough, also where
		// the server announces changes faster than its list can be read.
		own := t.reading == nil && t.begun > before
		if own || t.tools != nil && !t.stale && t.readAt.After(after) {
			entry, readAt := t.tools[tool], t.readAt
			if time.Since(readAt) > t.maxAge() && t.reading == nil {
				t.begin() // for the next one
			}
			t.mu.Unlock()
			return entry, readAt, nil
		}
		if t.reading == nil && !t.begin() {
			t.mu.Unlock()
			return header.ToolEntry{}, time.Time{}, errDraining
		}
		reading := t.reading
		t.mu.Unlock()
		select {
		case <-reading:
		case <-t.c.life.Done():
			return header.ToolEntry{}, time.Time{}, errDraining
		case <-ctx.Done():
			return header.ToolEntry{}, time.Time{}, ctx.Err()
		}
		t.mu.Lock()
	}
}

// maxAge is how long a reading is trusted.
func (t *toolSchemas) maxAge() time.Duration {
	switch {
	case t.failed:
		return schemaRetry
	case t.watched:
		return 1<<63 - 1
	}
	return schemaMaxAge
}

// begin starts a reading. mu is held.
func (t *toolSchemas) begin() bool {
	reading := make(chan struct{})
	t.reading, t.stale = reading, false
	t.begun++
	if !t.c.spawn(func() {
		ctx, cancel := context.WithTimeout(t.c.life, controlTimeout)
		defer cancel()
		tools, err := t.read(ctx)
		if err != nil {
			// Without a list nothing can be compared. The headers mean nothing
			// to the server itself, which reads only the body.
			t.c.logger.Warn("the tool list could not be read: Mcp-Param headers are not checked", "error", err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if tools != nil || t.tools == nil {
			t.tools = tools
		}
		if t.tools == nil {
			t.tools = map[string]header.ToolEntry{}
		}
		t.readAt, t.failed = time.Now(), err != nil
		t.reading = nil
		close(reading)
	}) {
		t.reading = nil
		t.begun--
		return false
	}
	return true
}

func (t *toolSchemas) read(ctx context.Context) (map[string]header.ToolEntry, error) {
	all := make(map[string]header.ToolEntry)
	cursor := ""
	for range schemaMaxPages {
		in, err := t.c.roundTrip(ctx, methodToolsList, t.params(cursor))
		if err != nil {
			return nil, err
		}
		if in.msg.Kind == jsonrpc.Error {
			err := fmt.Errorf("tools/list: %s", describe(in))
			in.release()
			return nil, err
		}
		page, next, err := header.ToolParams(in.msg.Result.Value.Of(in.data))
		in.release()
		if err != nil {
			return nil, fmt.Errorf("tools/list: %w", err)
		}
		for name, entry := range page {
			if entry.Err != nil {
				t.c.logger.Warn("a tool's x-mcp-header annotations are invalid: its headers are not checked",
					"tool", clip(name), "error", entry.Err)
				entry.Params = nil
			}
			all[name] = entry
		}
		if next == "" || next == cursor {
			return all, nil
		}
		cursor = next
	}
	return all, nil
}

func (t *toolSchemas) params(cursor string) []byte {
	var extra []string
	if cursor != "" {
		extra = append(extra, string(jsonrpc.AppendQuote([]byte(`"cursor":`), cursor)))
	}
	if t.c.Era() == EraLegacy {
		if cursor == "" {
			return nil
		}
		return []byte("{" + extra[0] + "}")
	}
	return t.c.modernParams(extra...)
}

// readOnly reports whether the server calls a tool read-only. What is not known
// yet is not read-only.
func (t *toolSchemas) readOnly(tool string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tools[tool].ReadOnly
}
