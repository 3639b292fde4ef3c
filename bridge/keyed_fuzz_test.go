package bridge

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"unicode/utf8"

	"mcpd/bridge/jsonrpc"
	"mcpd/bridge/ledger"
)

// FuzzWhatIsPutIntoMessagesOfKeyedCallsLeavesThemValid changes messages of servers and clients in all the ways that the
// idempotency key needs.
func FuzzWhatIsPutIntoMessagesOfKeyedCallsLeavesThemValid(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"send","inputSchema":{"type":"object","properties":{"to":{}}}},{"name":"send","inputSchema":{}}]}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"send","inputSchema":{"properties":{ }}}, {"name":"s\u0065nd","inputSchema":{"properties":{"idempotency_key":1}}}]}}`,
		`{"jsonrpc":"2.0","id":1,"result":{ "_meta" : {"mcpd/replayed":false, "x":1}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"_meta":null}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"result":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send","arguments":{"a":1 , "idempotency_key" : "k"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send","arguments":{"idempotency_key":"k","password":"x","q":"ghp_x"}}}`,
	} {
		f.Add([]byte(seed))
	}
	u := NewUpstream(UpstreamOptions{Name: "s", Logger: slog.New(slog.DiscardHandler)})
	u.SetRetryPolicy(RetryPolicy{Tools: map[string]ToolPolicy{"send": {Key: "idempotency_key", Inject: true}}})
	f.Fuzz(func(t *testing.T, data []byte) {
		var m jsonrpc.Message
		if jsonrpc.Scan(data, &m) != nil {
			return
		}
		valid := func(what string, edits []jsonrpc.Edit) []byte {
			var again jsonrpc.Message
			edited := jsonrpc.AppendEdited(nil, data, edits...)
			if err := jsonrpc.Scan(edited, &again); err != nil || again.Kind != m.Kind {
				t.Fatalf("%s: %v in %s", what, err, edited)
			}
			return edited
		}
		switch m.Kind {
		case jsonrpc.Result:
			valid("the key added to the schemas", u.injectKeys(&inbound{data: data, msg: m}))
			marked := valid("the mark of a replay", markReplayed(data, &m))
			if isObject(data, m.Result.Value) && !bytes.Contains(marked, []byte(`"mcpd/replayed":true`)) {
				t.Fatalf("not marked: %s", marked)
			}
		case jsonrpc.Request:
			arguments := m.Param.Arguments.Value
			if s := summary(data, arguments, ""); len(s) > 1000 || !utf8.ValidString(s) {
				t.Fatalf("the summary has %d bytes: %q", len(s), s)
			}
			in := &incoming{body: &buffer{b: data}, msg: m, name: "send"}
			key, member, err := keyOf(in, u.retry.Load().Tools["send"])
			if err != nil || key == "" {
				return
			}
			strip := jsonrpc.RemoveMembers(data, arguments, member)
			var again jsonrpc.Message
			stripped := valid("the key taken out", strip)
			if err := jsonrpc.Scan(stripped, &again); err != nil {
				t.Fatal(err)
			}
			if jsonrpc.Lookup(stripped, again.Param.Arguments.Value, "idempotency_key").Present() {
				t.Fatalf("the key is still in %s", stripped)
			}
			part := editedSpan(data, arguments, strip)
			if !bytes.Equal(part, again.Param.Arguments.Of(stripped)) {
				t.Fatalf("the arguments are digested as %s, and sent as %s", part, again.Param.Arguments.Of(stripped))
			}
			first, err := ledger.DigestOf(part)
			if err != nil {
				return
			}
			var v any
			if json.Unmarshal(part, &v) != nil {
				t.Fatalf("the arguments are no JSON: %s", part)
			}
			var spaced bytes.Buffer
			if json.Indent(&spaced, part, " ", "\t") != nil {
				t.Fatal("no indentation")
			}
			if second, err := ledger.DigestOf(spaced.Bytes()); err != nil || second != first {
				t.Fatalf("spaces change the digest of %s: %v", part, err)
			}
		}
	})
}
