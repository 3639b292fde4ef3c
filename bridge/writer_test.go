package bridge

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func lineOf(text string) line {
	b := newBuffer(len(text))
	b.b = append(b.b, text+"\n"...)
	return line{buf: b}
}

// startWriter runs a writer on a pipe whose other end the test reads.
func startWriter(t *testing.T, limit int64) (w *writer, r *io.PipeReader, failed chan error) {
	t.Helper()
	r, pw := io.Pipe()
	failed = make(chan error, 1)
	w = newWriter(pw, limit, func(err error) { failed <- err })
	done := make(chan struct{})
	go func() { defer close(done); w.run() }()
	t.Cleanup(func() { w.close(errClosed); <-done })
	return w, r, failed
}

func TestLinesThatWereNotWrittenYetCanBeTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, r, _ := startWriter(t, 1<<20)
		lines := make([]*outbound, 100)
		for i := range lines {
			lines[i] = new(outbound)
			if err := w.send(lines[i], lineOf(fmt.Sprintf("%03d%s", i, strings.Repeat("x", 1000)))); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				settle() // the first one is stuck in its write, alone
			}
		}
		if w.withdraw(lines[0]) {
			t.Error("a line that is being written was taken back")
		}
		first := make([]byte, 1004)
		if _, err := io.ReadFull(r, first); err != nil {
			t.Fatal(err)
		}
		settle() // now the next few are
		back := 0
		for _, o := range lines {
			if w.withdraw(o) {
				back++
			}
		}
		if most, least := 100, 100-1-coalesceUpTo/1000-1; back < least || back >= most-1 {
			t.Errorf("%d of 100 lines were taken back, want at least %d", back, least)
		}
		rest := make(chan string)
		go func() { b, _ := io.ReadAll(r); rest <- string(b) }()
		settle()
		w.close(errClosed)
		if got := strings.Count(<-rest, "\n"); got+1+back != 100 {
			t.Errorf("%d lines were written behind the first, %d taken back", got, back)
		}
		if w.bytes != 0 || len(w.queue) != 0 {
			t.Errorf("%d bytes in %d lines are left", w.bytes, len(w.queue))
		}
	})
}

func TestALineIsTakenBackOnceAndNotSentAfterwards(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, _, _ := startWriter(t, 1<<20)
		o := new(outbound)
		for range 2 {
			if !w.withdraw(o) {
				t.Error("a line that was never sent cannot be taken back")
			}
		}
		if err := w.send(o, lineOf("x")); err == nil {
			t.Error("it was sent all the same")
		}
	})
}

func TestAHugeLineGoesThroughAnEmptyQueueAndNoneThroughAFullOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, _, _ := startWriter(t, 1000)
		if err := w.send(new(outbound), lineOf(strings.Repeat("x", 5000))); err != nil {
			t.Error(err)
		}
		if err := w.send(new(outbound), lineOf("x")); !errors.Is(err, errQueueFull) {
			t.Errorf("got %v", err)
		}
	})
}

func TestABrokenPipeIsReportedOnceAndRefusesWhatFollows(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, r, failed := startWriter(t, 1000)
		_ = r.CloseWithError(errors.New("broken pipe"))
		if err := w.send(new(outbound), lineOf("x")); err != nil {
			t.Error(err)
		}
		if err := <-failed; err == nil || err.Error() != "broken pipe" {
			t.Errorf("it failed with %v", err)
		}
		if err := w.send(new(outbound), lineOf("x")); err == nil {
			t.Error("a line was taken for a broken pipe")
		}
	})
}
