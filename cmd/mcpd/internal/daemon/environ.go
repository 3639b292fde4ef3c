package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// environTimeout bounds how long children wait for the login shell.
const environTimeout = 10 * time.Second

// environment is what every child starts from: the daemon's own environment
// and that of the user's login shell. It becomes known some time after the
// daemon is up.
type environment struct {
	ready chan struct{} // closed when vars and err are set
	vars  map[string]string
	err   error // why the login shell's part is missing
}

func newEnvironment() *environment { return &environment{ready: make(chan struct{})} }

// resolve finds out the environment; login may be nil. It is called once. When
// ctx ends the environment stays unknown, so that nothing is started any more.
func (e *environment) resolve(ctx context.Context, own []string, login LoginEnvironment) {
	e.vars = asMap(own)
	if login != nil {
		bounded, cancel := context.WithTimeoutCause(ctx, environTimeout, errors.New("no answer in "+environTimeout.String()))
		defer cancel()
		shell, err := login(bounded)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e.err = err
		} else {
			e.vars = merged(e.vars, shell)
		}
	}
	close(e.ready)
}

// values returns the environment. It is called after ready, and what it
// returns is not changed.
func (e *environment) values() map[string]string { return e.vars }

// problem returns why the login shell's environment is missing, if that is
// known by now.
func (e *environment) problem() string {
	select {
	case <-e.ready:
		if e.err != nil {
			return e.err.Error()
		}
	default:
	}
	return ""
}

// merged puts the daemon's own variables over those of the login shell: who
// started the daemon with a variable meant it. PATH is the exception: it has
// the folders of both, and the shell's order counts unless the daemon's own
// PATH knows all that the shell's does, as in a terminal.
func merged(own, shell map[string]string) map[string]string {
	env := make(map[string]string, len(own)+len(shell))
	overlay(env, shell)
	overlay(env, own)
	if path := mergedPath(own["PATH"], shell["PATH"]); path != "" {
		env["PATH"] = path
	}
	return env
}

func mergedPath(own, shell string) string {
	ownDirs, shellDirs := filepath.SplitList(own), filepath.SplitList(shell)
	first, second := shellDirs, ownDirs
	if !slices.ContainsFunc(shellDirs, func(d string) bool { return !slices.Contains(ownDirs, d) }) {
		first, second = ownDirs, shellDirs
	}
	var dirs []string
	for _, d := range slices.Concat(first, second) {
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

func asMap(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, kv := range environ {
		// Windows has variables whose names begin with "=".
		if i := strings.Index(kv[min(1, len(kv)):], "="); i >= 0 {
			env[kv[:i+1]] = kv[i+2:]
		}
	}
	return env
}

// overlay sets the variables of src in dst. On Windows their names differ in
// more than case.
func overlay(dst, src map[string]string) {
	for k, v := range src {
		if runtime.GOOS == "windows" {
			for old := range dst {
				if old != k && strings.EqualFold(old, k) {
					delete(dst, old)
				}
			}
		}
		dst[k] = v
	}
}
