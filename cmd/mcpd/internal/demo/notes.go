package demo

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

const notePrefix = "note:///"

// note is one text kept in memory.
type note struct{ name, text string }

// notes keeps its entries in the order of their first appearance, so that lists are deterministic.
type notes struct{ entries []note }

func newNotes() *notes {
	return &notes{entries: []note{{
		name: "welcome",
		text: "This note lives in the memory of the demo server. Change it with set_note; whoever watches it is told.",
	}}}
}

func noteURI(name string) string { return notePrefix + url.PathEscape(name) }

func (n *notes) find(name string) (note, bool) {
	i := slices.IndexFunc(n.entries, func(e note) bool { return e.name == name })
	if i < 0 {
		return note{}, false
	}
	return n.entries[i], true
}

// set stores text under name, or removes the note when text is empty. changed says whether anything is different now,
// listChanged whether a note came or went.
func (n *notes) set(name, text string) (changed, listChanged bool) {
	i := slices.IndexFunc(n.entries, func(e note) bool { return e.name == name })
	switch {
	case i < 0 && text == "":
		return false, false
	case i < 0:
		n.entries = append(n.entries, note{name: name, text: text})
		return true, true
	case text == "":
		n.entries = slices.Delete(n.entries, i, i+1)
		return true, true
	default:
		changed = n.entries[i].text != text
		n.entries[i].text = text
		return changed, false
	}
}

func (n *notes) resources() []object {
	list := make([]object, 0, len(n.entries))
	for _, e := range n.entries {
		list = append(list, object{"uri": noteURI(e.name), "name": e.name, "mimeType": "text/plain", "size": len(e.text)})
	}
	return list
}

func resourceTemplates() []object {
	return []object{{
		"uriTemplate": notePrefix + "{name}", "name": "note", "title": "A note by its name",
		"description": "The text of one note.", "mimeType": "text/plain",
	}}
}

func (s *server) readResource(c *call, raw json.RawMessage) (object, *rpcError) {
	var params struct {
		URI string `json:"uri"`
	}
	if err := json.Unmarshal(raw, &params); err != nil || params.URI == "" {
		return nil, invalidParams("uri is missing")
	}
	if escaped, ok := strings.CutPrefix(params.URI, notePrefix); ok {
		if name, err := url.PathUnescape(escaped); err == nil {
			if e, found := s.notes.find(name); found {
				return object{"contents": []object{contents(params.URI, e.text)}}, nil
			}
		}
	}
	code := codeLegacyNotFound
	if c.modern {
		code = codeInvalidParams
	}
	return nil, &rpcError{Code: code, Message: fmt.Sprintf("there is no resource %q", params.URI), Data: object{"uri": params.URI}}
}

func contents(uri, text string) object {
	return object{"uri": uri, "mimeType": "text/plain", "text": text}
}
