package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// step is one thing that a driver does, and what its outcome must contain.
type step struct {
	Step   string         `json:"step"`
	Params map[string]any `json:"params,omitempty"`
	want   []string       // fragments of the outcome
}

func call(tool string, args map[string]any, want ...string) step {
	if args == nil {
		args = map[string]any{}
	}
	return step{"callTool", map[string]any{"name": tool, "arguments": args}, want}
}

// typescript drives the TypeScript client of an era through the steps.
func typescript(t *testing.T, d *daemon, x tools, name, era string, steps []step) {
	t.Helper()
	dir := t.TempDir()
	source, err := os.ReadFile(filepath.Join("testdata", "client.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "client.mjs")
	if err := os.WriteFile(script, source, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(x.modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	todo, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, x.node, script, "http://"+d.addr+endpoint(name), era)
	cmd.Env = append(os.Environ(), "MCPD_TOKEN="+d.token)
	cmd.Stdin = bytes.NewReader(todo)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	var outcomes []json.RawMessage
	if err != nil || json.Unmarshal(out, &outcomes) != nil {
		t.Fatalf("driver: %v\n%s\n%s", err, out, errOut.String())
	}
	if len(outcomes) != len(steps) {
		t.Fatalf("%d outcomes of %d steps: %s", len(outcomes), len(steps), out)
	}
	for i, s := range steps {
		for _, want := range s.want {
			if !strings.Contains(string(outcomes[i]), want) {
				t.Errorf("step %d, %s %v: %.1500s lacks %s", i+1, s.Step, s.Params, outcomes[i], want)
			}
		}
	}
}

// realServers are the servers of the daemon for the clients' tests.
func realServers(t *testing.T, x tools) *daemon {
	t.Helper()
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "hello.txt"), []byte("hello from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, setup{servers: []string{
		table("demo", mcpd, []string{"demo-server"}),
		table("sdk", sdkServer(t), nil),
		table("everything", x.node, []string{x.script("server-everything", "dist", "index.js"), "stdio"}),
		table("files", x.node, []string{x.script("server-filesystem", "dist", "index.js"), files}, fmt.Sprintf("cwd = %q", files)),
		table("memory", x.node, []string{x.script("server-memory", "dist", "index.js")}, fmt.Sprintf("cwd = %q", files),
			fmt.Sprintf("env = {MEMORY_FILE_PATH = %q}", filepath.Join(files, "memory.jsonl"))),
	}})
}

// negotiated is what each era of the client must settle on at mcpd, whatever the child speaks.
func negotiated(era, server string) step {
	want := []string{`"server":"` + server + `"`}
	if era == "legacy" {
		want = append(want, `"era":"legacy"`, `"version":"2025-11-25"`)
	} else {
		want = append(want, `"era":"modern"`, `"version":"2026-07-28"`)
	}
	return step{"identity", nil, want}
}

func TestTheTypeScriptClientUsesRealServersInEveryEra(t *testing.T) {
	x := npm(t)
	d := realServers(t, x)
	for _, era := range []string{"legacy", "auto", "modern"} {
		t.Run("the demo server with a client that is "+era, func(t *testing.T) {
			steps := []step{
				negotiated(era, "mcpd-demo"),
				{"listTools", nil, []string{`"echo"`, `"countdown"`, `"outputSchema"`}},
				call("echo", map[string]any{"text": "grüß"}, `"grüß"`),
				call("add", map[string]any{"a": 2, "b": 0.5}, `"structuredContent":{"sum":2.5}`),
				call("add", map[string]any{"a": "x", "b": 1}, `"isError":true`),
				{
					"callToolWithProgress",
					map[string]any{"name": "countdown", "arguments": map[string]any{"from": 3, "interval_ms": 20}},
					[]string{`"progress":[1,2,3]`, "Counted down from 3"},
				},
				{"cancelTool", map[string]any{"name": "countdown", "arguments": map[string]any{"from": 600, "interval_ms": 100}}, []string{`"cancelled":true`}},
				{"readResource", map[string]any{"uri": "note:///welcome"}, []string{"lives in the memory"}},
				{"listResourceTemplates", nil, []string{"note:///{name}"}},
				{"listPrompts", nil, []string{"summarize_notes"}},
				{"getPrompt", map[string]any{"name": "summarize_notes", "arguments": map[string]any{"style": "haiku"}}, []string{"Style: haiku"}},
				{
					"complete",
					map[string]any{
						"ref": map[string]any{"type": "ref/prompt", "name": "summarize_notes"}, "argument": map[string]any{"name": "style", "value": "h"},
					},
					[]string{`"values":["haiku"]`},
				},
			}
			if era != "legacy" { // which has no subscriptions without a session
				steps = append(
					steps,
					step{"listen", map[string]any{"resourcesListChanged": true, "toolsListChanged": true, "resourceSubscriptions": []string{"note:///" + era}}, []string{`{"ok":{`, `"resourcesListChanged":true`, "note:///" + era}},
					call("set_note", map[string]any{"name": era, "text": "new"}, "Saved"),
					step{"heard", map[string]any{"count": 2}, []string{"resources/list_changed", `"uri":"note:///` + era + `"`}},
					step{"unlisten", nil, []string{`{"ok":{}}`}},
				)
			}
			d.tool("demo", "notes", "{}")
			subscriptions := d.status("demo").Subscriptions
			typescript(t, d, x, "demo", era, steps)
			d.eventually("an end of all that the client had open", func() bool {
				s := d.status("demo")
				return s.InFlight == 0 && s.Listeners == 0 && s.Subscriptions == subscriptions
			})
		})
		t.Run("the SDK's test server with a client that is "+era, func(t *testing.T) {
			typescript(t, d, x, "sdk", era, []step{
				negotiated(era, "mcp-conformance-test-server"),
				call("test_simple_text", nil, "simple text"),
				call("test_image_content", nil, `"mimeType":"image/png"`),
				call("test_error_handling", nil, `"isError":true`),
				{"readResource", map[string]any{"uri": "test://static-text"}, []string{`"text":`}},
				{"listPrompts", nil, []string{"test_simple_prompt"}},
			})
		})
		t.Run("server-everything with a client that is "+era, func(t *testing.T) {
			typescript(t, d, x, "everything", era, []step{
				negotiated(era, "mcp-servers/everything"),
				{"listTools", nil, []string{`"echo"`, `"get-sum"`}},
				call("echo", map[string]any{"message": "hello"}, "Echo: hello"),
				call("get-sum", map[string]any{"a": 2, "b": 3}, "5"),
				{
					"callToolWithProgress",
					map[string]any{"name": "trigger-long-running-operation", "arguments": map[string]any{"duration": 0.3, "steps": 3}},
					[]string{`"progress":[1,2,3]`},
				},
				{"listResources", nil, []string{`"uri":`}},
				{"listPrompts", nil, []string{`"name":`}},
			})
		})
		t.Run("server-filesystem with a client that is "+era, func(t *testing.T) {
			typescript(t, d, x, "files", era, []step{
				{"listTools", nil, []string{`"read_text_file"`}},
				call("read_text_file", map[string]any{"path": "hello.txt"}, "hello from a file"),
				call("read_text_file", map[string]any{"path": "/etc/passwd"}, `"isError":true`),
			})
		})
		t.Run("server-memory with a client that is "+era, func(t *testing.T) {
			typescript(t, d, x, "memory", era, []step{
				call("create_entities", map[string]any{"entities": []any{map[string]any{"name": "mcpd-" + era, "entityType": "daemon", "observations": []string{"it runs"}}}}, "mcpd-"+era),
				call("read_graph", nil, "mcpd-"+era),
			})
		})
	}
}

// bearer adds the token, as a user's own http.Client does.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// goClient connects the client of the Go SDK.
func goClient(t *testing.T, d *daemon, name string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1.0.0"}, options)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint:   "http://" + d.addr + endpoint(name),
		HTTPClient: &http.Client{Transport: bearer{d.token, transport}},
	}, nil)
	if err != nil {
		t.Fatalf("connect to %s: %v", name, err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

func TestTheGoSDKClientUsesChildrenOfBothEras(t *testing.T) {
	d := start(t, setup{servers: []string{
		table("demo", mcpd, []string{"demo-server"}),
		table("sdk", sdkServer(t), nil),
		server("old", []string{"-era", "legacy"}),
	}})
	for name, check := range map[string]struct {
		tool string
		args map[string]any
		want string
		uri  string
	}{
		"demo": {"echo", map[string]any{"text": "hello"}, "hello", "note:///welcome"},
		"sdk":  {"test_simple_text", map[string]any{}, "simple text", "test://static-text"},
		"old":  {"echo", map[string]any{"text": "hello"}, `{"text":"hello"}`, "fixture:///a"},
	} {
		t.Run(name, func(t *testing.T) {
			session := goClient(t, d, name, nil)
			if version := session.InitializeResult().ProtocolVersion; version != modernVersion {
				t.Errorf("protocol version %s", version)
			}
			var names []string
			for tool, err := range session.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
			}
			if !slices.Contains(names, check.tool) {
				t.Errorf("tools %v", names)
			}
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: check.tool, Arguments: check.args})
			if err != nil {
				t.Fatal(err)
			}
			text, ok := result.Content[0].(*mcp.TextContent)
			if !ok || result.IsError || !strings.Contains(text.Text, check.want) {
				t.Errorf("tool answers %+v", result.Content[0])
			}
			read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: check.uri})
			if err != nil || len(read.Contents) != 1 || read.Contents[0].URI != check.uri {
				t.Errorf("resource: %+v, %v", read, err)
			}
			if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "no:///such"}); err == nil {
				t.Error("a resource that is not there can be read")
			}
			if err := session.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	t.Run("progress", func(t *testing.T) {
		progress := make(chan float64, 100)
		session := goClient(t, d, "demo", &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
		})
		params := &mcp.CallToolParams{Name: "countdown", Arguments: map[string]any{"from": 2, "interval_ms": 20}}
		params.SetProgressToken("mine")
		if _, err := session.CallTool(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		for want := range 2 {
			if got := <-progress; got != float64(want+1) {
				t.Errorf("progress %v, want %d", got, want+1)
			}
		}
	})
	t.Run("cancellation", func(t *testing.T) {
		session := goClient(t, d, "old", nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "hold", Arguments: map[string]any{"name": "x"}})
			ended <- err
		}()
		d.tool("old", "await", `{"kind":"held","count":1}`)
		cancel()
		if err := <-ended; err == nil {
			t.Error("the cancelled call has a result")
		}
		d.tool("old", "await", `{"kind":"cancelled","count":1}`)
	})
}

func TestTheInspectorListsAndCallsInEveryEra(t *testing.T) {
	x := npm(t)
	d := start(t, setup{servers: []string{table("demo", mcpd, []string{"demo-server"}), server("old", []string{"-era", "legacy"})}})
	var manifest struct {
		Bin map[string]string `json:"bin"`
	}
	data, err := os.ReadFile(x.script("inspector", "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &manifest); err != nil || manifest.Bin["mcp-inspector"] == "" {
		t.Fatalf("the inspector has no program: %v", err)
	}
	inspect := func(t *testing.T, name, era string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, x.node, append([]string{
			x.script("inspector", manifest.Bin["mcp-inspector"]), "--cli", "http://" + d.addr + endpoint(name), "--transport", "http",
			"--header", "Authorization: Bearer " + d.token, "--protocol-era", era, "--stored-auth-only", "-q", "--format", "json",
		}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("inspector: %v\n%s", err, out)
		}
		return string(out)
	}
	for _, era := range []string{"legacy", "auto", "modern"} {
		for name, argument := range map[string]string{"demo": "text=hello", "old": "text=hello"} {
			t.Run(name+" "+era, func(t *testing.T) {
				if out := inspect(t, name, era, "--method", "tools/list"); !strings.Contains(out, `"echo"`) {
					t.Errorf("tools/list prints %s", out)
				}
				if out := inspect(t, name, era, "--method", "tools/call", "--tool-name", "echo", "--tool-arg", argument); !strings.Contains(out, "hello") {
					t.Errorf("tools/call prints %s", out)
				}
			})
		}
	}
}
