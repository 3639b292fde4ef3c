// Package instance sees to it that one daemon at a time runs on a state folder,
// and lets commands find that daemon.
//
// A lock on a file in the folder is the truth: the system frees it when the
// process ends, however it ends. What the daemon tells about itself lies in a
// file beside it and is believed only while the lock is held, so that nobody
// hands a token to whoever listens on the port of a daemon that is gone.
package instance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"mcpd/security"
)

const (
	lockName = "daemon.lock"
	infoName = "daemon.json"

	// A command that looks for the daemon holds the lock, shared, for an
	// instant. A starting daemon waits that long and no longer.
	lockWait  = 500 * time.Millisecond
	lockRetry = 20 * time.Millisecond
)

// Info is what a daemon tells about itself.
type Info struct {
	PID       int       `json:"pid"`
	Address   string    `json:"address,omitempty"` // HOST:PORT; empty until it listens
	StartedAt time.Time `json:"started_at"`
	Version   string    `json:"version"`
	// Key is drawn at each start and lies in the file that only the owner can
	// read: who knows it is this daemon or its owner. It is empty where an
	// older version runs.
	Key security.Secret `json:"-"`
}

// stored is what the file holds.
type stored struct {
	Info
	Key string `json:"key,omitempty"`
}

// HeldError says that another daemon runs on the state folder.
type HeldError struct {
	StateDir string
	Holder   Info // the PID is 0 where it is not known
}

func (e *HeldError) Error() string {
	if e.Holder.PID == 0 {
		return fmt.Sprintf("another mcpd already runs with the state folder %s", e.StateDir)
	}
	at := ""
	if e.Holder.Address != "" {
		at = " on " + e.Holder.Address
	}
	return fmt.Sprintf("another mcpd already runs with the state folder %s: process %d%s", e.StateDir, e.Holder.PID, at)
}

// ErrNotRunning says that no daemon runs on the state folder.
var ErrNotRunning = errors.New("mcpd is not running")

// Instance is the right to be the daemon of a state folder.
type Instance struct {
	dir  string
	lock *flock.Flock
	info Info
}

// Claim makes this process the daemon of a state folder, which exists. Where
// another one is, the error is a *HeldError.
func Claim(ctx context.Context, dir, version string) (*Instance, error) {
	lock := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	wait, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	ok, err := lock.TryLockContext(wait, lockRetry)
	if !ok {
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("cannot lock %s: %w", lock.Path(), err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		held := &HeldError{StateDir: dir}
		held.Holder, _ = readInfo(dir) // without it the message names no process
		return nil, held
	}
	in := &Instance{dir: dir, lock: lock, info: Info{
		PID: os.Getpid(), StartedAt: time.Now().UTC(), Version: version, Key: security.NewSecret(rand.Text() + rand.Text()),
	}}
	if err := in.write(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return in, nil
}

// Info returns what is told about this daemon.
func (in *Instance) Info() Info { return in.info }

// Key is what this daemon proves itself with.
func (in *Instance) Key() security.Secret { return in.info.Key }

// Announce tells commands where the daemon listens.
func (in *Instance) Announce(address string) error {
	in.info.Address = address
	return in.write()
}

func (in *Instance) write() error {
	data, err := json.Marshal(stored{in.info, in.info.Key.Reveal()})
	if err != nil {
		return fmt.Errorf("instance: %w", err)
	}
	if err := security.WritePrivateFile(filepath.Join(in.dir, infoName), append(data, '\n')); err != nil {
		return fmt.Errorf("cannot write what commands find the daemon by: %w", err)
	}
	return nil
}

// Release ends the claim. The lock's file stays: removing it would let two
// daemons hold a lock each.
func (in *Instance) Release() error {
	rmErr := os.Remove(filepath.Join(in.dir, infoName))
	if errors.Is(rmErr, fs.ErrNotExist) {
		rmErr = nil
	}
	return errors.Join(rmErr, in.lock.Close())
}

// Find returns what the daemon of a state folder tells about itself, or
// ErrNotRunning. The Address is empty while it is starting or about to end.
func Find(dir string) (Info, error) {
	path := filepath.Join(dir, lockName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return Info{}, ErrNotRunning // and asking leaves no file behind
	}
	lock := flock.New(path, flock.SetPermissions(0o600))
	free, err := lock.TryRLock()
	if err != nil {
		return Info{}, fmt.Errorf("cannot look at the lock %s: %w", path, err)
	}
	if free {
		if err := lock.Close(); err != nil {
			return Info{}, fmt.Errorf("cannot free the lock %s: %w", path, err)
		}
		return Info{}, ErrNotRunning
	}
	info, err := readInfo(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, nil
	}
	return info, err
}

func readInfo(dir string) (Info, error) {
	path := filepath.Join(dir, infoName)
	data, err := security.ReadPrivateFile(path)
	if err != nil {
		return Info{}, fmt.Errorf("a daemon runs, but what it tells about itself cannot be read: %w", err)
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return Info{}, fmt.Errorf("a daemon runs, but %s is damaged: %w", path, err)
	}
	if s.Key != "" {
		s.Info.Key = security.NewSecret(s.Key)
	}
	return s.Info, nil
}
