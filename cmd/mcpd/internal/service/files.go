package service

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// fileChange is a file that is written or removed, and what was there before.
type fileChange struct {
	path   string
	before []byte // nil where there was no file
	mode   fs.FileMode
}

// snapshot remembers what a file holds.
func snapshot(path string) (fileChange, error) {
	c := fileChange{path: path, mode: 0o644}
	data, err := os.ReadFile(path) //nolint:gosec // the path is the service manager's
	switch {
	case err == nil:
		c.before = append([]byte{}, data...)
	case !errors.Is(err, fs.ErrNotExist):
		return c, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return c, nil
}

func (c fileChange) holds(data []byte) bool { return c.before != nil && bytes.Equal(c.before, data) }

// undo puts back what was there.
func (c fileChange) undo() error {
	if c.before == nil {
		return remove(c.path)
	}
	return write(c.path, c.before, c.mode)
}

// write replaces a file in one step. Units and plists are public by nature: no
// secret is in one, and the service manager has to read them.
func write(path string, data []byte, mode fs.FileMode) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as the service manager makes them
		return fmt.Errorf("cannot make the folder of %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("cannot write %s: %w", path, err), remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// remove removes a file that need not be there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	return nil
}
