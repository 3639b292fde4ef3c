package bridge

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"mcpd/security"
)

// sink is a ResponseWriter that costs nothing.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// answerer is a server that costs next to nothing: it answers each line with a
// fixed result for the id in it.
type answerer struct {
	out    *io.PipeWriter
	result string
	buf    []byte
}

func (a *answerer) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		i := strings.Index(line, `"id":`)
		if i < 0 {
			continue
		}
		id := line[i+5:]
		id = id[:strings.IndexAny(id, ",}")]
		a.buf = append(a.buf[:0], `{"jsonrpc":"2.0","id":`...)
		a.buf = append(a.buf, id...)
		if strings.Contains(line, methodDiscover) {
			a.buf = append(a.buf, `,"result":`+discoverOK+"}\n"...)
		} else {
			a.buf = append(append(append(a.buf, `,"result":`...), a.result...), "}\n"...)
		}
		if _, err := a.out.Write(a.buf); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (a *answerer) Close() error { return a.out.Close() }

// BenchmarkCall measures one request through the whole package, from the
// handler to the pipe and back, with neither sockets nor a process.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("result=%d", size), func(b *testing.B) {
			u := NewUpstream(UpstreamOptions{Name: "s", Version: "test"})
			outR, outW := io.Pipe()
			conn, err := u.Dial(b.Context(), Pipes{Stdin: &answerer{out: outW, result: `{"v":"` + strings.Repeat("x", size) + `"}`}, Stdout: outR})
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close(nil)
			u.Ready(conn)
			u.Bind(childFunc(func() (*Conn, error) { return conn, nil }))
			e := NewEndpoint(16<<20, slog.New(slog.DiscardHandler))
			e.SetUpstreams(map[string]*Upstream{"s": u})
			handler := e.Handler("s")
			ctx := security.WithPrincipal(context.Background(), &security.Principal{ID: "p"})
			body := modernBody("1", "vendor/x", `"arguments":{"text":"hello"}`)
			h := http.Header{
				"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				headerProtocolVersion: {version20260728}, headerMethod: {"vendor/x"},
			}
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
				req.Header = h
				handler.ServeHTTP(&sink{h: http.Header{}}, req)
			}
		})
	}
}
