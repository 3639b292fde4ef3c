package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpd/cmd/mcpd/internal/daemon"
	"mcpd/cmd/mcpd/internal/instance"
)

const statusTimeout = 5 * time.Second

func (d *doctor) checkDaemon(ctx context.Context) {
	const check = "daemon"
	info, err := instance.Find(d.StateDir)
	if errors.Is(err, instance.ErrNotRunning) {
		if _, err := os.Stat(filepath.Join(d.StateDir, "daemon.json")); err == nil {
			d.note(check, "mcpd is not running; the last one did not end by itself (it was killed, or the computer went off)",
				"start it: mcpd run; what it left behind does no harm")
			return
		}
		d.note(check, "mcpd is not running", "start it: mcpd run")
		return
	}
	if err != nil {
		d.trouble(check, err.Error(), nil, nil)
		return
	}
	d.running, d.info = true, info
	if info.Address == "" {
		d.note(check, "mcpd is just starting, or about to end", "look again in a moment")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	st, err := d.Status(ctx)
	if err != nil {
		d.trouble(check, fmt.Sprintf("mcpd (process %d, on %s) does not answer as it should", info.PID, info.Address), []string{err.Error()},
			[]string{"see its log; if it hangs, end it and start it again: mcpd run"})
		return
	}
	d.status = &st
	var details, mend []string
	if st.ConfigPath != d.ConfigPath && !sameFile(st.ConfigPath, d.ConfigPath) {
		details = append(details, "it runs with another config than this one: "+st.ConfigPath)
		mend = append(mend, "say --config FILE, or restart mcpd with the config that you mean")
	}
	if r := st.LastReload; r != nil && !r.OK {
		details = append(details, "it could not take over the last change of its config and goes on with the one from before:")
		for l := range strings.Lines(r.Error) {
			details = append(details, "  "+strings.TrimRight(l, "\n"))
		}
		mend = append(mend, "correct the file")
	}
	if len(details) > 0 {
		d.trouble(check, "mcpd runs, but not with what the config file says", details, mend)
		return
	}
	if len(st.RestartNeeded) > 0 {
		d.note(check, "mcpd runs, and needs a restart for the new value of "+strings.Join(st.RestartNeeded, ", "), "restart it")
		return
	}
	if st.Version != d.Version {
		d.note(check, fmt.Sprintf("mcpd %s runs, but this is mcpd %s", st.Version, d.Version), "restart it to use the new version")
		return
	}
	d.ok(check, fmt.Sprintf("mcpd %s runs, process %d, on %s", st.Version, st.PID, strings.Join(st.Listen, " and ")))
}

func sameFile(a, b string) bool {
	ia, errA := os.Stat(a)
	ib, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(ia, ib)
}

// checkPort sees whether mcpd could listen where the config wants it to.
func (d *doctor) checkPort(ctx context.Context) {
	const check = "port"
	if d.config == nil {
		return
	}
	addr := d.config.Daemon.Listen
	if addr.Port() == 0 {
		d.note(check, "the system picks another port at each start", `programs find mcpd more easily with a fixed one: [daemon] listen = "127.0.0.1:7317"`)
		return
	}
	if d.running && d.status != nil {
		for _, l := range d.status.Listen {
			if l == addr.String() {
				d.ok(check, "mcpd itself listens on "+l)
				return
			}
		}
	}
	if slices.Contains(d.held, addr.String()) {
		d.ok(check, "the service manager holds "+addr.String()+" for mcpd")
		return
	}
	err := daemon.CanListen(ctx, addr)
	var taken *daemon.PortTakenError
	switch {
	case err == nil:
		d.ok(check, addr.String()+" is free")
	case errors.As(err, &taken):
		var details []string
		if who := taken.Owner.String(); who != "" {
			details = append(details, "it is "+who)
		}
		d.trouble(check, fmt.Sprintf("another program listens on %s", taken.Addr), details, []string{taken.Hint()})
	default:
		d.trouble(check, err.Error(), nil, []string{`set another address: [daemon] listen = "127.0.0.1:PORT"`})
	}
}
