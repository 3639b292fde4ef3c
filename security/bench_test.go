package security

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *discardWriter) WriteHeader(int)             {}

// BenchmarkGate is one request that passes every check.
func BenchmarkGate(b *testing.B) {
	f := newGateFixture(b)
	reached := 0
	route := Route{Methods: []string{http.MethodPost}, Server: "alpha", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ })}
	handler := f.gate.Handler(routeFunc(func(string) (Route, bool) { return route, true }))
	r := httptest.NewRequest(http.MethodPost, "/servers/alpha/mcp", nil)
	r.Host = testHost
	r.Header.Set("Origin", testOrigin)
	r.Header.Set("Authorization", "Bearer "+f.token)
	w := &discardWriter{make(http.Header)}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		handler.ServeHTTP(w, r)
	}
	if reached == 0 {
		b.Fatal("no request passed")
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	for _, n := range []int{1, 20, 500} {
		b.Run(fmt.Sprintf("%d tokens", n), func(b *testing.B) {
			store := openStore(b, stateDir(b))
			plain := newToken()
			var records []tokenRecord
			for i := range n - 1 {
				records = append(records, newRecord(fmt.Sprintf("t%d", i), hashOf(newToken()), CreateOptions{}))
			}
			set, err := store.store(append(records, newRecord("last", hashOf(plain), CreateOptions{})))
			if err != nil {
				b.Fatal(err)
			}
			store.publish(set)
			token := plain.Reveal()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := store.Authenticate(token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
