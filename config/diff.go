package config

import (
	"maps"
	"slices"
)

// Change is what differs between two configurations. The lists are sorted, and a server is in at most one of them.
type Change struct {
	// Added and Removed servers exist, enabled, only in the new or only in the old configuration: to enable a server
	// adds it.
	Added, Removed []string
	// Replaced servers need a new process: their command line, variables, folder or protocol changed.
	Replaced []string
	// Retuned servers changed in limits and policy only; the process stays.
	Retuned []string
	// SecurityChanged, DaemonChanged and LedgerChanged say that the table differs.
	SecurityChanged, DaemonChanged, LedgerChanged bool
	// RestartNeeded names the changed keys that the daemon reads only once, at its start.
	RestartNeeded []string
}

// Empty says that nothing has to be done.
func (c Change) Empty() bool {
	return len(c.Added)+len(c.Removed)+len(c.Replaced)+len(c.Retuned) == 0 && !c.SecurityChanged && !c.DaemonChanged && !c.LedgerChanged
}

// Diff compares what the configurations mean: expanded values, not how they are written. Two servers that are both
// disabled never differ. A nil configuration counts as one without servers and with the default settings.
func Diff(old, updated *Config) Change {
	if old == nil {
		old = emptyConfig()
	}
	if updated == nil {
		updated = emptyConfig()
	}
	var c Change
	for _, name := range slices.Sorted(maps.Keys(updated.Servers)) {
		after := updated.Servers[name]
		before, existed := old.Servers[name]
		existed = existed && !before.Disabled
		switch {
		case after.Disabled && existed:
			c.Removed = append(c.Removed, name)
		case after.Disabled:
		case !existed:
			c.Added = append(c.Added, name)
		case !sameProcess(before, after):
			c.Replaced = append(c.Replaced, name)
		case !sameTuning(before, after):
			c.Retuned = append(c.Retuned, name)
		}
	}
	for name, before := range old.Servers {
		if _, stays := updated.Servers[name]; !stays && !before.Disabled {
			c.Removed = append(c.Removed, name)
		}
	}
	slices.Sort(c.Removed)
	c.SecurityChanged = !sameSecurity(old.Security, updated.Security)
	c.DaemonChanged = old.Daemon != updated.Daemon
	c.LedgerChanged = old.Ledger != updated.Ledger
	if old.Daemon.Listen != updated.Daemon.Listen {
		c.RestartNeeded = append(c.RestartNeeded, tableDaemon+".listen")
	}
	if old.Daemon.LoginEnv != updated.Daemon.LoginEnv {
		c.RestartNeeded = append(c.RestartNeeded, tableDaemon+".login_shell_env")
	}
	return c
}

func emptyConfig() *Config {
	return &Config{Daemon: withDefaults(daemonOptions()), Security: withDefaults(securityOptions()), Ledger: withDefaults(ledgerOptions())}
}

// sameProcess says whether the process of one configuration serves the other.
func sameProcess(a, b Server) bool {
	return a.Command == b.Command &&
		slices.Equal(a.Args, b.Args) &&
		maps.Equal(a.Env, b.Env) &&
		a.Cwd == b.Cwd &&
		a.Protocol == b.Protocol &&
		a.Interactive == b.Interactive // a legacy server is told in its handshake
}

// sameTuning compares every key that sameProcess does not. It goes by the table of keys, so that a new key cannot be
// forgotten; how the command line is written makes no difference.
func sameTuning(a, b Server) bool {
	a.Raw, b.Raw = Raw{}, Raw{}
	for _, o := range serverOptions() {
		if showField(o.field(&a)) != showField(o.field(&b)) {
			return false
		}
	}
	return true
}

func sameSecurity(a, b Security) bool {
	return slices.Equal(a.AllowedOrigins, b.AllowedOrigins) &&
		slices.Equal(a.AllowedHosts, b.AllowedHosts) &&
		a.MaxRequestBytes == b.MaxRequestBytes
}
