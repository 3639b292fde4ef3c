package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// refused runs a daemon that must not come up, and returns what it says.
func refused(t *testing.T, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, mcpd, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("it ran: %v\n%s", ctx.Err(), out)
	}
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1: %s", code, out)
	}
	return string(out)
}

func TestASecondDaemonOnTheSameStateFolderIsRefusedAndNamesTheHolder(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	other := prepare(t, setup{})
	out := refused(t, d.cmd.Env, "run", "--config", other.config, "--state-dir", d.stateDir())
	if !strings.Contains(out, fmt.Sprint(d.cmd.Process.Pid)) {
		t.Errorf("it does not name process %d: %s", d.cmd.Process.Pid, out)
	}
	d.tool("s", "echo", "{}")
}

func TestASecondDaemonOnTheSamePortIsRefused(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	out := refused(t, d.cmd.Env, "run", "--config", d.config, "--state-dir", filepath.Join(d.dir, "other"))
	if !strings.Contains(out, d.addr) {
		t.Errorf("it does not name the address %s: %s", d.addr, out)
	}
	d.tool("s", "echo", "{}")
}

func TestAKilledDaemonDoesNotKeepTheNextOneOut(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	d.tool("s", "echo", "{}")
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.exited
	d.err = nil // it was killed on purpose
	<-d.log.done
	token := d.token
	next := prepare(t, setup{servers: []string{server("s", nil)}})
	next.dir = d.dir // the same state, file and port
	next.config, next.addr = d.config, d.addr
	next.cmd.Args = []string{mcpd, "run", "--config", d.config, "--state-dir", d.stateDir()}
	next.launch()
	next.awaitHealthy()
	next.token = next.showToken()
	if next.token != token {
		t.Error("the token has changed")
	}
	next.tool("s", "echo", "{}")
}

func TestATokenFileThatOthersCanReadIsRefused(t *testing.T) {
	d := start(t, setup{})
	d.stop()
	token := filepath.Join(d.stateDir(), "token")
	if err := os.Chmod(token, 0o644); err != nil {
		t.Fatal(err)
	}
	out := refused(t, d.cmd.Env, "run", "--config", d.config, "--state-dir", d.stateDir())
	if !strings.Contains(out, token) || !strings.Contains(out, "chmod") {
		t.Errorf("it does not say how to mend it: %s", out)
	}
	if strings.Contains(out, d.token) {
		t.Error("it prints the token")
	}
}

func TestWithoutAConfigurationFileItSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	out := refused(t, append(os.Environ(), "HOME="+dir), "run", "--config", filepath.Join(dir, "none.toml"), "--state-dir", filepath.Join(dir, "state"))
	if !strings.Contains(out, "mcpd init") {
		t.Errorf("it says %s", out)
	}
}

func TestACallInFlightFinishesBeforeTheDaemonEnds(t *testing.T) {
	d := start(t, setup{servers: []string{table("demo", mcpd, []string{"demo-server"})}})
	s := d.open(d.post("demo", toolCall("1", "countdown", `{"from":4,"interval_ms":250}`, `"progressToken":"p"`)))
	s.next()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if m := s.next(); m.Method != "notifications/progress" {
			t.Fatalf("instead of progress came %+v", m)
		}
	}
	if text, isError := toolText(t, s.next()); isError || !strings.Contains(text, "Counted down from 4") {
		t.Errorf("the call ends with %q", text)
	}
	s.end()
	<-d.exited
}

func TestTheChildrenOfAKilledDaemonEndWithTheirInput(t *testing.T) {
	d := start(t, setup{servers: []string{server("modern", nil), server("legacy", []string{"-era", "legacy"}), table("demo", mcpd, []string{"demo-server"})}})
	for _, name := range []string{"modern", "legacy"} {
		d.tool(name, "echo", "{}")
	}
	d.tool("demo", "notes", "{}")
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.exited
	d.err = nil // it was killed on purpose
	d.eventually("the end of the children", func() bool { return len(marked(t, d.mark)) == 0 })
}
