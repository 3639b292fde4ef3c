package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) reloadCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "reload",
		Short: "Have the daemon read its config file now",
		Long: `Have the daemon read its config file now. It does so by itself when the file
changes; this command waits for it and tells what came of it. Only what changed
is touched; a file with errors changes nothing.`,
		Example: "  mcpd reload",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDaemon(cmd, func(ctx context.Context, c *connection) error {
				r, err := c.Reload(ctx)
				if err != nil {
					return err
				}
				if a.json {
					if err := a.printJSON(r); err != nil {
						return err
					}
				}
				if !r.OK {
					return hinted{errors.New(r.Error), "nothing was changed"}
				}
				if a.json {
					return nil
				}
				changed := false
				for _, part := range []struct {
					what  string
					names []string
				}{
					{"added", r.Added},
					{"removed", r.Removed},
					{"replaced", r.Replaced},
					{"changed in limits", r.Retuned},
					{"wait for a restart of mcpd", r.RestartNeeded},
				} {
					if len(part.names) > 0 {
						changed = true
						if _, err := fmt.Fprintf(a.out, "%s: %s\n", part.what, strings.Join(part.names, ", ")); err != nil {
							return err
						}
					}
				}
				if !changed {
					_, err = fmt.Fprintln(a.out, "no server changed")
				}
				return err
			})
		},
	})
}
