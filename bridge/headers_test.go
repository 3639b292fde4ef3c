package bridge

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestHeadersThatDoNotMirrorTheBodyAreRefusedBeforeAnythingRuns(t *testing.T) {
	call := modernBody("7", "tools/call", `"name":"add","arguments":{}`)
	ok := modernHeaders("tools/call", "add")
	b64 := func(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
	read := modernBody("7", "resources/read", `"uri":"file:///a b"`)
	prompt := modernBody("7", "prompts/get", `"name":"p"`)
	for name, c := range map[string]struct {
		h      headers
		body   string
		double string // this header is sent twice
		refuse bool
	}{
		"all as in the body":               {h: ok, body: call},
		"header names in small letters":    {h: headers{"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}, body: call},
		"no version":                       {h: ok.with("MCP-Protocol-Version", ""), body: call, refuse: true},
		"another version":                  {h: ok.with("MCP-Protocol-Version", "2026-07-29"), body: call, refuse: true},
		"a legacy version":                 {h: ok.with("MCP-Protocol-Version", "2025-06-18"), body: call, refuse: true},
		"two versions":                     {h: ok, body: call, double: "MCP-Protocol-Version", refuse: true},
		"two versions in one":              {h: ok.with("MCP-Protocol-Version", "2026-07-28, 2026-07-28"), body: call, refuse: true},
		"no method":                        {h: ok.with("Mcp-Method", ""), body: call, refuse: true},
		"another method":                   {h: ok.with("Mcp-Method", "tools/list"), body: call, refuse: true},
		"the method in capitals":           {h: ok.with("Mcp-Method", "Tools/Call"), body: call, refuse: true},
		"the method encoded":               {h: ok.with("Mcp-Method", b64("tools/call")), body: call, refuse: true},
		"two methods":                      {h: ok, body: call, double: "Mcp-Method", refuse: true},
		"no name":                          {h: ok.with("Mcp-Name", ""), body: call, refuse: true},
		"another name":                     {h: ok.with("Mcp-Name", "sub"), body: call, refuse: true},
		"the name in capitals":             {h: ok.with("Mcp-Name", "ADD"), body: call, refuse: true},
		"two names":                        {h: ok, body: call, double: "Mcp-Name", refuse: true},
		"the name encoded":                 {h: ok.with("Mcp-Name", b64("add")), body: call},
		"another name encoded":             {h: ok.with("Mcp-Name", b64("sub")), body: call, refuse: true},
		"a broken encoding":                {h: ok.with("Mcp-Name", "=?base64?###?="), body: call, refuse: true},
		"a name, but none in the body":     {h: ok, body: modernBody("7", "tools/call", `"arguments":{}`), refuse: true},
		"no name at all":                   {h: ok.with("Mcp-Name", ""), body: modernBody("7", "tools/call", `"arguments":{}`), refuse: true},
		"a name that is a number":          {h: ok.with("Mcp-Name", "1"), body: modernBody("7", "tools/call", `"name":1`), refuse: true},
		"a name with an escape":            {h: ok, body: modernBody("7", "tools/call", `"name":"a\u0064d"`)},
		"a prompt's name":                  {h: modernHeaders("prompts/get", "p"), body: prompt},
		"a prompt's other name":            {h: modernHeaders("prompts/get", "q"), body: prompt, refuse: true},
		"a resource's URI":                 {h: modernHeaders("resources/read", "file:///a b"), body: read},
		"a resource's URI encoded":         {h: modernHeaders("resources/read", b64("file:///a b")), body: read},
		"a resource's other URI":           {h: modernHeaders("resources/read", "file:///a%20b"), body: read, refuse: true},
		"a resource named, not located":    {h: modernHeaders("resources/read", "x"), body: modernBody("7", "resources/read", `"name":"x"`), refuse: true},
		"a name where none is needed":      {h: modernHeaders("vendor/x", "any"), body: modernBody("7", "vendor/x", "")},
		"the wrong method of a listen":     {h: modernHeaders("tools/list", ""), body: modernBody("7", "subscriptions/listen", `"notifications":{}`), refuse: true},
		"modern header, nothing in _meta":  {h: modernHeaders("tools/list", "").with("Mcp-Method", "x"), body: `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, refuse: true},
		"two legacy versions as header":    {h: headers{"MCP-Protocol-Version": "2025-06-18"}, double: "MCP-Protocol-Version", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, refuse: true},
		"a legacy header, modern metadata": {h: modernHeaders("initialize", "").with("MCP-Protocol-Version", "2025-06-18"), body: modernBody("7", "initialize", ""), refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var react reaction
				if !c.refuse {
					react = echo
				}
				r := newRig(t, rigOptions{react: modernServer(`{}`, react)})
				p := r.up()
				req := r.request(t.Context(), c.h, c.body)
				if c.double != "" {
					req.Header.Add(c.double, req.Header.Get(c.double))
				}
				rep := r.do(req)
				if rep.err != nil {
					t.Fatal(rep.err)
				}
				if c.refuse {
					rep.wantError(t, 400, codeHeaderMismatch, "7")
				} else if rep.status != 200 {
					t.Errorf("status %d: %s", rep.status, rep.body)
				}
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestRequiredMetadataIsCheckedBeforeTheVersionAndTheVersionBeforeTheMethod(t *testing.T) {
	const (
		version = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
		caps    = `"io.modelcontextprotocol/clientCapabilities":{}`
	)
	for name, c := range map[string]struct {
		h      headers
		method string
		params string
		status int
		code   int
		says   string
	}{
		"no _meta":                           {modernHeaders("tools/list", ""), "tools/list", ``, 400, codeInvalidParams, "protocolVersion"},
		"no version in it":                   {modernHeaders("tools/list", ""), "tools/list", `"_meta":{` + caps + `}`, 400, codeInvalidParams, "protocolVersion"},
		"a version that is no string":        {modernHeaders("tools/list", ""), "tools/list", `"_meta":{"io.modelcontextprotocol/protocolVersion":1,` + caps + `}`, 400, codeInvalidParams, "protocolVersion"},
		"no capabilities":                    {modernHeaders("tools/list", ""), "tools/list", `"_meta":{` + version + `}`, 400, codeInvalidParams, "clientCapabilities"},
		"capabilities that are no object":    {modernHeaders("tools/list", ""), "tools/list", `"_meta":{` + version + `,"io.modelcontextprotocol/clientCapabilities":true}`, 400, codeInvalidParams, "clientCapabilities"},
		"client info that is no object":      {modernHeaders("tools/list", ""), "tools/list", `"_meta":{` + version + `,` + caps + `,"io.modelcontextprotocol/clientInfo":"x"}`, 400, codeInvalidParams, "clientInfo"},
		"no client info":                     {modernHeaders("tools/list", ""), "tools/list", `"_meta":{` + version + `,` + caps + `}`, 200, 0, ""},
		"a log level that is none":           {modernHeaders("tools/list", ""), "tools/list", metaWith(`"io.modelcontextprotocol/logLevel":"loud"`), 400, codeInvalidParams, "log level"},
		"a progress token that is an object": {modernHeaders("tools/list", ""), "tools/list", metaWith(`"progressToken":{}`), 400, codeInvalidParams, "progressToken"},
		"an unknown version":                 {modernHeaders("tools/list", "").with("MCP-Protocol-Version", "2027-01-01"), "tools/list", strings.ReplaceAll(modernMeta, "2026-07-28", "2027-01-01"), 400, codeUnsupportedVersion, "2027-01-01"},
		"a legacy version in modern form":    {modernHeaders("tools/list", "").with("MCP-Protocol-Version", "2025-11-25"), "tools/list", strings.ReplaceAll(modernMeta, "2026-07-28", "2025-11-25"), 400, codeUnsupportedVersion, "2025-11-25"},
		// Two faults in one request: the first in the order of checks is told.
		"headers before metadata":          {modernHeaders("tools/list", ""), "ping", ``, 400, codeHeaderMismatch, ""},
		"headers before a missing name":    {modernHeaders("tools/call", "x").with("MCP-Protocol-Version", "2027-01-01"), "tools/call", modernMeta, 400, codeHeaderMismatch, ""},
		"metadata before the version":      {modernHeaders("tools/list", "").with("MCP-Protocol-Version", "2027-01-01"), "tools/list", `"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}`, 400, codeInvalidParams, "clientCapabilities"},
		"the version before the method":    {modernHeaders("ping", "").with("MCP-Protocol-Version", "2027-01-01"), "ping", strings.ReplaceAll(modernMeta, "2026-07-28", "2027-01-01"), 400, codeUnsupportedVersion, ""},
		"metadata before a removed method": {modernHeaders("ping", ""), "ping", `"_meta":{` + version + `}`, 400, codeInvalidParams, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var react reaction
				if c.code == 0 {
					react = echo
				}
				r := newRig(t, rigOptions{react: modernServer(`{}`, react)})
				p := r.up()
				rep := r.post(c.h, `{"jsonrpc":"2.0","id":"7","method":"`+c.method+`","params":{`+c.params+`}}`)
				if c.code != 0 {
					rep.wantError(t, c.status, c.code, `"7"`, c.says)
				} else if rep.status != c.status {
					t.Errorf("status %d: %s", rep.status, rep.body)
				}
				if c.code == codeUnsupportedVersion && !strings.Contains(rep.body, `"data":{"supported":["2026-07-28"],"requested":"`+c.says) {
					t.Errorf("the error does not name the supported versions: %s", rep.body)
				}
				p.quiet()
				r.atRest()
			})
		})
	}
}
