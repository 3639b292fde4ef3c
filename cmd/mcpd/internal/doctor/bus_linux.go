package doctor

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// checkBus sees whether the user's systemd can be reached, which mcpd as a
// service of the user needs.
func (d *doctor) checkBus(ctx context.Context) {
	const check = "systemd"
	if isMissing("/run/systemd/system") {
		d.skip(check, "this system was not started by systemd")
		return
	}
	uid := strconv.Itoa(os.Getuid())
	usual := "/run/user/" + uid
	dir, set := "", false
	if d.Environment.Getenv != nil {
		dir, set = d.Environment.Getenv("XDG_RUNTIME_DIR")
	}
	name := uid
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	linger := fmt.Sprintf("loginctl enable-linger %s keeps your systemd running also when you are not logged in", name)
	var what string
	var mend []string
	switch {
	case (!set || dir == "") && isMissing(usual):
		what, mend = "your systemd is not running: there is no "+usual, []string{linger}
	case !set || dir == "":
		what, mend = "XDG_RUNTIME_DIR is not set, so your systemd cannot be found (after su or sudo, it never is)",
			[]string{"log in properly (machinectl shell " + name + "@), or: export XDG_RUNTIME_DIR=" + usual}
	case isMissing(dir):
		what, mend = "XDG_RUNTIME_DIR is "+dir+", which does not exist", []string{"export XDG_RUNTIME_DIR=" + usual, linger}
	default:
		socket := filepath.Join(dir, "systemd", "private")
		if err := dialable(ctx, socket); err != nil {
			what, mend = fmt.Sprintf("your systemd does not answer at %s: %s", socket, err), []string{linger}
		}
	}
	installed := !isMissing(filepath.Join(d.Environment.Home, ".config", "systemd", "user", "mcpd.service"))
	switch {
	case what != "" && installed:
		d.trouble(check, what, []string{"mcpd is installed as a service of yours"}, mend)
	case what != "":
		d.note(check, what+"; mcpd run works without it, mcpd as a service does not", mend...)
	case installed && isMissing("/var/lib/systemd/linger/"+name):
		d.note(check, "your systemd can be reached; mcpd ends when you log out", linger)
	default:
		d.ok(check, "your systemd can be reached")
	}
}
