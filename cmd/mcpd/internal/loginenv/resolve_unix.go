//go:build unix

package loginenv

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxOutput bounds what is kept of the shell's output, in bytes.
const maxOutput = 4 << 20

// Resolve runs the login shell until ctx ends and returns the environment that
// it sets up on top of environ. self is the path of this program.
func Resolve(ctx context.Context, environ []string, self string) (map[string]string, error) {
	shell := loginShell(environ)
	cmd := exec.CommandContext(ctx, shell, shellArgs(shell, quote(self)+" "+PrintCommand)...)
	cmd.Env = append(append([]string{}, environ...), Mark+"=1")
	if home, err := os.UserHomeDir(); err == nil {
		// An account may have a home that does not exist, and a shell that works.
		if info, err := os.Stat(home); err == nil && info.IsDir() {
			cmd.Dir = home
		}
	}
	var out limited
	cmd.Stdout = &out
	// A session of its own: an interactive shell must not get hold of the
	// terminal that mcpd may be running on, and all of it can be killed at once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// What the shell left behind may hold its output open.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if env, perr := parse(out.buf.Bytes()); perr == nil {
		return env, nil // whatever happened after that
	} else if err == nil {
		err = perr
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it took too long: %w", context.Cause(ctx))
	}
	return nil, fmt.Errorf("the environment of the login shell %s cannot be had: %w", shell, err)
}

func shellArgs(shell, command string) []string {
	switch filepath.Base(shell) {
	case "csh", "tcsh": // they take -l only alone
		return []string{"-i", "-c", command}
	case "nu":
		return []string{"-l", "-c", "^" + command}
	default:
		return []string{"-l", "-i", "-c", command}
	}
}

// loginShell is $SHELL, or what the system knows the user's shell to be.
func loginShell(environ []string) string {
	for _, kv := range environ {
		if s, ok := strings.CutPrefix(kv, "SHELL="); ok && filepath.IsAbs(s) {
			return s
		}
	}
	if s := passwdShell("/etc/passwd", os.Getuid()); s != "" {
		return s
	}
	return "/bin/sh"
}

func passwdShell(path string, uid int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		f := strings.Split(sc.Text(), ":")
		if len(f) == 7 && f[2] == strconv.Itoa(uid) && filepath.IsAbs(f[6]) {
			return f[6]
		}
	}
	return ""
}

// quote makes s one word for every shell that knows single quotes.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// limited keeps the beginning of what is written to it and takes the rest.
type limited struct{ buf bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.buf.Write(p[:min(len(p), max(0, maxOutput-l.buf.Len()))])
	return len(p), nil
}
