//go:build linux

package systemtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	first  = "1.0.0"
	second = "1.0.1"
)

type serviceStatus struct {
	State    string   `json:"state"`
	Enabled  bool     `json:"enabled"`
	PID      int      `json:"pid"`
	Restarts int      `json:"restarts"`
	Socket   []string `json:"socket"`
	Held     bool     `json:"held"`
	Detail   string   `json:"detail"`
	Hint     string   `json:"hint"`
}

func (b *box) status(t *testing.T, args ...string) serviceStatus {
	t.Helper()
	// The exit code says whether it runs; the text says more.
	out, _ := b.as(t.Context(), "tester", append([]string{"mcpd", "service", "status", "--json"}, args...)...)
	var st serviceStatus
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		t.Fatalf("service status printed %q: %v", out, err)
	}
	return st
}

func (b *box) eventuallyIs(t *testing.T, state string, with func(serviceStatus) bool) serviceStatus {
	t.Helper()
	var st serviceStatus
	eventually(t, "the service is "+state, func() error {
		if st = b.status(t); st.State != state || with != nil && !with(st) {
			return fmt.Errorf("it is %+v", st)
		}
		return nil
	})
	return st
}

// use lets a real MCP client use the daemon.
func (b *box) use(t *testing.T, text string) {
	t.Helper()
	token := b.must(t, "mcpd", "token", "show")
	out := b.must(t, variableRole+"="+roleClient, "stand-in", "http://127.0.0.1:"+b.port(t)+"/servers/demo/mcp", token, text)
	if !strings.Contains(out, text) {
		t.Errorf("the tool answered %q, not %q", out, text)
	}
}

// port is the one in the config.
func (b *box) port(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.root, "home/tester/.config/mcpd/mcpd.toml"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), `listen = "127.0.0.1:`)
	port, _, ok2 := strings.Cut(rest, `"`)
	if !ok || !ok2 {
		t.Fatal("the config has no port")
	}
	return port
}

func (b *box) kill(t *testing.T, signal string, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("%d is not the daemon", pid)
	}
	b.mustRun(t, "kill", "-"+signal, strconv.Itoa(pid))
}

// drop changes the installed unit as a user may.
func (b *box) drop(t *testing.T, name, text string) {
	t.Helper()
	path := "home/tester/.config/systemd/user/mcpd.service.d/" + name
	if text == "" {
		if err := os.Remove(filepath.Join(b.root, path)); err != nil {
			t.Fatal(err)
		}
	} else {
		b.write(t, path, "[Service]\n"+text+"\n")
	}
	b.must(t, "systemctl", "--user", "daemon-reload")
}

// belongings lists what of mcpd is in the box, besides the test's own.
func (b *box) belongings(t *testing.T) []string {
	t.Helper()
	out := b.mustRun(t, "find", "/etc", "/usr", "/var", "/home", "/root", "/run", "/opt", "-xdev", "-name", "*mcpd*", "-not", "-path", "/var/lib/dpkg/*", "-not", "-path", "/var/lib/rpm/*")
	return slices.Sorted(slices.Values(strings.Fields(out)))
}

// programs lists the programs of mcpd that run.
func (b *box) programs(t *testing.T) string {
	t.Helper()
	out, _ := b.run(t.Context(), "pgrep", "-a", "mcpd") // exits 1 where there is none
	return out
}

// single is the one file of a pattern.
func single(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("one file was expected for %s: %v %v", pattern, found, err)
	}
	return found[0]
}

func TestPackagesLiveTheirLifeOnARealSystemd(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	need(t, os.Getuid() == 0, "systemd-nspawn needs root")
	needTools(t, map[string]string{"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap", "nsenter": "util-linux", "pgrep": "procps"})

	old, newer := packages(t, first, "deb,rpm", "linux/"+runtime.GOARCH), packages(t, second, "deb,rpm", "linux/"+runtime.GOARCH)
	b := newBox(t)
	for name, dir := range map[string]string{"first.deb": old, "second.deb": newer, "first.rpm": old, "second.rpm": newer} {
		data, err := os.ReadFile(single(t, filepath.Join(dir, "*"+filepath.Ext(name))))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.root, "root", name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.mustRun(t, "loginctl", "enable-linger", "tester")
	eventually(t, "the user's systemd runs", func() error {
		_, err := b.as(t.Context(), "tester", "systemctl", "--user", "show", "--property=Version")
		return err
	})

	var token, config string
	step := func(name string, fn func(t *testing.T)) {
		if t.Failed() {
			return
		}
		t.Run(name, fn)
	}

	step("installing the package starts nothing", func(t *testing.T) {
		b.mustRun(t, "dpkg", "-i", "/root/first.deb")
		if p := b.programs(t); p != "" {
			t.Errorf("this runs: %s", p)
		}
		if st := b.status(t); st.State != "not installed" || st.Enabled {
			t.Errorf("nobody asked for the service, and it is %+v", st)
		}
		for _, file := range []string{
			"/usr/bin/mcpd", "/usr/lib/systemd/user/mcpd.service", "/usr/share/man/man1/mcpd-service-install.1.gz",
			"/usr/share/bash-completion/completions/mcpd", "/usr/share/doc/mcpd/copyright",
		} {
			if _, err := os.Stat(filepath.Join(b.root, file)); err != nil {
				t.Error(err)
			}
		}
		// Not told by its exit code.
		if _, err := b.as(t.Context(), "tester", "sh", "-c",
			`text=$(systemd-analyze --user verify --man=no /usr/lib/systemd/user/mcpd.service 2>&1) && [ -z "$text" ] || { echo "$text" >&2; exit 1; }`); err != nil {
			t.Error(err)
		}
	})

	step("the user's service is installed, enabled and started", func(t *testing.T) {
		b.must(t, "mcpd", "service", "install")
		st := b.status(t)
		if st.State != "running" || !st.Enabled || !st.Held || !slices.Contains(st.Socket, "127.0.0.1:"+b.port(t)) {
			t.Errorf("the service is %+v", st)
		}
		if _, err := b.as(t.Context(), "tester", "sh", "-c",
			`text=$(systemd-analyze --user verify --man=no ~/.config/systemd/user/mcpd.service ~/.config/systemd/user/mcpd.socket 2>&1) && [ -z "$text" ] || { echo "$text" >&2; exit 1; }`); err != nil {
			t.Error(err)
		}
		b.use(t, "hello")
		token = b.must(t, "mcpd", "token", "show")
		data, err := os.ReadFile(filepath.Join(b.root, "home/tester/.config/mcpd/mcpd.toml"))
		if err != nil {
			t.Fatal(err)
		}
		config = string(data)
	})

	step("installing it again changes nothing", func(t *testing.T) {
		before := b.status(t)
		b.must(t, "mcpd", "service", "install")
		if after := b.status(t); after.PID != before.PID {
			t.Errorf("process %d became %d", before.PID, after.PID)
		}
	})

	step("no secret is in what others can read", func(t *testing.T) {
		for _, file := range []string{"mcpd.service", "mcpd.socket"} {
			data, err := os.ReadFile(filepath.Join(b.root, "home/tester/.config/systemd/user", file))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(data, []byte(token)) {
				t.Errorf("the token is in %s", file)
			}
		}
		if out := b.mustRun(t, "ps", "-A", "-o", "args"); strings.Contains(out, token) {
			t.Error("the token is in a command line")
		}
	})

	step("servers may make sandboxes", func(t *testing.T) {
		out := b.must(t, "systemctl", "--user", "show", "mcpd.service", "--property=NoNewPrivileges,SystemCallFilter,LimitNOFILE,TasksMax")
		if !strings.Contains(out, "NoNewPrivileges=yes") || strings.Contains(out, "TasksMax=infinity") {
			t.Errorf("the unit's limits are not in effect:\n%s", out)
		}
		// With the same limits, a user namespace, which browsers and bubblewrap need.
		b.must(t, "systemd-run", "--user", "--wait", "--quiet", "-p", "NoNewPrivileges=yes",
			"-p", "SystemCallFilter=~@clock @module @raw-io @reboot @swap", "unshare", "--user", "--map-root-user", "true")
	})

	step("killed, it is back, and who calls meanwhile waits", func(t *testing.T) {
		before := b.status(t)
		b.kill(t, "KILL", before.PID)
		// No stranger gets the port.
		if _, err := b.as(t.Context(), "stranger", variableRole+"="+roleBind, "stand-in", "127.0.0.1:"+b.port(t)); err == nil {
			t.Error("a stranger took mcpd's port")
		}
		b.must(t, variableRole+"="+roleClient, "stand-in", "http://127.0.0.1:"+b.port(t)+"/servers/demo/mcp", token, "patience")
		st := b.eventuallyIs(t, "running", nil)
		if st.Restarts != 1 || st.PID == before.PID {
			t.Errorf("it was %+v and is %+v", before, st)
		}
	})

	step("hanging, it is restarted by the watchdog", func(t *testing.T) {
		b.drop(t, "fast.conf", "WatchdogSec=2\nRestartSec=100ms")
		b.must(t, "mcpd", "service", "restart")
		before := b.status(t)
		b.kill(t, "STOP", before.PID)
		b.eventuallyIs(t, "running", func(st serviceStatus) bool { return st.PID != before.PID && st.PID != 0 })
		b.use(t, "awake")
	})

	step("a crash loop ends, and the status says so", func(t *testing.T) {
		b.write(t, "home/tester/.config/mcpd/mcpd.toml", config+"\nnonsense = true\n")
		b.kill(t, "KILL", b.status(t).PID)
		st := b.eventuallyIs(t, "failed", nil)
		if !strings.Contains(st.Detail, "too often") || !strings.Contains(st.Hint, "mcpd service start") {
			t.Errorf("it says %q and to do %q", st.Detail, st.Hint)
		}
		if out, err := b.as(t.Context(), "tester", "mcpd", "service", "restart"); err == nil || !strings.Contains(err.Error(), "nonsense") {
			t.Errorf("a restart with a bad config said %q, %v", out, err)
		}
		b.write(t, "home/tester/.config/mcpd/mcpd.toml", config)
		b.must(t, "mcpd", "service", "start")
		b.eventuallyIs(t, "running", nil)
		b.drop(t, "fast.conf", "")
		b.must(t, "mcpd", "service", "restart")
	})

	step("a port that changes in the config is held after a restart", func(t *testing.T) {
		old := b.port(t)
		b.write(t, "home/tester/.config/mcpd/mcpd.toml", strings.ReplaceAll(config, "127.0.0.1:"+old, "127.0.0.1:17399"))
		b.must(t, "mcpd", "service", "restart")
		if st := b.status(t); !slices.Contains(st.Socket, "127.0.0.1:17399") || !st.Held || st.State != "running" {
			t.Errorf("the service is %+v", st)
		}
		b.use(t, "moved")
		b.write(t, "home/tester/.config/mcpd/mcpd.toml", config)
		b.must(t, "mcpd", "service", "restart")
	})

	step("an update restarts it and loses nothing", func(t *testing.T) {
		b.mustRun(t, "dpkg", "-i", "/root/second.deb")
		eventually(t, "the new program runs", func() error {
			out, err := b.as(t.Context(), "tester", "mcpd", "status", "--json")
			if err != nil || !strings.Contains(out, `"version": "`+second+`"`) {
				return fmt.Errorf("%s %w", out, err)
			}
			return nil
		})
		if got := b.must(t, "mcpd", "token", "show"); got != token {
			t.Error("the token has changed")
		}
		if data, err := os.ReadFile(filepath.Join(b.root, "home/tester/.config/mcpd/mcpd.toml")); err != nil || string(data) != config {
			t.Errorf("the config has changed: %v", err)
		}
		b.use(t, "new")
	})

	step("it is there after a start of the machine", func(t *testing.T) {
		b.powerOff(t)
		b.boot(t)
		b.eventuallyIs(t, "running", nil)
		b.use(t, "morning")
	})

	step("it starts at login", func(t *testing.T) {
		b.mustRun(t, "loginctl", "disable-linger", "tester")
		eventually(t, "the user is logged out", func() error {
			if p := b.programs(t); p != "" {
				return fmt.Errorf("this runs: %s", p)
			}
			return nil
		})
		// A login, by the system's own rules for one.
		b.mustRun(t, "su", "--login", "tester", "--command",
			"for i in $(seq 200); do mcpd service status >/dev/null 2>&1 && exit 0; sleep 0.1; done; mcpd service status; exit 1")
		b.mustRun(t, "loginctl", "enable-linger", "tester")
		b.eventuallyIs(t, "running", nil)
	})

	step("stopped, it stays stopped and its port is free", func(t *testing.T) {
		b.must(t, "mcpd", "service", "stop")
		b.must(t, "mcpd", "service", "stop")
		if st := b.status(t); st.State != "stopped" || st.Held {
			t.Errorf("the service is %+v", st)
		}
		if p := b.programs(t); p != "" {
			t.Errorf("this runs: %s", p)
		}
		if _, err := b.as(t.Context(), "tester", variableRole+"="+roleBind, "stand-in", "127.0.0.1:"+b.port(t)); err != nil {
			t.Errorf("the port is not free: %v", err)
		}
	})

	step("without a user's systemd it says what to do", func(t *testing.T) {
		_, err := b.run(t.Context(), "runuser", "-u", "stranger", "--", "env", "HOME=/home/stranger", "mcpd", "service", "install")
		if err == nil || !strings.Contains(err.Error(), "enable-linger") || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
			t.Errorf("it said: %v", err)
		}
		if left, err := os.ReadDir(filepath.Join(b.root, "home/stranger/.config")); err == nil {
			t.Errorf("it left %v behind", left)
		}
	})

	step("uninstalled, nothing of the service is left", func(t *testing.T) {
		b.must(t, "mcpd", "service", "start")
		b.must(t, "rm", "-r", "/home/tester/.config/systemd/user/mcpd.service.d")
		b.must(t, "mcpd", "service", "uninstall")
		b.must(t, "mcpd", "service", "uninstall")
		if out := b.must(t, "find", "/home/tester/.config/systemd", "-name", "*mcpd*"); out != "" {
			t.Errorf("left behind: %s", out)
		}
		if p := b.programs(t); p != "" {
			t.Errorf("this runs: %s", p)
		}
	})

	step("an installation that fails leaves all as it was", func(t *testing.T) {
		address := "127.0.0.1:" + b.port(t)
		b.must(t, "systemd-run", "--user", "--quiet", "--unit=stranger", "--setenv="+variableRole+"="+roleHold, "/usr/local/bin/stand-in", address)
		eventually(t, "the stranger has the port", func() error {
			if _, err := b.as(t.Context(), "tester", variableRole+"="+roleBind, "stand-in", address); err == nil {
				return errors.New("it is free")
			}
			return nil
		})
		_, err := b.as(t.Context(), "tester", "mcpd", "service", "install")
		if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("it said: %v", err)
		}
		if st := b.status(t); st.State != "not installed" || st.Enabled {
			t.Errorf("the service is %+v", st)
		}
		if out := b.must(t, "find", "/home/tester/.config/systemd", "-name", "*mcpd*"); out != "" {
			t.Errorf("left behind: %s", out)
		}
		b.must(t, "systemctl", "--user", "stop", "stranger")
	})

	step("the machine's service runs as a named user", func(t *testing.T) {
		b.mustRun(t, "mcpd", "service", "install", "--system", "--user", "tester")
		b.use(t, "machine")
		if out := b.mustRun(t, "ps", "-C", "mcpd", "-o", "user="); strings.Contains(out, "root") || !strings.Contains(out, "tester") {
			t.Errorf("it runs as %s", out)
		}
		if _, err := b.run(t.Context(), "mcpd", "service", "install", "--system", "--user", "root"); err == nil {
			t.Error("it would run as root")
		}
		b.mustRun(t, "mcpd", "service", "uninstall", "--system")
	})

	step("a user installs it and logs out", func(t *testing.T) {
		b.must(t, "mcpd", "service", "install")
		b.mustRun(t, "loginctl", "enable-linger", "stranger")
		eventually(t, "the stranger's systemd runs", func() error {
			_, err := b.as(t.Context(), "stranger", "systemctl", "--user", "show", "--property=Version")
			return err
		})
		if _, err := b.as(t.Context(), "stranger", "mcpd", "service", "install"); err != nil {
			t.Fatal(err)
		}
		b.mustRun(t, "loginctl", "disable-linger", "stranger")
		eventually(t, "the stranger is logged out", func() error {
			if out, err := b.run(t.Context(), "pgrep", "-u", "stranger", "-a"); err == nil {
				return errors.New(out)
			}
			return nil
		})
	})

	own := []string{
		"/home/stranger/.config/mcpd", "/home/stranger/.config/mcpd/mcpd.toml", "/home/stranger/.local/state/mcpd",
		"/home/tester/.config/mcpd", "/home/tester/.config/mcpd/mcpd.toml", "/home/tester/.local/state/mcpd",
	}
	gone := func(t *testing.T) {
		t.Helper()
		if p := b.programs(t); p != "" {
			t.Errorf("this runs: %s", p)
		}
		if got := b.belongings(t); !slices.Equal(got, own) {
			t.Errorf("left behind:\n%s", strings.Join(got, "\n"))
		}
		// It exits 1 where there is nothing to list.
		if out, _ := b.as(t.Context(), "tester", "systemctl", "--user", "list-unit-files", "--no-legend", "mcpd*"); out != "" {
			t.Errorf("systemd knows of: %s", out)
		}
	}

	step("removed and purged, only the users' own files are left", func(t *testing.T) {
		b.mustRun(t, "dpkg", "--remove", "mcpd")
		if p := b.programs(t); p != "" {
			t.Errorf("this runs: %s", p)
		}
		b.mustRun(t, "dpkg", "--purge", "mcpd")
		gone(t)
	})

	// The box is a Debian, whose rpm knows of no dependencies; the scripts run.
	rpm := func(t *testing.T, args ...string) {
		t.Helper()
		b.mustRun(t, append([]string{"rpm", "--nodeps"}, args...)...)
	}

	step("installing the rpm starts nothing, and its service is used", func(t *testing.T) {
		rpm(t, "--ignoreos", "--install", "/root/first.rpm")
		if st := b.status(t); st.State != "not installed" || st.Enabled || b.programs(t) != "" {
			t.Errorf("nobody asked for the service, and it is %+v", st)
		}
		b.must(t, "mcpd", "service", "install")
		b.use(t, "revolutions")
		if got := b.must(t, "mcpd", "token", "show"); got != token {
			t.Error("the token has changed")
		}
	})

	step("an update of the rpm restarts it and loses nothing", func(t *testing.T) {
		before := b.status(t)
		rpm(t, "--ignoreos", "--upgrade", "/root/second.rpm")
		eventually(t, "the new program runs", func() error {
			out, err := b.as(t.Context(), "tester", "mcpd", "status", "--json")
			if err != nil || !strings.Contains(out, `"version": "`+second+`"`) {
				return fmt.Errorf("%s %w", out, err)
			}
			return nil
		})
		if st := b.status(t); st.State != "running" || st.PID == before.PID || !st.Held {
			t.Errorf("it was %+v and is %+v", before, st)
		}
		b.use(t, "per minute")
	})

	step("the rpm is removed with a user's and a machine's service", func(t *testing.T) {
		b.must(t, "mcpd", "service", "stop")
		b.mustRun(t, "mcpd", "service", "install", "--system", "--user", "tester")
		if p := b.programs(t); p == "" {
			t.Error("the machine's service does not run")
		}
		rpm(t, "--erase", "mcpd")
		gone(t)
	})
}
