package childlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"unicode"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func texts(lines []Line) string {
	var out []string
	for _, l := range lines {
		out = append(out, l.Text)
	}
	return strings.Join(out, "|")
}

func TestLinesAreMadeSafeToShow(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "hello", "hello"},
		{"colour", "\x1b[1;31mred\x1b[0m", "red"},
		{"window title", "\x1b]0;evil\x07text", "text"},
		{"title ended by ST", "\x1b]0;evil\x1b\\text", "text"},
		{"clipboard", "\x1b]52;c;ZXZpbA==\x07.", "."},
		{"unfinished sequence", "a\x1b[31", "a"},
		{"lone escape", "a\x1b", "a"},
		{"escape before a letter beyond ASCII", "\x1béa", "éa"},
		{"character set", "\x1b(Bx", "x"},
		{"C1 in UTF-8", "\u009b31mred", "red"},
		{"C1 as a byte", "\x9b31m", "\uFFFD31m"},
		{"bell and backspace", "a\ab\bc", "abc"},
		{"carriage return", "a\rb", "ab"},
		{"tab", "a\tb", "a b"},
		{"not UTF-8", "a\xffb", "a\uFFFDb"},
		{"reordering", "a\u202eb\u2066c", "abc"},
		{"line separator", "a\u2028b", "ab"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Sanitize([]byte(tt.in)); got != tt.want {
				t.Errorf("Sanitize(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func FuzzSanitize(f *testing.F) {
	f.Add([]byte("\x1b]0;x"))
	f.Add([]byte("\xc2\x9b1;2"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got := Sanitize(in)
		if !utf8.ValidString(got) || len(got) > 3*MaxLine+64 {
			t.Fatalf("%q", got)
		}
		for _, r := range got {
			if unicode.IsControl(r) {
				t.Fatalf("control character in %q", got)
			}
		}
		if again := Sanitize([]byte(got)); len(got) <= MaxLine && again != got {
			t.Fatalf("%q is %q the second time", got, again)
		}
	})
}

func TestCopyTakesAnyLineEndAndCutsLongLines(t *testing.T) {
	l := Open(Options{})
	defer l.Close()
	var tapped []string
	in := "one\r\ntwo\n\n  \nspin 1\rspin 2\r\n" + strings.Repeat("x", MaxLine+100) + "\nlast"
	if err := l.Copy(Stderr, strings.NewReader(in), func(s string) { tapped = append(tapped, s) }); err != nil {
		t.Fatal(err)
	}
	want := "one|two|spin 1|spin 2|" + strings.Repeat("x", MaxLine) + " … [100 bytes cut]|last"
	if got := texts(l.Tail(-1)); got != want || strings.Join(tapped, "|") != want {
		t.Errorf("got %q", got)
	}
	if got := texts(l.Tail(2)); !strings.HasSuffix(got, "cut]|last") {
		t.Errorf("Tail(2) = %q", got)
	}
}

func TestTheRingIsBoundedInLinesAndBytes(t *testing.T) {
	l := Open(Options{RingLines: 100, RingBytes: 20 * (1000 + lineOverhead)})
	defer l.Close()
	for range 1000 {
		l.Write(Stderr, bytes.Repeat([]byte("x"), 1000))
	}
	if n := len(l.Tail(-1)); n != 20 {
		t.Errorf("%d long lines are kept", n)
	}
	for i := range 1000 {
		l.Write(Stderr, fmt.Append(nil, i))
	}
	if lines := l.Tail(-1); len(lines) != 100 || lines[99].Text != "999" {
		t.Errorf("%d short lines are kept", len(lines))
	}
}

func TestFollowGivesTheTailAndThenEachLineUntilTheLogIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Open(Options{})
		l.Write(Stderr, []byte("one"))
		l.Write(Stderr, []byte("two"))
		var got []Line
		done := make(chan struct{})
		go func() {
			defer close(done)
			for line := range l.Follow(t.Context(), 1) {
				got = append(got, line)
			}
		}()
		synctest.Wait()
		l.Write(Stdout, []byte("three"))
		synctest.Wait()
		l.Notef("four %d", 4)
		l.Close()
		<-done
		if texts(got) != "two|three|four 4" || got[1].Stream != Stdout || got[2].Stream != Mcpd {
			t.Errorf("got %+v", got)
		}
	})
}

func TestFollowEndsWithItsContextAndSaysWhatASlowReaderMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Open(Options{RingLines: 3})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l.Write(Stderr, []byte("0"))
		var got []Line
		for line := range l.Follow(ctx, 1) {
			got = append(got, line)
			if line.Text == "0" {
				for i := range 10 {
					l.Write(Stderr, fmt.Append(nil, i+1))
				}
			}
			if line.Text == "10" {
				cancel()
			}
		}
		if len(got) != 5 || !strings.Contains(got[1].Text, "7 lines skipped") || got[4].Text != "10" {
			t.Errorf("got %q", texts(got))
		}
	})
}

func TestTheFileIsPrivateAndRotated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	path := filepath.Join(dir, "lib.log")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil { // of an older program
		t.Fatal(err)
	}
	l := Open(Options{Path: path, MaxSizeMB: 1, MaxFiles: 3})
	line := bytes.Repeat([]byte("y"), 8000)
	for range 800 {
		l.Write(Stderr, line)
		for l.backlog() > maxPending/2 { // as fast as the disk takes them
		}
	}
	l.Close()
	l.Write(Stderr, []byte("too late"))
	if n := l.Dropped(); n != 0 {
		t.Errorf("%d lines dropped", n)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		info, _ := f.Info()
		if info.Mode().Perm()&0o077 != 0 || info.Size() > 1<<20 {
			t.Errorf("%s: mode %v, %d bytes", f.Name(), info.Mode(), info.Size())
		}
	}
}

// backlog is how many bytes wait for the disk.
func (l *Log) backlog() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

func TestAFolderThatCannotBeWrittenIsWarnedAboutOnceAndLinesAreCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	l := Open(Options{Path: filepath.Join(file, "lib.log"), Logger: slog.New(slog.NewTextHandler(&out, nil))})
	for i := range 50 {
		l.Write(Stderr, fmt.Append(nil, i))
	}
	l.Close()
	if n := l.Dropped(); n != 50 {
		t.Errorf("%d lines counted", n)
	}
	if n := strings.Count(out.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings: %s", n, out.String())
	}
	if len(l.Tail(-1)) != 50 {
		t.Error("lines are missing in memory")
	}
}

func TestCopyEndsQuietlyWhenItsReaderIsClosed(t *testing.T) {
	l := Open(Options{})
	defer l.Close()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- l.Copy(Stderr, r, nil) }()
	_, _ = io.WriteString(w, "half a line")
	_ = r.Close()
	if err := <-done; err != nil || texts(l.Tail(-1)) != "half a line" {
		t.Errorf("%v, %q", err, texts(l.Tail(-1)))
	}
}
