package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"mcpd/config"
)

func (a *app) configCommand() *cobra.Command {
	check := &cobra.Command{
		Use:   "check",
		Short: "Say what is wrong with the config file",
		Long: `Read the config file as the daemon would and say everything that is wrong with
it, each with its line and column. Nothing is started. Exit code 1 means errors.`,
		Example: `  mcpd config check
  mcpd config check --config ./mcpd.toml`,
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			disabled := 0
			for _, s := range c.Servers {
				if s.Disabled {
					disabled++
				}
			}
			text := fmt.Sprintf("%s: no errors, %d servers", c.Path, len(c.Servers))
			if len(c.Servers) == 1 {
				text = c.Path + ": no errors, 1 server"
			}
			if disabled > 0 {
				text += fmt.Sprintf(" (%d disabled)", disabled)
			}
			_, err = fmt.Fprintln(a.out, text)
			return err
		},
	}
	path := &cobra.Command{
		Use:     "path",
		Short:   "Print where the config file is",
		Long:    "Print the path of the config file, whether or not there is one yet.",
		Example: `  $EDITOR "$(mcpd config path)"`,
		Args:    usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			p, err := a.configPath()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, p)
			return err
		},
	}
	show := a.jsonFlag(&cobra.Command{
		Use:   "show",
		Short: "Print the config with every default filled in",
		Long: `Print the config with every key and its value in effect. References such as
${env:NAME} stay as they are written, so no secret behind them is printed.`,
		Example: `  mcpd config show
  mcpd config show --json | jq .servers`,
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(c)
			}
			_, err = a.out.Write(c.TOML())
			return err
		},
	})
	return a.group(&cobra.Command{
		Use:   "config",
		Short: "Check and show the config file",
		Long:  "Check and show the config file. To change it, edit it: a running daemon takes the change over.",
	}, check, path, show)
}

func (a *app) loadConfig() (*config.Config, error) {
	path, err := a.configPath()
	if err != nil {
		return nil, err
	}
	c, err := config.Load(path, a.env)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, hinted{fmt.Errorf("there is no config file %s", path), "mcpd init writes an example"}
	}
	return c, err
}
