package config

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// uncomment switches the settings on that the example shows as comments.
var commented = regexp.MustCompile(`(?m)^#(\S)`)

func uncomment(s string) string { return commented.ReplaceAllString(s, "$1") }

func TestTheExampleIsValidAndRunsTheProgramItself(t *testing.T) {
	for _, executable := range []string{"/usr/bin/mcpd", `/opt/with "quotes" and ${braces}/mcpd`, "/opt/ünï/mcpd"} {
		cfg := mustParse(t, string(Example(executable, 12345)), world{})
		if got := cfg.Daemon.Listen.String(); got != "127.0.0.1:12345" {
			t.Errorf("Listen = %s", got)
		}
		demo, ok := cfg.Servers["demo"]
		if !ok || len(cfg.Servers) != 1 || demo.Command != executable || len(demo.Args) != 1 || demo.Args[0] != "demo-server" {
			t.Errorf("servers: %v", cfg.Servers)
		}
	}
	env := world{}.environment()
	env.OS = "windows"
	cfg, err := Parse(testPath, Example(`C:\Program Files\mcpd\mcpd.exe`, 1), env)
	if err != nil || cfg.Servers["demo"].Command != `C:\Program Files\mcpd\mcpd.exe` {
		t.Errorf("on Windows: %v, %v", cfg, err)
	}
}

func TestEveryCommentedSettingOfTheExampleIsValid(t *testing.T) {
	example := string(Example("/usr/bin/mcpd", 7317))
	servers := mustParse(t, uncomment(example), world{}).Servers
	if len(servers) < 4 {
		t.Errorf("all of it has only %d servers", len(servers))
	}
	blocks := 0
	for block := range strings.SplitSeq(example, "\n\n") {
		switched := uncomment(block)
		if switched == block {
			continue
		}
		blocks++
		if strings.Contains(block, "\n#[") && len(mustParse(t, switched, world{}).Servers) != 1 {
			t.Errorf("no server comes of\n%s", switched)
		}
		mustParse(t, strings.Replace(example, block, switched, 1), world{})
	}
	if blocks < 5 {
		t.Errorf("only %d blocks have commented settings", blocks)
	}
}

func TestWriteNewMakesAPrivateFileOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "mcpd.toml")
	if err := WriteNew(path, "/usr/bin/mcpd", 7400); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path, OSEnvironment())
	if runtime.GOOS != "windows" && (err != nil || cfg.Daemon.Listen.Port() != 7400) {
		t.Errorf("Load: %v, %v", cfg, err)
	}
	if runtime.GOOS != "windows" {
		for name, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
			info, err := os.Stat(name)
			if err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v; want %v", name, info.Mode().Perm(), err, want)
			}
		}
	}

	writeFile(t, path, "# mine\n")
	err = WriteNew(path, "/usr/bin/mcpd", 7401)
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second time: %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "# mine\n" {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

func TestWriteNewDoesNotWriteThroughALink(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.Symlink(target, filepath.Join(dir, "mcpd.toml")); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	if err := WriteNew(filepath.Join(dir, "mcpd.toml"), "/x", 1); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the target was written")
	}
}

func TestFreePortPrefersOneAndAvoidsATakenOne(t *testing.T) {
	var listen net.ListenConfig
	taken, err := listen.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := taken.Addr().(*net.TCPAddr).Port
	got, err := freePort(t.Context(), port)
	if err != nil || got == port || got == 0 {
		t.Errorf("while %d is taken: %d, %v", port, got, err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := freePort(t.Context(), port); err != nil || got != port {
		t.Errorf("while %d is free: %d, %v", port, got, err)
	}
	if got, err := FreePort(t.Context()); err != nil {
		t.Error(err)
	} else if l, err := listen.Listen(t.Context(), "tcp4", "127.0.0.1:"+strconv.Itoa(got)); err != nil {
		t.Errorf("port %d is not free: %v", got, err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := FreePort(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: %v", err)
	}
}
