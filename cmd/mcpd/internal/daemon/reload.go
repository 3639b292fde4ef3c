package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"mcpd/bridge"
	"mcpd/cmd/mcpd/internal/control"
	"mcpd/config"
	"mcpd/supervisor/childlog"
)

// watch turns changes of the config file into requests to read it.
func (d *Daemon) watch(ctx context.Context) {
	err := d.watcher.Run(ctx, func() {
		select {
		case d.changed <- struct{}{}:
		default: // one is waiting already
		}
	})
	if err != nil && ctx.Err() == nil {
		d.logger.Error("the config file is not watched any more; send SIGHUP after a change", "file", d.opts.ConfigPath, "error", err)
	}
}

// begin puts the config in place that the daemon starts with.
func (d *Daemon) begin(ctx context.Context) {
	st := d.state.Load()
	next := &state{config: st.config, servers: map[string]*server{}}
	for name, c := range st.config.Servers {
		if !c.Disabled {
			next.servers[name] = d.newServer(ctx, c)
		}
	}
	d.publish(next)
}

// reloadLoop is the only writer of the state from here on.
// New servers live as long as serverCtx.
func (d *Daemon) reloadLoop(ctx, serverCtx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
			d.reload(serverCtx, "the file changed")
		case <-d.opts.Reload:
			d.reload(serverCtx, "a signal asked for it")
		case r := <-d.reloads:
			r.reply <- d.reload(serverCtx, "a command asked for it")
		}
	}
}

// notEmptied refuses a file without any server in place of one that had some:
// it is most likely one that an editor has truncated and not written yet.
func notEmptied(cur, updated *config.Config) error {
	if len(updated.Servers) > 0 || len(cur.Servers) == 0 {
		return nil
	}
	data, err := os.ReadFile(updated.Path)
	if err != nil || len(bytes.TrimSpace(data)) > 0 {
		return err
	}
	return fmt.Errorf("%s is empty; to remove all servers leave at least a comment in it", updated.Path)
}

// reload reads the config file and puts it in place. A file that is not right
// changes nothing.
func (d *Daemon) reload(ctx context.Context, why string) control.Reload {
	cur := d.state.Load()
	updated, err := config.Load(cur.config.Path, d.opts.Environment)
	if err == nil {
		err = notEmptied(cur.config, updated)
	}
	if err != nil {
		r := control.Reload{At: time.Now(), Error: err.Error(), Problems: Problems(err)}
		for _, p := range r.Problems {
			d.logger.Error("the config file has an error; nothing changes", "at", p.Place(), "error", p.Message, "hint", p.Hint)
		}
		if len(r.Problems) == 0 {
			d.logger.Error("the config file cannot be read; nothing changes", "error", err)
		}
		next := *cur
		next.lastReload = &r
		d.state.Store(&next)
		return r
	}
	change := config.Diff(cur.config, updated)
	r := control.Reload{
		At: time.Now(), OK: true,
		Added: change.Added, Removed: change.Removed, Replaced: change.Replaced, Retuned: change.Retuned,
		RestartNeeded: config.Diff(d.started, updated).RestartNeeded,
	}
	next := &state{
		config: updated, servers: maps.Clone(cur.servers),
		lastReload: &r, restartNeeded: r.RestartNeeded,
	}
	var leaving []*server
	for _, name := range change.Removed {
		leaving = append(leaving, next.servers[name])
		delete(next.servers, name)
	}
	for _, s := range leaving {
		d.gone[s.name] = s.done
	}
	for _, name := range change.Added {
		next.servers[name] = d.newServer(ctx, updated.Servers[name])
	}
	if change.SecurityChanged {
		d.gate.SetPolicy(d.policy(updated))
		d.endpoint.SetMaxRequestBytes(updated.Security.MaxRequestBytes)
	}
	if change.LedgerChanged {
		d.ledger.SetLimits(ledgerLimits(updated))
	}
	if d.opts.Level != nil {
		d.opts.Level.Set(updated.Daemon.LogLevel)
	}
	d.publish(next)
	for _, name := range slices.Concat(change.Replaced, change.Retuned) {
		next.servers[name].apply(updated.Servers[name])
	}
	for _, s := range leaving {
		s.upstream.Close()
		s.stop()
	}
	if change.Empty() {
		d.logger.Debug("the config was read again and is the same", "because", why)
	} else {
		d.logger.Info("the config was read again", "because", why, "added", r.Added, "removed", r.Removed,
			"replaced", r.Replaced, "retuned", r.Retuned)
	}
	if len(r.RestartNeeded) > 0 {
		d.logger.Warn("some changes wait for a restart of mcpd", "keys", r.RestartNeeded)
	}
	return r
}

// publish makes a state the current one: for requests, then for everyone else.
func (d *Daemon) publish(st *state) {
	upstreams := make(map[string]*bridge.Upstream, len(st.servers))
	for name, s := range st.servers {
		upstreams[name] = s.upstream
	}
	d.endpoint.SetUpstreams(upstreams)
	d.state.Store(st)
}

// newServer makes a server and starts its goroutine.
func (d *Daemon) newServer(ctx context.Context, c config.Server) *server {
	after := d.gone[c.Name]
	log := childlog.Open(childlog.Options{
		Path:   filepath.Join(d.opts.StateDir, "logs", c.Name+".log"),
		Logger: d.logger,
	})
	s := newServer(serverOptions{
		config: c, memory: d.memory, environ: d.environ, after: after,
		log: log, ledger: d.ledger, sealer: d.sealer, version: d.opts.Version, logger: d.logger,
	})
	ctx, cancel := context.WithCancel(ctx)
	s.stop = cancel
	d.serverGroup.Go(func() {
		defer cancel()
		s.run(ctx)
		cancel() // no process is left that could answer a call
		s.upstream.End(ctx)
		if err := log.Close(); err != nil {
			d.logger.Warn("the log of a server was not closed properly", "server", c.Name, "error", err)
		}
		close(s.done)
	})
	return s
}

// Problems lists what is wrong with a config file, where err tells.
func Problems(err error) []control.Problem {
	var errs config.Errors
	if !errors.As(err, &errs) {
		return nil
	}
	list := make([]control.Problem, len(errs))
	for i, p := range errs {
		list[i] = control.Problem{File: p.File, Line: p.Line, Column: p.Column, Message: p.Message, Hint: p.Hint}
	}
	return list
}
