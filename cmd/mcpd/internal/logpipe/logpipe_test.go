package logpipe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLinesComeOutWholeAndInOrder(t *testing.T) {
	var out strings.Builder
	w := New(&out)
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(w, "line %d\n", i)
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out.String() != want.String() {
		t.Errorf("got %d bytes, want %d", out.Len(), want.Len())
	}
}

func TestALogThatNobodyReadsHoldsUpNobodyAndSaysLaterWhatWasLost(t *testing.T) {
	r, out := io.Pipe()
	w := New(out)
	const lines = 3 * maxLines
	for i := range lines { // would never return if it waited
		fmt.Fprintf(w, "line %d\n", i)
	}
	read, lost := 0, 0
	in := bufio.NewScanner(r)
	for in.Scan() {
		if _, n, ok := strings.Cut(in.Text(), "lines="); ok {
			if _, err := fmt.Sscan(n, &lost); err != nil {
				t.Fatal(err)
			}
			break
		}
		read++
	}
	if lost == 0 || read+lost != lines {
		t.Errorf("%d lines read, %d reported lost, of %d", read, lost, lines)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCloseGivesUpOnALogThatNobodyReads(t *testing.T) {
	r, out := io.Pipe()
	w := New(out)
	fmt.Fprintln(w, "stuck")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_ = r.Close() // lets the write go
	<-w.done
}
