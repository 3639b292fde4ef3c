//go:build linux

package systemtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// box is a Debian with a systemd of its own, a file system of its own and a
// network of its own.
type box struct {
	root   string
	leader int // its process 1, as this system numbers it
	nspawn *exec.Cmd
	ended  chan error
	log    strings.Builder
}

// newBox makes a Debian and starts it. Nothing of this system's own is booted.
func newBox(t *testing.T) *box {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcpd-box-*")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	b := &box{root: filepath.Join(dir, "root")}
	if _, err := command(t.Context(), nil, "mmdebstrap", "--quiet", "--variant=minbase",
		"--include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,procps,rpm", "bookworm", b.root); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"tester", "stranger"} {
		if _, err := command(t.Context(), nil, "chroot", b.root, "useradd", "--create-home", "--shell", "/bin/bash", user); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range []string{
		"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
		"systemd-timesyncd.service", "console-getty.service", "systemd-networkd.service", "systemd-resolved.service",
	} {
		if err := os.Symlink("/dev/null", filepath.Join(b.root, "etc/systemd/system", unit)); err != nil {
			t.Fatal(err)
		}
	}
	b.write(t, "etc/machine-id", "")
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.root, "usr/local/bin/stand-in"), self, 0o755); err != nil {
		t.Fatal(err)
	}
	b.boot(t)
	t.Cleanup(func() { b.powerOff(t) })
	return b
}

func (b *box) write(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(b.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (b *box) boot(t *testing.T) {
	t.Helper()
	b.nspawn = exec.Command("systemd-nspawn", "--quiet", "--directory="+b.root, "--machine=mcpd-box", "--register=no",
		"--keep-unit", "--private-network", "--boot", "--console=pipe")
	b.nspawn.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	b.nspawn.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	b.nspawn.Stdout, b.nspawn.Stderr = io.Discard, &b.log
	if err := b.nspawn.Start(); err != nil {
		t.Fatal(err)
	}
	b.ended = make(chan error, 1)
	go func() { b.ended <- b.nspawn.Wait() }()
	eventually(t, "the box starts", func() error {
		select {
		case err := <-b.ended:
			t.Fatalf("systemd-nspawn ended: %v\n%s", err, b.log.String())
		default:
		}
		out, err := command(t.Context(), nil, "pgrep", "-P", strconv.Itoa(b.nspawn.Process.Pid), "-x", "systemd")
		if err != nil {
			return err
		}
		if b.leader, err = strconv.Atoi(out); err != nil || b.leader <= 1 {
			return fmt.Errorf("%q is no process", out)
		}
		out, err = b.run(t.Context(), "systemctl", "is-system-running")
		if out != "running" {
			return fmt.Errorf("%s (%w)", out, err)
		}
		return nil
	})
}

// powerOff ends the box and waits until nothing of it is left.
func (b *box) powerOff(t *testing.T) {
	t.Helper()
	if b.ended == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := b.run(ctx, "systemctl", "poweroff")
	if err == nil {
		select {
		case <-b.ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		t.Errorf("the box did not power off: %v", err)
		if perr := b.nspawn.Process.Kill(); perr != nil {
			t.Error(perr)
		}
		<-b.ended
	}
	b.ended = nil
	for _, dir := range []string{"payload", "supervisor"} {
		_ = os.Remove("/sys/fs/cgroup/unified/" + dir) // where nspawn made them
	}
}

// run runs a command in the box as root.
func (b *box) run(ctx context.Context, args ...string) (string, error) {
	if b.leader <= 1 {
		return "", errors.New("the box does not run")
	}
	enter := []string{"-t", strconv.Itoa(b.leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return command(ctx, nil, "nsenter", append(enter, args...)...)
}

// as runs a command in the box as one of its users, as in a session.
func (b *box) as(ctx context.Context, user string, args ...string) (string, error) {
	uid := map[string]string{"tester": "1000", "stranger": "1001"}[user]
	return b.run(ctx, append([]string{
		"runuser", "-u", user, "--", "env", "HOME=/home/" + user, "USER=" + user, "XDG_RUNTIME_DIR=/run/user/" + uid,
	}, args...)...)
}

func (b *box) mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *box) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.as(t.Context(), "tester", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
