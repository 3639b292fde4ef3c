package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/cmd/mcpd/internal/doctor"
	"mcpd/cmd/mcpd/internal/loginenv"
	"mcpd/cmd/mcpd/internal/service"
)

func (a *app) doctorCommand() *cobra.Command {
	var noServers bool
	var timeout time.Duration
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "doctor",
		Short: "Look for the usual troubles and say how to mend them",
		Long: `Look for the usual troubles and say how to mend each: the config, who else can
read or change files, the daemon, its port, origins that never match, the login
shell's PATH and what it finds for each command, versions of node, npx and uvx,
disk space, the clock, the service manager. Where no mcpd runs, each
server is started once for a trial, and stopped; otherwise the running mcpd is
asked. No file of yours is changed.

Exit code 0 means that no trouble was found, 1 that there is some.`,
		Example: `  mcpd doctor
  mcpd doctor --no-servers
  mcpd doctor --json | jq '.checks[] | select(.result == "trouble")'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usageError{fmt.Errorf("--timeout cannot be %s", timeout), "it is a time such as 30s"}
			}
			if noServers {
				timeout = 0
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			return a.examine(ctx, timeout)
		},
	})
	cmd.Flags().BoolVar(&noServers, "no-servers", false, "start no server for a trial")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long the start of one server may take")
	return cmd
}

// doctorReport is what doctor says.
type doctorReport struct {
	OK     bool             `json:"ok"`
	Checks []doctor.Finding `json:"checks"`
}

func (a *app) examine(ctx context.Context, timeout time.Duration) error {
	path, err := a.configPath()
	if err != nil {
		return err
	}
	stateDir, err := a.stateDir()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find out where mcpd itself is: %w", err)
	}
	r := doctorReport{Checks: []doctor.Finding{}}
	troubles := 0
	err = doctor.Run(ctx, doctor.Options{
		ConfigPath: path, StateDir: stateDir, Version: version(), Environment: a.env, Environ: os.Environ(),
		LoginEnvironment: func(ctx context.Context) (map[string]string, error) {
			return loginenv.Resolve(ctx, os.Environ(), self)
		},
		Status: func(ctx context.Context) (control.Status, error) {
			c, err := a.connect()
			if err != nil {
				return control.Status{}, err
			}
			defer c.Close()
			return c.Status(ctx)
		},
		Service: func(ctx context.Context) (service.Status, error) {
			m, err := a.serviceManager(serviceFlags{})
			if err != nil {
				return service.Status{}, err
			}
			return m.Status(ctx)
		},
		ServerTimeout: timeout,
	}, func(f doctor.Finding) {
		if f.Result == doctor.Trouble {
			troubles++
		}
		r.Checks = append(r.Checks, f)
		if !a.json {
			a.showFinding(f)
		}
	})
	if err != nil {
		return err
	}
	r.OK = troubles == 0
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else if r.OK {
		if _, err := fmt.Fprintln(a.out, "\nno trouble was found"); err != nil {
			return err
		}
	}
	switch troubles {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("there is trouble in one place")
	default:
		return fmt.Errorf("there is trouble in %d places", troubles)
	}
}

// showFinding prints one line, and below it the details.
func (a *app) showFinding(f doctor.Finding) {
	colour := map[doctor.Result]string{doctor.OK: green, doctor.Note: yellow, doctor.Trouble: red, doctor.Skipped: faint}[f.Result]
	paint := painter(a.out)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format, args...) }
	p("%s %s: %s\n", paint(colour, pad(string(f.Result), 7)), printable(f.Check), printable(f.Summary))
	for _, line := range f.Details {
		p("          %s\n", printable(line))
	}
	for _, line := range f.Mend {
		p("        %s %s\n", paint(cyan, "->"), printable(line))
	}
}
