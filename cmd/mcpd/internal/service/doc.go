// Package service makes mcpd a background service of the operating system: it
// installs, removes, starts, stops and describes it.
//
// By default the service is one user's: a systemd user unit, a launchd agent, a
// scheduled task at logon on Windows. A machine-wide one (systemd system unit,
// launchd daemon, Windows service) runs as a named user. There is none for other
// init systems: what github.com/kardianos/service writes for System V starts the
// daemon, and with it every server, as root.
//
// What is written for the service manager is rendered by pure functions from a
// [Definition]. An installation is all or nothing: where a step fails, what was
// there before is put back. The package reads no configuration and holds no
// secret; units, plists and tasks are readable by others.
//
// github.com/kardianos/service registers the unit with systemd and drives the
// Windows service manager. What it does not do is here: sockets that the manager
// holds, rollback, states that tell a crash loop from a running service, and a
// launchd that is spoken to in its present verbs.
package service
