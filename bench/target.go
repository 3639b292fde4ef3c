package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is one running server that is measured.
type target struct {
	name    string
	cmd     *exec.Cmd
	address string
	path    string
	headers string // extra header lines
}

func (t *target) stop() {
	_ = t.cmd.Process.Signal(syscall.SIGTERM)
	_ = t.cmd.Wait()
}

// cpu is the processor time that the target itself has used so far.
func (t *target) cpu() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", t.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100)
}

// rss is the target's resident memory in KiB.
func (t *target) rss() int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(status), "\n") {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(v), " kB"))
			return n
		}
	}
	return 0
}

func start(ctx context.Context, name, dir, mcpd string) (*target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	switch name {
	case "bare", "sdk-proxy":
		t := &target{name: name, path: "/", cmd: exec.CommandContext(ctx, self, name)}
		out, err := t.cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		t.cmd.Stderr = os.Stderr
		if err := t.cmd.Start(); err != nil {
			return nil, err
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		t.address = strings.TrimSpace(line)
		return t, err
	case "mcpd":
		return startMcpd(ctx, self, dir, mcpd)
	case "mcp-proxy":
		return startMcpProxy(ctx, self, dir)
	}
	return nil, fmt.Errorf("no such target")
}

func startMcpd(ctx context.Context, self, dir, binary string) (*target, error) {
	if binary == "" {
		binary = filepath.Join(dir, "mcpd")
		build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/mcpd")
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build: %w: %s", err, out)
		}
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "mcpd.toml")
	text := fmt.Sprintf("[daemon]\nlisten = %q\n[security]\nmax_request_bytes = \"64MiB\"\n[servers.echo]\ncommand = %q\nargs = [\"echo-server\"]\n", address, self)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	state := filepath.Join(dir, "state")
	t := &target{name: "mcpd", address: address, path: "/servers/echo/mcp"}
	t.cmd = exec.CommandContext(ctx, binary, "run", "--config", config, "--state-dir", state)
	log, err := os.Create(filepath.Join(dir, "mcpd.log"))
	if err != nil {
		return nil, err
	}
	t.cmd.Stderr = log
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	if err := waitFor(ctx, "http://"+address+"/healthz"); err != nil {
		return nil, err
	}
	token, err := exec.CommandContext(ctx, binary, "token", "show", "--config", config, "--state-dir", state).Output()
	t.headers = "Authorization: Bearer " + strings.TrimSpace(string(token)) + "\r\n"
	return t, err
}

// startMcpProxy runs the npm package mcp-proxy, fetching it where needed.
func startMcpProxy(ctx context.Context, self, dir string) (*target, error) {
	install := exec.CommandContext(ctx, "npm", "install", "--silent", "--prefix", dir, "mcp-proxy")
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm install: %w: %s", err, out)
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	t := &target{name: "mcp-proxy", address: address, path: "/mcp"}
	t.cmd = exec.CommandContext(ctx, filepath.Join(dir, "node_modules", ".bin", "mcp-proxy"),
		"--host", "127.0.0.1", "--port", port, "--server", "stream", "--stateless", "--", self, "echo-server")
	t.cmd.Stderr = io.Discard
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	return t, waitFor(ctx, "http://"+address+"/ping")
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// waitFor waits until something answers at url.
func waitFor(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing answers at %s", url)
		case <-tick.C:
		}
	}
}
