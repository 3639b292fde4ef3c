package daemon

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/supervisor"
	"mcpd/supervisor/childlog"
)

var _ control.Daemon = (*Daemon)(nil)

// Tokens implements control.Daemon.
func (d *Daemon) Tokens() control.Tokens { return control.Tokens{Store: d.tokens} }

// Status implements control.Daemon.
func (d *Daemon) Status() control.Status {
	now := time.Now()
	st := d.state.Load()
	info := d.instance.Info()
	s := control.Status{
		Version:          info.Version,
		PID:              info.PID,
		StartedAt:        info.StartedAt,
		UptimeSeconds:    now.Sub(info.StartedAt).Seconds(),
		ConfigPath:       st.config.Path,
		StateDir:         d.opts.StateDir,
		LastReload:       st.lastReload,
		RestartNeeded:    st.restartNeeded,
		EnvironmentError: d.environ.problem(),
		Refused:          d.gate.Refusals(),
		Ledger:           d.ledgerStatus(),
		Servers:          []control.Server{},
	}
	for _, l := range d.listeners {
		s.Listen = append(s.Listen, l.Addr().String())
	}
	for _, name := range slices.Sorted(maps.Keys(st.config.Servers)) {
		cs := control.Server{Name: name, State: control.StateDisabled}
		if sv, ok := st.servers[name]; ok {
			cs = sv.status(now)
			cs.URL = "http://" + d.Addr() + "/servers/" + name + "/" + endpointOfServer
			if st.config.Servers[name].LegacySessions {
				cs.LegacyURL = "http://" + d.Addr() + "/servers/" + name + "/" + endpointWithSessions
			}
		}
		s.Servers = append(s.Servers, cs)
	}
	return s
}

// server finds a server by name.
func (d *Daemon) server(name string) (*server, error) {
	st := d.state.Load()
	if s, ok := st.servers[name]; ok {
		return s, nil
	}
	if _, ok := st.config.Servers[name]; ok {
		return nil, &control.Error{
			Status: http.StatusConflict, Message: "server " + name + " is disabled",
			Hint: "take out disabled = true from [servers." + name + "] in " + st.config.Path,
		}
	}
	e := control.Errorf(http.StatusNotFound, "there is no server %q", name)
	if names := slices.Sorted(maps.Keys(st.config.Servers)); len(names) > 0 {
		e.Hint = "the config has: " + strings.Join(names, ", ")
	} else {
		e.Hint = "the config has no servers: " + st.config.Path
	}
	return nil, e
}

// act does something with a server's child.
func (d *Daemon) act(ctx context.Context, name string, anew bool, do func(*supervisor.Server[session], context.Context) error) error {
	s, err := d.server(name)
	if err != nil {
		return err
	}
	child, err := s.whenStarted(ctx)
	if err == nil {
		if anew {
			s.startAnew()
		}
		err = do(child, ctx)
	}
	if err == nil {
		return nil
	}
	e := &control.Error{Status: http.StatusBadGateway, Message: err.Error(), Hint: "mcpd logs " + name + " shows what the server says"}
	var u *supervisor.UnavailableError
	if errors.As(err, &u) {
		e.Message = "server " + name + " is not ready (" + string(u.State) + "): " + u.Reason
	}
	return e
}

// StartServer implements control.Daemon.
func (d *Daemon) StartServer(ctx context.Context, name string) error {
	return d.act(ctx, name, true, (*supervisor.Server[session]).Start)
}

// StopServer implements control.Daemon.
func (d *Daemon) StopServer(ctx context.Context, name string) error {
	return d.act(ctx, name, false, (*supervisor.Server[session]).Stop)
}

// RestartServer implements control.Daemon.
func (d *Daemon) RestartServer(ctx context.Context, name string) error {
	return d.act(ctx, name, true, (*supervisor.Server[session]).Restart)
}

// Logs implements control.Daemon.
func (d *Daemon) Logs(ctx context.Context, name string, n int, follow bool) (iter.Seq[control.LogLine], error) {
	s, err := d.server(name)
	if err != nil {
		return nil, err
	}
	if !follow {
		return func(yield func(control.LogLine) bool) {
			for _, l := range s.log.Tail(n) {
				if !yield(logLine(l)) {
					return
				}
			}
		}, nil
	}
	return func(yield func(control.LogLine) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var group sync.WaitGroup
		defer group.Wait()
		defer cancel()
		group.Go(func() {
			select {
			case <-d.stopping:
				cancel()
			case <-ctx.Done():
			}
		})
		for l := range s.log.Follow(ctx, n) {
			if !yield(logLine(l)) {
				return
			}
		}
	}, nil
}

func logLine(l childlog.Line) control.LogLine {
	return control.LogLine{Time: l.Time, Stream: string(l.Stream), Text: l.Text}
}

// Reload implements control.Daemon.
func (d *Daemon) Reload(ctx context.Context) (control.Reload, error) {
	req := reloadRequest{reply: make(chan control.Reload, 1)}
	select {
	case d.reloads <- req:
		return <-req.reply, nil
	case <-d.stopping:
		return control.Reload{}, control.Errorf(http.StatusServiceUnavailable, "the daemon is stopping")
	case <-ctx.Done():
		return control.Reload{}, ctx.Err()
	}
}
