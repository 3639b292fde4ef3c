package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // Windows has no zone files
)

const (
	maxCountdown    = 600
	maxInterval     = 10 * time.Second
	defaultInterval = time.Second
)

func toolList() []object {
	stringProperty := func(description string) object { return object{"type": "string", "description": description} }
	input := func(required []string, properties object) object {
		schema := object{"type": "object", "properties": properties, "additionalProperties": false}
		if len(required) > 0 {
			schema["required"] = required
		}
		return schema
	}
	readOnly := object{"readOnlyHint": true, "openWorldHint": false}
	return []object{{
		"name": "echo", "title": "Echo", "description": "Gives the text back.", "annotations": readOnly,
		"inputSchema": input([]string{"text"}, object{"text": stringProperty("What to give back.")}),
	}, {
		"name": "add", "title": "Add", "description": "Adds two numbers.", "annotations": readOnly,
		"inputSchema": input([]string{"a", "b"}, object{"a": object{"type": "number"}, "b": object{"type": "number"}}),
		"outputSchema": object{
			"type": "object", "properties": object{"sum": object{"type": "number"}}, "required": []string{"sum"},
		},
	}, {
		"name": "now", "title": "Now", "description": "The time, as RFC 3339.", "annotations": readOnly,
		"inputSchema": input(nil, object{"zone": stringProperty("An IANA time zone such as Europe/Vienna; UTC when left out.")}),
	}, {
		"name": "countdown", "title": "Countdown", "annotations": readOnly,
		"description": "Counts down to zero with a progress message for each step. Can be cancelled.",
		"inputSchema": input(nil, object{
			"from":        object{"type": "integer", "minimum": 1, "maximum": maxCountdown, "default": 5},
			"interval_ms": object{"type": "integer", "minimum": 1, "maximum": maxInterval.Milliseconds(), "default": defaultInterval.Milliseconds()},
		}),
	}, {
		"name": "set_note", "title": "Set a note",
		"description": "Writes a note in memory; an empty text removes it. The note is the resource note:///NAME.",
		"annotations": object{"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false},
		"inputSchema": input([]string{"name", "text"}, object{
			"name": stringProperty("The name of the note, 1 to 64 characters."), "text": stringProperty("Its text; empty removes the note."),
		}),
	}, {
		"name": "notes", "title": "Notes", "description": "Links to all notes.", "annotations": readOnly,
		"inputSchema": input(nil, object{}),
	}}
}

func textContent(text string) object { return object{"type": "text", "text": text} }

func toolText(text string) object {
	return object{"content": []object{textContent(text)}, "isError": false}
}

// toolFailure is an error that the model can read and mend, as opposed to a protocol error.
func toolFailure(format string, args ...any) object {
	return object{"content": []object{textContent(fmt.Sprintf(format, args...))}, "isError": true}
}

// arguments decodes raw into v, strictly: an argument that no tool knows is a mistake that should be seen.
func arguments(raw json.RawMessage, v any) error {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(v)
}

func (s *server) callTool(ctx context.Context, c *call, raw json.RawMessage) (object, *rpcError) {
	var params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(raw, &params); err != nil || params.Name == "" {
		return nil, invalidParams("tools/call needs the name of a tool")
	}
	s.log(c, "debug", "tool "+params.Name+" called")
	switch params.Name {
	case "echo":
		return echo(params.Arguments), nil
	case "add":
		return add(params.Arguments), nil
	case "now":
		return now(params.Arguments), nil
	case "countdown":
		return s.countdown(ctx, c, params.Arguments), nil
	case "set_note":
		return s.setNote(c, params.Arguments), nil
	case "notes":
		return s.listNotes(params.Arguments), nil
	default:
		return nil, invalidParams(fmt.Sprintf("unknown tool %q", params.Name))
	}
}

func echo(raw json.RawMessage) object {
	var args struct {
		Text *string `json:"text"`
	}
	if err := arguments(raw, &args); err != nil || args.Text == nil {
		return toolFailure("echo needs the argument text, a string")
	}
	return toolText(*args.Text)
}

func add(raw json.RawMessage) object {
	var args struct {
		A *float64 `json:"a"`
		B *float64 `json:"b"`
	}
	if err := arguments(raw, &args); err != nil || args.A == nil || args.B == nil {
		return toolFailure("add needs the arguments a and b, both numbers")
	}
	sum := *args.A + *args.B
	text, err := json.Marshal(object{"sum": sum})
	if err != nil {
		return toolFailure("the sum of %g and %g is too large for a number", *args.A, *args.B)
	}
	result := toolText(string(text))
	result["structuredContent"] = object{"sum": sum}
	return result
}

func now(raw json.RawMessage) object {
	var args struct {
		Zone string `json:"zone"`
	}
	if err := arguments(raw, &args); err != nil {
		return toolFailure("now takes one argument, zone, a string")
	}
	location, err := time.LoadLocation(args.Zone)
	if err != nil {
		return toolFailure("there is no time zone %q; use an IANA name such as Europe/Vienna", args.Zone)
	}
	return toolText(time.Now().In(location).Format(time.RFC3339))
}

// countdown starts a goroutine that counts and hands each step to the loop. It ends with its last step, with the
// cancellation of the call, or with the server.
func (s *server) countdown(ctx context.Context, c *call, raw json.RawMessage) object {
	args := struct {
		From       int   `json:"from"`
		IntervalMs int64 `json:"interval_ms"`
	}{From: 5, IntervalMs: defaultInterval.Milliseconds()}
	if err := arguments(raw, &args); err != nil {
		return toolFailure("countdown takes the arguments from and interval_ms, both integers")
	}
	if args.From < 1 || args.From > maxCountdown {
		return toolFailure("from must be between 1 and %d", maxCountdown)
	}
	if args.IntervalMs < 1 || args.IntervalMs > maxInterval.Milliseconds() {
		return toolFailure("interval_ms must be between 1 and %d", maxInterval.Milliseconds())
	}
	interval := time.Duration(args.IntervalMs) * time.Millisecond

	ctx, cancel := context.WithCancel(ctx)
	c.cancel = cancel
	s.calls[string(c.id)] = c
	s.running.Go(func() {
		defer cancel()
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for done := 1; done <= args.From; done++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			left := args.From - done
			step := event{call: c, progress: object{"progress": done, "total": args.From, "message": strconv.Itoa(left) + " to go"}}
			if left == 0 {
				step.result = toolText(fmt.Sprintf("Counted down from %d in steps of %s.", args.From, interval))
			}
			select {
			case s.events <- step:
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

func (s *server) handleEvent(e event) {
	id := string(e.call.id)
	if s.calls[id] != e.call {
		return // cancelled in the meantime: nothing more may be said about it
	}
	if validID(e.call.meta.ProgressToken) { // a progress token has the same two types
		params := object{"progressToken": e.call.meta.ProgressToken}
		for k, v := range e.progress {
			params[k] = v
		}
		s.notify("notifications/progress", params)
	}
	s.log(e.call, "info", fmt.Sprint("countdown: ", e.progress["message"]))
	if e.result != nil {
		delete(s.calls, id)
		s.reply(e.call, e.result)
	}
}

func (s *server) setNote(c *call, raw json.RawMessage) object {
	var args struct {
		Name string  `json:"name"`
		Text *string `json:"text"`
	}
	if err := arguments(raw, &args); err != nil || args.Text == nil {
		return toolFailure("set_note needs the arguments name and text, both strings")
	}
	if args.Name == "" || len([]rune(args.Name)) > 64 || strings.ContainsAny(args.Name, "/\x00\r\n") {
		return toolFailure("the name of a note has 1 to 64 characters, and no slash or newline")
	}
	changed, listChanged := s.notes.set(args.Name, *args.Text)
	uri := noteURI(args.Name)
	if changed {
		s.log(c, "info", "note "+args.Name+" changed")
		s.noteChanged(uri, listChanged)
	}
	if *args.Text == "" {
		return toolText(fmt.Sprintf("There is no note %q now.", args.Name))
	}
	result := toolText("Saved as " + uri)
	result["content"] = append(result["content"].([]object), noteLink(args.Name))
	return result
}

func noteLink(name string) object {
	return object{"type": "resource_link", "uri": noteURI(name), "name": name, "mimeType": "text/plain"}
}

func (s *server) listNotes(raw json.RawMessage) object {
	var args struct{}
	if err := arguments(raw, &args); err != nil {
		return toolFailure("notes takes no arguments")
	}
	content := []object{textContent(fmt.Sprintf("%d notes.", len(s.notes.entries)))}
	for _, e := range s.notes.entries {
		content = append(content, noteLink(e.name))
	}
	return object{"content": content, "isError": false}
}
