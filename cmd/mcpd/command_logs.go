package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/control"
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	var n int
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "logs NAME",
		Short: "Show what a server writes to its log",
		Long: `Show what a server writes to stderr, the lines of its stdout that are no
messages (marked stdout), and what mcpd notes about its process (marked mcpd).
Older lines are in the folder logs of the state folder.`,
		Example: `  mcpd logs files
  mcpd logs files -f -n 20`,
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 0 {
				return usageError{fmt.Errorf("-n cannot be %d", n), "-n 0 -f shows only new lines"}
			}
			paint := painter(a.out)
			enc := json.NewEncoder(a.out)
			return a.withDaemon(cmd, func(ctx context.Context, c *connection) error {
				return c.Logs(ctx, args[0], n, follow, func(l control.LogLine) error {
					if a.json {
						return enc.Encode(l)
					}
					from := ""
					if l.Stream != "stderr" {
						from = paint(cyan, l.Stream+":") + " "
					}
					_, err := fmt.Fprintf(a.out, "%s %s%s\n", paint(faint, l.Time.Local().Format("2006-01-02 15:04:05.000")), from, l.Text)
					return err
				})
			})
		},
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new lines, until Ctrl-C")
	cmd.Flags().IntVarP(&n, "lines", "n", 100, "begin with the last `N` lines")
	return cmd
}
