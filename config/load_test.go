package config

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAFileBecomesAConfigWithDefaultsAndReferencesFilledIn(t *testing.T) {
	cfg := mustParse(t, `
[daemon]
listen = "[::1]:0"
log_level = "debug"
drain_timeout = "0s"
login_shell_env = false

[security]
allowed_origins = ["HTTP://LocalHost:6274", "https://app.example:443", "vscode-webview://abc"]
allowed_hosts = ["MCPD.local:8443", "proxy.example"]
max_request_bytes = "1MB"

[defaults]
request_timeout = "10m"
max_in_flight = 10
env = { SHARED = "${env:SECRET}", OVER = "default" }

[servers.files]
command = "${config_dir}/bin/files"
args = ["--root", "${home}/notes", "$${kept}", "$HOME"]
env = { TOKEN = "${file:token}", OVER = "own" }
cwd = "${home}/work"
start = "lazy"
idle_stop = "10m"
replace = "stop-first"
protocol = "legacy"
max_in_flight_per_principal = 10
restart_backoff_min = "1m"

[servers."with.dot"]
command = "npx"
max_message_bytes = "1GiB"
request_timeout = "2h"
disabled = true
args = ["${env:NOT_SET}"]
`, world{
		variables: map[string]string{"SECRET": "s3cr3t"},
		files:     map[string]string{"/etc/mcpd/token": "t0k3n\r\n"},
	})
	if cfg.Path != testPath {
		t.Errorf("Path = %q", cfg.Path)
	}
	if diff := cmp.Diff(Daemon{Listen: netip.MustParseAddrPort("[::1]:0"), LogLevel: slog.LevelDebug}, cfg.Daemon,
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("Daemon (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Security{
		AllowedOrigins:  []string{"http://localhost:6274", "https://app.example", "vscode-webview://abc"},
		AllowedHosts:    []string{"mcpd.local:8443", "proxy.example"},
		MaxRequestBytes: 1_000_000,
	}, cfg.Security); diff != "" {
		t.Errorf("Security (-want +got):\n%s", diff)
	}
	want := Server{
		Name: "files", Command: "/etc/mcpd/bin/files", Args: []string{"--root", "/home/ada/notes", "${kept}", "$HOME"},
		Env: map[string]string{"SHARED": "s3cr3t", "OVER": "own", "TOKEN": "t0k3n"}, Cwd: "/home/ada/work",
		Raw: Raw{
			Command: "${config_dir}/bin/files", Args: []string{"--root", "${home}/notes", "$${kept}", "$HOME"},
			Env: map[string]string{"SHARED": "${env:SECRET}", "OVER": "own", "TOKEN": "${file:token}"}, Cwd: "${home}/work",
		},
		Start: StartLazy, IdleStop: 10 * time.Minute, Replace: ReplaceStopFirst, Protocol: ProtocolLegacy,
		StartTimeout: 30 * time.Second, FirstStartTimeout: 2 * time.Minute, RequestTimeout: 10 * time.Minute,
		MaxRequestTime: time.Hour, Interactive: InteractiveAuto, QuestionTimeout: 10 * time.Minute,
		DrainTimeout: 30 * time.Second, StopTimeout: 5 * time.Second,
		ProbeInterval: 30 * time.Second, MaxMessageBytes: 64 << 20, MaxInFlight: 10, MaxInFlightPerPrincipal: 10,
		MaxListeners: 12000, MaxLegacySessions: 64, LegacySessionIdle: 30 * time.Minute, StreamBufferBytes: 4 << 20, MaxRepeatsPerMinute: 60, Backoff: Backoff{time.Minute, time.Minute},
	}
	if diff := cmp.Diff(want, cfg.Servers["files"]); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	dotted := cfg.Servers["with.dot"]
	if !dotted.Disabled || dotted.Args[0] != "${env:NOT_SET}" || dotted.MaxMessageBytes != 1<<30 {
		t.Errorf("with.dot = %+v", dotted)
	}
	if dotted.MaxRequestTime != 2*time.Hour || dotted.MaxInFlightPerPrincipal != 10 {
		t.Errorf("defaults did not follow: MaxRequestTime %v, MaxInFlightPerPrincipal %d",
			dotted.MaxRequestTime, dotted.MaxInFlightPerPrincipal)
	}
}

func TestAnEmptyFileHasTheDefaults(t *testing.T) {
	cfg := mustParse(t, "", world{})
	if got := cfg.Daemon; got.Listen.String() != "127.0.0.1:7317" || got.LogLevel != slog.LevelInfo ||
		got.DrainTimeout != 30*time.Second || !got.LoginEnv {
		t.Errorf("Daemon = %+v", got)
	}
	if got := cfg.Security; got.MaxRequestBytes != 16<<20 || len(got.AllowedOrigins)+len(got.AllowedHosts) != 0 {
		t.Errorf("Security = %+v", got)
	}
	if len(cfg.Servers) != 0 {
		t.Errorf("Servers = %v", cfg.Servers)
	}
}

func TestADefaultGivesWayToTheKeyThatWasSet(t *testing.T) {
	for _, test := range []struct {
		name, text string
		check      func(Server) bool
	}{
		{"the higher one set low", "max_in_flight = 5", func(s Server) bool { return s.MaxInFlightPerPrincipal == 5 }},
		{"the lower one set high", `start_timeout = "5m"`, func(s Server) bool { return s.FirstStartTimeout == 5*time.Minute }},
		{"the first start set low", `first_start_timeout = "10s"`, func(s Server) bool { return s.StartTimeout == 10*time.Second }},
		{"nothing set", "", func(s Server) bool { return s.MaxInFlight == 256 && s.MaxInFlightPerPrincipal == 128 }},
		{
			"set low for all and high for one", "max_in_flight = 1000\n[defaults]\nmax_in_flight = 5",
			func(s Server) bool { return s.MaxInFlight == 1000 && s.MaxInFlightPerPrincipal == 128 },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := mustParse(t, "[servers.a]\ncommand = \"x\"\n"+test.text, world{})
			if s := cfg.Servers["a"]; !test.check(s) {
				t.Errorf("got\n%v", s)
			}
		})
	}
}

func TestLoadReadsTheFileAndRefusesWhatIsNone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcpd.toml")
	writeFile(t, path, "[servers.a]\ncommand = \"${file:name}\"\ncwd = \"${config_dir}\"\n")
	writeFile(t, filepath.Join(dir, "name"), "program\n")
	cfg, err := Load(path, OSEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	if s := cfg.Servers["a"]; s.Command != "program" || s.Cwd != dir || cfg.Path != path {
		t.Errorf("got %q in %q from %q", s.Command, s.Cwd, cfg.Path)
	}

	if _, err := Load(filepath.Join(dir, "none"), OSEnvironment()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load(dir, OSEnvironment()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if err := os.Truncate(path, MaxFileBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, OSEnvironment()); err == nil || !strings.Contains(err.Error(), "larger than 1MiB") {
		t.Errorf("a large file: %v", err)
	}
}

func TestReferencesToOddFilesAreErrorsAndDoNotBlock(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "large"), strings.Repeat("x", MaxReferenceBytes+1))
	writeFile(t, filepath.Join(dir, "full"), strings.Repeat("x", MaxReferenceBytes))
	path := filepath.Join(dir, "mcpd.toml")
	for name, want := range map[string]string{
		"large":   "larger than 64KiB",
		".":       "not a regular file",
		"missing": "does not exist",
		"full":    "",
	} {
		_, err := Parse(path, []byte("[servers.a]\ncommand = \"x\"\nargs = [\"${file:"+name+"}\"]"), OSEnvironment())
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSizesAndDurationsAreReadAndWrittenExactly(t *testing.T) {
	for text, want := range map[string]int64{
		"0B": 0, "1B": 1, "1KB": 1000, "1KiB": 1024, "16MiB": 16 << 20, "3GB": 3e9, "2GiB": 2 << 30, "1025B": 1025,
	} {
		got, f := parseSize(text)
		if f != nil || got != want || formatSize(got) != text {
			t.Errorf("%s: %d, written %s, %v", text, got, formatSize(got), f)
		}
	}
	for text, want := range map[string]time.Duration{
		"0s": 0, "200ms": 200 * time.Millisecond, "30s": 30 * time.Second, "5m": 5 * time.Minute, "1h": time.Hour,
		"1h30m": 90 * time.Minute, "1m30s": 90 * time.Second, "10h": 10 * time.Hour, "1h0m10s": time.Hour + 10*time.Second,
	} {
		got, f := parseDuration(text)
		if f != nil || got != want || formatDuration(got) != text {
			t.Errorf("%s: %v, written %s, %v", text, got, formatDuration(got), f)
		}
	}
}
