package mcpclient

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAHeaderCarriesEveryValue(t *testing.T) {
	// The values and their forms are the specification's own examples.
	for value, want := range map[string]string{
		"us-west1":             "us-west1",
		"Hello, 世界":            "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":             "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":         "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=":   "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"":                     "",
		"=?base64?not the end": "=?base64?not the end",
	} {
		if got := encodeHeader(value); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

func TestArgumentsThatAToolWantsInHeadersAreFound(t *testing.T) {
	schema := json.RawMessage(`{"properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"deep":{"properties":{"n":{"type":"integer","x-mcp-header":"N"},"absent":{"x-mcp-header":"A"}}},
		"flag":{"x-mcp-header":"Flag"},
		"none":{"x-mcp-header":"None"},
		"list":{"items":{"x-mcp-header":"Never"}},
		"plain":true}}`)
	got, err := paramHeaders(schema, json.RawMessage(`{"region":"x","deep":{"n":9007199254740991},"flag":false,"none":null,"list":[1],"plain":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"Region": "x", "N": "9007199254740991", "Flag": "false"}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := paramHeaders(schema, json.RawMessage(`{"region":{}}`)); err == nil {
		t.Error("an object went into a header")
	}
}

// answering starts a server that answers every request the same way.
func answering(t *testing.T, status int, contentType, body string) *Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	return New(Options{HTTP: srv.Client(), URL: srv.URL, Token: "t", Version: "v"})
}

func TestAnswersAreReadInBothForms(t *testing.T) {
	result := `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
	progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`
	big := strings.Repeat("x", 200_000)
	tests := []struct {
		name, contentType, body string
		status                  int
		want, wantErr           string
		notes                   int
	}{
		{name: "JSON", contentType: "application/json", status: 200, body: result, want: `{"content":[]}`},
		{name: "a stream", contentType: "text/event-stream", status: 200, body: ": hello\n\ndata: " + progress + "\r\n\r\nevent: message\ndata: " + result + "\n\n", want: `{"content":[]}`, notes: 1},
		{name: "an event of two lines", contentType: "text/event-stream", status: 200, body: "data: {\"jsonrpc\":\"2.0\",\"id\":1,\ndata: \"result\":{}}\n\n", want: `{}`},
		{name: "a long line", contentType: "text/event-stream", status: 200, body: fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"x\":%q}}\n\n", big), want: fmt.Sprintf("{\"x\":%q}", big)},
		{name: "an error", contentType: "application/json", status: 503, body: `{"jsonrpc":"2.0","id":1,"error":{"code":-31503,"message":"server \"x\" failed"}}`, wantErr: `server "x" failed`},
		{name: "a stream that ends early", contentType: "text/event-stream", status: 200, body: "data: " + progress + "\n\n", wantErr: "broke off", notes: 1},
		{name: "no JSON", contentType: "application/json", status: 200, body: "oops", wantErr: "cannot be read"},
		{name: "another answer", contentType: "application/json", status: 200, body: `{"jsonrpc":"2.0","id":7,"result":{}}`, wantErr: "not one to this request"},
		{name: "a page", contentType: "text/html", status: 502, body: "<html>", wantErr: "502"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			notes := 0
			got, err := answering(t, tt.status, tt.contentType, tt.body).
				CallTool(t.Context(), Tool{Name: "x"}, json.RawMessage(`{}`), func(string, json.RawMessage) { notes++ })
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("got %v, want an error with %q", err, tt.wantErr)
				}
			} else if err != nil || string(got) != tt.want {
				t.Errorf("got %.100s, %v", got, err)
			}
			if notes != tt.notes {
				t.Errorf("got %d notifications, want %d", notes, tt.notes)
			}
		})
	}
}

func TestEveryPageOfAListIsRead(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     int
			Params struct{ Cursor string }
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		next := `,"nextCursor":"two"`
		if req.Params.Cursor == "two" {
			next = ""
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"t%d","x":1}]%s}}`, req.ID, req.ID, next)
	}))
	defer srv.Close()
	tools, err := New(Options{HTTP: srv.Client(), URL: srv.URL}).ListTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(tools) != 2 || tools[0].Name != "t1" || tools[1].Name != "t2" || string(tools[1].Raw) != `{"name":"t2","x":1}` {
		t.Errorf("got %+v", tools)
	}
}

func TestAListThatNeverEndsIsGivenUp(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct{ ID int }
		_ = json.NewDecoder(r.Body).Decode(&req)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":{"tools":[],"nextCursor":"again"}}`, req.ID)
	}))
	defer srv.Close()
	if _, err := New(Options{HTTP: srv.Client(), URL: srv.URL}).ListTools(t.Context()); err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("got %v", err)
	}
}
