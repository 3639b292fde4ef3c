//go:build unix

package security

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// othersMode are the permission bits of everybody but the owner. Where a file
// has a POSIX access list, its mask shows in the group's bits.
const othersMode = 0o077

// openPrivate opens a file for reading and checks the opened descriptor, so
// that no exchange of the file between check and use can matter.
func openPrivate(path string) (*os.File, error) {
	// O_NONBLOCK: a named pipe put in the file's place must not hang mcpd.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) {
		return nil, &NotPrivateError{
			Path: path, Problem: "is a symbolic link, which mcpd does not follow here",
			Fix: "put the file itself in its place",
		}
	}
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(f, path, false); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkPrivateDir follows a link at path: the folder that is opened is the one
// that is checked, and only its owner can have put anything into it.
func checkPrivateDir(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%s is not a folder", path)
	}
	if err != nil {
		return err
	}
	return errors.Join(checkPrivate(f, path, true), f.Close())
}

func checkPrivate(f *os.File, path string, dir bool) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return &fs.PathError{Op: "fstat", Path: path, Err: err}
	}
	if !dir && stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return &NotPrivateError{Path: path, Problem: "is not a regular file", Fix: "move it away"}
	}
	if uid := os.Geteuid(); int(stat.Uid) != uid {
		return &NotPrivateError{
			Path:    path,
			Problem: fmt.Sprintf("belongs to user id %d, but mcpd runs as user id %d", stat.Uid, uid),
			Fix:     fmt.Sprintf("run mcpd as its owner, or: chown %d %s", uid, shellQuote(path)),
		}
	}
	if mode := uint32(stat.Mode) & 0o777; mode&othersMode != 0 {
		want := "600"
		if dir {
			want = "700"
		}
		return &NotPrivateError{
			Path:    path,
			Problem: fmt.Sprintf("is open to other users of this computer (mode %04o)", mode),
			Fix:     "chmod " + want + " " + shellQuote(path),
		}
	}
	return nil
}

func createPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	// An odd umask can have taken away the owner's own bits.
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

func mkdirPrivate(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, 0o700)
}

func replaceFile(from, to string) error { return os.Rename(from, to) }

// syncDir brings a rename in dir to the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil // some file systems have no such thing for folders
	}
	return errors.Join(err, f.Close())
}

// shellQuote writes path so that it can be pasted behind a command.
func shellQuote(path string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			strings.ContainsRune("/._-+:@%", r)
	}
	if path != "" && strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
