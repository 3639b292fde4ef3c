package security

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxPrivateFile bounds what ReadPrivateFile takes into memory.
const maxPrivateFile = 16 << 20

// NotPrivateError says that a file or folder is open to others, or belongs to
// somebody else, and how to mend that.
type NotPrivateError struct {
	Path    string
	Problem string // what is wrong with it, as the end of a sentence
	Fix     string // what to do, as a command where there is one
}

func (e *NotPrivateError) Error() string {
	return fmt.Sprintf("%s %s; to mend it: %s", e.Path, e.Problem, e.Fix)
}

// ReadPrivateFile reads a regular file that belongs to the user mcpd runs as
// and that nobody else can read or change (root, and Windows' own system
// accounts, excepted). Anything else is a *[NotPrivateError], and nothing is
// read. A symbolic link is not followed: what is checked is the very file that
// is read. A file that does not exist matches [fs.ErrNotExist].
func ReadPrivateFile(path string) ([]byte, error) {
	data, _, err := readPrivateFile(path)
	return data, err
}

func readPrivateFile(path string) ([]byte, fs.FileInfo, error) {
	f, err := openPrivate(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxPrivateFile+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > maxPrivateFile {
		return nil, nil, fmt.Errorf("%s is larger than the %d MiB that such a file can have", path, maxPrivateFile>>20)
	}
	return data, info, nil
}

// WritePrivateFile makes data the contents of the file at path, in one step: a
// reader, or the next start after a crash, sees the old contents or the new,
// whole, and only the owner can read either. The file is on the disk when
// WritePrivateFile returns. A symbolic link at path is replaced, not followed.
// The folder must exist.
func WritePrivateFile(path string, data []byte) (err error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // does not fail, says crypto/rand
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	temp := filepath.Join(dir, tempPrefix(name)+hex.EncodeToString(random[:]))

	f, err := createPrivate(temp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(temp))
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := replaceFile(temp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// tempPrefix is how the names of the files begin that become name.
func tempPrefix(name string) string { return "." + name + ".new-" }

// removeLeftovers removes what a crash in WritePrivateFile left in dir of the
// named files. The caller holds the lock that keeps other writers away.
func removeLeftovers(dir string, names ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		for _, name := range names {
			if strings.HasPrefix(entry.Name(), tempPrefix(name)) {
				if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// MakePrivateDir makes the folder at path, and those above it that are
// missing, for the owner alone. A folder that exists already is checked, not
// changed: it must belong to the user mcpd runs as and be closed to others,
// else the error is a *[NotPrivateError].
func MakePrivateDir(path string) error {
	if err := makePrivateDirs(filepath.Clean(path)); err != nil {
		return err
	}
	return checkPrivateDir(path)
}

// makePrivateDirs makes what is missing. Another process may be doing the same
// at the same time.
func makePrivateDirs(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if parent := filepath.Dir(path); parent != path {
		if err := makePrivateDirs(parent); err != nil {
			return err
		}
	}
	if err := mkdirPrivate(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
