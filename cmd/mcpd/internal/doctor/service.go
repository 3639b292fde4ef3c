package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"mcpd/cmd/mcpd/internal/service"
)

const managerTimeout = 10 * time.Second

// checkService asks the service manager of the system about mcpd.
func (d *doctor) checkService(ctx context.Context) {
	const check = "service"
	if d.Service == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	st, err := d.Service(ctx)
	if err != nil {
		d.skip(check, err.Error())
		return
	}
	if st.Held {
		d.held = st.Socket
	}
	var details, mend []string
	if st.Detail != "" {
		details = append(details, st.Detail)
	}
	if st.Hint != "" {
		mend = append(mend, st.Hint)
	}
	switch st.State {
	case service.Failed, service.Restarting:
		d.trouble(check, fmt.Sprintf("mcpd as a service of %s is %s", st.Manager, st.State), details, mend)
	case service.Unreachable:
		if d.hasUnit() {
			d.trouble(check, "mcpd is installed as a service, but "+st.Manager+" cannot be reached", details, mend)
			return
		}
		d.note(check, st.Manager+" cannot be reached, so mcpd cannot be installed as a service from here; mcpd run works without it", mend...)
	case service.NotInstalled:
		d.note(check, "mcpd is not installed as a service, so it does not start by itself", mend...)
	case service.Stopped:
		d.note(check, "mcpd as a service of "+st.Manager+" is stopped", mend...)
	default:
		switch {
		case !st.Enabled:
			d.note(check, fmt.Sprintf("%s as a service of %s, but it does not start by itself", st.State, st.Manager), "mcpd service install enables it")
		case st.Linger != nil && !*st.Linger:
			d.note(check, fmt.Sprintf("%s as a service of %s; it ends when you log out", st.State, st.Manager),
				"to have it run without a session: sudo loginctl enable-linger "+filepath.Base(d.Environment.Home))
		default:
			d.ok(check, fmt.Sprintf("%s as a service of %s", st.State, st.Manager))
		}
	}
}

// hasUnit says whether a unit of the user's systemd is there, which can be seen
// without asking it.
func (d *doctor) hasUnit() bool {
	_, err := os.Stat(filepath.Join(d.Environment.Home, ".config", "systemd", "user", service.Name+".service"))
	return err == nil
}
