package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every single wait: it is far above what any of them takes, so that reaching it means a fault.
const patience = 30 * time.Second

// runMark is the environment variable by whose value every process of one daemon, however far descended, is found.
const runMark = "MCPD_E2E_RUN"

// daemon is one running mcpd.
type daemon struct {
	t      *testing.T
	dir    string
	config string // path of the configuration file
	addr   string // host:port
	token  string
	mark   string
	cmd    *exec.Cmd
	log    *logBuffer
	exited chan struct{} // closed when the process has ended
	err    error         // how, after exited
	client *http.Client
}

// setup is what differs between the daemons of the tests.
type setup struct {
	security string   // lines of [security]
	defaults string   // lines of [defaults]
	daemon   string   // further lines of [daemon]
	login    bool     // take the environment of the login shell
	servers  []string // whole [servers.NAME] tables
	env      []string // further variables of the daemon
}

// server is the table of a fixture child. lines are further keys of its table.
func server(name string, args []string, lines ...string) string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return table(name, self, args, append([]string{fmt.Sprintf("env = {%s = \"1\"}", asFixture)}, lines...)...)
}

// table is one [servers.NAME] table.
func table(name, command string, args []string, lines ...string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = fmt.Sprintf("%q", arg)
	}
	return fmt.Sprintf("[servers.%s]\ncommand = %q\nargs = [%s]\n%s\n", name, command, strings.Join(quoted, ", "), strings.Join(lines, "\n"))
}

// start runs a daemon and waits until it answers. When the test ends it is stopped with SIGTERM, must exit with 0, and
// must leave no process behind.
func start(t *testing.T, s setup) *daemon {
	t.Helper()
	d := prepare(t, s)
	d.launch()
	d.awaitHealthy()
	d.token = d.showToken()
	return d
}

// prepare writes the configuration and makes everything ready to launch.
func prepare(t *testing.T, s setup) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{
		t: t, dir: dir, config: filepath.Join(dir, "mcpd.toml"), addr: freeAddress(t),
		mark: fmt.Sprintf("%s-%d-%d", strings.ReplaceAll(t.Name(), "/", "_"), os.Getpid(), time.Now().UnixNano()),
		client: &http.Client{
			Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	t.Cleanup(d.client.CloseIdleConnections)
	d.writeConfig(s)
	d.cmd = exec.Command(mcpd, "run", "--config", d.config, "--state-dir", d.stateDir())
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	d.cmd.Env = append(os.Environ(), runMark+"="+d.mark, "HOME="+home, "XDG_CONFIG_HOME=", "XDG_STATE_HOME=")
	d.cmd.Env = append(d.cmd.Env, s.env...)
	d.cmd.Dir = dir
	return d
}

func (d *daemon) stateDir() string { return filepath.Join(d.dir, "state") }

// writeConfig replaces the configuration file in one step, as editors do.
func (d *daemon) writeConfig(s setup) {
	d.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "[daemon]\nlisten = %q\nlogin_shell_env = %v\n%s\n", d.addr, s.login, s.daemon)
	fmt.Fprintf(&b, "[security]\n%s\n[defaults]\n%s\n%s", s.security, s.defaults, strings.Join(s.servers, "\n"))
	d.replaceConfig(b.String())
}

func (d *daemon) replaceConfig(text string) {
	d.t.Helper()
	temporary := d.config + ".new"
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(temporary, d.config); err != nil {
		d.t.Fatal(err)
	}
}

// freeAddress is a loopback address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (d *daemon) launch() {
	d.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		d.t.Fatal(err)
	}
	d.cmd.Stdout, d.cmd.Stderr = w, w
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	w.Close()
	d.log = newLogBuffer(r)
	d.exited = make(chan struct{})
	go func() {
		d.err = d.cmd.Wait()
		close(d.exited)
	}()
	d.t.Cleanup(d.finish)
}

// finish stops the daemon if it still runs and checks how it ends.
func (d *daemon) finish() {
	d.stop()
	<-d.log.done
	if d.t.Failed() {
		d.t.Logf("log of the daemon:\n%s", d.log.text())
	}
	if d.token != "" && strings.Contains(d.log.text(), d.token) {
		d.t.Error("the token is in the log")
	}
}

// stop ends the daemon with SIGTERM: it must exit with 0 and leave no process of its own.
func (d *daemon) stop() {
	d.t.Helper()
	select {
	case <-d.exited:
		if d.err != nil {
			d.t.Errorf("the daemon ended by itself: %v", d.err)
		}
	default:
		if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			d.t.Errorf("cannot stop the daemon: %v", err)
		}
		select {
		case <-d.exited:
			if d.err != nil {
				d.t.Errorf("after SIGTERM the daemon ended with %v, want exit code 0", d.err)
			}
		case <-time.After(patience):
			d.t.Errorf("the daemon does not end after SIGTERM")
			_ = d.cmd.Process.Signal(syscall.SIGQUIT) // prints its goroutines
			<-d.exited
		}
	}
	for _, p := range marked(d.t, d.mark) {
		d.t.Errorf("process %d is left: %s", p.pid, p.command)
		if left, err := os.FindProcess(p.pid); err == nil {
			_ = left.Kill()
		}
	}
}

// awaitHealthy returns when the daemon answers on its port. Each log line is a reason to look.
func (d *daemon) awaitHealthy() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	err := d.log.wait(ctx, func(string) bool {
		response, err := d.client.Get("http://" + d.addr + "/healthz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return err == nil && response.StatusCode == http.StatusOK && strings.TrimSpace(string(body)) == "ok"
	})
	if err != nil {
		d.t.Fatalf("the daemon is not up: %v\n%s", err, d.log.text())
	}
}

// mcpd runs a command of the program against this daemon.
func (d *daemon) mcpd(args ...string) (stdout, stderr string, code int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, mcpd, append(args, "--config", d.config, "--state-dir", d.stateDir())...)
	cmd.Env = d.cmd.Env
	cmd.Dir = d.dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.t.Fatalf("mcpd %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func (d *daemon) showToken() string {
	d.t.Helper()
	out, errOut, code := d.mcpd("token", "show")
	if code != 0 {
		d.t.Fatalf("mcpd token show: exit code %d: %s", code, errOut)
	}
	return strings.TrimSuffix(out, "\n")
}

// serverStatus is what /api/v1/status says of one server, as far as the tests read it.
type serverStatus struct {
	Name          string `json:"name"`
	State         string `json:"state"`
	PID           int    `json:"pid"`
	Era           string `json:"era"`
	Restarts      int    `json:"restarts"`
	InFlight      int    `json:"in_flight"`
	Listeners     int    `json:"listeners"`
	Subscriptions int    `json:"upstream_subscriptions"`
	LastError     string `json:"last_error"`
	ReloadError   string `json:"reload_error"`
}

// eventually returns when cond holds. It is for what another process does in its own time and tells nobody about.
func (d *daemon) eventually(what string, cond func() bool) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !cond() {
		select {
		case <-again.C:
		case <-ctx.Done():
			d.t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// killChild kills the process of a server, as the kernel's OOM killer would, and returns when the next one serves. It
// returns the pid of the one that was killed.
func (d *daemon) killChild(name string) int {
	d.t.Helper()
	pid := d.stats(name).PID
	kill(d.t, pid)
	d.eventually("the next process of "+name, func() bool {
		s := d.status(name)
		return s.State == "ready" && s.PID != pid
	})
	return pid
}

// status asks the daemon for the state of one server.
func (d *daemon) status(name string) serverStatus {
	d.t.Helper()
	all := d.servers()
	i := slices.IndexFunc(all, func(s serverStatus) bool { return s.Name == name })
	if i < 0 {
		d.t.Fatalf("no server %q in %+v", name, all)
	}
	return all[i]
}

// servers asks the daemon for the state of all servers.
func (d *daemon) servers() []serverStatus {
	d.t.Helper()
	r := d.do(d.request(http.MethodGet, "/api/v1/status", ""))
	var all struct {
		Servers []serverStatus `json:"servers"`
	}
	if err := json.Unmarshal([]byte(r.body), &all); err != nil || r.status != http.StatusOK {
		d.t.Fatalf("status: %d %s: %v", r.status, r.body, err)
	}
	return all.Servers
}

// logBuffer collects the lines of a daemon.
type logBuffer struct {
	mu      sync.Mutex
	lines   []string
	changed chan struct{} // closed and replaced with each line
	done    chan struct{} // closed at the end
}

func newLogBuffer(r io.ReadCloser) *logBuffer {
	b := &logBuffer{changed: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(b.done)
		defer r.Close()
		scanner := bufio.NewScanner(r)
		scanner.Buffer(nil, 16<<20)
		for scanner.Scan() {
			b.mu.Lock()
			b.lines = append(b.lines, scanner.Text())
			close(b.changed)
			b.changed = make(chan struct{})
			b.mu.Unlock()
		}
	}()
	return b
}

// wait returns when match accepts a line, one that has come already or one that comes.
func (b *logBuffer) wait(ctx context.Context, match func(line string) bool) error {
	seen := 0
	for {
		b.mu.Lock()
		lines, changed := b.lines[seen:], b.changed
		b.mu.Unlock()
		seen += len(lines)
		if slices.ContainsFunc(lines, match) {
			return nil
		}
		select {
		case <-changed:
		case <-b.done:
			return errors.New("the log has ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *logBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}
