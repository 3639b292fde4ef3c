package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

const (
	editLockWait  = 10 * time.Second
	editLockRetry = 50 * time.Millisecond
)

// newFileHead begins a file that is made for its first server.
const newFileHead = "# The configuration of mcpd. Every key is explained in docs/configuration.md; `mcpd config check` finds mistakes.\n"

// EditOptions say how [EditFile] does it.
type EditOptions struct {
	Environment Environment
	// LockFile keeps other edits away; it is made where it is missing, and stays. Its folder must exist.
	LockFile string
	// DryRun changes nothing on the disk.
	DryRun bool
}

// EditFile has change edit the configuration file at path, one program at a time. A file that is missing is made, 0600,
// in a folder that is made 0700. The new text is written beside the file and renamed, so that a reader sees the old text
// or the new, whole; a file that is marked as read-only stays as it is; mode and owner stay as they are, and where path is a symbolic link, the file that it leads to is
// the one that changes. Nothing is written where change fails or leaves the text as it is.
//
// The error is [Errors] where the file has problems: then change is not called.
func EditFile(ctx context.Context, path string, o EditOptions, change func(*Editor) error) (changed bool, err error) {
	if !o.DryRun {
		lock := flock.New(o.LockFile, flock.SetPermissions(0o600))
		wait, cancel := context.WithTimeout(ctx, editLockWait)
		defer cancel()
		if ok, err := lock.TryLockContext(wait, editLockRetry); !ok {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			if errors.Is(err, context.DeadlineExceeded) {
				return false, errors.New("another mcpd command has been editing the configuration for a while; try again when it has ended")
			}
			return false, fmt.Errorf("cannot lock %s: %w", o.LockFile, err)
		}
		defer func() {
			if closeErr := lock.Close(); err == nil {
				err = closeErr
			}
		}()
	}

	real, before, err := readForEdit(path)
	if err != nil {
		return false, err
	}
	text := before
	if before == nil {
		text = []byte(newFileHead)
	}
	// The configuration is where path says, whatever that leads to: ${config_dir} depends on it.
	e, err := NewEditor(path, text, o.Environment)
	if err != nil {
		return false, err
	}
	if err := change(e); err != nil {
		return false, err
	}
	if e.sameBytes(text) {
		return false, nil
	}
	if len(e.Bytes()) > MaxFileBytes {
		return false, fmt.Errorf("the configuration would be %w", tooLargeError(MaxFileBytes))
	}
	if o.DryRun {
		return true, nil
	}
	if before == nil {
		return true, createFile(real, e.Bytes())
	}
	// Editors of other kinds know no lock.
	if _, now, err := readForEdit(path); err != nil || !bytes.Equal(now, before) {
		return false, errors.Join(fmt.Errorf("%s was changed by another program meanwhile; nothing was written, try again", path), err)
	}
	return true, replaceFile(real, e.Bytes())
}

// readForEdit finds the file itself behind links. The data is nil, and no error, where there is none.
func readForEdit(path string) (real string, data []byte, err error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return path, nil, nil
	}
	real, err = filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("%s is a symbolic link to something that does not exist", path)
	}
	if err != nil {
		return "", nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	if data, err = readRegular(real, MaxFileBytes); err != nil {
		return "", nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	if data == nil {
		data = []byte{}
	}
	return real, data, nil
}

func createFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of the configuration: %w", err)
	}
	if err := writeBeside(path, data, nil); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func replaceFile(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	if info.Mode()&0o200 == 0 { // a rename would not ask
		return fmt.Errorf("cannot write the configuration: %s is marked as read-only: %w", path, fs.ErrPermission)
	}
	if err := writeBeside(path, data, info); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// writeBeside makes data the content of path in one step. A file that is new is readable by its owner only, others keep
// the mode and owner of like.
func writeBeside(path string, data []byte, like fs.FileInfo) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*") // 0600
	if err != nil {
		return fmt.Errorf("cannot write into the folder of the configuration, %s: %w", filepath.Dir(path), withoutPath(err))
	}
	defer func() {
		if err != nil {
			_ = temp.Close() // it is closed already where that was what failed
			err = errors.Join(fmt.Errorf("cannot write the configuration %s: %w", path, err), os.Remove(temp.Name()))
		}
	}()
	if _, err := temp.Write(data); err != nil {
		return err
	}
	if like != nil {
		if err := keepOwner(temp, like); err != nil {
			return fmt.Errorf("it would not have the owner and group that it has now: %w", withoutPath(err))
		}
		if err := temp.Chmod(like.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// withoutPath is what went wrong without the name of a file that the person does not know.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
