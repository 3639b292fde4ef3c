package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"mcpd/security"
)

// environTimeout bounds how long children wait for the login shell.
const environTimeout = 10 * time.Second

// environment is what every child starts from: the daemon's own environment
// and that of the user's login shell. It becomes known some time after the
// daemon is up.
type environment struct {
	mark  string        // an entry that every child carries, NAME=VALUE
	ready chan struct{} // closed when vars and err are set
	vars  map[string]string
	err   error // why the login shell's part is missing
}

func newEnvironment(mark string) *environment {
	return &environment{mark: mark, ready: make(chan struct{})}
}

// resolve finds out the environment; login may be nil. It is called once. When
// ctx ends the environment stays unknown, so that nothing is started any more.
// Where the shell fails, the PATH that it gave the last time is used.
func (e *environment) resolve(ctx context.Context, own []string, login LoginEnvironment, last lastPath) {
	e.vars = asMap(own)
	if login != nil {
		bounded, cancel := context.WithTimeoutCause(ctx, environTimeout, errors.New("no answer in "+environTimeout.String()))
		defer cancel()
		shell, err := login(bounded)
		if ctx.Err() != nil {
			return
		}
		switch path, at, known := last.read(); {
		case err == nil:
			e.vars = merged(e.vars, shell)
			e.err = last.write(shell["PATH"])
		case known:
			e.vars = merged(e.vars, map[string]string{"PATH": path})
			e.err = fmt.Errorf("%w; the PATH that it gave on %s is used", err, at.Format(time.DateOnly))
		default:
			e.err = err
		}
	}
	if name, value, ok := strings.Cut(e.mark, "="); ok {
		e.vars[name] = value
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

// lastPath is the file with the PATH of the login shell, for starts at which
// the shell does not answer. Other variables are not kept: they may be secrets.
// With no name nothing is kept.
type lastPath string

type lastPathFile struct {
	Path string    `json:"path"`
	At   time.Time `json:"at"`
}

func (l lastPath) read() (path string, at time.Time, known bool) {
	data, err := security.ReadPrivateFile(string(l))
	if err != nil {
		return "", time.Time{}, false
	}
	var f lastPathFile
	if json.Unmarshal(data, &f) != nil || f.Path == "" {
		return "", time.Time{}, false
	}
	return f.Path, f.At, true
}

// write keeps path where it is another one than before.
func (l lastPath) write(path string) error {
	if before, _, known := l.read(); l == "" || path == "" || known && before == path {
		return nil
	}
	data, err := json.Marshal(lastPathFile{Path: path, At: time.Now().UTC()})
	if err == nil {
		err = security.WritePrivateFile(string(l), data)
	}
	if err != nil {
		return fmt.Errorf("the PATH of the login shell cannot be kept for later: %w", err)
	}
	return nil
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
