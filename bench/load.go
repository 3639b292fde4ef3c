package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// workload is one case: how many clients call how large an echo for how long.
type workload struct {
	connections int
	size        int
	duration    time.Duration
	rounds      int
}

// sample is one measurement of one target.
type sample struct {
	rate   float64 // calls a second
	median time.Duration
	p99    time.Duration
	cpu    time.Duration // of the target, per 1000 calls
}

// measure lets the targets take turns, so that a drift of the machine's speed
// meets all of them.
func measure(ctx context.Context, targets []*target, w workload) (*caseReport, error) {
	samples := make([][]sample, len(targets))
	for range w.rounds {
		for i, t := range targets {
			s, err := load(ctx, t, w)
			if err != nil {
				return nil, fmt.Errorf("%s, %d connections, %d bytes: %w", t.name, w.connections, w.size, err)
			}
			samples[i] = append(samples[i], s)
		}
	}
	return newCaseReport(targets, samples, w), nil
}

// load is a closed loop: each connection sends its next call when the answer
// to the last one is complete.
func load(ctx context.Context, t *target, w workload) (sample, error) {
	request := message(t, w.size)
	ctx, cancel := context.WithTimeout(ctx, w.duration+30*time.Second)
	defer cancel()
	var (
		wg        sync.WaitGroup
		mu        sync.Mutex
		latencies []time.Duration
		failure   error
	)
	cpu, begin := t.cpu(), time.Now()
	end := begin.Add(w.duration)
	for range w.connections {
		wg.Go(func() {
			took, err := client(ctx, t.address, request, w.size, end)
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, took...)
			if err != nil && failure == nil {
				failure = err
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(begin)
	if failure != nil {
		return sample{}, failure
	}
	slices.Sort(latencies)
	n := len(latencies)
	return sample{
		rate:   float64(n) / elapsed.Seconds(),
		median: latencies[n/2],
		p99:    latencies[int(math.Ceil(float64(n)*0.99))-1],
		cpu:    (t.cpu() - cpu) * 1000 / time.Duration(n),
	}, nil
}

func message(t *target, size int) []byte {
	text := strings.Repeat("x", size)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + text +
		`"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n%sContent-Length: %d\r\n\r\n%s",
		t.path, t.address, t.headers, len(body), body)
	return b.Bytes()
}

// client calls over one kept-alive connection until end. Each answer has to
// hold the echoed text whole.
func client(ctx context.Context, address string, request []byte, size int, end time.Time) ([]time.Duration, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	r := bufio.NewReaderSize(conn, 64<<10)
	var took []time.Duration
	for {
		sent := time.Now()
		if sent.After(end) && len(took) > 0 {
			return took, nil
		}
		if len(request) < 64<<10 {
			if _, err := conn.Write(request); err != nil {
				return took, err
			}
			err = response(r, size)
		} else {
			// A large request and its answer overlap: both ends would wait
			// for the other if nobody read while this writes.
			wrote := make(chan error, 1)
			go func() { _, err := conn.Write(request); wrote <- err }()
			err = response(r, size)
			if werr := <-wrote; err == nil {
				err = werr
			}
		}
		if err != nil {
			return took, err
		}
		took = append(took, time.Since(sent))
	}
}

// response reads one HTTP response, JSON or an event stream, and checks that
// it carries at least size bytes.
func response(r *bufio.Reader, size int) error {
	status, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	length, chunked := -1, false
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		name, value, _ := strings.Cut(string(line), ":")
		switch strings.ToLower(name) {
		case "content-length":
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return err
			}
		case "transfer-encoding":
			chunked = strings.TrimSpace(value) == "chunked"
		}
	}
	got := 0
	if chunked {
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return err
			}
			n, err := strconv.ParseInt(strings.TrimSpace(line), 16, 64)
			if err != nil {
				return err
			}
			if _, err := r.Discard(int(n) + 2); err != nil {
				return err
			}
			got += int(n)
			if n == 0 {
				break
			}
		}
	} else if length >= 0 {
		if !strings.Contains(status, " 200 ") {
			text, _ := io.ReadAll(io.LimitReader(r, int64(min(length, 500))))
			return fmt.Errorf("%s: %s", strings.TrimSpace(status), text)
		}
		if got, err = r.Discard(length); err != nil {
			return err
		}
	}
	if !strings.Contains(status, " 200 ") || got < size {
		return fmt.Errorf("%s with %d bytes", strings.TrimSpace(status), got)
	}
	return nil
}
