package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/daemon"
	"mcpd/cmd/mcpd/internal/instance"
	"mcpd/cmd/mcpd/internal/loginenv"
	"mcpd/cmd/mcpd/internal/logpipe"
	"mcpd/cmd/mcpd/internal/service/notify"
	"mcpd/cmd/mcpd/internal/service/socket"
)

func (a *app) runCommand() *cobra.Command {
	var initialize bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground",
		Long: `Run the daemon in the foreground, until SIGINT or SIGTERM (Ctrl-C). Then open
listen streams end properly, calls in flight get [daemon] drain_timeout to
finish, and every server is stopped; a second signal does not wait for the calls.

The config file is read again when it changes, on SIGHUP, and by mcpd reload.`,
		Example: `  mcpd run
  mcpd run --init                          write an example config first, if there is none
  mcpd run --config ./mcpd.toml --state-dir ./state`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDaemon(cmd.Context(), initialize, nil) },
	}
	cmd.Flags().BoolVar(&initialize, "init", false, "write an example config if there is no config file")
	return cmd
}

// logFlushTimeout bounds how long the end waits for the log to be written.
const logFlushTimeout = time.Second

// processorsOf is how many of a machine's processors run the daemon's code at a
// time: half of them, as clients and servers have as much to do with each call
// as mcpd has. With more, Go wakes a thread for each step of a call only to find
// nothing else to do, which takes more time than the step itself; see
// docs/performance.md.
func processorsOf(machine int) int { return max(1, machine/2) }

// runDaemon runs the daemon until ctx ends or a signal comes. ready, which may
// be nil, is called when it serves.
func (a *app) runDaemon(ctx context.Context, initialize bool, ready func()) error {
	path, err := a.configPath()
	if err != nil {
		return err
	}
	stateDir, err := a.stateDir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if !initialize {
			return hinted{fmt.Errorf("there is no config file %s", path), a.sameFiles("mcpd init") + " writes an example; " + a.sameFiles("mcpd run --init") + " does so and goes on"}
		}
		if err := a.writeExample(ctx, path, 0); err != nil {
			return err
		}
	}

	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(processorsOf(runtime.GOMAXPROCS(0)))
	}
	// Whoever reads the log may stop to, or go away: neither holds up the
	// daemon or ends it. A handler, unlike ignoring, is not passed on to children.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	log := logpipe.New(a.err)
	defer func() {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), logFlushTimeout)
		defer cancel()
		_ = log.Close(flush)
	}()
	level := new(slog.LevelVar)
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find out where mcpd itself is: %w", err)
	}

	// The service manager speaks to this process, not to those it starts.
	manager, err := notify.Take()
	if err != nil {
		logger.Warn("the service manager will not hear from mcpd", "error", err)
	}
	if ready != nil {
		manager.OnReady(ready)
	}
	sockets, err := socket.Take()
	if err != nil {
		logger.Warn("mcpd opens its port itself", "error", err)
	}

	// From here on no signal is lost: not one while the daemon is set up.
	stop := make(chan os.Signal, 4)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	d, err := daemon.New(ctx, daemon.Options{
		ConfigPath:  path,
		StateDir:    stateDir,
		Version:     version(),
		Logger:      logger,
		Level:       level,
		Environment: a.env,
		Environ:     os.Environ(),
		LoginEnvironment: func(ctx context.Context) (map[string]string, error) {
			return loginenv.Resolve(ctx, os.Environ(), self)
		},
		Reload:  reload,
		Manager: manager,
		Sockets: sockets,
	})
	if err != nil {
		var held *instance.HeldError
		if errors.As(err, &held) {
			return hinted{err, "mcpd status shows what it does; another daemon needs another --state-dir and another port"}
		}
		return err
	}

	running, cancel := context.WithCancel(ctx)
	hurry := make(chan os.Signal, 1)
	ended := make(chan struct{})
	signals := make(chan struct{})
	go func() {
		defer close(signals)
		defer cancel()
		select {
		case <-stop:
			cancel()
		case <-ended:
			return
		}
		select {
		case s := <-stop:
			hurry <- s
		case <-ended:
		}
	}()
	err = d.Run(running, hurry)
	close(ended)
	<-signals
	return err
}
