package service

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"mcpd/cmd/mcpd/internal/service/socket"
)

// renderPlist renders the launchd job. launchd keeps no log, so the daemon
// writes and rotates its own; what it says before that is in a file beside it.
func renderPlist(d Definition) []byte {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	key := func(k string) { p("\t<key>%s</key>", k) }
	str := func(k, v string) { key(k); p("\t<string>%s</string>", escape(v)) }
	integer := func(k string, v int) { key(k); p("\t<integer>%d</integer>", v) }

	p(`<?xml version="1.0" encoding="UTF-8"?>`)
	p(`<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">`)
	p("<!-- %s, which writes it anew. -->", marker)
	p(`<plist version="1.0">`)
	p("<dict>")
	str("Label", Label)
	key("ProgramArguments")
	p("\t<array>")
	for _, a := range []string{d.Executable, "service", "run", "--log-file", d.LogFile()} {
		p("\t\t<string>%s</string>", escape(a))
	}
	p("\t</array>")
	key("EnvironmentVariables")
	p("\t<dict>")
	p("\t\t<key>MCPD_CONFIG</key>")
	p("\t\t<string>%s</string>", escape(d.ConfigPath))
	p("\t\t<key>MCPD_STATE_DIR</key>")
	p("\t\t<string>%s</string>", escape(d.StateDir))
	p("\t</dict>")
	if d.system() {
		str("UserName", d.User)
	} else {
		// With the user's own rights and keychain, in the graphical session and
		// without one.
		key("LimitLoadToSessionType")
		p("\t<array>")
		p("\t\t<string>Aqua</string>")
		p("\t\t<string>Background</string>")
		p("\t</array>")
	}
	str("WorkingDirectory", d.Home)
	key("RunAtLoad")
	p("\t<true/>")
	// launchd listens from login on, and mcpd takes over: no other program gets
	// the port while mcpd is down, and who calls meanwhile waits.
	if len(d.Listen) > 0 {
		key("Sockets")
		p("\t<dict>")
		p("\t\t<key>%s</key>", socket.LaunchdName)
		p("\t\t<array>")
		for _, a := range d.Listen {
			p("\t\t\t<dict>")
			for _, e := range [][2]string{
				{"SockNodeName", a.Addr().String()},
				{"SockServiceName", strconv.Itoa(int(a.Port()))},
				{"SockFamily", map[bool]string{true: "IPv4", false: "IPv6"}[a.Addr().Is4()]},
				{"SockType", "stream"},
			} {
				p("\t\t\t\t<key>%s</key>", e[0])
				p("\t\t\t\t<string>%s</string>", e[1])
			}
			p("\t\t\t</dict>")
		}
		p("\t\t</array>")
		p("\t</dict>")
	}
	// Started again after a crash and after an exit code other than 0, but not
	// after `mcpd service stop`.
	key("KeepAlive")
	p("\t<dict>")
	p("\t\t<key>SuccessfulExit</key>")
	p("\t\t<false/>")
	p("\t</dict>")
	integer("ThrottleInterval", 5)
	integer("ExitTimeOut", 120)
	str("ProcessType", "Interactive") // editors wait for it: no throttling
	key("SoftResourceLimits")
	p("\t<dict>")
	p("\t\t<key>NumberOfFiles</key>")
	p("\t\t<integer>65536</integer>")
	p("\t\t<key>Core</key>")
	p("\t\t<integer>0</integer>")
	p("\t</dict>")
	str("StandardOutPath", bootLog(d))
	str("StandardErrorPath", bootLog(d))
	p("</dict>")
	p("</plist>")
	return []byte(b.String())
}

// bootLog takes what the daemon says before its own log is open, and a panic.
func bootLog(d Definition) string {
	return filepath.Join(filepath.Dir(d.LogFile()), "mcpd.start.log")
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a Buffer takes everything
	return b.String()
}
