//go:build unix

package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpd/supervisor/childlog"
)

// real is a Spec that executes the test binary as a child of the given mode.
func real(t *testing.T, mode string) Spec {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Spec{
		Name: "lib", Command: exe, Env: []string{childMode + "=" + mode, "PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + t.TempDir()},
		StartTimeout: 20 * time.Second, FirstStartTimeout: 20 * time.Second, DrainTimeout: 10 * time.Second,
		StopTimeout: 10 * time.Second, BackoffMin: time.Millisecond, BackoffMax: 2 * time.Millisecond,
	}
}

// alive says whether pid is a process that is more than a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return len(rest) == 0 || rest[0] != 'Z' && rest[0] != 'X'
}

// grandchildren are the pids in a greeting.
func grandchildren(t *testing.T, sess *lineSession) []int {
	t.Helper()
	var pids []int
	for _, w := range strings.Fields(sess.greeting)[1:] {
		pid, err := strconv.Atoi(w)
		if err != nil || pid <= 1 {
			t.Fatalf("greeting %q", sess.greeting)
		}
		if !alive(pid) {
			t.Fatalf("grandchild %d is not alive to begin with", pid)
		}
		pids = append(pids, pid)
	}
	return pids
}

func TestARealChildEchoesAndStopsWhenItsStdinIsClosed(t *testing.T) {
	s := run(t, real(t, "echo lastword"), Options[*lineSession]{})
	sess := mustAcquire(t, s)
	mustCall(t, sess, "hello")
	st := s.Status()
	if st.State != StateReady || st.PID != sess.p.PID || !alive(st.PID) {
		t.Fatalf("status %+v", st)
	}
	s.stop()
	if alive(st.PID) {
		t.Fatalf("%d is alive after Run", st.PID)
	}
	end := s.Status().LastExit
	if end == nil || end.Code != 0 || end.Signal != "" || end.PID != st.PID {
		t.Fatalf("last exit %+v, want code 0: closing stdin must do", end)
	}
}

func TestStopEscalatesFromStdinToTermToKill(t *testing.T) {
	for _, tt := range []struct {
		mode   string
		code   int
		signal string
		said   []string
	}{
		{"nice", 7, "", []string{"stdin was closed", "asked to end"}},
		{"stubborn", -1, "killed", []string{"stdin was closed"}},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			spec := real(t, tt.mode)
			spec.StopTimeout = 300 * time.Millisecond
			s := run(t, spec, Options[*lineSession]{})
			mustAcquire(t, s)
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			end := s.Status().LastExit
			if end.Code != tt.code || end.Signal != tt.signal {
				t.Errorf("last exit %+v", end)
			}
			if got := strings.Join(end.Stderr, ";"); got != strings.Join(tt.said, ";") {
				t.Errorf("the child said %q, want %q", got, tt.said)
			}
		})
	}
}

func TestNoDescendantSurvives(t *testing.T) {
	end := map[string]func(t *testing.T, s running, sess *lineSession){
		"a stop":            func(t *testing.T, s running, sess *lineSession) { s.stop() },
		"kill -9 of leader": func(t *testing.T, s running, sess *lineSession) { syscall.Kill(sess.p.PID, syscall.SIGKILL) },
		"a nice exit":       func(t *testing.T, s running, sess *lineSession) { sess.Call(t.Context(), "exit 0") },
	}
	for _, mode := range []string{"grandchild", "grandchild grandchild stubborn", "stray", "daemon"} {
		for how, f := range end {
			t.Run(mode+" after "+how, func(t *testing.T) {
				if mode != "grandchild" && !straysAreFound() {
					t.Skip("a descendant that leaves its group cannot be found on this system")
				}
				spec := real(t, mode)
				spec.StopTimeout = 300 * time.Millisecond
				s := run(t, spec, Options[*lineSession]{})
				sess := mustAcquire(t, s)
				pids := append(grandchildren(t, sess), sess.p.PID)
				f(t, s, sess)
				until(t, s.Server, "the child is over", func(st Status) bool {
					return st.LastExit != nil && st.LastExit.PID == sess.p.PID
				})
				for _, pid := range pids {
					if alive(pid) {
						t.Errorf("%d lives on", pid)
					}
				}
			})
		}
	}
}

func TestAChildThatClosesItsStdoutIsEndedAndStartedAgain(t *testing.T) {
	spec := real(t, "echo")
	spec.StopTimeout = 200 * time.Millisecond
	s := run(t, spec, Options[*lineSession]{})
	first := mustAcquire(t, s)
	if _, err := first.Call(t.Context(), "closeout"); err == nil {
		t.Error("the call was answered")
	}
	second := mustAcquire(t, s)
	mustCall(t, second, "hello")
	if alive(first.p.PID) || first.p.PID == second.p.PID {
		t.Errorf("%d lives on beside %d", first.p.PID, second.p.PID)
	}
}

func TestALauncherThatLeavesItsServerBehindIsSeenAsEnded(t *testing.T) {
	s := run(t, real(t, "grandchild lonely"), Options[*lineSession]{})
	st := until(t, s.Server, "it ended", func(st Status) bool { return st.LastExit != nil })
	if st.LastExit.Code != 3 {
		t.Errorf("last exit %+v", st.LastExit)
	}
}

func TestStderrBeyondAPipeIsDrainedBeforeTheHandshake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "lib.log")
	log := childlog.Open(childlog.Options{Path: path})
	s := run(t, real(t, "flood=8000 huge=1000000 junk"), Options[*lineSession]{Log: log})
	mustCall(t, mustAcquire(t, s), "hello")
	s.stop()
	log.Close()
	if n := log.Dropped(); n != 0 {
		t.Errorf("%d lines dropped", n)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" stderr line 000000 of", " stderr line 007999 of", "bytes cut]\n", " stdout not a message\n", " mcpd started, pid "} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("the log has no %q", want)
		}
	}
	if len(data) > 1_000_000 {
		t.Errorf("the log has %d bytes: the huge line was not cut", len(data))
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestACommandThatCannotBeExecutedFailsWithItsReasonAtOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	noInterp := write("nointerp", "#!/no/such/interpreter\n", 0o755)
	noExec := write("noexec", "no program", 0o755)
	for _, tt := range []struct {
		name    string
		command string
		env     []string
		dir     string
		is      error
		reason  string
	}{
		{"not in PATH", "no-such-mcp", []string{"PATH=/nowhere:/else"}, "", nil, `"no-such-mcp" was not found in PATH (/nowhere:/else)`},
		{"not in the PATH of the child, whatever the daemon's", "sh", []string{"PATH=/nowhere"}, "", nil, "not found in PATH (/nowhere)"},
		{"no PATH", "sh", nil, "", nil, "the PATH of the server is empty"},
		{"relative entries of PATH are not searched", "plain", []string{"PATH=.:"}, dir, nil, "not found in PATH"},
		{"no such file", "/no/such/file", nil, "", syscall.ENOENT, `"/no/such/file" does not exist`},
		{"not executable", plain, nil, "", syscall.EACCES, "permission denied; try: chmod +x"},
		{"not executable, in PATH", "plain", []string{"PATH=" + dir}, "", syscall.EACCES, "permission denied"},
		{"no interpreter", noInterp, nil, "", syscall.ENOENT, "the interpreter in its first line"},
		{"no program", noExec, nil, "", syscall.ENOEXEC, "no program for this system"},
		{"no working folder", "/bin/sh", nil, "/no/such/dir", syscall.ENOENT, `the working folder "/no/such/dir" cannot be used: no such file`},
		{"working folder is a file", "/bin/sh", nil, plain, nil, "not a folder"},
		{"a folder", dir, nil, "", syscall.EISDIR, "is a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewStarter(StarterOptions{}).Start(Command{Name: tt.command, Env: tt.env, Dir: tt.dir})
			se, ok := errors.AsType[*StartError](err)
			if !ok || !se.Permanent || !strings.Contains(se.Reason, tt.reason) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Fatalf("Start: %#v", err)
			}
			s := run(t, Spec{Name: "lib", Command: tt.command, Env: tt.env, Dir: tt.dir}, Options[*lineSession]{})
			_, err = s.Acquire(t.Context())
			u := unavailable(t, err)
			if u.State != StateFailed || !strings.Contains(u.Reason, tt.reason) || u.RetryAfter <= 4*time.Minute {
				t.Errorf("Acquire: %+v", u)
			}
			if st := s.Status(); st.State != StateFailed || st.LastExit.Code != -1 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

func TestARelativeCommandCountsFromTheWorkingFolder(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(dir, "server")); err != nil {
		t.Fatal(err)
	}
	spec := real(t, "cwd args")
	spec.Command, spec.Dir, spec.Args = "./server", dir, []string{"a b", `"c"`, "$HOME;*"}
	s := run(t, spec, Options[*lineSession]{})
	want := fmt.Sprintf("ready %s %q", dir, spec.Args)
	if got := mustAcquire(t, s).greeting; got != want {
		t.Errorf("greeting %q, want %q", got, want)
	}
}

func TestDeathInTheHandshakeIsAnsweredWithCodeAndLastWords(t *testing.T) {
	s := run(t, real(t, "exit=4"), Options[*lineSession]{})
	_, err := s.Acquire(t.Context())
	u := unavailable(t, err)
	for _, want := range []string{"it ended during its handshake", "exit code 4", "cannot open the library"} {
		if !strings.Contains(u.Reason, want) {
			t.Errorf("reason %q lacks %q", u.Reason, want)
		}
	}
	st := until(t, s.Server, "failed", inState(StateFailed))
	if !strings.Contains(st.LastError, "ended 5 times") || st.NextTry.IsZero() || st.Restarts != 4 {
		t.Errorf("status %+v", st)
	}
}

func TestTwoHundredRestartsLeaveNothingBehind(t *testing.T) {
	s := run(t, real(t, "grandchild"), Options[*lineSession]{})
	var pids []int
	fds := -1
	for i := range 200 {
		sess := mustAcquire(t, s)
		pids = append(pids, append(grandchildren(t, sess), sess.p.PID)...)
		if i == 3 { // the runtime has made its own by now
			fds = openFiles()
		}
		var err error
		switch i % 3 {
		case 0:
			err = s.Restart(t.Context())
		case 1:
			err = syscall.Kill(sess.p.PID, syscall.SIGKILL)
			<-sess.Done()
		case 2:
			_, _ = sess.Call(t.Context(), "exit 1")
			<-sess.Done()
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
	mustAcquire(t, s)
	if now := openFiles(); now > fds {
		t.Errorf("%d files open, %d at the beginning", now, fds)
	}
	s.stop()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d lives on", pid)
		}
	}
	if st := s.Status(); st.Restarts != 200 {
		t.Errorf("%d restarts", st.Restarts)
	}
}

// openFiles counts the open descriptors of the process; 0 where that cannot be known.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func TestReplaceUnderLoadLosesNoCall(t *testing.T) {
	s := run(t, real(t, "echo"), Options[*lineSession]{})
	first := mustAcquire(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	const callers = 8
	results := make(chan error, callers)
	for c := range callers {
		go func() {
			for i := 0; ctx.Err() == nil; i++ {
				sess, err := s.Acquire(t.Context())
				if err != nil {
					results <- err
					return
				}
				text := fmt.Sprintf("%d-%d", c, i)
				got, err := sess.Call(t.Context(), text)
				if errors.Is(err, errDraining) {
					continue // refused, not lost: it is sent again
				}
				if err != nil || got != text {
					results <- fmt.Errorf("Call(%q) = %q, %v", text, got, err)
					return
				}
			}
			results <- nil
		}()
	}
	for i := range 10 {
		spec := real(t, fmt.Sprintf("echo say=%d", i))
		if err := s.Replace(t.Context(), spec); err != nil {
			t.Errorf("Replace %d: %v", i, err)
		}
	}
	cancel()
	for range callers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if last := mustAcquire(t, s); last.p.Incarnation != first.p.Incarnation+10 {
		t.Errorf("incarnation %d after 10 replacements", last.p.Incarnation)
	}
	s.stop()
	if alive(first.p.PID) {
		t.Error("the first child lives on")
	}
}

func TestReplaceKeepsTheOldChildWhenTheNewOneDoesNotComeUp(t *testing.T) {
	s := run(t, real(t, "echo"), Options[*lineSession]{})
	sess := mustAcquire(t, s)
	err := s.Replace(t.Context(), real(t, "exit=9"))
	if err == nil || !strings.Contains(err.Error(), "the old one stays") || !strings.Contains(err.Error(), "exit code 9") || !strings.Contains(err.Error(), "cannot open the library") {
		t.Errorf("Replace: %v", err)
	}
	mustCall(t, sess, "still here")
	st := s.Status()
	if st.State != StateReady || st.PID != sess.p.PID || st.ReplaceError == "" || st.Replacing {
		t.Errorf("status %+v", st)
	}
	if err := s.Replace(t.Context(), real(t, "echo")); err != nil {
		t.Fatal(err)
	}
	if st := s.Status(); st.ReplaceError != "" || st.PID == sess.p.PID {
		t.Errorf("status %+v", st)
	}
}

func straysAreFound() bool {
	_, err := os.Stat("/proc/self/environ")
	return err == nil
}
