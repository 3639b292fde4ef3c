package jsonrpc

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestScanAgreesWithJSONTextAtTheEdges(t *testing.T) {
	for _, s := range seeds() {
		compareWithReference(t, []byte(s))
	}
}

func TestScanAgreesWithJSONTextOnEveryByteInAString(t *testing.T) {
	// Every byte at every offset of a word, and in front of bytes at the edges.
	edges := []byte{0x00, 0x1F, ' ', '!', '"', '#', '/', '[', '\\', ']', 'u', 0x7E, 0x7F, 0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF}
	for a := range 256 {
		for pad := range 9 {
			compareWithReference(t, []byte(`{"`+strings.Repeat("x", pad)+string([]byte{byte(a)})+`": 1}`))
		}
		for _, b := range edges {
			compareWithReference(t, []byte(`{"abc`+string([]byte{byte(a), b})+`xyz": 1}`))
		}
	}
}

func TestScanAgreesWithJSONTextOnEverySequenceBoundary(t *testing.T) {
	edges := []byte{0x00, 0x22, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0}
	for lead := 0xC0; lead < 0x100; lead++ {
		for _, a := range edges {
			for _, b := range edges {
				for _, c := range []byte{0x7F, 0x80, 0xBF, 0xC0} {
					compareWithReference(t, []byte(`{"a":"`+string([]byte{byte(lead), a, b, c})+`"}`))
				}
			}
		}
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		text string
		want Kind
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"m"}`, Request},
		{`{"id":"","params":{},"method":"","jsonrpc":"2.0"}`, Request},
		{`{"jsonrpc":"2.0","method":"m"}`, Notification},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, Result},
		{`{"jsonrpc":"2.0","id":1,"result":null}`, Result},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}`, Error},
		{`{"jsonrpc":"2.0","error":{"code":1.0,"message":"m"}}`, Error},
	} {
		var m Message
		if err := Scan([]byte(c.text), &m); err != nil || m.Kind != c.want {
			t.Errorf("%s: kind %v (%v), want %v", c.text, m.Kind, err, c.want)
		}
	}
}

func TestWhatIsNoMessageSaysWhyAndKeepsAUsableID(t *testing.T) {
	long := strings.Repeat("x", MaxIDLength)
	for _, c := range []struct {
		text, reason, id string
	}{
		{`{}`, `"jsonrpc" is missing`, ``},
		{`{"id":1,"method":"m"}`, `"jsonrpc" is missing`, `1`},
		{`{"jsonrpc":"1.0","id":1,"method":"m"}`, `must be "2.0"`, `1`},
		{`{"jsonrpc":2.0,"id":1,"method":"m"}`, `must be "2.0"`, `1`},
		{`{"JSONRPC":"2.0","id":1,"method":"m"}`, `"jsonrpc" is missing`, `1`},
		{`{"jsonrpc":"2.0","id":1,"METHOD":"m"}`, `one of "method"`, `1`},
		{`{"jsonrpc":"2.0","id":1.5,"method":"m"}`, `not a fraction`, ``},
		{`{"jsonrpc":"2.0","id":null,"method":"m"}`, `"id" must be a string or an integer`, ``},
		{`{"jsonrpc":"2.0","id":true,"method":"m"}`, `"id" must be a string or an integer`, ``},
		{`{"jsonrpc":"2.0","id":{},"method":"m"}`, `"id" must be a string or an integer`, ``},
		{`{"jsonrpc":"2.0","id":["1"],"method":"m"}`, `"id" must be a string or an integer`, ``},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, `"id" must be a string or an integer`, ``},
		{`{"jsonrpc":"2.0","id":"` + long + `","method":"m"}`, `longer than 1024 bytes`, ``},
		{`{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}`, `"id" occurs twice in the message`, ``},
		{`{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"m"}`, `"id" occurs twice in the message`, ``},
		{`{"jsonrpc":"2.0","id":"a\n","method":7}`, `"method" must be a string`, `"a\n"`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":[]}`, `"params" must be an object`, `1`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, `"params" must be an object`, `1`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`, `cannot be in one message`, `1`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","error":{}}`, `cannot be in one message`, `1`},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, `not both`, `1`},
		{`{"jsonrpc":"2.0","result":{}}`, `must carry the "id"`, ``},
		{`{"jsonrpc":"2.0","id":1,"error":"no"}`, `"error" must be an object`, `1`},
		{`{"jsonrpc":"2.0","id":1,"error":{"message":""}}`, `integer "code"`, `1`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}`, `integer "code"`, `1`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}`, `integer "code"`, `1`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, `string "message"`, `1`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":null}}`, `string "message"`, `1`},
	} {
		var m Message
		err := Scan([]byte(c.text), &m)
		var envelope *EnvelopeError
		if !errors.As(err, &envelope) {
			t.Errorf("%s: %v, want an EnvelopeError", c.text, err)
			continue
		}
		if !strings.Contains(envelope.Reason, c.reason) {
			t.Errorf("%s: %q does not say %q", c.text, envelope.Reason, c.reason)
		}
		if m.Kind != Invalid || string(m.ID.Of([]byte(c.text))) != c.id {
			t.Errorf("%s: kind %v, id %q, want id %q", c.text, m.Kind, m.ID.Of([]byte(c.text)), c.id)
		}
	}
}

func TestNamesRepeatedInTheEnvelopeAreRefused(t *testing.T) {
	for _, c := range []struct{ text, where string }{
		{`{"jsonrpc":"2.0","method":"m","method":"n"}`, "the message"},
		{`{"jsonrpc":"2.0","method":"m","\u006dethod":"n"}`, "the message"},
		{`{"jsonrpc":"2.0","method":"m","x":1,"x":2}`, "the message"},
		{`{"jsonrpc":"2.0","method":"m","":1,"":2}`, "the message"},
		{`{"jsonrpc":"2.0","method":"m","a\/b":1,"a/b":2}`, "the message"},
		{`{"jsonrpc":"2.0","method":"m","😀":1,"\ud83d\ude00":2}`, "the message"},
		{`{"jsonrpc":"2.0","method":"m","params":{"x":1,"y":2,"x":1}}`, "params"},
		{`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"a":1,"\u0061":1}}}`, "params._meta"},
		{`{"jsonrpc":"2.0","method":"m","params":{"\u005fmeta":{"a":1,"a":1}}}`, "params._meta"},
		{`{"jsonrpc":"2.0","method":"m","params":{"arguments":{"a":1,"a":1}}}`, "params.arguments"},
		{`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":1}}`, "result"},
		{`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"a":1,"a":1}}}`, "result._meta"},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","code":1}}`, "error"},
	} {
		var m Message
		err := Scan([]byte(c.text), &m)
		if err == nil || !strings.HasSuffix(err.Error(), "occurs twice in "+c.where) {
			t.Errorf("%s: %v, want a repetition in %s", c.text, err, c.where)
		}
	}
}

func TestNamesMayRepeatBelowTheEnvelope(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","method":"m","params":{"arguments":{"a":{"b":1,"b":2}}}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"a":{"b":1,"b":2}}}}`,
		`{"jsonrpc":"2.0","method":"m","x":{"b":1,"b":2}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"b":1,"b":2}]}}`,
		`{"jsonrpc":"2.0","method":"m","params":{"name":1,"_meta":{"name":1},"arguments":{"name":1,"_meta":1}}}`,
	} {
		var m Message
		if err := Scan([]byte(text), &m); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestARepeatedNameIsClippedInTheError(t *testing.T) {
	name := strings.Repeat("é", 5000) + `\n\u001b[31m`
	var m Message
	err := Scan([]byte(`{"jsonrpc":"2.0","method":"m","`+name+`":1,"`+name+`":1}`), &m)
	if err == nil || len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("got %v", err)
	}
}

func TestAnyRepetitionIsFoundAroundTheLimitOfFewNames(t *testing.T) {
	for n := fewNames - 1; n <= fewNames+2; n++ {
		for i := range n {
			for j := range i {
				names := make([]string, n)
				for k := range names {
					names[k] = fmt.Sprintf(`"k%d":0`, k)
				}
				names[i] = fmt.Sprintf(`"\u006b%d":1`, j)
				var m Message
				err := Scan([]byte(`{"jsonrpc":"2.0","method":"m","params":{"arguments":{`+strings.Join(names, ",")+`}}}`), &m)
				want := fmt.Sprintf(`the member "k%d" occurs twice in params.arguments`, j)
				if err == nil || err.Error() != want {
					t.Fatalf("names %d and %d of %d: %v", i, j, n, err)
				}
			}
		}
	}
}

func TestRepetitionIsFoundAmongManyNames(t *testing.T) {
	// A quadratic search over this many names would take minutes.
	const n = 200_000
	var b strings.Builder
	b.WriteString(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{`)
	for i := range n {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	unique := b.String() + `"last":0}}}`
	var m Message
	if err := Scan([]byte(unique), &m); err != nil {
		t.Fatal(err)
	}
	if cap(m.names) > keptNames {
		t.Errorf("the scratch space of %d names is kept", cap(m.names))
	}
	for _, again := range []string{`"k0"`, `"k199999"`, `"\u006b100000"`} {
		err := Scan([]byte(b.String()+again+`:0}}}`), &m)
		if err == nil || !strings.Contains(err.Error(), "occurs twice in params.arguments") {
			t.Errorf("%s again: %v", again, err)
		}
	}
}

func TestSyntaxErrorsNameTheOffset(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int
		reason string
	}{
		{``, 0, "ends where a value"},
		{"\ufeff{}", 0, "expected a value"},
		{`{"a":1}x`, 7, "unexpected text behind"},
		{`{"a":1}{"b":2}`, 7, "unexpected text behind"},
		{`{a:1}`, 1, "member name in quotes"},
		{`{"a":1,}`, 7, "member name in quotes"},
		{`{"a" 1}`, 5, "colon"},
		{`{"a":01}`, 6, "comma or the end of the object"},
		{`{"a":[1 2]}`, 8, "comma or the end of the array"},
		{`{"a":[1,]}`, 8, "expected a value"},
		{`{"a":[1}}`, 7, "end of the array"},
		{`{"a":{"b":1]}`, 11, "end of the object"},
		{`{"a":.5}`, 5, "expected a value"},
		{`{"a":1.}`, 7, "digit"},
		{`{"a":-}`, 6, "digit"},
		{`{"a":1e+}`, 8, "digit"},
		{`{"a":NaN}`, 5, "expected a value"},
		{`{"a":tru}`, 5, "expected true"},
		{`{"a":"b`, 7, "ends inside a string"},
		{"{\"a\":\"b\n\"}", 7, "control character"},
		{"{\"a\":\"b\xff\"}", 7, "invalid UTF-8"},
		{`{"a":"\ud800"}`, 6, "surrogate"},
		{`{"a":"\q"}`, 6, "unknown escape"},
		{`{"a":"\u00x0"}`, 6, "four hexadecimal"},
		{`[1,`, 3, "ends where a value"},
		{strings.Repeat("[", MaxDepth+1), MaxDepth, "deeper than 1000 levels"},
		{strings.Repeat(`{"params":`, MaxDepth+1), 10 * MaxDepth, "deeper than 1000 levels"},
	} {
		m := Message{Kind: Request, ID: Member{Value: Span{1, 2}}}
		err := Scan([]byte(c.text), &m)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset != c.offset || !strings.Contains(syntax.Reason, c.reason) {
			t.Errorf("%.40q: %v, want %q at %d", c.text, err, c.reason, c.offset)
		}
		if m.Kind != Invalid || m.ID.Present() {
			t.Errorf("%.40q: the message is not empty after a syntax error", c.text)
		}
	}
}

func TestOtherValuesAreNoMessages(t *testing.T) {
	var m Message
	for text, want := range map[string]error{
		`[]`: ErrBatch, ` [{"jsonrpc":"2.0","method":"m"}] `: ErrBatch,
		`1`: ErrNotObject, `"x"`: ErrNotObject, `null`: ErrNotObject,
	} {
		if err := Scan([]byte(text), &m); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

func TestAByteOrderMarkIsAcceptedOnLinesOnly(t *testing.T) {
	text := []byte("\ufeff{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\"}\r")
	var m Message
	var syntax *SyntaxError
	if err := Scan(text, &m); !errors.As(err, &syntax) {
		t.Errorf("Scan: %v", err)
	}
	if err := ScanLine(text, &m); err != nil || string(m.ID.Of(text)) != "7" || m.Object.Start != 3 || m.Object.End != len(text)-1 {
		t.Errorf("ScanLine: %v, %+v", err, m.Object)
	}
	if err := ScanLine(append([]byte("\ufeff"), text...), &m); !errors.As(err, &syntax) {
		t.Errorf("ScanLine with two marks: %v", err)
	}
}

func TestScanReusesItsMessage(t *testing.T) {
	first := []byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\n\"params\":{\"name\":\"n\",\"_meta\":{\"progressToken\":1}}}")
	second := []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	var reused, fresh Message
	if err := errors.Join(Scan(first, &reused), Scan(second, &reused), Scan(second, &fresh)); err != nil {
		t.Fatal(err)
	}
	reused.names, fresh.names = nil, nil
	if fmt.Sprintf("%+v", reused) != fmt.Sprintf("%+v", fresh) {
		t.Errorf("left over from the first scan: %+v", reused)
	}
	for _, c := range benchMessages() {
		if n := testing.AllocsPerRun(10, func() {
			if err := Scan(c.data, &reused); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a scan", c.name, n)
		}
	}
}

func TestValidate(t *testing.T) {
	data := []byte("\n [1, {\"a\":1,\"a\":2}] ")
	span, err := Validate(data)
	if err != nil || string(span.Of(data)) != `[1, {"a":1,"a":2}]` {
		t.Errorf("got %q, %v", span.Of(data), err)
	}
	for _, text := range []string{"", "{", "1 2", "\ufeff1", `"\ud800"`, strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)} {
		var syntax *SyntaxError
		if _, err := Validate([]byte(text)); !errors.As(err, &syntax) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestScanAgreesWithJSONTextOnGeneratedMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { compareWithReference(t, drawMessage(t)) })
}

func TestScanAgreesWithJSONTextOnDamagedMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := drawMessage(t)
		at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 0:
			data = data[:at]
		case 1:
			data[at] = rapid.Byte().Draw(t, "byte")
		default:
			data = append(data[:at:at], data[at+1:]...)
		}
		compareWithReference(t, data)
	})
}
