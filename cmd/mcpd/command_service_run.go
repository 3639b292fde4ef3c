package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/service"
	"mcpd/security"
)

// serviceRunCommand is what service managers start that keep no log themselves,
// or that want to be spoken to.
func (a *app) serviceRunCommand() *cobra.Command {
	var logFile string
	var scm, keep bool
	cmd := &cobra.Command{
		Use:    "run",
		Short:  "What a service manager starts",
		Hidden: true,
		Long: `What launchd, the Task Scheduler and the Windows service manager start: mcpd run,
with a log file that is rotated.`,
		Example: "  mcpd service run --log-file ./mcpd.log",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("cannot find out where mcpd itself is: %w", err)
				}
				ctx, stop := interruptible(cmd)
				defer stop()
				return service.Keep(ctx, self, withoutFlag(os.Args[1:], "--restart"))
			}
			var out io.Writer = a.err
			if logFile != "" {
				// The log may be in it, and it must be nobody else's.
				dir, err := a.stateDir()
				if err != nil {
					return err
				}
				if err := security.MakePrivateDir(dir); err != nil {
					return err
				}
				log, err := service.OpenLog(logFile)
				if err != nil {
					return err
				}
				defer func() { _ = log.Close() }()
				out = log
			}
			a.err = out
			main := func(ctx context.Context, ready func()) int {
				if err := a.runDaemon(ctx, false, ready); err != nil {
					a.report(err)
					return exitFailed
				}
				return exitDone
			}
			var (
				code int
				err  error
			)
			if scm {
				code, err = service.RunUnderSCM(cmd.Context(), main)
			} else {
				code = main(cmd.Context(), nil)
			}
			if err != nil {
				return err
			}
			if code != exitDone {
				return reportedError(code)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&logFile, "log-file", "", "`FILE` for the daemon's log")
	cmd.Flags().BoolVar(&scm, "scm", false, "answer to the Windows service manager")
	cmd.Flags().BoolVar(&keep, "restart", false, "start the daemon again when it crashes")
	return cmd
}

// reportedError is a failure that has been reported where it belongs.
type reportedError int

func (e reportedError) Error() string {
	return fmt.Sprintf("the daemon ended with exit code %d", int(e))
}

func withoutFlag(args []string, flag string) []string {
	var out []string
	for _, a := range args {
		if a != flag {
			out = append(out, a)
		}
	}
	return out
}
