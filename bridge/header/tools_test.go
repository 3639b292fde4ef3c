package header

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestToolParams(t *testing.T) {
	tools, next, err := ToolParams([]byte(` {"resultType":"complete","tools":[
		{"name":"plain","inputSchema":{"type":"object"}},
		{"name":"none"},
		{"description":"no name"},
		{"name":7},
		"no tool",
		{"inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}},"name":"\u0073ql"},
		{"name":"wrong","inputSchema":{"properties":{"r":{"type":"number","x-mcp-header":"Region"}}}},
		{"name":"list","inputSchema":[]},
		{"name":"twice","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}},
		{"name":"twice","inputSchema":{}},
		{"name":"two schemas","inputSchema":{},"inputSchema":{}},
		{"name":"one","name":"other"}
	],"nextCursor":"p\u0061ge 2"} `))
	if err != nil || next != "page 2" {
		t.Fatalf("next %q, %v", next, err)
	}
	type entry struct {
		Params []Param
		Err    string
	}
	got := map[string]entry{}
	for name, e := range tools {
		got[name] = entry{Params: e.Params}
		if e.Err != nil {
			got[name] = entry{e.Params, strings.SplitN(e.Err.Error(), ",", 2)[0]}
		}
	}
	twice := `the definition holds "name" or "inputSchema" twice`
	want := map[string]entry{
		"plain":       {},
		"none":        {},
		"sql":         {Params: []Param{{"Mcp-Param-Region", []string{"r"}, String}}},
		"wrong":       {Err: `"r": x-mcp-header needs the "type" string`},
		"list":        {Err: "the input schema must be an object"},
		"twice":       {Err: "the server lists two tools of this name"},
		"two schemas": {Err: twice},
		"one":         {Err: twice},
		"other":       {Err: twice},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheLastPageHasNoCursor(t *testing.T) {
	for _, text := range []string{`{"tools":[]}`, `{"tools":[],"nextCursor":null}`} {
		if tools, next, err := ToolParams([]byte(text)); err != nil || next != "" || len(tools) != 0 {
			t.Errorf("%s: %v, %q, %v", text, tools, next, err)
		}
	}
}

func TestResultsThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		``:                            "not valid JSON",
		`{"tools":[}`:                 "not valid JSON",
		`[]`:                          "not an object",
		`{}`:                          `no array "tools"`,
		`{"tools":{}}`:                `no array "tools"`,
		`{"tools":null}`:              `no array "tools"`,
		`{"tools":[],"nextCursor":1}`: "not a string",
		`{"tools":[],"tools":[]}`:     `"tools" twice`,
		`{"tools":[],"nextCursor":"a","\u006eextCursor":"b"}`: `"nextCursor" twice`,
	} {
		if _, _, err := ToolParams([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzToolParams(f *testing.F) {
	f.Add([]byte(`{"tools":[{"name":"a","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}}],"nextCursor":"c"}`))
	f.Add([]byte(`{"tools":[{"name":"a","name":"b"},{"name":"a"},1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tools, next, err := ToolParams(data)
		if err != nil && (tools != nil || next != "") {
			t.Fatalf("ToolParams(%q) = %v, %q, %v", data, tools, next, err)
		}
		for name, e := range tools {
			if e.Err != nil && e.Params != nil {
				t.Fatalf("ToolParams(%q): %q has params and %v", data, name, e.Err)
			}
		}
	})
}
