//go:build linux

package systemtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the test binary is when it is not the test.
const (
	variableRole = "MCPD_TEST_ROLE"
	roleClient   = "client" // an MCP client: URL TOKEN TEXT
	roleBind     = "bind"   // a stranger that wants a port: ADDRESS
	roleHold     = "hold"   // a stranger that has a port until it is stopped: ADDRESS
)

// patience is far longer than anything here takes.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(variableRole) {
	case roleClient:
		err = client(os.Args[1], os.Args[2], os.Args[3])
	case roleBind:
		var l net.Listener
		if l, err = net.Listen("tcp", os.Args[1]); err == nil {
			err = l.Close()
		}
	case roleHold:
		var l net.Listener
		if l, err = net.Listen("tcp", os.Args[1]); err == nil {
			_, err = l.Accept()
		}
	default:
		code := m.Run()
		if err := os.RemoveAll(toolsDir()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// client is a program that uses a server as any other would, by the official
// SDK: it connects, lists the tools, and has one echo a text.
func client(url, token, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := mcp.NewClient(&mcp.Implementation{Name: "systemtest", Version: "1"}, nil)
	session, err := c.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearer{token}}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return err
	}
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	if len(list.Tools) == 0 {
		return errors.New("the server has no tools")
	}
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": text}})
	if err != nil {
		return err
	}
	for _, c := range result.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			fmt.Println(t.Text)
		}
	}
	return session.Close()
}

// need skips a test that lacks something, or fails it where nothing may be
// skipped.
func need(t *testing.T, ok bool, reason string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("MCPD_TEST_REQUIRE_ALL") == "1":
		t.Fatal("cannot be skipped here: " + reason)
	default:
		t.Skip(reason)
	}
}

func needTools(t *testing.T, packages map[string]string) {
	t.Helper()
	for tool, pkg := range packages {
		_, err := exec.LookPath(tool)
		need(t, err == nil, tool+" is not installed (Debian: apt-get install "+pkg+")")
	}
}

// command runs a program and returns what it says on stdout. Its output goes to
// files: what it leaves running in the background may hold on to a pipe.
func command(ctx context.Context, env []string, name string, args ...string) (_ string, err error) {
	dir, err := os.MkdirTemp("", "mcpd-command-*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var outputs [2]*os.File
	for i := range outputs {
		if outputs[i], err = os.Create(filepath.Join(dir, fmt.Sprint(i))); err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, outputs[i].Close()) }()
	}
	cmd.Stdout, cmd.Stderr = outputs[0], outputs[1]
	err = cmd.Run()
	var texts [2]string
	for i, f := range outputs {
		data, rerr := os.ReadFile(f.Name())
		texts[i], err = string(data), errors.Join(err, rerr)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, texts[0], texts[1])
	}
	return strings.TrimSpace(texts[0]), err
}

// packages makes packages of this source under a version and returns the folder.
func packages(t *testing.T, version, kinds, targets string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), version)
	_, err := command(t.Context(), nil, "../build", "--version", version, "--only", kinds, "--targets", targets,
		"--tools", tools(t), "--out", out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tools builds the tools of packaging once for all tests of a run.
func tools(t *testing.T) string {
	t.Helper()
	dir := toolsDir()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := command(t.Context(), nil, "go", "build", "-C", "../tools", "-o", dir+"/", "tool"); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func toolsDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("mcpd-packaging-tools-%d", os.Getpid()))
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: it did not come about: %v", what, err)
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
