// Package mcpclient is the small MCP client behind `mcpd tools` and `mcpd
// call`. It goes through the daemon's MCP endpoint like any other client and
// speaks revision 2026-07-28 only; the daemon translates for older servers.
//
// It makes single requests. It holds no subscriptions, answers no questions of
// a server, and repeats nothing.
package mcpclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	protocolVersion = "2026-07-28"
	metaPrefix      = "io.modelcontextprotocol/"

	// maxMessage bounds one message of a server, in bytes.
	maxMessage = 256 << 20
	// maxPages bounds a list whose cursor never ends.
	maxPages = 1000
)

// Options are what a Client is made of.
type Options struct {
	HTTP    *http.Client
	URL     string // of the endpoint
	Token   string
	Version string // of mcpd
}

// Client asks one server.
type Client struct {
	o      Options
	lastID int
}

// New returns a Client.
func New(o Options) *Client { return &Client{o: o} }

// Error is the answer of a server, or of mcpd on its behalf, that is an error.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Tool is one tool of a server.
type Tool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Raw         json.RawMessage `json:"-"` // all of it, as the server sent it
}

// Notify takes a notification that belongs to a request.
type Notify func(method string, params json.RawMessage)

// ListTools lists every tool of the server.
func (c *Client) ListTools(ctx context.Context) ([]Tool, error) {
	var tools []Tool
	params := map[string]any{}
	for range maxPages {
		raw, err := c.do(ctx, "tools/list", "", nil, params, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, fmt.Errorf("the server's list of tools cannot be read: %w", err)
		}
		for _, raw := range page.Tools {
			t := Tool{Raw: raw}
			if err := json.Unmarshal(raw, &t); err != nil {
				return nil, fmt.Errorf("a tool of the server cannot be read: %w", err)
			}
			tools = append(tools, t)
		}
		if page.NextCursor == "" {
			return tools, nil
		}
		params = map[string]any{"cursor": page.NextCursor}
	}
	return nil, fmt.Errorf("the server's list of tools does not end after %d pages", maxPages)
}

// CallTool calls a tool with arguments, a JSON object, and returns the result
// as the server sent it. notify takes its progress; nil asks for none.
func (c *Client) CallTool(ctx context.Context, tool Tool, arguments json.RawMessage, notify Notify) (json.RawMessage, error) {
	headers, err := paramHeaders(tool.InputSchema, arguments)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", tool.Name, err)
	}
	params := map[string]any{"name": tool.Name, "arguments": arguments}
	return c.do(ctx, "tools/call", tool.Name, headers, params, notify)
}

// do sends one request and returns its result.
func (c *Client) do(ctx context.Context, method, name string, headers map[string]string, params map[string]any, notify Notify) (json.RawMessage, error) {
	c.lastID++
	meta := map[string]any{
		metaPrefix + "protocolVersion":    protocolVersion,
		metaPrefix + "clientCapabilities": map[string]any{},
		metaPrefix + "clientInfo":         map[string]string{"name": "mcpd", "version": c.o.Version},
	}
	if notify != nil {
		meta["progressToken"] = c.lastID
	}
	params = maps.Clone(params)
	params["_meta"] = meta
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.lastID, "method": method, "params": params})
	if err != nil {
		return nil, fmt.Errorf("mcpclient: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.o.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("mcpclient: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.o.Token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", protocolVersion)
	req.Header.Set("Mcp-Method", method)
	if name != "" {
		req.Header.Set("Mcp-Name", encodeHeader(name))
	}
	for k, v := range headers {
		req.Header.Set("Mcp-Param-"+k, encodeHeader(v))
	}
	resp, err := c.o.HTTP.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, fmt.Errorf("cannot reach the daemon: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	next := whole(resp.Body)
	switch mt, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); mt {
	case "application/json":
	case "text/event-stream":
		next = events(resp.Body)
	default:
		return nil, fmt.Errorf("the daemon answered %s", resp.Status)
	}
	for {
		data, err := next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the answer broke off before the result")
		}
		if err != nil {
			return nil, fmt.Errorf("the answer broke off: %w", err)
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
			Result json.RawMessage `json:"result"`
			Error  *Error          `json:"error"`
		}
		switch err := json.Unmarshal(data, &m); {
		case err != nil:
			return nil, fmt.Errorf("the answer cannot be read: %w", err)
		case m.Error != nil:
			return nil, m.Error
		case m.Method != "":
			if notify != nil {
				notify(m.Method, m.Params)
			}
		case m.Result == nil || string(m.ID) != strconv.Itoa(c.lastID):
			return nil, errors.New("the answer is not one to this request")
		default:
			return m.Result, nil
		}
	}
}

// whole gives a body as one message.
func whole(r io.Reader) func() ([]byte, error) {
	done := false
	return func() ([]byte, error) {
		if done {
			return nil, io.EOF
		}
		done = true
		data, err := io.ReadAll(io.LimitReader(r, maxMessage+1))
		if err == nil && len(data) > maxMessage {
			err = errTooLarge
		}
		return data, err
	}
}

var errTooLarge = fmt.Errorf("a message is larger than %d MiB", maxMessage>>20)

// events gives the data of a stream's events one by one.
func events(r io.Reader) func() ([]byte, error) {
	br := bufio.NewReader(r)
	return func() ([]byte, error) {
		var data []byte
		has := false
		for {
			line, err := readLine(br)
			if err != nil {
				return nil, err
			}
			switch value, isData := bytes.CutPrefix(line, []byte("data:")); {
			case isData:
				if has {
					data = append(data, '\n')
				}
				data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
				has = true
			case len(line) == 0 && len(data) > 0:
				return data, nil
			case len(line) == 0:
				has = false
			}
			if len(data) > maxMessage {
				return nil, errTooLarge
			}
		}
	}
}

// readLine reads a line of any length up to the bound, without its end.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
			if len(line) > maxMessage {
				return nil, errTooLarge
			}
		default:
			return nil, err
		}
	}
}

// encodeHeader writes a value so that a header can carry it
// (basic/transports/streamable-http, Value Encoding).
func encodeHeader(v string) string {
	plain := strings.Trim(v, " \t") == v && (!strings.HasPrefix(v, "=?base64?") || !strings.HasSuffix(v, "?="))
	for i := range len(v) {
		if (v[i] < 0x20 && v[i] != '\t') || v[i] > 0x7e {
			plain = false
		}
	}
	if plain {
		return v
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(v)) + "?="
}

// paramHeaders finds the arguments that a tool wants repeated in headers, by
// the name of the header behind Mcp-Param-.
func paramHeaders(schema, arguments json.RawMessage) (map[string]string, error) {
	var args any
	dec := json.NewDecoder(bytes.NewReader(arguments))
	dec.UseNumber() // integers stay what they are
	if err := dec.Decode(&args); err != nil {
		return nil, fmt.Errorf("the arguments are not JSON: %w", err)
	}
	headers := make(map[string]string)
	return headers, collect(schema, args, headers)
}

// collect walks the chains of properties; annotations elsewhere mean nothing.
func collect(schema json.RawMessage, value any, headers map[string]string) error {
	object, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil // a schema that is true or false
	}
	for name, sub := range s.Properties {
		v, present := object[name]
		if !present || v == nil {
			continue
		}
		var p struct {
			Header string `json:"x-mcp-header"`
		}
		if json.Unmarshal(sub, &p) == nil && p.Header != "" {
			switch v := v.(type) {
			case string:
				headers[p.Header] = v
			case bool:
				headers[p.Header] = strconv.FormatBool(v)
			case json.Number:
				headers[p.Header] = v.String()
			default:
				return fmt.Errorf("argument %q must be text, a whole number or true or false", name)
			}
			continue
		}
		if err := collect(sub, v, headers); err != nil {
			return err
		}
	}
	return nil
}
