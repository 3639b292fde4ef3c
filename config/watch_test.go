package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// patience is how long a real file system may take to report something.
const patience = 20 * time.Second

// observation is one look at the file.
type observation struct {
	now     content
	changed bool
}

// observer runs a Watcher and hears every look at the file.
type observer struct {
	looks         chan observation
	notifications atomic.Int64
}

var noPoll = WatchOptions{Poll: time.Hour}

func observe(t *testing.T, path string, o WatchOptions, open func() (*fsnotify.Watcher, error)) *observer {
	t.Helper()
	w, err := newWatcher(path, o, open)
	if err != nil {
		t.Fatal(err)
	}
	obs := &observer{looks: make(chan observation)}
	ctx, cancel := context.WithCancel(t.Context())
	w.checked = func(now content, changed bool) {
		select {
		case obs.looks <- observation{now, changed}:
		case <-ctx.Done():
		}
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, func() { obs.notifications.Add(1) }) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not end")
		}
	})
	return obs
}

func holds(text string) content { return content{sum: sha256.Sum256([]byte(text))} }

// await waits until the watcher has seen the content, however many looks that takes.
func (o *observer) await(t *testing.T, step string, want content) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case look := <-o.looks:
			if look.now == want {
				return
			}
		case <-deadline:
			t.Fatalf("%s: not noticed", step)
		}
	}
}

// settle waits for one look.
func (o *observer) settle(t *testing.T) {
	t.Helper()
	select {
	case <-o.looks:
	case <-time.After(patience):
		t.Fatal("the watcher does not look")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// save writes the file as editors do: beside it, then over it.
func save(t *testing.T, path, text string) {
	t.Helper()
	writeFile(t, path+".new", text)
	must(t, os.Rename(path+".new", path))
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Skip("no symbolic links here:", err)
	}
}

// relink points a link elsewhere in one step, as ln -sfT and Kubernetes do.
func relink(t *testing.T, target, path string) {
	t.Helper()
	must(t, os.Symlink(target, path+".new"))
	must(t, os.Rename(path+".new", path))
}

func TestEveryWayToChangeTheFileIsNoticed(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, dir string)
	}{
		{"written in place", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "f")
			writeFile(t, path, "1")
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			for _, text := range []string{"2", "3", ""} {
				writeFile(t, path, text)
				o.await(t, text, holds(text))
			}
		}},
		{"saved by rename, again and again", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "f")
			writeFile(t, path, "1")
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			for _, text := range []string{"2", "3", "4"} {
				save(t, path, text)
				o.await(t, text, holds(text))
			}
			if n := o.notifications.Load(); n != 3 {
				t.Errorf("%d notifications for 3 changes", n)
			}
		}},
		{"moved to a backup and written anew", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "f")
			writeFile(t, path, "1")
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			for _, text := range []string{"2", "3"} {
				must(t, os.Rename(path, path+"~"))
				writeFile(t, path, text)
				o.await(t, text, holds(text))
			}
		}},
		{"deleted and made again", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "f")
			writeFile(t, path, "1")
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			must(t, os.Remove(path))
			o.await(t, "deleted", content{absent: true})
			writeFile(t, path, "1")
			o.await(t, "made again", holds("1"))
			writeFile(t, path, "2")
			o.await(t, "written", holds("2"))
		}},
		{"a link whose target is elsewhere", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "here", "f")
			for _, sub := range []string{"here", "there", "elsewhere"} {
				must(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
			}
			writeFile(t, filepath.Join(dir, "there", "f"), "1")
			link(t, filepath.Join(dir, "there", "f"), path)
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			writeFile(t, filepath.Join(dir, "there", "f"), "2")
			o.await(t, "target written", holds("2"))
			save(t, filepath.Join(dir, "there", "f"), "3")
			o.await(t, "target saved by rename", holds("3"))
			writeFile(t, filepath.Join(dir, "elsewhere", "g"), "4")
			relink(t, "../elsewhere/g", path)
			o.await(t, "link moved", holds("4"))
			writeFile(t, filepath.Join(dir, "elsewhere", "g"), "5")
			o.await(t, "new target written", holds("5"))
		}},
		{"a link to a link", func(t *testing.T, dir string) {
			for _, sub := range []string{"a", "b", "c"} {
				must(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
			}
			path := filepath.Join(dir, "a", "f")
			writeFile(t, filepath.Join(dir, "c", "1"), "1")
			writeFile(t, filepath.Join(dir, "c", "2"), "2")
			link(t, "../b/f", path)
			link(t, "../c/1", filepath.Join(dir, "b", "f"))
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			relink(t, "../c/2", filepath.Join(dir, "b", "f"))
			o.await(t, "second link moved", holds("2"))
			writeFile(t, filepath.Join(dir, "c", "2"), "3")
			o.await(t, "target written", holds("3"))
		}},
		{"a link in the middle of the path", func(t *testing.T, dir string) {
			for i, sub := range []string{"v1", "v2"} {
				must(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
				writeFile(t, filepath.Join(dir, sub, "f"), string(rune('1'+i)))
			}
			link(t, "v1", filepath.Join(dir, "current"))
			o := observe(t, filepath.Join(dir, "current", "f"), noPoll, fsnotify.NewWatcher)
			relink(t, "v2", filepath.Join(dir, "current"))
			o.await(t, "link moved", holds("2"))
			writeFile(t, filepath.Join(dir, "v2", "f"), "3")
			o.await(t, "written", holds("3"))
		}},
		{"the folder swap of Kubernetes", func(t *testing.T, dir string) {
			version := func(name, text string) {
				must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
				writeFile(t, filepath.Join(dir, name, "f"), text)
			}
			version("..2024_1", "1")
			link(t, "..2024_1", filepath.Join(dir, "..data"))
			link(t, filepath.Join("..data", "f"), filepath.Join(dir, "f"))
			o := observe(t, filepath.Join(dir, "f"), noPoll, fsnotify.NewWatcher)
			for i, text := range []string{"2", "3"} {
				name := "..2024_" + text
				version(name, text)
				relink(t, name, filepath.Join(dir, "..data"))
				must(t, os.RemoveAll(filepath.Join(dir, "..2024_"+string(rune('1'+i)))))
				o.await(t, name, holds(text))
			}
		}},
		{"a folder that is missing at first", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "a", "b", "f")
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			writeFile(t, path, "1")
			o.await(t, "made", holds("1"))
			save(t, path, "2")
			o.await(t, "saved", holds("2"))
		}},
		{"a folder that appears part by part", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "a", "b", "f")
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			o.settle(t) // the first look
			must(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
			o.settle(t)
			must(t, os.Mkdir(filepath.Join(dir, "a", "b"), 0o700))
			o.settle(t)
			writeFile(t, path, "1")
			o.await(t, "made", holds("1"))
		}},
		{"a folder that is removed and made again", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "a", "b", "f")
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			writeFile(t, path, "1")
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			for _, text := range []string{"2", "3"} {
				must(t, os.RemoveAll(filepath.Join(dir, "a")))
				must(t, os.MkdirAll(filepath.Dir(path), 0o700))
				writeFile(t, path, text)
				o.await(t, "made again", holds(text))
				save(t, path, text+"+")
				o.await(t, "saved", holds(text+"+"))
			}
			must(t, os.RemoveAll(filepath.Join(dir, "a")))
			o.await(t, "removed", content{absent: true})
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			writeFile(t, path, "4")
			o.await(t, "made after a while", holds("4"))
		}},
		{"a folder that another one takes the place of", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "a", "f")
			for i, sub := range []string{"a", "b"} {
				must(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
				writeFile(t, filepath.Join(dir, sub, "f"), string(rune('1'+i)))
			}
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			must(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "old")))
			must(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")))
			o.await(t, "exchanged", holds("2"))
			writeFile(t, path, "3")
			o.await(t, "written", holds("3"))
		}},
		{"a link that leads in a circle until it is mended", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "f")
			link(t, "f", path)
			o := observe(t, path, noPoll, fsnotify.NewWatcher)
			save(t, path, "1")
			o.await(t, "mended", holds("1"))
		}},
		{"by polling, where the system reports nothing", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "f")
			writeFile(t, path, "1")
			o := observe(t, path, WatchOptions{Poll: 20 * time.Millisecond}, func() (*fsnotify.Watcher, error) {
				return nil, errors.New("too many watches")
			})
			for _, text := range []string{"2", "3"} {
				save(t, path, text)
				o.await(t, text, holds(text))
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.EvalSymlinks(t.TempDir())
			must(t, err)
			test.run(t, dir)
		})
	}
}

func TestAChangeBeforeRunIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "1")
	w, err := newWatcher(path, noPoll, func() (*fsnotify.Watcher, error) { return nil, errors.New("no events") })
	must(t, err)
	save(t, path, "2")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.Run(ctx, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("not reported: %v", err)
	}
}

func TestEqualBytesAreNoChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "1")
	o := observe(t, path, noPoll, fsnotify.NewWatcher)
	o.settle(t) // the first look
	save(t, path, "1")
	o.settle(t)
	must(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
	o.settle(t)
	save(t, path, "2")
	o.await(t, "changed", holds("2"))
	if n := o.notifications.Load(); n != 1 {
		t.Errorf("%d notifications for one change", n)
	}
}

func TestAStreamOfEventsDoesNotPutTheLookOffForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Watcher{debounce: defaultDebounce}
		quiet := time.NewTimer(time.Hour)
		defer quiet.Stop()
		begin := time.Now()
		var first time.Time
		event := time.NewTicker(10 * time.Millisecond)
		defer event.Stop()
		for {
			select {
			case <-event.C:
				first = w.postpone(quiet, first)
			case <-quiet.C:
				if waited := time.Since(begin); waited > (maxDelay+1)*defaultDebounce {
					t.Errorf("the look came after %v", waited)
				}
				return
			}
		}
	})
}

func TestALookComesAfterAQuietTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Watcher{debounce: defaultDebounce}
		quiet := time.NewTimer(time.Hour)
		defer quiet.Stop()
		begin := time.Now()
		first := w.postpone(quiet, time.Time{})
		<-time.After(60 * time.Millisecond)
		w.postpone(quiet, first)
		<-quiet.C
		if waited := time.Since(begin); waited != 160*time.Millisecond {
			t.Errorf("the look came after %v", waited)
		}
	})
}

func TestAWatcherThatIsNeverRunCanBeClosed(t *testing.T) {
	w, err := NewWatcher(filepath.Join(t.TempDir(), "f"), WatchOptions{})
	must(t, err)
	must(t, w.Close())
	if w.debounce != 100*time.Millisecond || w.poll < 30*time.Second {
		t.Errorf("the defaults are %v and %v", w.debounce, w.poll)
	}
}

func TestFoldersOfFollowsEveryLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, sub := range []string{"a", "b/c", "d"} {
		must(t, os.MkdirAll(filepath.Join(dir, sub), 0o700))
	}
	link(t, filepath.Join(dir, "b", "c"), filepath.Join(dir, "a", "in"))
	link(t, "../../d/./f", filepath.Join(dir, "b", "c", "f"))
	link(t, "loop2", filepath.Join(dir, "a", "loop1"))
	link(t, "loop1", filepath.Join(dir, "a", "loop2"))
	for _, test := range []struct{ path, want string }{
		{"a/in/f", "a b/c d"}, // the file itself is missing in d
		{"a/f", "a"},
		{"x/y/f", "."},
		{"a/x/f", "a"},
		{"a/loop1", "a"},
		{"a/in/../f", "a b"},
	} {
		got := foldersOf(dir + "/" + test.path)
		wanted := strings.Fields(test.want)
		ok := len(got) == len(wanted)
		for _, name := range wanted {
			if _, found := got[filepath.Join(dir, name)]; !found {
				ok = false
			}
		}
		if !ok {
			t.Errorf("%s: %v, want %v", test.path, got, wanted)
		}
	}
}
