//go:build unix

package doctor

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// othersCanRead says how a file is open to others, and how to close it.
func othersCanRead(path string) (what, fix string) {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return "", ""
	}
	return fmt.Sprintf("%s has mode %04o", path, info.Mode().Perm()), "chmod 600 " + path
}

// othersCanWrite says who else may change a file or folder.
func othersCanWrite(path string) (what, fix string) {
	info, err := os.Stat(path)
	if err != nil {
		return "", ""
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() != 0 && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Sprintf("%s belongs to user id %d", path, stat.Uid), fmt.Sprintf("chown %d %s", os.Geteuid(), path)
	}
	// In a folder with the sticky bit, only owners remove their files.
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 {
		return fmt.Sprintf("%s has mode %04o", path, info.Mode().Perm()), "chmod o-w " + path
	}
	return "", ""
}

func freeSpace(dir string) (bytes, files uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	files = st.Ffree
	if st.Files == 0 { // a file system that has no such limit
		files = 1 << 32
	}
	return st.Bavail * uint64(st.Bsize), files, nil //nolint:unconvert // its type differs between systems
}
