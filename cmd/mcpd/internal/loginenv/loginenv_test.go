//go:build unix

package loginenv

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == PrintCommand {
		if err := Print(os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// shell writes a program that stands for the login shell.
func shell(t *testing.T, script string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"SHELL=" + path, "PATH=" + os.Getenv("PATH"), "OWN=1"}
}

func self(t *testing.T) string {
	t.Helper()
	p, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhatTheShellSetsIsFound(t *testing.T) {
	environ := shell(t, `
echo "welcome, this is noise"
export EXTRA="two
lines" PATH="/opt/tool/bin:$PATH"
[ "$MCPD_RESOLVING_ENVIRONMENT" = 1 ] || exit 1
eval "$4"
echo "more noise"
exit 3
`)
	env, err := Resolve(t.Context(), environ, self(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := env["EXTRA"]; got != "two\nlines" {
		t.Errorf("EXTRA = %q", got)
	}
	if !strings.HasPrefix(env["PATH"], "/opt/tool/bin:") {
		t.Errorf("PATH = %q", env["PATH"])
	}
	if env["OWN"] != "1" {
		t.Errorf("what the shell was started with is lost: %v", env)
	}
	if _, ok := env[Mark]; ok {
		t.Error("the mark is in the result")
	}
}

func TestARealShellWorks(t *testing.T) {
	environ := []string{"SHELL=/bin/sh", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "OWN=1"}
	env, err := Resolve(t.Context(), environ, self(t))
	if err != nil {
		t.Fatal(err)
	}
	if env["OWN"] != "1" {
		t.Errorf("got %v", env)
	}
}

func TestAnAccountNeedsNoHomeFolder(t *testing.T) {
	home := filepath.Join(t.TempDir(), "none")
	t.Setenv("HOME", home)
	env, err := Resolve(t.Context(), []string{"SHELL=/bin/sh", "PATH=" + os.Getenv("PATH"), "HOME=" + home, "OWN=1"}, self(t))
	if err != nil || env["OWN"] != "1" {
		t.Errorf("got %v, %v", env, err)
	}
}

func TestAShellThatNeverEndsIsKilledWithWhatItStarted(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "started")
	if err := mkfifo(fifo); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Resolve(ctx, shell(t, `echo up > `+quote(fifo)+`; sleep 1000`), self(t))
		done <- err
	}()
	if _, err := os.ReadFile(fifo); err != nil { // returns when the shell is up
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v", err)
	}
}

func TestAShellThatFailsIsNamed(t *testing.T) {
	_, err := Resolve(t.Context(), shell(t, "exit 7"), self(t))
	if err == nil || !strings.Contains(err.Error(), "shell") || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("got %v", err)
	}
}

func TestTheShellOfTheAccountIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(path, []byte("root:x:0:0::/root:/bin/bash\nme:x:77:7::/home/me:/usr/bin/fish\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := passwdShell(path, 77); got != "/usr/bin/fish" {
		t.Errorf("got %q", got)
	}
	if got := passwdShell(path, 78); got != "" {
		t.Errorf("an account that is not there: %q", got)
	}
}

func TestNoiseIsNoEnvironment(t *testing.T) {
	for name, out := range map[string]string{
		"nothing":  "",
		"no fence": "hello",
		"cut off":  fence + `["A=1"]`,
		"damaged":  fence + `["A=1"` + fence,
	} {
		if env, err := parse([]byte(out)); err == nil {
			t.Errorf("%s: got %v", name, env)
		}
	}
	var b bytes.Buffer
	if err := Print(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := parse(b.Bytes()); err != nil {
		t.Error(err)
	}
}

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }
