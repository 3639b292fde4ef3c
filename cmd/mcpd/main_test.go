package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// patience is far longer than anything here takes.
const patience = time.Minute

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"mcpd": main})
}

type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs one script for each command, with the real program.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			e.Vars = append(e.Vars,
				"HOME="+home, "XDG_CONFIG_HOME=", "XDG_STATE_HOME=",
				"MCPD_CONFIG="+filepath.Join(e.WorkDir, "mcpd.toml"),
				"MCPD_STATE_DIR="+filepath.Join(e.WorkDir, "state"))
			e.Values[daemonKey{}] = &background{}
			e.Defer(func() { e.Values[daemonKey{}].(*background).kill() })
			return os.Mkdir(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":          serve,
			"awaitlog":       awaitLog,
			"endserve":       endServe,
			"exits":          exits,
			"stranger":       stranger,
			"jsonhas":        jsonHas,
			"holds":          holds,
			"strangerconfig": strangerConfig,

			"strangeraddress": strangerAddress,
		},
	})
}

type daemonKey struct{}

// background is the daemon of one script.
type background struct {
	cmd   *exec.Cmd
	lines chan string
	group sync.WaitGroup
	log   strings.Builder
}

func (b *background) kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	for range b.lines { //nolint:revive // to the end of the log
	}
	b.group.Wait()
	_ = b.cmd.Wait()
	b.cmd = nil
}

// serve starts mcpd run with arguments and waits until it listens.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("serve cannot be negated")
	}
	b := ts.Value(daemonKey{}).(*background)
	if b.cmd != nil {
		ts.Fatalf("a daemon runs already")
	}
	cmd := exec.Command(filepath.Join(binDir(ts), "mcpd"), append([]string{"run"}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	for _, k := range []string{"PATH", "HOME", "MCPD_CONFIG", "MCPD_STATE_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TMPDIR", "NOTE"} {
		cmd.Env = append(cmd.Env, k+"="+ts.Getenv(k))
	}
	r, w, err := os.Pipe()
	ts.Check(err)
	cmd.Stderr, cmd.Stdout = w, w
	ts.Check(cmd.Start())
	ts.Check(w.Close())
	b.cmd, b.lines = cmd, make(chan string, 10000)
	b.group.Go(func() {
		defer close(b.lines)
		defer func() { _ = r.Close() }()
		for sc := bufio.NewScanner(r); sc.Scan(); {
			b.lines <- sc.Text()
		}
	})
	awaitLog(ts, false, []string{"mcpd listens"})
}

// awaitlog waits for a line of the daemon's log with every text.
func awaitLog(ts *testscript.TestScript, neg bool, texts []string) {
	b := ts.Value(daemonKey{}).(*background)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case line, ok := <-b.lines:
			if !ok {
				ts.Fatalf("the daemon ended without a log line with %q:\n%s", texts, b.log.String())
			}
			b.log.WriteString(line + "\n")
			has := true
			for _, text := range texts {
				has = has && strings.Contains(line, text)
			}
			if has {
				if neg {
					ts.Fatalf("a log line has %q", texts)
				}
				return
			}
		case <-limit.C:
			ts.Fatalf("no log line with %q:\n%s", texts, b.log.String())
		}
	}
}

// endserve stops the daemon, which must end with exit code 0, and writes its
// log to the file daemon.log.
func endServe(ts *testscript.TestScript, _ bool, _ []string) {
	b := ts.Value(daemonKey{}).(*background)
	ts.Check(b.cmd.Process.Signal(os.Interrupt))
	for line := range b.lines {
		b.log.WriteString(line + "\n")
	}
	b.group.Wait()
	err := b.cmd.Wait()
	b.cmd = nil
	ts.Check(os.WriteFile(ts.MkAbs("daemon.log"), []byte(b.log.String()), 0o600))
	if err != nil {
		ts.Fatalf("the daemon ended with %v:\n%s", err, b.log.String())
	}
}

// exits runs a command that must end with an exit code. Its output goes to the
// files out and err.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var out, errOut bytes.Buffer
	cmd := exec.Command(filepath.Join(binDir(ts), args[1]), args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, k := range []string{"PATH", "HOME", "MCPD_CONFIG", "MCPD_STATE_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"} {
		cmd.Env = append(cmd.Env, k+"="+ts.Getenv(k))
	}
	cmd.Stdout, cmd.Stderr = &out, &errOut
	got := 0
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), out.Bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("err"), errOut.Bytes(), 0o600))
	ts.Logf("%s%s", out.String(), errOut.String())
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// stranger listens on a port like a program that is no mcpd, and puts the
// address into $STRANGER. When the script ends, it must not have been sent a
// token.
func stranger(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	var sent atomic.Bool
	srv := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			sent.Store(true)
		}
		_, _ = w.Write([]byte("{}"))
	})}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	ts.Setenv("STRANGER", l.Addr().String())
	ts.Defer(func() {
		_ = srv.Close()
		<-ended
		if sent.Load() {
			ts.Logf("the stranger was sent a token")
			panic("the stranger was sent a token")
		}
	})
}

// jsonhas checks that the JSON in a file, followed along keys and numbers, is
// a value: jsonhas FILE WANT KEY...
func jsonHas(ts *testscript.TestScript, neg bool, args []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	for _, key := range args[2:] {
		switch c := v.(type) {
		case map[string]any:
			v = c[key]
		case []any:
			i, err := strconv.Atoi(key)
			ts.Check(err)
			if i >= len(c) {
				ts.Fatalf("there is no element %d in %v", i, c)
			}
			v = c[i]
		default:
			ts.Fatalf("there is no %q in %v", key, v)
		}
	}
	if got := fmt.Sprint(v); (got == args[1]) == neg {
		ts.Fatalf("%v is %q", args[2:], got)
	}
}

// holds checks that a file contains the whole text of another.
func holds(ts *testscript.TestScript, neg bool, args []string) {
	text := strings.TrimSpace(ts.ReadFile(args[1]))
	if text == "" {
		ts.Fatalf("%s is empty", args[1])
	}
	if strings.Contains(ts.ReadFile(args[0]), text) == neg {
		ts.Fatalf("%s: contains the text of %s: %v", args[0], args[1], neg)
	}
}

// strangerconfig writes mcpd.toml with the stranger's port, and what a daemon
// that was killed leaves behind.
func strangerConfig(ts *testscript.TestScript, _ bool, _ []string) {
	addr := ts.Getenv("STRANGER")
	ts.Check(os.WriteFile(ts.MkAbs("mcpd.toml"), fmt.Appendf(nil, "[daemon]\nlisten = %q\n", addr), 0o600))
	state := ts.MkAbs("state")
	ts.Check(os.MkdirAll(state, 0o700))
	ts.Check(os.WriteFile(filepath.Join(state, "daemon.lock"), nil, 0o600))
	ts.Check(os.WriteFile(filepath.Join(state, "daemon.json"), fmt.Appendf(nil, `{"pid":1,"address":%q}`, addr), 0o600))
}

// strangerAddress has the daemon that runs tell commands the stranger's address.
func strangerAddress(ts *testscript.TestScript, _ bool, _ []string) {
	path := ts.MkAbs("state/daemon.json")
	var info map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("state/daemon.json")), &info))
	info["address"] = ts.Getenv("STRANGER")
	data, err := json.Marshal(info)
	ts.Check(err)
	ts.Check(os.WriteFile(path, data, 0o600))
}

func binDir(ts *testscript.TestScript) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "mcpd")); err == nil {
			return dir
		}
	}
	ts.Fatalf("mcpd is not in the PATH")
	return ""
}
