package header_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	sdkjsonrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpd/bridge/header"
	"mcpd/bridge/jsonrpc"
)

const annotated = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"size":{"type":"integer","x-mcp-header":"Page-Size"},
	"dry":{"type":"boolean","x-mcp-header":"Dry"},
	"outer":{"type":"object","properties":{"inner":{"type":"string","x-mcp-header":"inner"}}}}}`

// checked stands in front of a server like mcpd does. The tamper function may
// change the headers of a tools/call first.
type checked struct {
	next   http.Handler
	params []header.Param
	tamper func(http.Header)
	calls  atomic.Int32
}

func (c *checked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var m jsonrpc.Message
	if r.Method == http.MethodPost {
		if err := jsonrpc.Scan(body, &m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	if jsonrpc.EqualString(body, m.Method.Value, "tools/call") {
		if c.tamper != nil {
			c.tamper(r.Header)
		}
		c.calls.Add(1)
		if err := header.Check(r.Header, m.Param.Arguments.Of(body), c.params); err != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":%s}}`, m.ID.Of(body), jsonrpc.Quote(err.Error()))
			return
		}
	}
	c.next.ServeHTTP(w, r)
}

// A client that conforms mirrors its arguments, and all that it sends matches.
func TestHeadersOfARealClient(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "annotated", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "where", InputSchema: json.RawMessage(annotated)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
		})
	params, err := header.Params([]byte(annotated))
	if err != nil {
		t.Fatal(err)
	}
	gate := &checked{
		next: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}),
		params: params,
	}
	hs := httptest.NewServer(gate)
	defer hs.Close()

	ctx := t.Context()
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: hs.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if got := session.InitializeResult().ProtocolVersion; got != "2026-07-28" {
		t.Fatalf("the client speaks %s, which has no such headers", got)
	}
	if _, err := session.ListTools(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range []map[string]any{
		{},
		{"region": "us-west1", "size": 42, "dry": false, "outer": map[string]any{"inner": "x"}},
		{"region": "Hello, 世界", "size": -9007199254740991, "dry": true},
		{"region": " padded ", "outer": map[string]any{"inner": "line1\r\nline2"}},
		{"region": "=?base64?literal?=", "outer": map[string]any{}},
		{"region": nil, "size": nil, "outer": nil},
	} {
		if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "where", Arguments: arguments}); err != nil {
			t.Errorf("%v: %v", arguments, err)
		}
	}

	if n := gate.calls.Load(); n != 6 {
		t.Fatalf("%d of 6 calls were checked", n)
	}

	// The same client, with a proxy in between that changes one header.
	for name, tamper := range map[string]func(http.Header){
		"drops it":    func(h http.Header) { h.Del("Mcp-Param-Region") },
		"changes it":  func(h http.Header) { h.Set("Mcp-Param-Region", "us-east1") },
		"doubles it":  func(h http.Header) { h.Add("Mcp-Param-Region", "us-west1") },
		"adds a null": func(h http.Header) { h.Set("Mcp-Param-Dry", "true") },
	} {
		gate.tamper = tamper
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "where", Arguments: map[string]any{"region": "us-west1"}})
		var wire *sdkjsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != -32020 {
			t.Errorf("%s: the client got %v", name, err)
		}
	}
}
