package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/config"
	"mcpd/supervisor/childlog"
)

// TrialOptions are what a Trial is made of.
type TrialOptions struct {
	StateDir string // absolute; it need not exist
	Version  string // of mcpd
	Logger   *slog.Logger
	// Environ is what children inherit, KEY=VALUE.
	Environ []string
	// LoginEnvironment; nil is never asked.
	LoginEnvironment LoginEnvironment
}

// Trial starts servers as a daemon would, one time, without being one: nothing
// is served, and nothing is left running.
type Trial struct {
	environ *environment
	memory  *memory
	opts    TrialOptions
}

// NewTrial finds out the environment of servers, which may take as long as it
// may for a daemon.
func NewTrial(ctx context.Context, o TrialOptions) (*Trial, error) {
	t := &Trial{
		environ: newEnvironment(""),
		memory:  openMemory(filepath.Join(o.StateDir, "commands.json"), o.Logger),
		opts:    o,
	}
	t.environ.resolve(ctx, o.Environ, o.LoginEnvironment, "")
	return t, ctx.Err()
}

// EnvironmentError is why the environment of the login shell is missing, or "".
func (t *Trial) EnvironmentError() string { return t.environ.problem() }

// Environment is what the child of a server would be given.
func (t *Trial) Environment(c config.Server) map[string]string {
	env := maps.Clone(t.environ.values())
	overlay(env, c.Env)
	return env
}

// Start starts a server's process, waits until it has answered the handshake or
// ctx ends, and stops it. The status is that after the handshake; the error is
// why there was none.
func (t *Trial) Start(ctx context.Context, c config.Server) (control.Server, error) {
	log := childlog.Open(childlog.Options{Logger: t.opts.Logger})
	s := newServer(serverOptions{
		config: c, memory: t.memory, environ: t.environ, log: log, version: t.opts.Version, logger: t.opts.Logger,
	})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { s.run(running) })
	_, err := s.Acquire(ctx)
	status := s.status(time.Now())
	s.upstream.Close()
	stop()
	group.Wait()
	if closeErr := log.Close(); closeErr != nil && err == nil {
		err = fmt.Errorf("the log of the server: %w", closeErr)
	}
	return status, err
}

// CanListen says whether a daemon could listen on addr now: nil, or what Run
// would fail with, a *PortTakenError where another program does.
func CanListen(ctx context.Context, addr netip.AddrPort) error {
	listeners, err := listen(ctx, addr)
	for _, l := range listeners {
		if closeErr := l.Close(); err == nil {
			err = closeErr
		}
	}
	return err
}
