package jsonrpc

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPiecesAreTheLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := rapid.SliceOfN(rapid.SampledFrom([]byte("abc{} ")), 0, 200).Draw(t, "src")
		var edits []Edit
		for range rapid.IntRange(0, 5).Draw(t, "edits") {
			start := rapid.IntRange(0, len(src)+1).Draw(t, "start")
			end := rapid.IntRange(0, len(src)+1).Draw(t, "end")
			edits = append(edits, Edit{Span: Span{start, end}, New: rapid.SliceOfN(rapid.SampledFrom([]byte("XY\n")), 0, 40).Draw(t, "new")})
		}
		whole := rapid.IntRange(0, 30).Draw(t, "whole")
		before := bytes.Clone(src)
		want := AppendLine(nil, src, edits...)
		dst, pieces := Pieces([]byte("before"), nil, src, whole, edits...)
		if got := bytes.Join(pieces, nil); !bytes.Equal(got, want) {
			t.Fatalf("pieces %q, want %q", got, want)
		}
		if !bytes.HasPrefix(dst, []byte("before")) || !bytes.Equal(src, before) {
			t.Fatalf("Pieces changed what was there: %q %q", dst, src)
		}
	})
}

func TestPiecesCopyOnlyWhatIsShort(t *testing.T) {
	src := []byte(`{"id":1,"params":"` + strings.Repeat("x", 100_000) + `","last":"` + strings.Repeat("y", 100_000) + `"}`)
	dst, pieces := Pieces(nil, nil, src, 1000, Edit{Span: Span{6, 7}, New: []byte("123")}, Edit{Span: Span{len(src) - 1, len(src) - 1}, New: []byte(`,"more":2`)})
	if len(dst) > 2500 {
		t.Errorf("%d bytes were copied", len(dst))
	}
	if want := AppendLine(nil, src, Edit{Span: Span{6, 7}, New: []byte("123")}, Edit{Span: Span{len(src) - 1, len(src) - 1}, New: []byte(`,"more":2`)}); !bytes.Equal(bytes.Join(pieces, nil), want) {
		t.Error("the pieces are not the line")
	}
	if len(pieces[0]) < 1000 {
		t.Errorf("the first piece has only %d bytes", len(pieces[0]))
	}
}

func TestBlankLeavesNoNewline(t *testing.T) {
	b := []byte("{\r\n\"a\":\n1}\r")
	Blank(b)
	if want := `{  "a": 1} `; string(b) != want {
		t.Errorf("%q, want %q", b, want)
	}
}

func TestPlainStopsAtTheFirstByteThatDoesNotStandForItself(t *testing.T) {
	for length := range 90 {
		b := bytes.Repeat([]byte("x"), length)
		for begin := 0; begin <= length; begin += 3 {
			if got := plain(b, begin); got != length {
				t.Fatalf("plain(%d bytes, %d) = %d", length, begin, got)
			}
			for at := begin; at < length; at++ {
				for c := range 256 {
					b[at] = byte(c)
					want := at
					if c >= ' ' && c < 0x80 && c != '"' && c != '\\' {
						want = length
					}
					if got := plain(b, begin); got != want {
						t.Fatalf("plain(%d bytes with %#x at %d, %d) = %d", length, c, at, begin, got)
					}
				}
				b[at] = 'x'
			}
		}
	}
}
