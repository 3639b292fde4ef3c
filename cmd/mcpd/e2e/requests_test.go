package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestARequestReachesTheChildByteForByteButForItsID(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	const args = `{ "n" : 1.00, "big":12345678901234567890.5e1 , "é":"\u00e9\/", "deep":[[{}],null,true], "z":"<&>" }`
	const template = `{ "jsonrpc":"2.0","x-unknown" : [1 , 2], "method": "tools/call", "id":%s, "params":{"name":"echo","arguments":` + args +
		`,"_meta":{"com.example/trace":"t","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}, "more":0 }}`
	body := fmt.Sprintf(template, `"mine"`)
	m := d.call("s", body)
	if text, _ := toolText(t, m); text != args {
		t.Errorf("the child got the arguments\n%s, want\n%s", text, args)
	}
	if string(m.ID) != `"mine"` {
		t.Errorf("the answer has id %s", m.ID)
	}
	for _, line := range d.received("s") {
		if !strings.Contains(line, "x-unknown") {
			continue
		}
		var got struct {
			ID json.RawMessage `json:"id"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(template, got.ID); line != want {
			t.Errorf("the child got\n%s, want\n%s", line, want)
		}
		return
	}
	t.Error("the child has not received the request")
}

func TestARequestOverManyLinesIsOneLineForTheChild(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	body := strings.NewReplacer(",", ",\r\n\t", "{", "{\n").Replace(toolCall("1", "echo", `{"a":1}`, ""))
	if text, _ := toolText(t, d.call("s", body)); strings.ContainsAny(text, "\r\n") || !strings.Contains(text, `"a":1`) {
		t.Errorf("the child got %q", text)
	}
}

func TestAnAnswerReachesTheClientByteForByteButForItsID(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	const result = `{ "resultType" : "complete","content":[ ],"n":1.00,"e":1E400,"é":"\u00e9\/<&>","_meta":{"a":{"b":[null]}} }`
	quoted, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	got := d.do(d.post("s", toolCall(`"x"`, "reply_raw", `{"text":`+string(quoted)+`}`, "")))
	if want := `{"jsonrpc":"2.0","id":"x","result":` + result + `}`; strings.TrimSuffix(got.body, "\n") != want {
		t.Errorf("the client got\n%s, want\n%s", got.body, want)
	}
}

func TestIDsComeBackAsTheyWereSent(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	for _, id := range []string{`0`, `-7`, `9007199254740993`, `1.0`, `1e2`, `""`, `"1"`, `"\u00e9\n\""`, `"` + strings.Repeat("i", 500) + `"`} {
		for name, body := range map[string]string{"a result": modern(id, "tools/list", "", ""), "an error": modern(id, "no/such", "", "")} {
			if m := d.call("s", body); string(m.ID) != id {
				t.Errorf("%s to id %s has id %s", name, id, m.ID)
			}
		}
	}
}

func TestHeadersThatDifferFromTheBodyAreRefusedBeforeTheChildSeesAnything(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	call := toolCall("5", "headers", `{"region":"eu","urgent":true,"options":{"depth":42}}`, "")
	params := map[string]string{"Mcp-Param-Region": "eu", "Mcp-Param-Urgent": "true", "Mcp-Param-Depth": "42"}
	read := modern("5", "resources/read", `"uri":"fixture:///a"`, "")
	const gone = "-"
	for _, test := range []struct {
		name, body, header, value string
		ok                        bool
	}{
		{"all equal", call, "X-Other", "1", true},
		{"no version", call, "MCP-Protocol-Version", gone, false},
		{"no method", call, "Mcp-Method", gone, false},
		{"another method", call, "Mcp-Method", "tools/list", false},
		{"the method in another case", call, "Mcp-Method", "Tools/Call", false},
		{"no name", call, "Mcp-Name", gone, false},
		{"another name", call, "Mcp-Name", "echo", false},
		{"the name in base64", call, "Mcp-Name", "=?base64?aGVhZGVycw==?=", true},
		{"another name in base64", call, "Mcp-Name", "=?base64?ZWNobw==?=", false},
		{"a name in broken base64", call, "Mcp-Name", "=?base64?!!?=", false},
		{"another version", call, "MCP-Protocol-Version", "2099-01-01", false},
		{"another parameter", call, "Mcp-Param-Region", "us", false},
		{"no parameter", call, "Mcp-Param-Region", gone, false},
		{"the parameter in base64", call, "Mcp-Param-Region", "=?base64?ZXU=?=", true},
		{"a nested parameter that differs", call, "Mcp-Param-Depth", "43", false},
		{"a nested parameter that is missing", call, "Mcp-Param-Depth", gone, false},
		{"an integer written otherwise", call, "Mcp-Param-Depth", "42.0", true},
		{"a boolean that differs", call, "Mcp-Param-Urgent", "false", false},
		{"a parameter of no schema", call, "Mcp-Param-Unknown", "x", true},
		{"a uri that differs", read, "Mcp-Name", "fixture:///b", false},
		{"a uri that is equal", read, "Mcp-Name", "fixture:///a", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := d.stats("s")
			r := d.post("s", test.body)
			if test.body == call {
				for name, value := range params {
					r.Header.Set(name, value)
				}
			}
			r.Header.Del(test.header)
			if test.value != gone {
				r.Header.Set(test.header, test.value)
			}
			got := d.do(r)
			after := d.stats("s")
			calls := after.Methods["tools/call"] - before.Methods["tools/call"] - 1 // less that of stats
			if test.body == read {
				calls = after.Methods["resources/read"] - before.Methods["resources/read"]
			}
			if test.ok {
				if got.status != http.StatusOK || calls != 1 {
					t.Errorf("%d %s; %d calls", got.status, got.body, calls)
				}
				return
			}
			if got.status != http.StatusBadRequest || !strings.Contains(got.body, "-32020") || !strings.Contains(got.body, `"id":5`) {
				t.Errorf("%d %s", got.status, got.body)
			}
			if calls != 0 {
				t.Error("the child saw the request")
			}
		})
	}
}

func TestParametersThatAreNullOrAbsentNeedNoHeader(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	for _, args := range []string{`{}`, `{"region":null,"options":{}}`, `{"options":null}`} {
		if got := d.do(d.post("s", toolCall("1", "headers", args, ""))); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", args, got.status, got.body)
		}
	}
}

func TestParametersAreCheckedForToolsOnLaterPagesOfTheList(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-page-size", "1"})}})
	if got := d.do(d.post("s", toolCall("1", "headers", `{"region":"eu"}`, ""))); got.status != 400 || !strings.Contains(got.body, "-32020") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestModernRequestsThatAreRefusedSayWhyInTheFixedOrder(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	for _, test := range []struct {
		name, body string
		headers    map[string]string
		status     int
		code       int
	}{
		{
			"headers before everything", `{"jsonrpc":"2.0","id":1,"method":"no/such","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}`,
			map[string]string{"Mcp-Method": "other"},
			400, -32020,
		},
		{"missing capabilities before the version", `{"jsonrpc":"2.0","id":1,"method":"no/such","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}`, nil, 400, -32602},
		{"the version before the method", `{"jsonrpc":"2.0","id":1,"method":"no/such","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`, nil, 400, -32022},
		{"an unknown method", modern("1", "no/such", "", ""), nil, 404, -32601},
		{"initialize as modern", modern("1", "initialize", "", ""), nil, 404, -32601},
		{"ping as modern", modern("1", "ping", "", ""), nil, 404, -32601},
		{"logging/setLevel as modern", modern("1", "logging/setLevel", `"level":"info"`, ""), nil, 404, -32601},
		{"resources/subscribe as modern", modern("1", "resources/subscribe", `"uri":"fixture:///a"`, ""), nil, 404, -32601},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := d.post("s", test.body)
			for name, value := range test.headers {
				r.Header.Set(name, value)
			}
			got := d.do(r)
			var m message
			if err := json.Unmarshal([]byte(got.body), &m); err != nil || m.Error == nil {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if got.status != test.status || m.Error.Code != test.code || string(m.ID) != "1" {
				t.Errorf("%d %s, want %d and %d", got.status, got.body, test.status, test.code)
			}
		})
	}
}

func TestAnUnsupportedVersionNamesTheSupportedOnes(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	m := d.call("s", strings.Replace(modern("1", "tools/list", "", ""), modernVersion, "1900-01-01", 1))
	if m.Error == nil {
		t.Fatalf("no error: %s", m.Result)
	}
	var data struct {
		Supported []string `json:"supported"`
		Requested string   `json:"requested"`
	}
	if err := json.Unmarshal(m.Error.Data, &data); err != nil || !slices.Contains(data.Supported, modernVersion) || data.Requested != "1900-01-01" {
		t.Errorf("data %s: %v", m.Error.Data, err)
	}
}

func TestErrorsOfTheChildTravelUnchanged(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	for code, status := range map[int]int{-32602: 200, -32603: 200, -32601: 404, -32020: 400, -32021: 400, -32022: 400, -32002: 200, 4711: 200} {
		data := `{"requiredCapabilities":{"sampling":{}},"n":1.50}`
		got := d.do(d.post("s", toolCall(`"e"`, "error", fmt.Sprintf(`{"code":%d,"text":"no \"luck\"","data":%s}`, code, data), "")))
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":"e","error":{"code":%d,"data":%s,"message":"no \"luck\""}}`, code, data)
		if got.status != status || strings.TrimSuffix(got.body, "\n") != want {
			t.Errorf("%d %s, want %d %s", got.status, got.body, status, want)
		}
	}
}

func TestLargeMessagesPassInBothDirections(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	const size = 12 << 20
	if text := d.tool("s", "huge", fmt.Sprintf(`{"bytes":%d}`, size)); len(text) != size {
		t.Errorf("%d bytes came back, want %d", len(text), size)
	}
	args := `{"text":"` + strings.Repeat("x", size) + `"}`
	if text := d.tool("s", "echo", args); text != args {
		t.Errorf("%d bytes came back, want %d", len(text), len(args))
	}
}

func TestAnAnswerOverTheLimitFailsWithAClearErrorAndTheServerGoesOn(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil, `max_message_bytes = "1MiB"`)}})
	m := d.call("s", toolCall("1", "huge", `{"bytes":2000000}`, ""))
	answer, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(answer); !strings.Contains(text, "max_message_bytes") && !strings.Contains(text, "1 MiB") && !strings.Contains(text, "1048576") && !strings.Contains(text, "limit") {
		t.Errorf("the error says nothing of the limit: %.500s", text)
	}
	if text := d.tool("s", "echo", `{"a":1}`); text != `{"a":1}` {
		t.Errorf("afterwards: %q", text)
	}
}
