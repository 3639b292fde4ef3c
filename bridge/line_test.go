package bridge

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"mcpd/bridge/jsonrpc"
)

// inPieces gives a text in reads of the drawn sizes.
type inPieces struct {
	text  []byte
	sizes []int
	reads int
}

func (r *inPieces) Read(b []byte) (int, error) {
	if len(r.text) == 0 {
		return 0, io.EOF
	}
	n := min(len(b), len(r.text))
	if len(r.sizes) > 0 {
		n = min(n, r.sizes[r.reads%len(r.sizes)])
		r.reads++
	}
	copy(b, r.text[:n])
	r.text = r.text[n:]
	return n, nil
}

func TestLinesComeOutAsTheyWereWritten(t *testing.T) {
	lengths := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(readAhead-2, readAhead+2),
		rapid.IntRange(0, 5*readAhead))
	rapid.Check(t, func(t *rapid.T) {
		var lines [][]byte
		for i, n := range rapid.SliceOfN(lengths, 0, 5).Draw(t, "lengths") {
			lines = append(lines, bytes.Repeat([]byte{byte('a' + i)}, n))
		}
		text := bytes.Join(lines, []byte("\n"))
		sizes := rapid.SliceOfN(rapid.IntRange(1, 3*readAhead), 0, 4).Draw(t, "reads")
		const limit = 3 * readAhead
		r := newLineReader(&inPieces{text: text, sizes: sizes}, limit)
		for i, want := range lines {
			buf, size, err := r.next()
			last := i == len(lines)-1
			if err != nil && (!last || !errors.Is(err, io.EOF)) || err == nil && last && len(want) > 0 {
				t.Fatalf("line %d of %d: error %v", i, len(lines), err)
			}
			if last && len(want) == 0 {
				if buf != nil {
					t.Fatalf("a line of %d bytes behind the last one", size)
				}
				break
			}
			if size != int64(len(want)) {
				t.Fatalf("line %d has %d bytes, want %d", i, size, len(want))
			}
			switch {
			case size <= limit && !bytes.Equal(buf.b, want):
				t.Fatalf("line %d is not what was written", i)
			case size > limit && (len(buf.b) < 2*sampleOfOversize || !bytes.HasPrefix(want, buf.b[:sampleOfOversize])):
				t.Fatalf("line %d is over the limit and only %d bytes of it are left", i, len(buf.b))
			}
			buf.release()
		}
		if buf, _, err := r.next(); buf != nil || !errors.Is(err, io.EOF) {
			t.Fatalf("behind the last line: %v, %v", buf, err)
		}
	})
}

func TestALongLineOverTheLimitKeepsItsEnds(t *testing.T) {
	text := `{"id":7,` + strings.Repeat("x", 3<<20) + `"result":{}}`
	r := newLineReader(strings.NewReader(text+"\nnext\n"), 1<<20)
	buf, size, err := r.next()
	if err != nil || size != int64(len(text)) {
		t.Fatalf("%d bytes, error %v; want %d", size, err, len(text))
	}
	if !strings.HasPrefix(string(buf.b), `{"id":7,`) || !strings.HasSuffix(string(buf.b), `"result":{}}`) {
		t.Errorf("the ends are lost: %.20q … %.20q", buf.b, buf.b[len(buf.b)-20:])
	}
	if cap(buf.b) > 2<<20 {
		t.Errorf("%d bytes are kept for it", cap(buf.b))
	}
	if buf, _, err = r.next(); err != nil || string(buf.b) != "next" {
		t.Errorf("the line behind it is %q, error %v", buf.b, err)
	}
}

func TestALineThatBreaksOffIsGivenWithTheError(t *testing.T) {
	broken := errors.New("the pipe broke")
	r := newLineReader(io.MultiReader(strings.NewReader("whole\npart"), iotest.ErrReader(broken)), 100)
	if buf, _, err := r.next(); err != nil || string(buf.b) != "whole" {
		t.Fatalf("%q, %v", buf.b, err)
	}
	if buf, size, err := r.next(); !errors.Is(err, broken) || string(buf.b) != "part" || size != 4 {
		t.Fatalf("%q (%d bytes), %v", buf.b, size, err)
	}
}

func TestALongRequestIsNotCopiedIntoItsLine(t *testing.T) {
	body := "{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\"method\":\"tools/call\",\n\"params\":{\"name\":\"" + strings.Repeat("x", 2*longBody) + "\"}}"
	in := &incoming{body: newBuffer(len(body))}
	in.body.b = append(in.body.b, body...)
	if err := jsonrpc.Scan(in.data(), &in.msg); err != nil {
		t.Fatal(err)
	}
	edits := []jsonrpc.Edit{{Span: in.msg.ID.Value, New: []byte("4711")}}
	l := lineOfRequest(in, edits)
	if len(l.buf.b) > 3*wholePiece {
		t.Errorf("%d bytes were copied", len(l.buf.b))
	}
	want := strings.NewReplacer("\r", " ", "\n", " ", `"id":1,`, `"id":4711,`).Replace(body) + "\n"
	if got := string(bytes.Join(l.pieces, nil)); got != want {
		t.Errorf("the line is %.80q… (%d bytes), want %.80q… (%d bytes)", got, len(got), want, len(want))
	}
	// The request may be over before its line is written.
	shared := in.body
	in.body.release()
	if shared.others.Load() != 0 {
		t.Fatal("the line does not own the body")
	}
	l.release()
	if l.body != nil || l.pieces != nil {
		t.Error("the line still holds what it gave back")
	}
}

func TestAGrownBufferKeepsItsBytes(t *testing.T) {
	for _, size := range []int{0, 100, 2 << 10, 70 << 10, 1 << 20, 5 << 20} {
		b := newBuffer(size)
		for len(b.b) < 3*size+10 {
			b.grow(1)
			n := cap(b.b) - len(b.b)
			if n < 1 {
				t.Fatalf("no room after grow at %d bytes", len(b.b))
			}
			for range min(n, 3*size+10-len(b.b)) {
				b.b = append(b.b, byte(len(b.b)%251))
			}
		}
		for i, c := range b.b {
			if c != byte(i%251) {
				t.Fatalf("byte %d is %d", i, c)
			}
		}
		b.release()
	}
}
