package main

import (
	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/demo"
	"mcpd/cmd/mcpd/internal/loginenv"
)

// demoServerCommand is what the example config starts.
func (a *app) demoServerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "demo-server",
		Hidden: true,
		Short:  "A small MCP server on stdin and stdout, to try mcpd with",
		Long: `A small MCP server on stdin and stdout: tools, resources that change, prompts,
progress and log messages, in every revision of the protocol. The example config
has mcpd run it. Its state is in memory.`,
		Example: `  [servers.demo]
  command = "mcpd"
  args = ["demo-server"]`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			return demo.Run(ctx, a.in, a.out)
		},
	}
}

// printEnvironmentCommand is what the login shell is made to run.
func (a *app) printEnvironmentCommand() *cobra.Command {
	return &cobra.Command{
		Use:    loginenv.PrintCommand,
		Hidden: true,
		Args:   usage(cobra.NoArgs),
		RunE:   func(*cobra.Command, []string) error { return loginenv.Print(a.out) },
	}
}
