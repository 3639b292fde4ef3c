package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What the reference finds a text to be.
type verdict string

const (
	verdictOK       verdict = "message"
	verdictSyntax   verdict = "syntax error"
	verdictBatch    verdict = "batch"
	verdictNoObject verdict = "no object"
	verdictEnvelope verdict = "envelope error"
	verdictTooDeep  verdict = "too deep"
	verdictUnjudged verdict = "a number too large to judge here"
)

func verdictOf(err error) verdict {
	var syntax *SyntaxError
	var envelope *EnvelopeError
	switch {
	case err == nil:
		return verdictOK
	case errors.Is(err, ErrBatch):
		return verdictBatch
	case errors.Is(err, ErrNotObject):
		return verdictNoObject
	case errors.As(err, &syntax):
		return verdictSyntax
	case errors.As(err, &envelope):
		return verdictEnvelope
	default:
		return verdict("unknown error: " + err.Error())
	}
}

// depthOf is the nesting of a valid text.
func depthOf(data []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// refObject is an object as jsontext sees it.
type refObject struct {
	members  map[string]Member
	repeated bool
}

// readObject reads the object at span obj with jsontext.
func readObject(data []byte, obj Span) refObject {
	out := refObject{members: map[string]Member{}}
	dec := jsontext.NewDecoder(bytes.NewBuffer(obj.Of(data)), jsontext.AllowDuplicateNames(true))
	next := func() Span {
		v, err := dec.ReadValue()
		if err != nil {
			panic("the reference cannot read what it accepted: " + err.Error())
		}
		end := obj.Start + int(dec.InputOffset())
		return Span{end - len(v), end}
	}
	if _, err := dec.ReadToken(); err != nil {
		panic(err)
	}
	for dec.PeekKind() == '"' {
		m := Member{Key: next()}
		m.Value = next()
		key, err := jsontext.AppendUnquote(nil, m.Key.Of(data))
		if err != nil {
			panic(err)
		}
		if _, there := out.members[string(key)]; there {
			out.repeated = true
			continue
		}
		out.members[string(key)] = m
	}
	return out
}

// wellFormed asks jsontext whether data is one value.
func wellFormed(data []byte) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	if _, err := dec.ReadValue(); err != nil {
		return false
	}
	_, err := dec.ReadToken()
	return err == io.EOF
}

func isObject(data []byte, m Member) bool { return m.Present() && data[m.Value.Start] == '{' }

// integral judges a number with big rationals.
func integral(raw string) (is, known bool) {
	if i := strings.IndexAny(raw, "eE"); i >= 0 && len(strings.TrimLeft(raw[i+1:], "+-0")) > 3 {
		return false, false
	}
	r, ok := new(big.Rat).SetString(raw)
	return ok && r.IsInt(), true
}

// reference reads a message on top of jsontext, in a way as different from
// the scanner as possible.
func reference(data []byte) (verdict, Message) {
	var m Message
	if !wellFormed(data) {
		return verdictSyntax, m
	}
	if depthOf(data) > MaxDepth {
		return verdictTooDeep, m
	}
	trimmed := bytes.Trim(data, " \t\r\n")
	switch trimmed[0] {
	case '{':
	case '[':
		return verdictBatch, m
	default:
		return verdictNoObject, m
	}
	m.HasNewline = bytes.ContainsAny(data, "\r\n")
	start := bytes.IndexByte(data, '{')
	m.Object = Span{start, start + len(trimmed)}

	repeated := false
	read := func(span Span, present bool) map[string]Member {
		if !present {
			return nil
		}
		o := readObject(data, span)
		repeated = repeated || o.repeated
		return o.members
	}
	top := read(m.Object, true)
	m.Version, m.ID, m.Method = top["jsonrpc"], top["id"], top["method"]
	m.Params, m.Result, m.Error = top["params"], top["result"], top["error"]

	p := read(m.Params.Value, isObject(data, m.Params))
	m.Param.Meta, m.Param.Name, m.Param.URI = p["_meta"], p["name"], p["uri"]
	m.Param.Arguments, m.Param.Notifications = p["arguments"], p["notifications"]
	m.Param.ProgressToken, m.Param.RequestID, m.Param.Level = p["progressToken"], p["requestId"], p["level"]
	m.Param.ProtocolVersion, m.Param.Cursor, m.Param.Ref = p["protocolVersion"], p["cursor"], p["ref"]
	m.Param.Capabilities, m.Param.ClientInfo = p["capabilities"], p["clientInfo"]
	m.Param.InputResponses, m.Param.RequestState = p["inputResponses"], p["requestState"]
	read(m.Param.Arguments.Value, isObject(data, m.Param.Arguments))

	const prefix = "io.modelcontextprotocol/"
	meta := read(m.Param.Meta.Value, isObject(data, m.Param.Meta))
	m.Meta.ProgressToken = meta["progressToken"]
	m.Meta.ProtocolVersion = meta[prefix+"protocolVersion"]
	m.Meta.ClientCapabilities = meta[prefix+"clientCapabilities"]
	m.Meta.ClientInfo = meta[prefix+"clientInfo"]
	m.Meta.LogLevel = meta[prefix+"logLevel"]
	m.Meta.SubscriptionID = meta[prefix+"subscriptionId"]

	res := read(m.Result.Value, isObject(data, m.Result))
	m.Res.Meta, m.Res.ResultType = res["_meta"], res["resultType"]
	m.Res.TTL, m.Res.CacheScope = res["ttlMs"], res["cacheScope"]
	resMeta := read(m.Res.Meta.Value, isObject(data, m.Res.Meta))
	m.ResMeta.ServerInfo = resMeta[prefix+"serverInfo"]
	m.ResMeta.SubscriptionID = resMeta[prefix+"subscriptionId"]

	e := read(m.Error.Value, isObject(data, m.Error))
	m.Err.Code, m.Err.Message, m.Err.Data = e["code"], e["message"], e["data"]

	str := func(mem Member) bool { return mem.Present() && data[mem.Value.Start] == '"' }
	idOK, codeOK := !m.ID.Present() || str(m.ID), false
	for _, n := range []struct {
		member Member
		ok     *bool
	}{{m.ID, &idOK}, {m.Err.Code, &codeOK}} {
		raw := string(n.member.Value.Of(data))
		if raw == "" || !strings.ContainsAny(raw[:1], "-0123456789") {
			continue
		}
		is, known := integral(raw)
		if !known {
			return verdictUnjudged, m
		}
		*n.ok = is
	}
	version, _ := jsontext.AppendUnquote(nil, m.Version.Value.Of(data))
	switch {
	case repeated,
		!str(m.Version) || string(version) != "2.0",
		!idOK || m.ID.Value.Len() > MaxIDLength:
		return verdictEnvelope, m
	case m.Method.Present():
		if !str(m.Method) || m.Result.Present() || m.Error.Present() || m.Params.Present() && !isObject(data, m.Params) {
			return verdictEnvelope, m
		}
		m.Kind = Notification
		if m.ID.Present() {
			m.Kind = Request
		}
	case m.Result.Present() == m.Error.Present():
		return verdictEnvelope, m
	case m.Result.Present():
		if !m.ID.Present() {
			return verdictEnvelope, m
		}
		m.Kind = Result
	default:
		if !isObject(data, m.Error) || !codeOK || !str(m.Err.Message) {
			return verdictEnvelope, m
		}
		m.Kind = Error
	}
	return verdictOK, m
}

// compareWithReference fails t when Scan and the reference differ on data.
func compareWithReference(t interface {
	Helper()
	Fatalf(string, ...any)
}, data []byte,
) {
	t.Helper()
	want, ref := reference(data)
	if want == verdictUnjudged {
		return
	}
	if want == verdictTooDeep {
		want = verdictSyntax
	}
	var m Message
	err := Scan(data, &m)
	if got := verdictOf(err); got != want {
		t.Fatalf("Scan(%q): %s (%v), but jsontext: %s", data, got, err, want)
	}
	if err != nil {
		if m.Kind != Invalid {
			t.Fatalf("Scan(%q) failed and left kind %v", data, m.Kind)
		}
		if m.ID.Present() && !ValidID(m.ID.Of(data)) {
			t.Fatalf("Scan(%q) offers the id %q", data, m.ID.Of(data))
		}
		return
	}
	if diff := cmp.Diff(ref, m, cmpopts.IgnoreUnexported(Message{})); diff != "" {
		t.Fatalf("Scan(%q) differs from jsontext (-jsontext +Scan):\n%s", data, diff)
	}
}

func FuzzScanAgainstJSONText(f *testing.F) {
	for _, s := range seeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { compareWithReference(t, data) })
}

// seeds are texts near the edges of what is accepted.
func seeds() []string {
	out := []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","uri":"b","arguments":{"x":null},"_meta":{"progressToken":1,` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
			`"io.modelcontextprotocol/clientInfo":{"name":"n","version":"v"},"io.modelcontextprotocol/logLevel":"info","io.modelcontextprotocol/subscriptionId":"1"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"cursor":"c","ref":{},"level":"info","notifications":{},"requestState":"s","inputResponses":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"requestId":2}}`,
		`{"jsonrpc":"2.0","id":"x","result":{"_meta":{"io.modelcontextprotocol/serverInfo":{},"io.modelcontextprotocol/subscriptionId":1},"resultType":"complete","ttlMs":0,"cacheScope":"private"}}`,
		`{"jsonrpc":"2.0","id":"x","result":[1,2.5e-3,true,false,null,"\ud83d\ude00",{"a":{"b":[[]]}}]}`,
		`{"jsonrpc":"2.0","id":-0,"error":{"code":-32601,"message":"no","data":[]}}`,
		`{"jsonrpc":"2.0","error":{"code":1e2,"message":""}}`,
		"\ufeff{}", " \t\r\n{ } ", `[]`, `[1,`, `"x"`, `1`, `-`, `01`, `1.`, `1e`, `nul`, ``, `{`, `{"a"`, `{"a":`, `{"a":1,}`, `{"a":1 "b"}`,
		`{"\u006aso\u006erpc":"\u0032.0","\u0069d":1,"\u006dethod":"m"}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","\u006dethod":"m"}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"a":1,"\u0061":2}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"a":{"b":1,"b":2}}}}`,
		`{"a":"\ud800"}`, `{"a":"\udc00"}`, `{"a":"\ud800\u0041"}`, `{"a":"\ud800\ud800"}`, `{"a":"\udc00\udc00"}`, `{"a":"\udbff\udfff"}`, `{"a":"\ud800\ue000"}`, `{"a":"\uD834\uDD1E"}`, `{"a":"\x"}`, `{"a":"\u12g4"}`,
		"{\"a\":\"\x00\"}", "{\"a\":\"\x1f\"}", "{\"a\":\"\x7f\"}", "{\"a\":\"\xff\"}", "{\"a\":\"\xc0\x80\"}", "{\"a\":\"\xed\xa0\x80\"}",
		"{\"a\":\"\xe4\xb8\x96\xe7\x95\x8c\"}", "{\"a\":\"\xf4\x90\x80\x80\"}", "{\"a\":\"\xf0\x9f\x98\x80\"}", "{\"a\":\"\xe4\xb8\"}",
	}
	for _, id := range []string{`1`, `1.0`, `1e2`, `100e-2`, `1.5`, `1e-2`, `0.0`, `1e400`, `null`, `true`, `{}`, `[]`, `""`, `"a"`, `9007199254740993`} {
		out = append(out, `{"jsonrpc":"2.0","id":`+id+`,"method":"m"}`)
	}
	for _, depth := range []int{MaxDepth - 2, MaxDepth - 1, MaxDepth, MaxDepth + 1} {
		out = append(out, strings.Repeat("[", depth)+strings.Repeat("]", depth),
			`{"jsonrpc":"2.0","id":1,"result":`+strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth)+`}`)
	}
	return out
}
