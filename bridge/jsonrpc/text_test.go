package jsonrpc

import (
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

func TestQuoteAndUnquoteAgreeWithJSONText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t)
		quoted := []byte(Quote(text))
		if _, err := Validate(quoted); err != nil {
			t.Fatalf("Quote(%q) = %s: %v", text, quoted, err)
		}
		back, err := jsontext.AppendUnquote(nil, quoted)
		if err != nil || string(back) != text {
			t.Fatalf("jsontext reads Quote(%q) = %s as %q, %v", text, quoted, back, err)
		}

		spelling := []byte(drawSpelling(t, text))
		whole := Span{0, len(spelling)}
		if got, err := Unquote(spelling, whole); err != nil || got != text {
			t.Fatalf("Unquote(%s) = %q, %v, want %q", spelling, got, err, text)
		}
		if !EqualString(spelling, whole, text) {
			t.Fatalf("EqualString(%s, %q) is false", spelling, text)
		}
		other := drawText(t)
		if EqualString(spelling, whole, other) != (text == other) {
			t.Fatalf("EqualString(%s, %q) = %v", spelling, other, text != other)
		}
	})
}

func TestEqualStringComparesTextNotSpelling(t *testing.T) {
	for _, c := range []struct {
		raw, text string
		want      bool
	}{
		{`""`, ``, true},
		{`"a"`, `a`, true},
		{`"a"`, `ab`, false},
		{`"ab"`, `a`, false},
		{`"\u0061"`, `a`, true},
		{`"\u0061"`, `b`, false},
		{`"\u0061"`, `aa`, false},
		{`"a\u0061"`, `a`, false},
		{`"\u0061"`, `\u0061`, false},
		{`"\\u0061"`, `\u0061`, true},
		{`"\ud83d\ude00"`, "😀", true},
		{`"\ufffd"`, "\xff", false},
		{`"\ufffd"`, "\ufffd", true},
		{`1`, `1`, false},
		{`null`, `null`, false},
		{`{"a":"a"}`, `a`, false},
		{`"`, ``, false},
		{``, ``, false},
	} {
		if got := EqualString([]byte(c.raw), Span{0, len(c.raw)}, c.text); got != c.want {
			t.Errorf("EqualString(%s, %q) = %v", c.raw, c.text, got)
		}
	}
	text := "l" + strings.Repeat("long text ", 100)
	raw := []byte(`"\u006c` + text[1:] + `"`)
	if n := testing.AllocsPerRun(10, func() { EqualString(raw, Span{0, len(raw)}, text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestUnquoteNeedsAString(t *testing.T) {
	for _, raw := range []string{``, `1`, `null`, `{"a":1}`, `["a"]`, `"`} {
		if got, err := Unquote([]byte(raw), Span{0, len(raw)}); err == nil {
			t.Errorf("Unquote(%s) = %q", raw, got)
		}
	}
	if got, err := Unquote([]byte(`"a"`), Span{}); err == nil {
		t.Errorf("Unquote of an absent member = %q", got)
	}
}

func TestQuoteReplacesWhatIsNotUTF8(t *testing.T) {
	for in, want := range map[string]string{
		"a\xffb":       `"a` + "\ufffd" + `b"`,
		"\xed\xa0\x80": "\"\ufffd\ufffd\ufffd\"",
		"\x7f\x1b":     `"\u007f\u001b"`,
		"</script>":    `"</script>"`,
	} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestIntegersAreJudgedByValue(t *testing.T) {
	for _, c := range []struct {
		raw      string
		integral bool
		value    int64
		fits     bool
	}{
		{"0", true, 0, true},
		{"-0", true, 0, true},
		{"0.000", true, 0, true},
		{"0e-999999999999999999999", true, 0, true},
		{"0.0e999999999999999999999", true, 0, true},
		{"1", true, 1, true},
		{"1.0", true, 1, true},
		{"1e2", true, 100, true},
		{"1E+2", true, 100, true},
		{"1.50e1", true, 15, true},
		{"100e-2", true, 1, true},
		{"-12300e-2", true, -123, true},
		{"0.0012e4", true, 12, true},
		{"10203.0", true, 10203, true},
		{"1.5", false, 0, false},
		{"1e-2", false, 0, false},
		{"10e-2", false, 0, false},
		{"1e-999999999999999999999", false, 0, false},
		{"1e999999999999999999999", true, 0, false},
		{"9223372036854775807", true, 9223372036854775807, true},
		{"9223372036854775808", true, 0, false},
		{"-9223372036854775808", true, -9223372036854775808, true},
		{"-9223372036854775809", true, 0, false},
		{"92233720368547758.070e2", true, 9223372036854775807, true},
		{"1000000000000000000", true, 1000000000000000000, true},
		{"10000000000000000000", true, 0, false},
		{"1e18", true, 1000000000000000000, true},
		{"1e19", true, 0, false},
		{"1.0000000000000000000000000000000000000000000000000", true, 1, true},
		{"100000000000000000000000000000000000000000000000000e-50", true, 1, true},
		{`"1"`, false, 0, false},
		{`true`, false, 0, false},
		{`-`, false, 0, false},
		{``, false, 0, false},
	} {
		if got := ValidIDNumber([]byte(c.raw)); got != c.integral {
			t.Errorf("ValidIDNumber(%s) = %v", c.raw, got)
		}
		if v, ok := Integer([]byte(c.raw)); v != c.value || ok != c.fits {
			t.Errorf("Integer(%s) = %d, %v, want %d, %v", c.raw, v, ok, c.value, c.fits)
		}
	}
}

func TestIntegersAgreeWithRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := drawNumber(t)
		r, ok := new(big.Rat).SetString(raw)
		if !ok {
			t.Fatalf("no rational: %s", raw)
		}
		if got := ValidIDNumber([]byte(raw)); got != r.IsInt() {
			t.Fatalf("ValidIDNumber(%s) = %v", raw, got)
		}
		v, ok := Integer([]byte(raw))
		if fits := r.IsInt() && r.Num().IsInt64(); ok != fits || ok && v != r.Num().Int64() {
			t.Fatalf("Integer(%s) = %d, %v", raw, v, ok)
		}
	})
}

func TestMembersAndElements(t *testing.T) {
	data := []byte(` { "a" : [ 1 , {"x":[]} , "]" ] , "\u0062\n" : {} , "a" : null } `)
	obj, err := Validate(data)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for key, m := range Members(data, obj) {
		got = append(got, key, string(m.Key.Of(data)), string(m.Of(data)))
	}
	want := []string{
		"a", `"a"`, `[ 1 , {"x":[]} , "]" ]`,
		"b\n", `"\u0062\n"`, `{}`,
		"a", `"a"`, `null`,
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("members %q", got)
	}
	list := Lookup(data, obj, "a").Value
	got = got[:0]
	for e := range Elements(data, list) {
		got = append(got, string(e.Of(data)))
	}
	if strings.Join(got, "|") != `1|{"x":[]}|"]"` {
		t.Errorf("elements %q", got)
	}
	if m := Lookup(data, obj, "absent"); m.Present() {
		t.Errorf("absent member found: %+v", m)
	}
	for _, none := range []Span{{}, list, {0, 1}} {
		for key := range Members(data, none) {
			t.Errorf("member %q of %+v", key, none)
		}
	}
	for _, none := range []Span{{}, obj} {
		for e := range Elements(data, none) {
			t.Errorf("element %+v of %+v", e, none)
		}
	}
	for range Members(data, obj) {
		break
	}
	for range Elements(data, list) {
		break
	}
}

// FuzzHelpers shows that the helpers for validated texts do not panic, loop or
// read out of bounds on others.
func FuzzHelpers(f *testing.F) {
	for _, s := range seeds() {
		f.Add([]byte(s), 0, len(s), "a")
	}
	f.Fuzz(func(t *testing.T, data []byte, start, end int, s string) {
		if start < 0 || end > len(data) || start > end {
			return
		}
		span := Span{start, end}
		for key, m := range Members(data, span) {
			if !utf8.ValidString(key) || m.Key.Start < start || m.Value.End > end {
				t.Fatalf("member %q at %+v outside %+v", key, m, span)
			}
		}
		for e := range Elements(data, span) {
			if e.Start < start || e.End > end {
				t.Fatalf("element at %+v outside %+v", e, span)
			}
		}
		if text, err := Unquote(data, span); err == nil && utf8.ValidString(text) && EqualString(data, span, s) && text != s {
			t.Fatalf("EqualString(%q, %q), but the text is %q", span.Of(data), s, text)
		}
		ValidID(span.Of(data))
		ValidIDNumber(span.Of(data))
		Integer(span.Of(data))
		m := Member{Key: Span{start, start + (end-start)/2}, Value: Span{start + (end-start)/2, end}}
		edits := EditMembers(data, Span{0, len(data)}, []byte(s), m)
		line := AppendLine(nil, data, edits...)
		if strings.Count(string(line), "\n") != 1 || line[len(line)-1] != '\n' {
			t.Fatalf("not one line: %q", line)
		}
	})
}
