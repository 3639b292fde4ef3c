package header

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"mcpd/bridge/jsonrpc"
)

func params(t *testing.T) []Param {
	t.Helper()
	ps, err := Params([]byte(`{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"size":{"type":"integer","x-mcp-header":"Size"},
		"dry":{"type":"boolean","x-mcp-header":"Dry"},
		"outer":{"type":"object","properties":{
			"inner":{"type":"string","x-mcp-header":"Inner"},
			"more":{"type":"object","properties":{"deep":{"type":"integer","x-mcp-header":"Deep"}}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// headers builds the fields "Name: value" as net/http would read them.
func headers(fields ...string) http.Header {
	h := http.Header{}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ":")
		h.Add("Mcp-Param-"+name, strings.TrimSpace(value))
	}
	return h
}

func TestHeadersThatMatchTheArguments(t *testing.T) {
	for _, c := range []struct {
		arguments string
		fields    []string
	}{
		{``, nil},
		{`{}`, nil},
		{`{"region":null,"outer":null}`, nil},
		{`{"outer":{"more":{}}}`, nil},
		{`{"outer":"text"}`, nil},
		{`{"outer":[{"inner":"x"}]}`, nil},
		{`"text"`, nil},
		{`[1]`, nil},
		{`{"region":"us-west1"}`, []string{"Region: us-west1"}},
		{`{"region":"us-west1"}`, []string{"REGION: us-west1", "Unknown: x"}},
		{`{"\u0072egion":"us\u002dwest1"}`, []string{"Region: us-west1"}},
		{`{"region":""}`, []string{"Region:"}},
		{`{"region":""}`, []string{"Region: =?base64??="}},
		{`{"region":"Hello, 世界"}`, []string{"Region: =?base64?SGVsbG8sIOS4lueVjA==?="}},
		{`{"region":"us-west1"}`, []string{"Region: =?base64?dXMtd2VzdDE=?="}},
		{`{"region":"=?base64?literal?="}`, []string{"Region: =?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}},
		{`{"size":42}`, []string{"Size: 42"}},
		{`{"size":42.0}`, []string{"Size: 42"}},
		{`{"size":42}`, []string{"Size: 42.0"}},
		{`{"size":100}`, []string{"Size: 1e2"}},
		{`{"size":1e2}`, []string{"Size: 100"}},
		{`{"size":-0}`, []string{"Size: 0"}},
		{`{"size":-7}`, []string{"Size: =?base64?LTc=?="}},
		{`{"size":9007199254740991}`, []string{"Size: 9007199254740991"}},
		{`{"size":-9007199254740991}`, []string{"Size: -9007199254740991"}},
		{`{"dry":true}`, []string{"Dry: true"}},
		{`{"dry":false}`, []string{"Dry: false"}},
		{`{"outer":{"inner":"x","more":{"deep":3}}}`, []string{"Inner: x", "Deep: 3"}},
		// Values of another type than the schema's are mirrored all the same.
		{`{"region":7}`, []string{"Region: 7"}},
		{`{"size":"seven"}`, []string{"Size: seven"}},
		{`{"dry":"yes"}`, []string{"Dry: yes"}},
		// What no parameter looks for may repeat.
		{`{"outer":{"inner":"x","other":1,"other":2}}`, []string{"Inner: x"}},
	} {
		if err := Check(headers(c.fields...), []byte(c.arguments), params(t)); err != nil {
			t.Errorf("%s with %q: %v", c.arguments, c.fields, err)
		}
	}
}

func TestHeadersThatDoNotMatchTheArguments(t *testing.T) {
	for _, c := range []struct {
		arguments string
		fields    []string
		header    string
		want      string
	}{
		{`{"region":"a"}`, nil, "Mcp-Param-Region", `is missing, but the argument "region" has a value`},
		{`{"region":""}`, nil, "Mcp-Param-Region", "is missing"},
		{`{"region":"a"}`, []string{"Region: b"}, "Mcp-Param-Region", `value "b" does not match the argument "region"`},
		{`{"region":"a"}`, []string{"Region: A"}, "Mcp-Param-Region", "does not match"},
		{`{"region":"a"}`, []string{"Region: a", "Region: a"}, "Mcp-Param-Region", "more than once"},
		{`{"region":"a"}`, []string{"Region: a", "region: b"}, "Mcp-Param-Region", "more than once"},
		{`{"region":"a"}`, []string{"Region: =?base64?YQ?="}, "Mcp-Param-Region", "not valid Base64"},
		{`{"region":"=?base64?YQ==?="}`, []string{"Region: =?base64?YQ==?="}, "Mcp-Param-Region", "does not match"},
		{`{"region":"é"}`, []string{"Region: é"}, "Mcp-Param-Region", "0xC3"},
		{`{}`, []string{"Region: a"}, "Mcp-Param-Region", `must be left out, as the argument "region" has no value`},
		{`{}`, []string{"Region:"}, "Mcp-Param-Region", "must be left out"},
		{``, []string{"Region: a"}, "Mcp-Param-Region", "must be left out"},
		{`[]`, []string{"Region: a"}, "Mcp-Param-Region", "must be left out"},
		{`{"region":null}`, []string{"Region: null"}, "Mcp-Param-Region", "must be left out"},
		{`{"region":null}`, []string{"Region: \x01"}, "Mcp-Param-Region", "0x01"},
		{`{"outer":{}}`, []string{"Inner: x"}, "Mcp-Param-Inner", "must be left out"},
		{`{"outer":["inner"]}`, []string{"Inner: x"}, "Mcp-Param-Inner", "must be left out"},
		{`{"inner":"x"}`, []string{"Inner: x"}, "Mcp-Param-Inner", "must be left out"},
		{`{"outer":{"more":{"deep":3}}}`, []string{"Deep: 4"}, "Mcp-Param-Deep", `value "4" does not match the argument "outer.more.deep"`},
		{`{"size":42}`, []string{"Size: 43"}, "Mcp-Param-Size", "does not match"},
		{`{"size":42}`, []string{"Size: 42.5"}, "Mcp-Param-Size", "does not match"},
		{`{"size":42}`, []string{"Size: 0x2a"}, "Mcp-Param-Size", "does not match"},
		{`{"size":42}`, []string{"Size: +42"}, "Mcp-Param-Size", "does not match"},
		{`{"size":42}`, []string{"Size: 042"}, "Mcp-Param-Size", "does not match"},
		{`{"size":42}`, []string{"Size: 4_2"}, "Mcp-Param-Size", "does not match"},
		{`{"size":42}`, []string{"Size:"}, "Mcp-Param-Size", "does not match"},
		{`{"size":"42"}`, []string{"Size: 42.0"}, "Mcp-Param-Size", "does not match"},
		{`{"size":1.5}`, []string{"Size: 1.5"}, "Mcp-Param-Size", "not an integer within"},
		{`{"size":9007199254740992}`, []string{"Size: 9007199254740992"}, "Mcp-Param-Size", "not an integer within"},
		{`{"size":9007199254740993}`, []string{"Size: 9007199254740992"}, "Mcp-Param-Size", "not an integer within"},
		{`{"size":1e400}`, []string{"Size: 1e400"}, "Mcp-Param-Size", "not an integer within"},
		{`{"size":{}}`, []string{"Size: 1"}, "Mcp-Param-Size", "which is an object"},
		{`{"size":[1]}`, []string{"Size: 1"}, "Mcp-Param-Size", "which is an array"},
		{`{"size":{}}`, nil, "Mcp-Param-Size", "is missing"},
		{`{"dry":true}`, []string{"Dry: True"}, "Mcp-Param-Dry", "does not match"},
		{`{"dry":true}`, []string{"Dry: 1"}, "Mcp-Param-Dry", "does not match"},
		{`{"dry":false}`, []string{"Dry: true"}, "Mcp-Param-Dry", "does not match"},
		{`{"region":"a","region":"b"}`, []string{"Region: a"}, "Mcp-Param-Region", `the arguments hold "region" twice`},
		{`{"outer":{"inner":"a","\u0069nner":"b"}}`, []string{"Inner: b"}, "Mcp-Param-Inner", `hold "outer.inner" twice`},
		{`{"outer":{},"outer":{"inner":"a"}}`, []string{"Inner: a"}, "Mcp-Param-Inner", `hold "outer" twice`},
		{`{"outer":{"more":1,"more":{"deep":1}}}`, []string{"Deep: 1"}, "Mcp-Param-Deep", `hold "outer.more" twice`},
	} {
		err := Check(headers(c.fields...), []byte(c.arguments), params(t))
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) || mismatch.Header != c.header || !strings.Contains(mismatch.Reason, c.want) {
			t.Errorf("%s with %q: %v, want %s … %q", c.arguments, c.fields, err, c.header, c.want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "Header mismatch: "+c.header+" ") {
			t.Errorf("the error reads %q", err)
		}
	}
}

func TestWithoutAnnotationsAnyHeaderIsIgnored(t *testing.T) {
	if err := Check(headers("Region: a", "Region: \x01"), []byte(`{"region":"b"}`), nil); err != nil {
		t.Error(err)
	}
}

func TestAMismatchShowsNoMoreThanALittleOfAValue(t *testing.T) {
	long := strings.Repeat("s", 4000)
	err := Check(headers("Region: "+long), []byte(`{"region":"t`+long+`"}`), params(t))
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("got %v", err)
	}
	err = Check(headers("Region: "+EncodeValue("\x1b[31m\r\nx")), []byte(`{"region":"a"}`), params(t))
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\r\n") {
		t.Errorf("got %q", err)
	}
}

func TestManyParamsInLargeArgumentsAreReadOnce(t *testing.T) {
	// Reading the arguments anew for each of the parameters would take minutes.
	var schema, arguments strings.Builder
	h := http.Header{}
	schema.WriteString(`{"properties":{"outer":{"properties":{`)
	arguments.WriteString(`{"outer":{`)
	for i := range 20_000 {
		if i > 0 {
			schema.WriteByte(',')
		}
		fmt.Fprintf(&schema, `"k%d":{"type":"integer","x-mcp-header":"K%d"}`, i, i)
		fmt.Fprintf(&arguments, `"k%d":%d,`, i, i)
		h.Set(fmt.Sprintf("Mcp-Param-K%d", i), fmt.Sprint(i))
	}
	schema.WriteString(`}}}}`)
	arguments.WriteString(`"blob":"` + strings.Repeat("x", 1<<20) + `"}}`)
	ps, err := Params([]byte(schema.String()))
	if err != nil || len(ps) != 20_000 {
		t.Fatalf("%d params, %v", len(ps), err)
	}
	if err := Check(h, []byte(arguments.String()), ps); err != nil {
		t.Error(err)
	}
	h.Set("Mcp-Param-K19999", "0")
	if err := Check(h, []byte(arguments.String()), ps); err == nil {
		t.Error("the last header is not compared")
	}
}

// lookUp finds a value the way a server would, with encoding/json.
func lookUp(arguments []byte, path []string) any {
	dec := json.NewDecoder(bytes.NewReader(arguments))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil
	}
	for _, step := range path {
		obj, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = obj[step]
	}
	return v
}

// safe gives the integer that a JSON number is, if it may be mirrored.
func safe(number string) (*big.Int, bool) {
	if !json.Valid([]byte(number)) || !strings.ContainsAny(number[:1], "-0123456789") {
		return nil, false
	}
	if i := strings.IndexAny(number, "eE"); i >= 0 && len(strings.TrimLeft(number[i+1:], "+-0")) > 3 {
		// Far too large or too small, unless it is zero.
		return new(big.Int), strings.Trim(number[:i], "-0.") == ""
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok || !r.IsInt() || r.Num().CmpAbs(big.NewInt(1<<53-1)) > 0 {
		return nil, false
	}
	return r.Num(), true
}

// matches judges one header on top of encoding/json.
func matches(fields []string, value any) bool {
	if value == nil {
		return len(fields) == 0
	}
	if len(fields) != 1 {
		return false
	}
	text, err := DecodeValue(fields[0])
	if err != nil {
		return false
	}
	switch v := value.(type) {
	case string:
		return text == v
	case bool:
		return text == fmt.Sprint(v)
	case json.Number:
		want, ok := safe(v.String())
		if !ok || text == "" {
			return false
		}
		got, ok := safe(text)
		return ok && got.Cmp(want) == 0
	default:
		return false
	}
}

func FuzzCheck(f *testing.F) {
	const schema = `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"o":{"properties":{"b":{"type":"integer","x-mcp-header":"B"}}}}}`
	f.Add([]byte(schema), []byte(`{"a":"x","o":{"b":1}}`), "x", "1", true)
	f.Add([]byte(schema), []byte(`{"a":"x","o":{"b":1.0}}`), "=?base64?eA==?=", "1e0", true)
	f.Add([]byte(schema), []byte(`{"a":null,"o":[]}`), "", "", false)
	f.Add([]byte(schema), []byte(`{"a":true,"o":{"b":9007199254740993}}`), "true", "9007199254740993", true)
	f.Add([]byte(schema), []byte(`{"\u0061":"\ud83d\ude00"}`), "=?base64?8J+YgA==?=", "", true)
	f.Add([]byte(schema), []byte(`{"o":{"b":0e99999}}`), "", "0", true)
	f.Fuzz(func(t *testing.T, schema, arguments []byte, first, second string, send bool) {
		ps, err := Params(schema)
		if err != nil {
			return
		}
		h := http.Header{}
		for i, p := range ps {
			if send || i%2 == 1 {
				h.Add(p.Header, []string{first, second}[i%2])
			}
		}
		err = Check(h, arguments, ps)
		var mismatch *MismatchError
		if err != nil && (!errors.As(err, &mismatch) || len(err.Error()) > 2000) {
			t.Fatalf("a strange error: %v", err)
		}
		// From here on only what gets past the envelope's scanner, and is free
		// of the repetitions that encoding/json passes over.
		if _, invalid := jsonrpc.Validate(arguments); invalid != nil || !jsontext.Value(arguments).IsValid() {
			return
		}
		want := true
		for _, p := range ps {
			want = want && matches(h[p.Header], lookUp(arguments, p.Path))
		}
		if (err == nil) != want {
			t.Fatalf("Check(%v, %s, %v) = %v", h, arguments, ps, err)
		}
	})
}

func FuzzParams(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`,
		`{"properties":{"a":{"properties":{"b":{"x-mcp-header":"A","type":"integer"}}}}}`,
		`{"items":[{"x-mcp-header":"A"}]}`, `{"$defs":{"a":{"x-mcp-header":"A"}}}`,
		`{"properties":{"a":{"type":"boolean","x-mcp-header":"A"},"b":{"type":"boolean","x-mcp-header":"a"}}}`,
		`{"default":{"x-mcp-header":1}}`, `{"properties":{"x-mcp-header":{}}}`, `{"properties":`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		ps, err := Params(schema)
		if err != nil {
			if ps != nil || len(err.Error()) > 2000 {
				t.Fatalf("Params(%q) = %v, %v", schema, ps, err)
			}
			return
		}
		seen := map[string]bool{}
		for _, p := range ps {
			name, ok := strings.CutPrefix(p.Header, namePrefix)
			if !ok || !isToken(name) || http.CanonicalHeaderKey(p.Header) != p.Header || seen[p.Header] || len(p.Path) == 0 {
				t.Fatalf("Params(%q) has %+v", schema, p)
			}
			seen[p.Header] = true
			// The schema at the path carries the annotation and the type.
			var steps []string
			for _, step := range p.Path {
				steps = append(steps, "properties", step)
			}
			if kind := lookUp(schema, append(slices.Clone(steps), "type")); kind != p.Type.String() {
				t.Fatalf("Params(%q) has %+v, but the type is %v", schema, p, kind)
			}
			text, _ := lookUp(schema, append(slices.Clone(steps), annotation)).(string)
			if !strings.EqualFold(text, name) {
				t.Fatalf("Params(%q) has %+v, but the annotation is %q", schema, p, text)
			}
		}
	})
}
