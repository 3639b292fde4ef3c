package header

import (
	"errors"
	"fmt"

	"mcpd/bridge/jsonrpc"
)

// ToolEntry is what one tool's definition says about headers, and whether the
// tool changes anything.
type ToolEntry struct {
	Params []Param
	Err    error // the definition is invalid; why. Params is then nil
	// ReadOnly is the annotation readOnlyHint, where it is there once and true.
	ReadOnly bool
}

// ToolParams reads one result of tools/list, raw JSON: what the definition of
// each tool says about headers, by the tool's name, and the cursor of the next
// page, "" on the last one.
//
// A faulty definition spoils its own entry only. A tool without a name cannot
// be called and is passed over. The error means that the result as a whole
// cannot be read.
func ToolParams(toolsListResult []byte) (map[string]ToolEntry, string, error) {
	whole, err := jsonrpc.Validate(toolsListResult)
	if err != nil {
		return nil, "", fmt.Errorf("the tools/list result is not valid JSON: %w", err)
	}
	if toolsListResult[whole.Start] != '{' {
		return nil, "", errors.New("the tools/list result is not an object")
	}
	var list, cursor jsonrpc.Member
	for name, m := range jsonrpc.Members(toolsListResult, whole) {
		switch {
		case name == "tools" && !list.Present():
			list = m
		case name == "nextCursor" && !cursor.Present():
			cursor = m
		case name == "tools", name == "nextCursor":
			return nil, "", fmt.Errorf("the tools/list result holds %q twice", name)
		}
	}
	if !list.Present() || toolsListResult[list.Value.Start] != '[' {
		return nil, "", errors.New(`the tools/list result has no array "tools"`)
	}
	next := ""
	if raw := cursor.Of(toolsListResult); raw != nil && string(raw) != "null" {
		if next, err = jsonrpc.Unquote(toolsListResult, cursor.Value); err != nil {
			return nil, "", errors.New(`"nextCursor" in the tools/list result is not a string`)
		}
	}

	tools := map[string]ToolEntry{}
	for tool := range jsonrpc.Elements(toolsListResult, list.Value) {
		for _, t := range readTool(toolsListResult, tool) {
			if _, again := tools[t.name]; again {
				t.entry = ToolEntry{Err: errors.New("the server lists two tools of this name")} // nor read-only
			}
			tools[t.name] = t.entry
		}
	}
	return tools, next, nil
}

type namedEntry struct {
	name  string
	entry ToolEntry
}

// readTool reads one tool. A definition with several names gives a faulty
// entry for each.
func readTool(data []byte, tool jsonrpc.Span) []namedEntry {
	var names []string
	var schemas, annotations []jsonrpc.Member
	for key, m := range jsonrpc.Members(data, tool) {
		switch key {
		case "name":
			if name, err := jsonrpc.Unquote(data, m.Value); err == nil {
				names = append(names, name)
			}
		case "inputSchema":
			schemas = append(schemas, m)
		case "annotations":
			annotations = append(annotations, m)
		}
	}
	var e ToolEntry
	if len(annotations) == 1 {
		hints := 0
		for key, m := range jsonrpc.Members(data, annotations[0].Value) {
			if key == "readOnlyHint" {
				hints++
				e.ReadOnly = hints == 1 && string(m.Of(data)) == "true"
			}
		}
	}
	switch {
	case len(names) > 1 || len(schemas) > 1:
		e.Err = errors.New(`the definition holds "name" or "inputSchema" twice`)
	case len(schemas) == 1:
		e.Params, e.Err = Params(schemas[0].Of(data))
	}
	entries := make([]namedEntry, len(names))
	for i, name := range names {
		entries[i] = namedEntry{name, e}
	}
	return entries
}
