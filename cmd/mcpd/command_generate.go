package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpd/cmd/mcpd/internal/service"
)

// generateCommand writes what a package of mcpd has beside the program.
func (a *app) generateCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "generate DIR",
		Hidden: true,
		Short:  "Write what a package has beside the program",
		Long: `Write into a folder what a package of mcpd has beside the program: completions for
shells, manual pages, and the systemd unit for users.`,
		Example: "  mcpd generate ./share",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.InitDefaultCompletionCmd()
			root.InitDefaultHelpCmd()
			files := map[string]func(io.Writer) error{
				"completions/mcpd.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
				"completions/_mcpd":     root.GenZshCompletion,
				"completions/mcpd.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
				"completions/mcpd.ps1":  root.GenPowerShellCompletionWithDesc,
				"systemd/mcpd.service": func(w io.Writer) error {
					_, err := w.Write(service.PackagedUnit("/usr/bin/mcpd"))
					return err
				},
			}
			addManuals(files, root)
			for name, write := range files {
				if err := writeGenerated(filepath.Join(args[0], filepath.FromSlash(name)), write); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func writeGenerated(path string, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644) //nolint:gosec // for everybody to read
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}

// addManuals adds a manual page for each command that people use.
func addManuals(files map[string]func(io.Writer) error, cmd *cobra.Command) {
	if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() || cmd.Name() == "help" {
		return
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	files["man/"+name+".1"] = func(w io.Writer) error {
		_, err := io.WriteString(w, manual(cmd))
		return err
	}
	for _, child := range cmd.Commands() {
		addManuals(files, child)
	}
}

// manual is the page of one command, in man(7). It has no date: a page that is
// made twice is the same.
func manual(cmd *cobra.Command) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	p(`.TH %s 1 "" "mcpd %s" "mcpd"`, roffQuoted(strings.ToUpper(name)), roffQuoted(version()))
	p(".SH NAME")
	p(`%s \- %s`, roff(name), roff(cmd.Short))
	p(".SH SYNOPSIS")
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " COMMAND"
	}
	p(".B %s", roff(use))
	p(".SH DESCRIPTION")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p(".PP")
		}
		p("%s", roff(paragraph))
	}
	if cmd.HasAvailableSubCommands() {
		p(".SH COMMANDS")
		for _, c := range cmd.Commands() {
			if !c.Hidden && c.Name() != "help" {
				p(".TP\n.B %s\n%s", roff(c.Name()), roff(c.Short))
			}
		}
	}
	options(p, "OPTIONS", cmd.NonInheritedFlags())
	options(p, "OPTIONS OF EVERY COMMAND", cmd.InheritedFlags())
	if cmd.Example != "" {
		p(".SH EXAMPLES\n.nf\n%s\n.fi", roff(cmd.Example))
	}
	if cmd.Parent() == nil {
		p(".SH EXIT STATUS\n0: done. 1: failed. 2: wrong usage.")
		p(".SH ENVIRONMENT\n.TP\n.B MCPD_CONFIG\nThe config file.\n.TP\n.B MCPD_STATE_DIR\nThe folder for token, logs and locks.")
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-"))
	}
	for _, c := range cmd.Commands() {
		if !c.Hidden && c.Name() != "help" {
			also = append(also, name+"-"+c.Name())
		}
	}
	if len(also) > 0 {
		p(".SH SEE ALSO")
		for i, n := range also {
			comma := ","
			if i == len(also)-1 {
				comma = ""
			}
			p(".BR %s (1)%s", roff(n), comma)
		}
	}
	return b.String()
}

func options(p func(string, ...any), heading string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p(".SH %s", heading)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		line := "--" + f.Name
		if f.Shorthand != "" {
			line = "-" + f.Shorthand + ", " + line
		}
		if value != "" {
			line += " " + value
		}
		p(".TP\n.B %s\n%s", roff(line), roff(text))
	})
}

// roff writes text so that man shows it as it is.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func roffQuoted(s string) string { return strings.ReplaceAll(roff(s), `"`, `\(dq`) }
