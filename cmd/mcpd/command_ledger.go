package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/control"
)

func (a *app) ledgerCommand() *cobra.Command {
	var unknown bool
	list := a.jsonFlag(&cobra.Command{
		Use:   "list",
		Short: "List the calls that are remembered",
		Long: `List the calls with an idempotency key that mcpd remembers, oldest first. Those
whose outcome is unknown are not made again before you settle them.`,
		Example: `  mcpd ledger list --unknown
  mcpd ledger list --json | jq -r '.[] | select(.state == "unknown") | .id'`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDaemon(cmd, func(ctx context.Context, c *connection) error {
				state := ""
				if unknown {
					state = "unknown"
				}
				entries, err := c.Ledger(ctx, state)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(entries)
				}
				a.writeLedger(entries)
				return nil
			})
		},
	})
	list.Flags().BoolVar(&unknown, "unknown", false, "only those whose outcome is unknown")

	var done, notDone bool
	resolve := a.jsonFlag(&cobra.Command{
		Use:   "resolve ID",
		Short: "Settle a call whose outcome is unknown",
		Long: `Settle a call whose outcome is unknown, after you have looked whether it took
effect. With --done it is remembered as done: a repeat with its key is told so and
does nothing. With --not-done it is forgotten: a repeat with its key is made.
ID may be the beginning of one.`,
		Example: `  mcpd ledger resolve 3f9a1c --done
  mcpd ledger resolve 3f9a1c --not-done`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if done == notDone {
				return usageError{errors.New("one of --done and --not-done has to be there"), "usage: " + cmd.UseLine()}
			}
			return a.withDaemon(cmd, func(ctx context.Context, c *connection) error {
				entry, err := c.ResolveLedger(ctx, args[0], done)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(entry)
				}
				what := "took effect: a repeat with its key does nothing"
				if notDone {
					what = "did not take effect: a repeat with its key is made"
				}
				_, err = fmt.Fprintf(a.err, "call %s of %s at %s %s\n", entry.ID, printable(entry.Tool), printable(entry.Server), what)
				return err
			})
		},
	})
	resolve.Flags().BoolVar(&done, "done", false, "it took effect")
	resolve.Flags().BoolVar(&notDone, "not-done", false, "it did not take effect")
	return a.group(&cobra.Command{
		Use:   "ledger",
		Short: "See the calls that are made at most once, and settle unknown outcomes",
		Long: `See what mcpd remembers of calls with an idempotency key, by which none of them
takes effect twice, and settle those whose outcome a crash left unknown.`,
	}, list, resolve)
}

func (a *app) writeLedger(entries []control.LedgerEntry) {
	rows := [][]cell{{
		{"ID", faint},
		{"STATE", faint},
		{"SERVER", faint},
		{"TOOL", faint},
		{"KEY", faint},
		{"BEGUN", faint},
		{"ARGUMENTS", faint},
	}}
	for _, e := range entries {
		colour := ""
		if e.State == "unknown" {
			colour = yellow
		}
		rows = append(rows, []cell{
			{e.ID, ""},
			{string(e.State), colour},
			{e.Server, ""},
			{printable(e.Tool), ""},
			{printable(e.Key), ""},
			{e.Begun.Local().Format(time.DateTime), ""},
			{printable(e.Arguments), ""},
		})
	}
	writeTable(a.out, rows, painter(a.out))
}

// ledgerLine is what the status says of the ledger, "" where there is nothing to say.
func ledgerLine(l control.Ledger, paint paintFunc) string {
	if l.Error != "" {
		return paint(red, "ledger: "+printable(l.Error))
	}
	if l.Entries == 0 && l.Running == 0 {
		return ""
	}
	line := fmt.Sprintf("ledger %d calls, %s of %s", l.Entries, bytesText(l.Bytes), bytesText(l.MaxBytes))
	if l.Unknown > 0 {
		line += ", " + paint(yellow, fmt.Sprintf("%d of unknown outcome: mcpd ledger list --unknown", l.Unknown))
	}
	return line
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
