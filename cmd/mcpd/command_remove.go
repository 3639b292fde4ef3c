package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"mcpd/config"
)

func (a *app) removeCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a server from the config file",
		Long: `Remove a server from the config file: its table with all sub-tables, and the
comment lines directly above and directly below them. Comments with a blank line
around them stay, and so does the rest of the file. A running mcpd stops the
server after the calls in flight. Where there is no such server, nothing changes
and the exit code is 0.`,
		Example:           "  mcpd remove files",
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			name := args[0]
			near := ""
			path, changed, err := a.editConfig(ctx, false, func(e *config.Editor) error {
				near = e.Nearest(name)
				_, err := e.Remove(name)
				return err
			})
			if err != nil {
				return hintedEdit(path, err)
			}
			r := editReport{Config: path, Server: name, Changed: changed}
			if changed {
				r.Message = fmt.Sprintf("%s: removed the server %q", path, name)
			} else {
				r.Message = fmt.Sprintf("%s: there is no server %q, so there was nothing to remove", path, name)
				if near != "" {
					r.Message += "; " + near
				}
			}
			a.tell(ctx, &r)
			if r.Daemon == daemonNotRunning {
				r.Next = ""
			}
			return a.reportEdit(r)
		},
	})
}
