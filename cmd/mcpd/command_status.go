package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/control"
)

const watchInterval = time.Second

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "status [NAME]",
		Short: "Show how the daemon and its servers are",
		Long: `Show how the daemon and its servers are: state, process, protocol era, what is in
flight, and what went wrong last. With NAME, show everything about one server.`,
		Example: `  mcpd status
  mcpd status files
  mcpd status --watch
  mcpd status --json | jq -r '.servers[] | select(.state != "ready") | .name'`,
		Args:              usage(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDaemon(cmd, func(ctx context.Context, c *connection) error {
				if !watch {
					return a.showStatus(ctx, c, args, "")
				}
				clear := ""
				if isTerminal(a.out) && !a.json {
					clear = "\x1b[H\x1b[2J"
				}
				tick := time.NewTicker(watchInterval)
				defer tick.Stop()
				for {
					if err := a.showStatus(ctx, c, args, clear); err != nil {
						if ctx.Err() != nil {
							return nil
						}
						return err
					}
					select {
					case <-ctx.Done():
						return nil
					case <-tick.C:
					}
				}
			})
		},
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again each second, until Ctrl-C")
	return cmd
}

func (a *app) showStatus(ctx context.Context, c *connection, args []string, before string) error {
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	paint := painter(a.out)
	var b strings.Builder
	b.WriteString(before)
	if len(args) == 0 {
		if a.json {
			return a.printJSON(st)
		}
		writeStatus(&b, st, now, paint)
	} else {
		s, err := serverIn(st, args[0])
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(s)
		}
		writeServer(&b, s, now, paint)
	}
	_, err = io.WriteString(a.out, b.String())
	return err
}

// serverIn finds a server in a status.
func serverIn(st control.Status, name string) (control.Server, error) {
	var names []string
	for _, s := range st.Servers {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	hint := "the config has: " + strings.Join(names, ", ")
	if len(names) == 0 {
		hint = "the config has no servers: " + st.ConfigPath
	}
	return control.Server{}, hinted{fmt.Errorf("there is no server %q", name), hint}
}

type paintFunc = func(colour, text string) string

func writeStatus(w io.Writer, st control.Status, now time.Time, paint paintFunc) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
	p("mcpd %s, process %d, up %s, on %s\n", st.Version, st.PID, span(st.UptimeSeconds), strings.Join(st.Listen, " and "))
	p("config %s", st.ConfigPath)
	switch r := st.LastReload; {
	case r == nil:
		p("\n")
	case r.OK:
		p(", read again %s ago\n", ago(now, r.At))
	default:
		p("\n%s\n", paint(red, "config: the file has errors, so the config from before is in effect:"))
		for l := range strings.Lines(r.Error) {
			p("  %s\n", strings.TrimRight(l, "\n"))
		}
	}
	if len(st.RestartNeeded) > 0 {
		p("%s\n", paint(yellow, "restart mcpd for the new value of "+strings.Join(st.RestartNeeded, ", ")))
	}
	if st.EnvironmentError != "" {
		p("%s\n", paint(yellow, "login shell: "+st.EnvironmentError))
	}
	if line := ledgerLine(st.Ledger, paint); line != "" {
		p("%s\n", line)
	}
	if len(st.Servers) == 0 {
		p("\nno servers are configured\n")
		return
	}
	rows := [][]cell{{
		{"NAME", faint},
		{"STATE", faint},
		{"PID", faint},
		{"UP", faint},
		{"ERA", faint},
		{"REQUESTS", faint},
		{"IN FLIGHT", faint},
		{"LISTENERS", faint},
		{"RESTARTS", faint},
	}}
	for _, s := range st.Servers {
		pid, up := "-", "-"
		if s.PID != 0 {
			pid, up = strconv.Itoa(s.PID), span(s.UptimeSeconds)
		}
		rows = append(rows, []cell{
			{s.Name, ""},
			{s.State, stateColour(s.State)},
			{pid, ""},
			{up, ""},
			{cmp.Or(s.Era, "-"), ""},
			{strconv.FormatUint(s.Requests, 10), ""},
			{strconv.Itoa(s.InFlight), ""},
			{strconv.Itoa(s.Listeners), ""},
			{strconv.FormatUint(s.Restarts, 10), ""},
		})
	}
	p("\n")
	writeTable(w, rows, paint)
	for _, s := range st.Servers {
		if n := note(s, now); n != "" {
			p("%s %s\n", paint(stateColour(s.State), s.Name+":"), n)
		}
	}
}

// note says what the table cannot: why a server is not well.
func note(s control.Server, now time.Time) string {
	var parts []string
	switch {
	case s.Installing && len(s.StderrTail) > 0:
		parts = append(parts, "installing? "+s.StderrTail[len(s.StderrTail)-1])
	case s.Installing:
		parts = append(parts, "installing?")
	case s.State == "backoff" || s.State == "failed" || s.State == "starting" && s.LastError != "":
		parts = append(parts, cmp.Or(s.LastError, "no reason is known"))
	}
	if s.NextTry != nil && s.NextTry.After(now) {
		parts = append(parts, "next try in "+span(s.NextTry.Sub(now).Seconds()))
	}
	if s.Reloading {
		parts = append(parts, "a changed config is being put in place")
	}
	if s.ReloadError != "" {
		parts = append(parts, "the changed config is not in effect: "+s.ReloadError)
	}
	return printable(strings.Join(parts, "; "))
}

func writeServer(w io.Writer, s control.Server, now time.Time, paint paintFunc) {
	p := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s %s\n", paint(faint, pad(name+":", 15)), fmt.Sprintf(format, args...))
	}
	p("server", "%s", s.Name)
	if s.URL != "" {
		p("url", "%s", s.URL)
	}
	if s.LegacyURL != "" {
		p("legacy url", "%s, %d sessions", s.LegacyURL, s.LegacySessions)
	}
	state := paint(stateColour(s.State), s.State)
	if s.Since != nil {
		state += " for " + ago(now, *s.Since)
	}
	p("state", "%s", state)
	if s.PID != 0 {
		p("process", "%d, up %s", s.PID, span(s.UptimeSeconds))
	}
	if s.Era != "" {
		p("protocol", "%s (%s)", s.ProtocolVersion, s.Era)
	}
	if s.ServerName != "" {
		p("calls itself", "%s %s", printable(s.ServerName), printable(s.ServerVersion))
	}
	p("requests", "%d, %d in flight, %d refused or failed", s.Requests, s.InFlight, s.Errors)
	if s.Questions > 0 {
		p("questions", "%d of the requests in flight wait until a client answers the server", s.Questions)
	}
	if s.Repeats+s.RepeatsRefused > 0 {
		p("repeats", "%d by mcpd after a loss, %d more not because of max_repeats_per_minute", s.Repeats, s.RepeatsRefused)
	}
	p("subscriptions", "%d listeners, %d at the server", s.Listeners, s.UpstreamSubscriptions)
	p("restarts", "%d", s.Restarts)
	if e := s.LastExit; e != nil {
		how := "exit code " + strconv.Itoa(e.Code)
		switch {
		case e.Signal != "":
			how = "signal " + e.Signal
		case e.Code < 0:
			how = "it did not run"
		}
		p("last exit", "%s ago, %s", ago(now, e.At), how)
		if e.Reason != "" {
			p("because", "%s", printable(e.Reason))
		}
	}
	if n := note(s, now); n != "" {
		p("note", "%s", n)
	}
	if len(s.StderrTail) > 0 {
		p("stderr", "%s", "the last lines")
		for _, l := range s.StderrTail {
			_, _ = fmt.Fprintf(w, "  %s\n", printable(l))
		}
	}
}

func stateColour(state string) string {
	switch state {
	case "ready":
		return green
	case "failed", "backoff":
		return red
	case "starting", "draining", control.StateWaiting:
		return yellow
	default:
		return faint
	}
}

// cell is one field of a table.
type cell struct{ text, colour string }

func writeTable(w io.Writer, rows [][]cell, paint paintFunc) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, c := range row {
			text := c.text
			if i < len(row)-1 {
				text = pad(text, widths[i]+2)
			}
			b.WriteString(paint(c.colour, text))
		}
		_, _ = fmt.Fprintln(w, b.String())
	}
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s))) }

func ago(now, t time.Time) string { return span(now.Sub(t).Seconds()) }

// span writes a number of seconds with the two units that matter.
func span(seconds float64) string {
	d := time.Duration(max(seconds, 0) * float64(time.Second))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
