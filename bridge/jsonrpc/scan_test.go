package jsonrpc

import "testing"

func TestSmoke(t *testing.T) {
	var m Message
	d := []byte(` {"jsonrpc":"2.0", "id" : 1.0, "\u006dethod":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"a"},"arguments":{"a":[1,{"b":[]}]}}}` + "\n")
	if err := Scan(d, &m); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %s %s %s %s", m.ID.Of(d), m.Method.Of(d), m.Param.Name.Of(d), m.Meta.ProtocolVersion.Of(d), AppendLine(nil, m.Object.Of(d)))
	t.Logf("%s", AppendLine(nil, d, EditMembers(d, m.Params.Value, []byte(`"q":1`), m.Param.Name, m.Param.Arguments, m.Param.Meta)...))
}
