package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	defaultDebounce = 100 * time.Millisecond
	defaultPoll     = 30 * time.Second
	// maxDelay, in debounce times, bounds how long a stream of events can put a check off.
	maxDelay = 10
)

// WatchOptions may be left zero.
type WatchOptions struct {
	// Debounce is the quiet time after an event before the file is looked at; 0 is 100 ms.
	Debounce time.Duration
	// Poll is the time between two looks without any event, for file systems that report none; 0 is 30 s.
	Poll time.Duration
	// Logger gets a warning when only polling is left; nil is silence.
	Logger *slog.Logger
}

// Watcher tells when the content of a file changes, however that comes about: written in place, replaced by rename,
// deleted and made anew, a symbolic link on its path pointed elsewhere, its folder removed or appearing later. It watches
// the folders, never the file, and compares contents, so that equal bytes are no change.
//
// The Watcher reads the content but leaves its meaning to others: a half-written file is a change like any other.
type Watcher struct {
	path     string
	debounce time.Duration
	poll     time.Duration
	logger   *slog.Logger
	last     content
	source   *fsnotify.Watcher // nil: polling only
	armed    map[string]os.FileInfo
	// checked, for tests, is told after each look at the file what it held and whether that was news.
	checked func(now content, changed bool)
}

// content is what the file holds, or why it cannot be read.
type content struct {
	sum    [sha256.Size]byte
	absent bool
	fault  string
}

// NewWatcher takes the present content of the file as known: what changes from now on is reported by [Watcher.Run]. To
// miss nothing, make the Watcher first and load the file then. A missing file or folder is no error.
func NewWatcher(path string, o WatchOptions) (*Watcher, error) {
	return newWatcher(path, o, fsnotify.NewWatcher)
}

func newWatcher(path string, o WatchOptions, open func() (*fsnotify.Watcher, error)) (*Watcher, error) {
	absolutePath, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cannot watch %q: %w", path, err)
	}
	w := &Watcher{path: absolutePath, debounce: o.Debounce, poll: o.Poll, logger: o.Logger, armed: map[string]os.FileInfo{}}
	if w.debounce <= 0 {
		w.debounce = defaultDebounce
	}
	if w.poll <= 0 {
		w.poll = defaultPoll
	}
	if w.logger == nil {
		w.logger = slog.New(slog.DiscardHandler)
	}
	if w.source, err = open(); err != nil {
		w.source = nil
		w.logger.Warn("changes of the configuration are noticed late: the system offers no file events",
			"every", w.poll, "error", err)
	}
	w.arm()
	w.last = w.read()
	return w, nil
}

// Close releases what NewWatcher took, for a Watcher that is never run.
func (w *Watcher) Close() error {
	if w.source == nil {
		return nil
	}
	return w.source.Close()
}

// Run calls notify after each change until ctx ends, and returns ctx's error. It calls from its own goroutine, so notify
// should do no more than pass the word on. Run may be called once; it closes the Watcher.
func (w *Watcher) Run(ctx context.Context, notify func()) error {
	var events chan fsnotify.Event
	var faults chan error
	if w.source != nil {
		events, faults = w.source.Events, w.source.Errors
		defer func() {
			if err := w.source.Close(); err != nil {
				w.logger.Warn("the watch on the configuration did not close", "error", err)
			}
		}()
	}
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	quiet := time.NewTimer(w.debounce) // also looks once for what came between NewWatcher and Run
	defer quiet.Stop()
	var first time.Time // when the first of the events came that wait for a quiet moment
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-events:
			if !open {
				events = nil
				continue
			}
			first = w.postpone(quiet, first)
		case err, open := <-faults:
			if !open {
				faults = nil
				continue
			}
			// Events may have been lost; look as if there had been one.
			w.logger.Debug("the watch on the configuration reported an error", "error", err)
			first = w.postpone(quiet, first)
		case <-quiet.C:
			first = time.Time{}
			w.check(notify)
		case <-poll.C:
			w.check(notify)
		}
	}
}

// postpone waits for a quiet moment, but no longer than maxDelay in all.
func (w *Watcher) postpone(quiet *time.Timer, first time.Time) time.Time {
	now := time.Now()
	if first.IsZero() {
		first = now
	}
	quiet.Reset(max(0, min(w.debounce, first.Add(maxDelay*w.debounce).Sub(now))))
	return first
}

// check arms the watch where the path leads now, and only then reads: what changes after the reading makes an event.
func (w *Watcher) check(notify func()) {
	w.arm()
	now := w.read()
	changed := now != w.last
	w.last = now
	if changed {
		notify()
	}
	if w.checked != nil {
		w.checked(now, changed)
	}
}

func (w *Watcher) read() content {
	data, err := readRegular(w.path, MaxFileBytes)
	switch {
	case err == nil:
		return content{sum: sha256.Sum256(data)}
	case errors.Is(err, fs.ErrNotExist):
		return content{absent: true}
	default:
		return content{fault: plainCause(err)}
	}
}

// arm watches the folders that decide what is at the path. It looks again after adding some, because a link may have
// been moved between following it and watching it.
func (w *Watcher) arm() {
	if w.source == nil {
		return
	}
	const attempts = 5
	for range attempts {
		if !w.armOnce() {
			return
		}
	}
}

// armOnce brings the watches in line with the folders and says whether it added any.
func (w *Watcher) armOnce() bool {
	wanted := foldersOf(w.path)
	for folder := range w.armed {
		// The watch of a removed folder ends by itself, and a new folder may have the same name and inode number.
		if !slices.Contains(w.source.WatchList(), folder) {
			delete(w.armed, folder)
		}
	}
	for folder := range w.armed {
		if _, keep := wanted[folder]; !keep {
			w.disarm(folder)
		}
	}
	added := false
	for folder := range wanted {
		info, err := os.Stat(folder)
		if err != nil {
			w.disarm(folder)
			added = true // it went away just now: its parent is to be watched instead
			continue
		}
		if armed := w.armed[folder]; armed != nil {
			if os.SameFile(armed, info) {
				continue
			}
			w.disarm(folder) // the name belongs to another folder now
		}
		if err := w.source.Add(folder); err != nil {
			w.logger.Debug("a folder of the configuration cannot be watched", "folder", folder, "error", err)
			continue
		}
		w.armed[folder] = info
		added = true
	}
	return added
}

func (w *Watcher) disarm(folder string) {
	if w.armed[folder] == nil {
		return
	}
	delete(w.armed, folder)
	if err := w.source.Remove(folder); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
		w.logger.Debug("the watch on a folder did not end", "folder", folder, "error", err)
	}
}
