package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"mcpd/config"
)

func (a *app) initCommand() *cobra.Command {
	var port int
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a commented example config",
		Long: `Write a commented example config where there is none yet. It names a free port
and one server that works at once: mcpd's own demo server. A file that is there
already is never changed.`,
		Example: `  mcpd init && mcpd run
  mcpd init --port 7400 --config ./mcpd.toml`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return usageError{fmt.Errorf("%d is not a port", port), "ports are numbers from 1 to 65535"}
			}
			path, err := a.configPath()
			if err != nil {
				return err
			}
			if err := a.writeExample(cmd.Context(), path, port); err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.err, "next: "+a.sameFiles("mcpd run"))
			return err
		},
	}
	cmd.Flags().IntVar(&port, "port", 0, "`PORT` to write into the file (default: a free one, 7317 where possible)")
	return cmd
}

func (a *app) writeExample(ctx context.Context, path string, port int) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find out where mcpd itself is: %w", err)
	}
	if port == 0 {
		if port, err = config.FreePort(ctx); err != nil {
			return err
		}
	}
	if err := config.WriteNew(path, self, port); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, "wrote %s\n", path)
	return err
}
