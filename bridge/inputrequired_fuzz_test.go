package bridge

import (
	"encoding/json"
	"testing"

	"mcpd/bridge/jsonrpc"
)

// FuzzAnswers compares what is taken for an answer with what an ordinary
// decoder says of it.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		`{"action":"accept","content":{"a":1}}`, `{"action":"decline"}`, `{"action":"cancel","content":null}`, `{"action":1}`,
		`{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`, `{"role":"user","content":[],"model":"m"}`,
		`{"roots":[{"uri":"file:///x"}]}`, `{"roots":[]}`, `{"roots":[null]}`, `{}`, `[]`, `"x"`, `{"action":"accept"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"inputResponses":{"q1":`), text...), `}}}`...)
		var m jsonrpc.Message
		if jsonrpc.Scan(text, &m) != nil {
			return
		}
		value := jsonrpc.Lookup(text, m.Param.InputResponses.Value, "q1").Value
		if !value.Present() {
			return
		}
		var object map[string]json.RawMessage
		isMap := json.Unmarshal(value.Of(text), &object) == nil && object != nil
		for _, method := range []string{methodElicit, methodSample, methodRoots} {
			if notAnAnswer(method, text, value) != "" {
				continue
			}
			if !isMap {
				t.Fatalf("%s is taken for an answer to %s", value.Of(text), method)
			}
			required := map[string][]string{
				methodElicit: {"action"}, methodSample: {"role", "content", "model"}, methodRoots: {"roots"},
			}[method]
			for _, name := range required {
				if len(object[name]) == 0 || string(object[name]) == "null" {
					t.Fatalf("%s has no %s and is taken for an answer to %s", value.Of(text), name, method)
				}
			}
		}
	})
}
