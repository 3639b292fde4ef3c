package service

import (
	"fmt"
	"strings"
)

// marker begins every file that Install writes: what does not have it is not
// mcpd's to change.
const marker = "Written by `mcpd service install`"

// PackagedUnit is the user unit that a package installs for every user, and
// enables for none. mcpd service install puts one of the user's own in front of
// it, with that user's paths and port.
func PackagedUnit(executable string) []byte {
	unit := string(renderUnit(Definition{Executable: executable}))
	_, unit, _ = strings.Cut(unit, "\n") // who wrote it
	unit = strings.Replace(unit, quoted(executable)+" run\n", quoted(executable)+" run --init\n", 1)
	return []byte("# Part of the package of mcpd. Your own settings: systemctl --user edit mcpd\n" + unit)
}

// renderUnit renders the systemd service unit.
func renderUnit(d Definition) []byte {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	scope := "systemctl --user edit mcpd"
	if d.system() {
		scope = "systemctl edit mcpd"
	}
	p("# %s, which writes it anew. Your own settings: %s", marker, scope)
	p("[Unit]")
	p("Description=%s", description)
	p("Documentation=man:mcpd(1)")
	if d.system() {
		p("After=network.target")
	}
	if len(d.Listen) > 0 {
		p("Wants=%s.socket", Name)
		p("After=%s.socket", Name)
	}
	p("# After an uninstalled package nothing is left to start, and that is no failure.")
	p("ConditionFileIsExecutable=%s", specifiers(d.Executable))
	p("StartLimitIntervalSec=120")
	p("StartLimitBurst=10")
	p("")
	p("[Service]")
	p("Type=notify")
	p("NotifyAccess=main")
	p("ExecStart=%s run", quoted(d.Executable))
	p("ExecReload=kill -HUP $MAINPID")
	if d.ConfigPath != "" {
		p("Environment=%s", quoted("MCPD_CONFIG="+d.ConfigPath))
	}
	if d.StateDir != "" {
		p("Environment=%s", quoted("MCPD_STATE_DIR="+d.StateDir))
	}
	if d.system() {
		p("User=%s", specifiers(d.User))
		p("WorkingDirectory=~")
	}
	p("Restart=on-failure")
	p("RestartSec=2")
	p("WatchdogSec=60")
	p("TimeoutStartSec=60")
	p("# Calls in flight get drain_timeout to finish, then each server is stopped in steps.")
	p("TimeoutStopSec=120")
	p("# mcpd stops its servers itself; what is left after it is killed.")
	p("KillMode=mixed")
	p("# One server that runs out of memory takes down neither the daemon nor the others.")
	p("OOMPolicy=continue")
	p("LimitNOFILE=65536:524288")
	p("LimitCORE=0")
	p("TasksMax=8192")
	if d.AllowSetuid {
		p("# Servers may start setuid programs (sudo, snap), so no hardening that forbids it.")
	} else {
		p("# Forbids setuid programs to what runs here. Sandboxes by user namespace and")
		p("# just-in-time compilers work.")
		p("NoNewPrivileges=yes")
		p("SystemCallFilter=~@clock @module @raw-io @reboot @swap")
		p("SystemCallErrorNumber=EPERM")
		if d.system() {
			p("CapabilityBoundingSet=")
			p("ProtectSystem=full")
			p("RestrictSUIDSGID=yes")
		}
	}
	p("")
	p("[Install]")
	if d.system() {
		p("WantedBy=multi-user.target")
	} else {
		p("WantedBy=default.target")
	}
	return []byte(b.String())
}

// renderSocket renders the systemd socket unit, nil where there is nothing to
// hold.
func renderSocket(d Definition) []byte {
	if len(d.Listen) == 0 {
		return nil
	}
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# %s, which writes it anew.", marker)
	p("[Unit]")
	p("Description=The port of mcpd, held while mcpd is down")
	p("Documentation=man:mcpd(1)")
	p("")
	p("[Socket]")
	for _, a := range d.Listen {
		p("ListenStream=%s", a)
	}
	p("")
	p("[Install]")
	p("WantedBy=sockets.target")
	return []byte(b.String())
}

// specifiers keeps systemd from reading a % (systemd.unit(5), Specifiers).
func specifiers(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// quoted makes s one word (systemd.syntax(7), Quoting). In the first word of a
// command line and in Environment= a $ means nothing.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(specifiers(s)) + `"`
}
