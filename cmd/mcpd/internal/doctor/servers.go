package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/config"
	"mcpd/supervisor"
)

// atOnce is how many servers are started at the same time.
const atOnce = 3

// checkServers asks the daemon how the servers are, or starts each one.
func (d *doctor) checkServers(ctx context.Context) {
	if d.status != nil {
		for _, s := range d.status.Servers {
			d.judge(s)
		}
		return
	}
	servers := slices.DeleteFunc(d.servers(false), func(s config.Server) bool { return d.broken[s.Name] })
	switch {
	case len(servers) == 0:
		return
	case d.running:
		d.skip("servers", "the daemon that runs could not be asked, and they are not started a second time")
		return
	case d.ServerTimeout == 0:
		d.skip("servers", "they were not started, as you wished")
		return
	case d.trial == nil:
		return
	}
	found := make([]chan Finding, len(servers))
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, s := range servers {
		found[i] = make(chan Finding, 1)
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found[i] <- d.try(ctx, s)
		})
	}
	for _, f := range found {
		if finding := <-f; ctx.Err() == nil {
			d.emit(finding)
		}
	}
	group.Wait()
}

// try starts one server.
func (d *doctor) try(ctx context.Context, s config.Server) Finding {
	check := "server " + s.Name
	ctx, cancel := context.WithTimeoutCause(ctx, d.ServerTimeout, fmt.Errorf("it did not answer within %s", d.ServerTimeout))
	defer cancel()
	st, err := d.trial.Start(ctx, s)
	if err == nil {
		return Finding{Check: check, Result: OK, Summary: "started for a trial; " + greeting(st)}
	}
	reason := err.Error()
	var unavailable *supervisor.UnavailableError
	if errors.As(err, &unavailable) {
		reason = unavailable.Reason
	}
	if ctx.Err() != nil {
		reason = context.Cause(ctx).Error()
	}
	return failure(check, "it does not work: "+reason, st.StderrTail, s.Raw.Command)
}

// greeting says who answered.
func greeting(s control.Server) string {
	who := strings.TrimSpace(s.ServerName + " " + s.ServerVersion)
	if who == "" {
		who = "a server that does not tell its name"
	}
	return fmt.Sprintf("%s answers with protocol %s", who, s.ProtocolVersion)
}

func failure(check, summary string, stderr []string, command string) Finding {
	if len(stderr) > 0 { // said below, in full
		summary, _, _ = strings.Cut(summary, "; stderr: ")
	}
	f := Finding{Check: check, Result: Trouble, Summary: summary}
	const last = 8
	if n := len(stderr); n > last {
		stderr = stderr[n-last:]
	}
	for _, l := range stderr {
		f.Details = append(f.Details, "stderr: "+l)
	}
	f.Mend = []string{"see what it writes: mcpd logs NAME, or start it by hand with its arguments"}
	if command != "" {
		f.Mend = []string{"start it by hand, with its arguments and variables, and see what it says: " + command}
	}
	return f
}

// judge reads the daemon's word on a server.
func (d *doctor) judge(s control.Server) {
	check := "server " + s.Name
	switch s.State {
	case "ready":
		if s.ReloadError != "" {
			d.trouble(check, "its changed config does not work, so the process from before goes on", []string{s.ReloadError}, []string{"correct its table in the config"})
			return
		}
		d.ok(check, "ready; "+greeting(s))
	case "failed", "backoff":
		f := failure(check, "it does not work: "+s.LastError, s.StderrTail, "")
		f.Mend = []string{"mcpd logs " + s.Name + " shows all that it wrote; after mending: mcpd restart " + s.Name}
		d.emit(f)
	case control.StateDisabled:
		d.skip(check, "it is disabled in the config")
	default:
		d.ok(check, s.State)
	}
}
