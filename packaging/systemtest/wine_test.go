//go:build linux

package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// prngSource is a library that Go programs need and Wine 8 has not.
const prngSource = `
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return SystemFunction036(data, (ULONG)size); }
`

// windows is a Windows as Wine knows it, with a disk of its own.
type windows struct {
	disk string // its drive C
	env  []string
}

func newWindows(t *testing.T) *windows {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcpd-wine-*") // outlives the processes in it, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	w := &windows{
		disk: filepath.Join(dir, "prefix", "drive_c"),
		env:  []string{"WINEPREFIX=" + filepath.Join(dir, "prefix"), "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml=", "DISPLAY="},
	}
	t.Cleanup(func() {
		// Ends what runs in this prefix, and only that.
		if _, err := command(context.Background(), w.env, "wineserver", "-k"); err != nil {
			t.Log(err) // there may be none left
		}
		if _, err := command(context.Background(), w.env, "wineserver", "-w"); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	source, library := filepath.Join(dir, "prng.c"), filepath.Join(dir, "bcryptprimitives.dll")
	if err := os.WriteFile(source, []byte(prngSource), 0o600); err != nil {
		t.Fatal(err)
	}
	w.make(t)
	for _, c := range [][]string{
		{"x86_64-w64-mingw32-gcc", "-shared", "-O2", "-o", library, source, "-ladvapi32"},
		{"cp", library, filepath.Join(w.disk, "windows", "system32")},
		{"wineserver", "-p"},     // services live on between commands
		{"wine", "net", "start"}, // which waits for the service manager
	} {
		if _, err := command(t.Context(), w.env, c[0], c[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// make makes the disk. On a busy machine Wine 8 has been seen to fail at it, with
// no kernel32.dll where it had just put one; then it begins anew.
func (w *windows) make(t *testing.T) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		_, err := command(t.Context(), w.env, "wine", "wineboot", "-i")
		if _, werr := command(t.Context(), w.env, "wineserver", "-w"); werr != nil { // until all that made it has ended
			t.Fatal(werr)
		}
		if err == nil {
			return
		}
		if attempt == 3 || !strings.Contains(err.Error(), "kernel32.dll") {
			t.Fatal(err)
		}
		t.Log(err)
		if err := os.RemoveAll(filepath.Dir(w.disk)); err != nil {
			t.Fatal(err)
		}
	}
}

const program = `C:\Program Files\mcpd\mcpd.exe`

func (w *windows) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := command(t.Context(), w.env, "wine", args...)
	return strings.ReplaceAll(out, "\r\n", "\n"), err
}

func (w *windows) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.run(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *windows) status(t *testing.T) serviceStatus {
	t.Helper()
	out, _ := w.run(t, program, "service", "status", "--system", "--json")
	var st serviceStatus
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		t.Fatalf("service status printed %q: %v", out, err)
	}
	return st
}

func (w *windows) exists(path string) bool {
	_, err := os.Stat(filepath.Join(w.disk, path))
	return !errors.Is(err, fs.ErrNotExist)
}

// use lets a real MCP client use the daemon, from outside.
func (w *windows) use(t *testing.T, text string) {
	t.Helper()
	token := w.must(t, program, "token", "show", "--state-dir", `C:\ProgramData\mcpd\state`)
	config, err := os.ReadFile(filepath.Join(w.disk, "ProgramData", "mcpd", "mcpd.toml"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(config), `listen = "`)
	address, _, _ := strings.Cut(rest, `"`)
	out, err := command(t.Context(), []string{variableRole + "=" + roleClient}, os.Args[0], "http://"+address+"/servers/demo/mcp", token, text)
	if err != nil || !strings.Contains(out, text) {
		t.Errorf("the tool answered %q, %v", out, err)
	}
}

func TestWindowsServiceAndInstallerUnderWine(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	need(t, runtime.GOARCH == "amd64", "Wine runs programs of this machine's kind only, and the installer is for amd64")
	needTools(t, map[string]string{
		"wine": "wine wine64", "x86_64-w64-mingw32-gcc": "gcc-mingw-w64-x86-64-win32", "wixl": "wixl", "msibuild": "msitools", "msiinfo": "msitools",
	})
	dir := packages(t, first, "msi", "windows/amd64")
	installer := filepath.Join(dir, "mcpd_"+first+"_windows_amd64.msi")
	w := newWindows(t)
	if out, err := exec.CommandContext(t.Context(), "cp", installer, filepath.Join(w.disk, "mcpd.msi")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	step := func(name string, fn func(t *testing.T)) {
		if !t.Failed() {
			t.Run(name, fn)
		}
	}

	step("the installer installs the program and starts nothing", func(t *testing.T) {
		w.must(t, "msiexec", "/i", `C:\mcpd.msi`, "/qn")
		if out := w.must(t, program, "version"); !strings.Contains(out, "mcpd "+first) {
			t.Errorf("it calls itself %q", out)
		}
		if st := w.status(t); st.State != "not installed" {
			t.Errorf("nobody asked for the service, and it is %+v", st)
		}
		key := `HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment`
		if out := w.must(t, "reg", "query", key, "/v", "PATH"); !strings.Contains(out, `C:\Program Files\mcpd`) {
			t.Errorf("the program is not on the PATH: %s", out)
		}
	})

	step("the service is installed and used", func(t *testing.T) {
		w.must(t, program, "service", "install", "--system")
		if st := w.status(t); st.State != "running" || !st.Enabled || st.PID == 0 {
			t.Errorf("the service is %+v", st)
		}
		w.use(t, "hello")
		before := w.status(t)
		w.must(t, program, "service", "install", "--system")
		if after := w.status(t); after.PID != before.PID {
			t.Errorf("installing it again made process %d of %d", after.PID, before.PID)
		}
	})

	step("restarted, it is another process with the same token", func(t *testing.T) {
		token := w.must(t, program, "token", "show", "--state-dir", `C:\ProgramData\mcpd\state`)
		before := w.status(t)
		w.must(t, program, "service", "restart", "--system")
		if after := w.status(t); after.State != "running" || after.PID == before.PID {
			t.Errorf("it was %+v and is %+v", before, after)
		}
		if got := w.must(t, program, "token", "show", "--state-dir", `C:\ProgramData\mcpd\state`); got != token {
			t.Error("the token has changed")
		}
		w.use(t, "again")
	})

	step("its log is in a file", func(t *testing.T) {
		log, err := os.ReadFile(filepath.Join(w.disk, "ProgramData", "mcpd", "state", "logs", "mcpd.log"))
		if err != nil || !strings.Contains(string(log), "mcpd listens") {
			t.Errorf("the log is %q, %v", log, err)
		}
	})

	step("stopped and uninstalled, nothing of it is left but the user's files", func(t *testing.T) {
		w.must(t, program, "service", "stop", "--system")
		if st := w.status(t); st.State != "stopped" {
			t.Errorf("the service is %+v", st)
		}
		w.must(t, program, "service", "uninstall", "--system")
		w.must(t, program, "service", "uninstall", "--system")
		if st := w.status(t); st.State != "not installed" {
			t.Errorf("the service is %+v", st)
		}
		if !w.exists("ProgramData/mcpd/mcpd.toml") {
			t.Error("the config is gone")
		}
	})

	step("the installer takes out the service and the program", func(t *testing.T) {
		w.must(t, program, "service", "install", "--system")
		w.must(t, "msiexec", "/x", `C:\mcpd.msi`, "/qn")
		eventually(t, "the program is gone", func() error {
			if w.exists("Program Files/mcpd/mcpd.exe") {
				return errors.New("it is there")
			}
			return nil
		})
		if out, err := w.run(t, "reg", "query", `HKLM\SYSTEM\CurrentControlSet\Services\mcpd`); err == nil {
			t.Errorf("the service is there: %s", out)
		}
		if out, err := w.run(t, "tasklist"); err == nil && strings.Contains(out, "mcpd.exe") {
			t.Errorf("it runs: %s", out)
		}
		if !w.exists("ProgramData/mcpd/mcpd.toml") || !w.exists("ProgramData/mcpd/state/token") {
			t.Error("files of the user are gone")
		}
	})
}

func TestInstallerHoldsWhatItShould(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds for another system")
	}
	needTools(t, map[string]string{"wixl": "wixl", "msiinfo": "msitools", "msiextract": "msitools"})
	installer := filepath.Join(packages(t, first, "msi", "windows/amd64"), "mcpd_"+first+"_windows_amd64.msi")
	for table, want := range map[string][]string{
		"Property":    {"ProductVersion\t" + first, "UpgradeCode\t{7C6C2A0E-5C0B-5A0F-9D5B-6D637064A001}"},
		"Environment": {"[~];[INSTALLDIR]"},
		"CustomAction": {
			"RemoveService\t3154\tmcpd.exe\tservice uninstall --system", "RemoveTask\t1106\tmcpd.exe\tservice uninstall",
		},
		"File": {"mcpd.exe", "LICENSE.txt"},
	} {
		out, err := command(t.Context(), nil, "msiinfo", "export", installer, table)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range want {
			if !strings.Contains(strings.ReplaceAll(out, "\r", ""), line) {
				t.Errorf("%s has no %q:\n%s", table, line, out)
			}
		}
	}
	if out, err := command(t.Context(), nil, "msiextract", "-l", installer); err != nil || !strings.Contains(out, "mcpd/mcpd.exe") {
		t.Error(fmt.Errorf("it holds %s %w", out, err))
	}
}
