package jsonrpc

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAppendEdited(t *testing.T) {
	const src = `0123456789`
	for _, c := range []struct {
		what  string
		edits []Edit
		want  string
	}{
		{"no edits", nil, "0123456789"},
		{"replace", []Edit{{Span{2, 4}, []byte("AB")}}, "01AB456789"},
		{"insert", []Edit{{Span{2, 2}, []byte("AB")}}, "01AB23456789"},
		{"delete", []Edit{{Span{2, 4}, nil}}, "01456789"},
		{"at both ends", []Edit{{Span{0, 0}, []byte("<")}, {Span{10, 10}, []byte(">")}}, "<0123456789>"},
		{"out of order", []Edit{{Span{8, 9}, []byte("B")}, {Span{1, 2}, []byte("A")}}, "0A234567B9"},
		{"insertions at one place keep their order", []Edit{{Span{3, 3}, []byte("A")}, {Span{3, 3}, []byte("B")}}, "012AB3456789"},
		{"an insertion comes in front of what is replaced there", []Edit{{Span{3, 5}, []byte("X")}, {Span{3, 3}, []byte("A")}}, "012AX56789"},
		{"neighbours", []Edit{{Span{3, 5}, []byte("X")}, {Span{5, 6}, []byte("Y")}}, "012XY6789"},
		{"what is inside a replaced span is gone", []Edit{{Span{4, 5}, []byte("A")}, {Span{2, 8}, []byte("X")}}, "01X89"},
		{"the same inside, at its start", []Edit{{Span{2, 3}, []byte("A")}, {Span{2, 8}, []byte("X")}}, "01X89"},
		{"outside of the text", []Edit{{Span{-1, 2}, []byte("A")}, {Span{9, 11}, []byte("B")}, {Span{5, 4}, []byte("C")}}, "0123456789"},
	} {
		before := slices.Clone(c.edits)
		if got := string(AppendEdited([]byte("dst:"), []byte(src), c.edits...)); got != "dst:"+c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		for i := range before {
			if before[i].Span != c.edits[i].Span {
				t.Errorf("%s: the caller's edits were reordered", c.what)
			}
		}
	}
}

func TestAppendLineIsOneLine(t *testing.T) {
	src := []byte("{\r\n \"a\" : \"x\\ny\",\n\n\"b\":1}\r\n")
	got := AppendLine([]byte("before\n"), src, Edit{Span: Lookup(src, Span{0, len(src) - 2}, "b").Value, New: []byte("[\n2]")})
	if want := "before\n{   \"a\" : \"x\\ny\",  \"b\":[ 2]}  \n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMembersAreRemovedWithTheirCommas(t *testing.T) {
	data := []byte(`{ "a" : 1 , "b" : [2, 3] ,` + "\n" + `"c":{"x":","}}`)
	obj := Span{0, len(data)}
	for remove, want := range map[string]string{
		"":    string(data),
		"a":   `{ "b" : [2, 3] ,` + "\n" + `"c":{"x":","}}`,
		"b":   `{ "a" : 1 , "c":{"x":","}}`,
		"c":   `{ "a" : 1 , "b" : [2, 3] }`,
		"ab":  `{ "c":{"x":","}}`,
		"ba":  `{ "c":{"x":","}}`,
		"bc":  `{ "a" : 1 }`,
		"ac":  `{ "b" : [2, 3] }`,
		"cba": `{ }`,
		"aab": `{ "c":{"x":","}}`,
		"xc":  `{ "a" : 1 , "b" : [2, 3] }`,
	} {
		var ms []Member
		for _, k := range remove {
			ms = append(ms, Lookup(data, obj, string(k)))
		}
		if got := string(AppendEdited(nil, data, RemoveMembers(data, obj, ms...)...)); got != want {
			t.Errorf("without %q: %s, want %s", remove, got, want)
		}
		if len(remove) == 1 {
			if got := string(AppendEdited(nil, data, Edit{Span: RemoveMember(data, obj, ms[0])})); got != want {
				t.Errorf("RemoveMember %q: %s, want %s", remove, got, want)
			}
		}
	}
}

func TestMembersAreInsertedInFront(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:          `{"k":1}`,
		`{ }`:         `{"k":1 }`,
		`{"a":1}`:     `{"k":1,"a":1}`,
		`{ "a" : 1 }`: `{"k":1, "a" : 1 }`,
	} {
		raw := []byte(`"k":1`)
		got := AppendEdited(nil, []byte(in), InsertMembers([]byte(in), Span{0, len(in)}, raw))
		if string(got) != want || string(raw) != `"k":1` {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if got := AppendEdited(nil, []byte(`{"a":1}`), InsertMembers([]byte(`{"a":1}`), Span{0, 7}, nil)); string(got) != `{"a":1}` {
		t.Errorf("nothing inserted: %s", got)
	}
}

func TestEditMembersWhereNothingRemains(t *testing.T) {
	data := []byte(`{"a":1, "b":2}`)
	obj := Span{0, len(data)}
	edits := EditMembers(data, obj, []byte(`"k":1`), Lookup(data, obj, "a"), Lookup(data, obj, "b"))
	if got := string(AppendEdited(nil, data, edits...)); got != `{"k":1}` {
		t.Errorf("got %s", got)
	}
}

func TestInsertingDoesNotWriteBehindTheCallersBytes(t *testing.T) {
	backing := []byte(`"k":1#`)
	InsertMembers([]byte(`{"a":1}`), Span{0, 7}, backing[:5])
	if backing[5] != '#' {
		t.Errorf("the byte behind became %q", backing[5])
	}
}

// Whatever members go and whatever comes in: the object is valid, the others
// are there byte for byte in their order, and nothing around it has changed.
func TestEditedObjectsKeepEverythingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d", "e/f", "世"}
		text := drawObject(t, names, func(string) string { return drawValue(t, 2) })
		around := drawSpace(t) + `[1,` + drawSpace(t)
		data := []byte(around + text + drawSpace(t) + `,"tail"]`)
		obj := Span{len(around), len(around) + len(text)}

		type entry struct{ key, raw string }
		var remove []Member
		var want []entry
		insert := rapid.SampledFrom([]string{"", `"new":1`, `"new":1,"newer":{}`}).Draw(t, "insert")
		if insert != "" {
			for key, m := range Members([]byte("{"+insert+"}"), Span{0, len(insert) + 2}) {
				want = append(want, entry{key, string(m.Of([]byte("{" + insert + "}")))})
			}
		}
		for key, m := range Members(data, obj) {
			if rapid.Bool().Draw(t, "remove") {
				remove = append(remove, m)
			} else {
				want = append(want, entry{key, string(m.Key.Of(data)) + string(m.Of(data))})
			}
		}
		if len(remove) > 1 {
			remove = rapid.Permutation(remove).Draw(t, "order")
		}
		edits := EditMembers(data, obj, []byte(insert), remove...)
		out := AppendEdited(nil, data, edits...)

		whole, err := Validate(out)
		if err != nil {
			t.Fatalf("%s\nbecame %s: %v", data, out, err)
		}
		elements := slices.Collect(Elements(out, whole))
		if len(elements) != 3 || !bytes.HasPrefix(out, []byte(around)) || !bytes.HasSuffix(out, data[obj.End:]) {
			t.Fatalf("%s\nbecame %s", data, out)
		}
		var got []entry
		for key, m := range Members(out, elements[1]) {
			raw := string(m.Key.Of(out)) + string(m.Of(out))
			if strings.HasPrefix(key, "new") {
				raw = string(m.Of(out))
			}
			got = append(got, entry{key, raw})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s\nbecame %s\nwith %q, want %q", data, out, got, want)
		}
	})
}

// A message whose id is replaced and put back is the same, byte for byte,
// whatever the spelling of the id; and as a line it has one newline.
func TestIDRoundTripOfAnySpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := drawID(t)
		src := []byte(drawSpace(t) + "{" + drawMember(t, "jsonrpc", `"2.0"`) + "," + drawMember(t, "id", id) + "," +
			drawMember(t, "result", "["+drawValue(t, 3)+"]") + "}" + drawSpace(t))
		var m Message
		if err := Scan(src, &m); err != nil {
			t.Fatalf("%s: %v", src, err)
		}
		if got := string(m.ID.Of(src)); got != id {
			t.Fatalf("the id %s was read as %s", id, got)
		}
		up := AppendLine(nil, src, Edit{Span: m.ID.Value, New: []byte("12345")})
		if bytes.Count(up, []byte("\n")) != 1 || bytes.IndexByte(up, '\r') >= 0 || up[len(up)-1] != '\n' {
			t.Fatalf("not one line: %q", up)
		}
		if err := Scan(up, &m); err != nil || string(m.ID.Of(up)) != "12345" || m.Kind != Result {
			t.Fatalf("%s\nwent up as %s: %v", src, up, err)
		}
		down := AppendEdited(nil, up[:len(up)-1], Edit{Span: m.ID.Value, New: []byte(id)})
		flat := strings.NewReplacer("\n", " ", "\r", " ")
		if string(down) != flat.Replace(string(src)) {
			t.Fatalf("%q\ncame back as %q", src, down)
		}
	})
}

// Edits at random places: the bytes between them are those of the source.
func TestEditsNeverChangeBytesOutsideTheirSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "src")
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(src)), 0, 8).Draw(t, "cuts")
		slices.Sort(cuts)
		var edits []Edit
		var want []byte
		done := 0
		for i := 0; i+1 < len(cuts); i += 2 {
			e := Edit{Span{cuts[i], cuts[i+1]}, rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "new")}
			want = append(append(want, src[done:e.Start]...), e.New...)
			done = e.End
			edits = append(edits, e)
		}
		want = append(want, src[done:]...)
		before := bytes.Clone(src)
		if got := AppendEdited(nil, src, edits...); !bytes.Equal(got, want) {
			t.Fatalf("%q with %v became %q, want %q", src, edits, got, want)
		}
		if !bytes.Equal(before, src) {
			t.Fatalf("the source was changed")
		}
	})
}
