package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpd/bridge"
	"mcpd/bridge/ledger"
	"mcpd/cmd/mcpd/internal/control"
	"mcpd/cmd/mcpd/internal/instance"
	"mcpd/cmd/mcpd/internal/service/notify"
	"mcpd/cmd/mcpd/internal/service/socket"
	"mcpd/config"
	"mcpd/security"
	"mcpd/supervisor"
)

const (
	headerTimeout  = 10 * time.Second  // for a request's header to arrive
	idleTimeout    = 120 * time.Second // of a connection between requests
	maxHeaderBytes = 64 << 10          // Mcp-Param headers may be long
)

// LoginEnvironment finds out the environment that the user's login shell sets
// up. It may take until its context ends.
type LoginEnvironment func(context.Context) (map[string]string, error)

// Options are what a Daemon is made of.
type Options struct {
	ConfigPath string // absolute
	StateDir   string // absolute; it is made where it is missing
	Version    string // of mcpd
	Logger     *slog.Logger
	// Level follows the config's log_level; nil where nothing has to.
	Level *slog.LevelVar
	// Environment is what the config file may refer to.
	Environment config.Environment
	// Environ is what children inherit, KEY=VALUE.
	Environ []string
	// LoginEnvironment is asked where the config wants it; nil never is.
	LoginEnvironment LoginEnvironment
	// Reload asks for the config file to be read; nil never does.
	Reload <-chan os.Signal
	// Manager is told that the daemon is ready, alive, and stopping; nil is none.
	Manager *notify.Notifier
	// Sockets are what the service manager holds for the daemon; nil is none.
	// New takes them over.
	Sockets *socket.Set
}

// Daemon is one running mcpd. It listens from New on and serves in Run.
type Daemon struct {
	opts      Options
	logger    *slog.Logger
	started   *config.Config // that the daemon started with
	watcher   *config.Watcher
	instance  *instance.Instance
	tokens    *security.TokenStore
	memory    *memory
	ledger    *ledger.Ledger
	sealer    *security.Sealer
	environ   *environment
	listeners []net.Listener
	gate      *security.Gate
	endpoint  *bridge.Endpoint
	http      *http.Server

	changed chan struct{}      // the file may have changed; holds one
	reloads chan reloadRequest // from the control interface
	state   atomic.Pointer[state]

	stopping    chan struct{}           // closed when the daemon stops
	cancelBase  context.CancelCauseFunc // ends the requests in flight
	serverGroup sync.WaitGroup          // one for each server
	// gone is closed, by name, when the last server that left the config is
	// gone. It belongs to the reload loop.
	gone map[string]<-chan struct{}
}

// state is a snapshot that the reload loop publishes.
type state struct {
	config        *config.Config
	servers       map[string]*server // by name; without the disabled ones
	lastReload    *control.Reload
	restartNeeded []string
}

type reloadRequest struct{ reply chan control.Reload }

// New reads the config file, claims the state folder, opens the tokens and
// listens. Nothing is served and no child started before Run. The caller must
// call Run or Close. The error is config.Errors where the file's content is
// bad, and wraps fs.ErrNotExist where there is no file.
func New(ctx context.Context, o Options) (_ *Daemon, err error) {
	// The watcher comes first: a change after the file was read is noticed.
	watcher, err := config.NewWatcher(o.ConfigPath, config.WatchOptions{Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	started, err := config.Load(o.ConfigPath, o.Environment)
	if err != nil {
		return nil, errors.Join(err, watcher.Close())
	}
	if o.Level != nil {
		o.Level.Set(started.Daemon.LogLevel)
	}
	d := &Daemon{
		opts:     o,
		logger:   o.Logger,
		started:  started,
		watcher:  watcher,
		changed:  make(chan struct{}, 1),
		reloads:  make(chan reloadRequest),
		stopping: make(chan struct{}),
		gone:     make(map[string]<-chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err = security.MakePrivateDir(o.StateDir); err != nil {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	if d.instance, err = instance.Claim(ctx, o.StateDir, o.Version); err != nil {
		return nil, err
	}
	mark, err := childMark(o.StateDir)
	if err != nil {
		return nil, err
	}
	d.environ = newEnvironment(mark)
	// No other daemon has this state folder now, so what carries its mark was
	// left behind by one that was killed.
	supervisor.KillOrphans(mark, o.Logger)
	if d.tokens, err = security.OpenTokenStore(o.StateDir, security.TokenStoreOptions{Logger: o.Logger}); err != nil {
		return nil, err
	}
	if _, err := d.tokens.Show(); err != nil {
		o.Logger.Warn("the first token cannot be shown, so commands that need it will fail; mcpd token rotate makes a new one", "error", err)
	}
	if d.listeners, err = d.listen(ctx, started.Daemon.Listen); err != nil {
		return nil, err
	}
	if err = d.instance.Announce(d.Addr()); err != nil {
		return nil, err
	}
	d.memory = openMemory(filepath.Join(o.StateDir, "commands.json"), o.Logger)
	d.ledger = ledger.New(ledger.Options{
		Path: filepath.Join(o.StateDir, "ledger.db"), Limits: ledgerLimits(started), Logger: o.Logger,
	})
	var replaced error
	if d.sealer, replaced, err = security.OpenSealer(filepath.Join(o.StateDir, "questions.key")); err != nil {
		return nil, fmt.Errorf("the key for questions to clients: %w", err)
	}
	if replaced != nil {
		o.Logger.Warn("the key for questions to clients was replaced: answers to questions from before are refused", "error", replaced)
	}
	d.gate = security.NewGate(d.tokens, d.policy(started), o.Logger)
	d.endpoint = bridge.NewEndpoint(started.Security.MaxRequestBytes, o.Logger)
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	d.cancelBase = cancel
	d.http = &http.Server{
		Handler:                      boundedBody(literalPath(d.gate.Handler(router{d.endpoint, control.NewAPI(d, o.Logger)}))),
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ErrorLog:                     slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		// Streams have no end in time; each event has a deadline instead.
		WriteTimeout: 0,
		BaseContext:  func(net.Listener) context.Context { return base },
	}
	d.state.Store(&state{config: started, servers: map[string]*server{}})
	return d, nil
}

// childMark gives the entry in the environment of all children by which those
// of a daemon that was killed are found. It belongs to the state folder, and
// is drawn at random so that the same folder in a container is another one.
func childMark(stateDir string) (string, error) {
	const name = "MCPD_DAEMON="
	path := filepath.Join(stateDir, "child-mark")
	data, err := security.ReadPrivateFile(path)
	if err == nil && len(data) >= 26 && !strings.ContainsAny(string(data), "=\x00\n") {
		return name + string(data), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the mark of the children: %w", err)
	}
	id := rand.Text()
	if err := security.WritePrivateFile(path, []byte(id)); err != nil {
		return "", fmt.Errorf("the mark of the children: %w", err)
	}
	return name + id, nil
}

// Addr is the address that clients use, HOST:PORT.
func (d *Daemon) Addr() string { return d.listeners[0].Addr().String() }

// Close gives everything back that New took. Run does so by itself.
func (d *Daemon) Close() error {
	errs := []error{d.watcher.Close()}
	for _, l := range d.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if d.cancelBase != nil {
		d.cancelBase(bridge.ErrStopping)
	}
	if d.ledger != nil {
		errs = append(errs, d.ledger.Close())
	}
	if d.instance != nil {
		errs = append(errs, d.instance.Release())
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends, and returns nil after a clean stop: listen
// streams have ended with their result, calls in flight were given the drain
// timeout, and every child is gone. A value on hurry, which may be nil, ends
// the waiting for calls.
func (d *Daemon) Run(ctx context.Context, hurry <-chan os.Signal) (err error) {
	defer func() { err = errors.Join(err, d.Close()) }()

	// Children outlive ctx by the time that calls in flight are given.
	serverCtx, stopServers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServers()

	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	var group sync.WaitGroup
	failed := make(chan error, len(d.listeners)+1)

	// The servers are there before anybody can ask for them; their children
	// wait for the environment, which comes last.
	d.begin(serverCtx)
	for _, l := range d.listeners {
		group.Go(func() {
			if err := d.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serving on %s: %w", l.Addr(), err)
			}
		})
	}
	d.logger.Info("mcpd listens", "address", d.Addr(), "config", d.opts.ConfigPath, "state", d.opts.StateDir,
		"version", d.opts.Version, "pid", os.Getpid())

	group.Go(func() {
		login := d.opts.LoginEnvironment
		if !d.started.Daemon.LoginEnv {
			login = nil
		}
		d.environ.resolve(work, d.opts.Environ, login, lastPath(filepath.Join(d.opts.StateDir, "login-path.json")))
		if p := d.environ.problem(); p != "" && work.Err() == nil {
			d.logger.Warn("the environment of the login shell is not all there for servers", "error", p)
		}
	})
	group.Go(func() { d.watch(work) })
	group.Go(func() { d.reloadLoop(work, serverCtx) })

	group.Go(func() { d.reportAlive(work) })
	d.tellManager(notify.Ready, notify.Status("listens on "+d.Addr()))

	select {
	case <-ctx.Done():
		d.logger.Info("mcpd stops: waiting for the calls in flight", "at_most", d.state.Load().config.Daemon.DrainTimeout)
	case err = <-failed:
		d.logger.Error("mcpd stops", "error", err)
	}
	d.tellManager(notify.Stopping, notify.Status("waits for the calls in flight"))
	stopWork()
	d.shutdown(hurry, stopServers)
	group.Wait()
	d.logger.Info("mcpd has stopped")
	return err
}

// lastWordsTimeout bounds how long clients may take to read why their call was
// given up.
const lastWordsTimeout = 2 * time.Second

// shutdown ends in order: the listen streams, the calls, the children.
func (d *Daemon) shutdown(hurry <-chan os.Signal, stopServers context.CancelFunc) {
	close(d.stopping)
	st := d.state.Load()
	for _, s := range st.servers {
		s.upstream.Close()
	}
	drain, cancel := context.WithTimeout(context.Background(), st.config.Daemon.DrainTimeout)
	defer cancel()
	served := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		defer cancel()
		select {
		case <-hurry:
			d.logger.Info("mcpd stops at once")
		case <-served:
		case <-drain.Done():
		}
	})
	err := d.http.Shutdown(drain)
	if err == nil {
		endUpstreams(drain, st) // whose clients have gone, and whose results will be asked for
	}
	close(served)
	group.Wait()
	if err != nil {
		d.logger.Warn("some calls had not ended and are given up")
		// Each of them is told so, and given a moment to be told.
		d.cancelBase(bridge.ErrStopping)
		last, cancel := context.WithTimeout(context.Background(), lastWordsTimeout)
		defer cancel()
		if err := d.http.Shutdown(last); err != nil {
			d.logger.Debug("some clients did not read why their call was given up", "error", err)
		}
		if err := d.http.Close(); err != nil {
			d.logger.Debug("closing connections", "error", err)
		}
		endUpstreams(drain, st)
	}
	stopServers()
	d.serverGroup.Wait()
}

// endUpstreams waits for the calls that outlive their clients until ctx ends.
func endUpstreams(ctx context.Context, st *state) {
	var group sync.WaitGroup
	for _, s := range st.servers {
		group.Go(func() { s.upstream.End(ctx) })
	}
	group.Wait()
}

// policy is what the gate lets in: mcpd's own names and what the config adds.
func (d *Daemon) policy(c *config.Config) security.Policy {
	p := security.LoopbackPolicy(boundTo(d.listeners[0]))
	p.Hosts = append(p.Hosts, c.Security.AllowedHosts...)
	p.Origins = append(p.Origins, c.Security.AllowedOrigins...)
	return p
}
