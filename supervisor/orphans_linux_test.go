package supervisor

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestAncestorsReachFromAProcessToItsParents(t *testing.T) {
	got := ancestors(os.Getpid())
	if !got[os.Getpid()] || !got[os.Getppid()] {
		t.Errorf("the ancestors of %d, child of %d: %v", os.Getpid(), os.Getppid(), got)
	}
}

func TestWhatAKilledDaemonLeftBehindIsKilledByItsMark(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	begin := func(mark string) *exec.Cmd {
		cmd := exec.Command(exe)
		cmd.Env = []string{childMode + "=sleep", mark, "GOCOVERDIR=" + t.TempDir()}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	orphan, stranger := begin("MCPD_DAEMON=mine"), begin("MCPD_DAEMON=mine-not")
	KillOrphans("MCPD_DAEMON=mine", slog.New(slog.NewTextHandler(io.Discard, nil)))
	var exit *exec.ExitError
	if err := orphan.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the orphan ended with %v, not by SIGKILL", err)
	}
	if !alive(stranger.Process.Pid) {
		t.Error("a process with another mark was killed")
	}
	if err := stranger.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = stranger.Wait()
}
