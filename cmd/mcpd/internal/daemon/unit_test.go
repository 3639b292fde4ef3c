package daemon

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpd/bridge"
	"mcpd/security"
)

func newTestLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestEnvironmentsAreMerged(t *testing.T) {
	list := func(dirs ...string) string { return strings.Join(dirs, string(filepath.ListSeparator)) }
	tests := []struct {
		name       string
		own, shell map[string]string
		want       map[string]string
	}{
		{
			"a service has a poor PATH",
			map[string]string{"PATH": list("/usr/bin", "/bin")},
			map[string]string{"PATH": list("/opt/node/bin", "/usr/bin")},
			map[string]string{"PATH": list("/opt/node/bin", "/usr/bin", "/bin")},
		},
		{
			"a terminal has all of it, in an order that counts",
			map[string]string{"PATH": list("/venv/bin", "/usr/bin", "/opt/node/bin")},
			map[string]string{"PATH": list("/opt/node/bin", "/usr/bin")},
			map[string]string{"PATH": list("/venv/bin", "/usr/bin", "/opt/node/bin")},
		},
		{
			"the daemon's own variables go first",
			map[string]string{"A": "own"},
			map[string]string{"A": "shell", "B": "shell"},
			map[string]string{"A": "own", "B": "shell"},
		},
		{"a shell that says nothing", map[string]string{"PATH": "/bin"}, nil, map[string]string{"PATH": "/bin"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, merged(tt.own, tt.shell)); diff != "" {
				t.Error(diff)
			}
		})
	}
	got := asMap([]string{"A=1", "B=x=y", "=C:=C:\\dir", "broken", ""})
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "x=y", "=C:": "C:\\dir"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMemoryIsBoundedAndForgetsTheOldest(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "commands.json")
	m := openMemory(path, newTestLogger())
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m.now = func() time.Time { now = now.Add(time.Second); return now }
	for i := range maxMemories + 5 {
		eras{m}.Remember(strconv.Itoa(i), bridge.EraLegacy)
	}
	again := openMemory(path, newTestLogger())
	if len(again.entries) != maxMemories {
		t.Errorf("%d entries", len(again.entries))
	}
	if _, ok := (eras{again}).Era("4"); ok {
		t.Error("the oldest are still there")
	}
	if era, ok := (eras{again}).Era("5"); !ok || era != bridge.EraLegacy {
		t.Error("one of the others is gone")
	}
	eras{again}.Forget("5")
	if _, ok := (eras{openMemory(path, newTestLogger())}).Era("5"); ok {
		t.Error("what was forgotten came back")
	}
}

func TestADamagedMemoryIsNoReasonNotToStart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "commands.json")
	for _, text := range []string{"", "{", `[]`, `{"commands":{"a":{"era":"future"}}}`} {
		if err := security.WritePrivateFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		m := openMemory(path, newTestLogger())
		if _, ok := (eras{m}).Era("a"); ok {
			t.Errorf("%q: an era that does not exist is remembered", text)
		}
		starts{m}.Remember("a")
		if !(starts{openMemory(path, newTestLogger())}).Started("a") {
			t.Errorf("%q: nothing can be remembered any more", text)
		}
	}
}

func TestOnlyLoopbackIsListenedOn(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		if ls, err := listen(t.Context(), netip.MustParseAddrPort(addr)); err == nil {
			_ = ls[0].Close()
			t.Errorf("%s: no error", addr)
		}
	}
}

func FuzzPaths(f *testing.F) {
	for _, s := range []string{"/servers/a/mcp", "/servers/a/mcp/", "/servers/a.b-c_d/mcp", "/servers/a/b/mcp", "/servers/../mcp", "/servers/a/mcp/x", "/servers/a/legacy/mcp", "/servers/a/legacy/mcp/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		name, endpoint := serverOf(path)
		if endpoint == "" {
			return
		}
		if rest := strings.TrimSuffix(path, "/"); rest != "/servers/"+name+"/mcp" && rest != "/servers/"+name+"/legacy/mcp" {
			t.Errorf("%q leads to server %q", path, name)
		}
		if strings.ContainsAny(name, "/%\\ ") || name == "." || name == ".." {
			t.Errorf("%q leads to a server with the name %q", path, name)
		}
	})
}
