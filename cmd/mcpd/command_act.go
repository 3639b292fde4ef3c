package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// actCommand makes start, stop and restart.
func (a *app) actCommand(action, short string) *cobra.Command {
	long := map[string]string{
		"start": `Start a server, and wait until it is ready. Earlier crashes are forgiven. A
server that runs already is left alone.`,
		"stop": `Stop a server after the calls in flight, and keep it stopped: requests to it are
refused until it is started again, or mcpd is.`,
		"restart": `Stop a server's process after the calls in flight, start a new one, and wait
until it is ready. Open listen streams stay open. Earlier crashes are forgiven.`,
	}[action]
	return a.jsonFlag(&cobra.Command{
		Use:               action + " NAME",
		Short:             short,
		Long:              long,
		Example:           "  mcpd " + action + " files",
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDaemon(cmd, func(ctx context.Context, c *connection) error {
				s, err := c.Act(ctx, args[0], action)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(s)
				}
				process := ""
				if s.PID != 0 {
					process = fmt.Sprintf(" (process %d)", s.PID)
				}
				_, err = fmt.Fprintf(a.out, "%s is %s%s\n", s.Name, s.State, process)
				return err
			})
		},
	})
}
