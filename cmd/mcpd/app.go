package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/cmd/mcpd/internal/instance"
	"mcpd/config"
	"mcpd/security"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// app is what every command has: where it reads and writes, and the flags that
// hold for all of them.
type app struct {
	in       io.Reader
	out, err io.Writer
	env      config.Environment

	configFlag string
	stateFlag  string
	json       bool
}

// run executes the program and returns its exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{in: stdin, out: stdout, err: stderr, env: config.OSEnvironment()}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return exitDone
	}
	var reported reportedError
	if errors.As(err, &reported) {
		return int(reported)
	}
	a.report(err)
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "mcpd",
		Short: "One daemon for all your local MCP servers",
		Long: `mcpd starts the stdio MCP servers that a TOML file names, keeps them alive, and
offers each one at http://127.0.0.1:PORT/servers/NAME/mcp to all your editors,
agents and plugins: to those that have its token, and to nobody else.`,
		Example: `  mcpd run --init            set up an example and run the daemon
  mcpd status                what runs, and how it is
  mcpd token show            the token for your editor's settings`,
		Args:              a.noCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,

		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{err, "see: " + cmd.CommandPath() + " --help"}
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.configFlag, "config", "", "config `FILE` (default: $MCPD_CONFIG, or mcpd.toml where the system keeps settings)")
	flags.StringVar(&a.stateFlag, "state-dir", "", "`DIR` for token, logs and locks (default: $MCPD_STATE_DIR, or where the system keeps state)")
	root.AddCommand(
		a.runCommand(), a.initCommand(), a.configCommand(),
		a.statusCommand(), a.logsCommand(), a.reloadCommand(),
		a.actCommand("start", "Start a server that was stopped or has failed"),
		a.actCommand("stop", "Stop a server until it is started again"),
		a.actCommand("restart", "Stop a server's process and start a new one"),
		a.toolsCommand(), a.callCommand(), a.ledgerCommand(),
		a.addCommand(), a.removeCommand(), a.importCommand(), a.doctorCommand(),
		a.tokenCommand(), a.serviceCommand(), a.versionCommand(),
		a.demoServerCommand(), a.printEnvironmentCommand(), a.generateCommand(),
	)
	root.SetHelpCommand(a.helpCommand(root))
	return root
}

// noCommand is where a word ends up that is no command.
func (a *app) noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see: " + cmd.CommandPath() + " --help"
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		hint = "did you mean: " + cmd.CommandPath() + " " + strings.Join(s, ", ") + "?"
	}
	return usageError{fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0]), hint}
}

// helpCommand is cobra's, which takes a word that is no command for success.
func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:               "help [command]",
		Short:             "Help about any command",
		Example:           "  mcpd help service install",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			switch {
			case err != nil || cmd == root && len(rest) > 0:
				return a.noCommand(root, args)
			case len(rest) > 0 && cmd.HasSubCommands():
				return a.noCommand(cmd, rest)
			case len(rest) > 0:
				return usageError{fmt.Errorf("%s has no commands of its own", cmd.CommandPath()), "see: " + cmd.CommandPath() + " --help"}
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// sameFiles is a command line for the person to type, with the files that this
// call was told to use.
func (a *app) sameFiles(line string) string {
	for _, flag := range []struct{ name, value string }{{"--config", a.configFlag}, {"--state-dir", a.stateFlag}} {
		if flag.value != "" {
			line += " " + flag.name + " " + quoteArgument(flag.value)
		}
	}
	return line
}

// quoteArgument quotes what a shell would take apart.
func quoteArgument(s string) string {
	if !strings.ContainsAny(s, " \t\n\"'`$&|;<>()*?[]#~!{}\\") || runtime.GOOS == "windows" && !strings.ContainsAny(s, " \t&|<>^") {
		return s
	}
	if runtime.GOOS == "windows" {
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// group makes a command that only holds others.
func (a *app) group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.Args = a.noCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(children...)
	return cmd
}

// jsonFlag adds --json to a command that reports.
func (a *app) jsonFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// usage makes a wrong number of arguments a wrong usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%s: %w", cmd.CommandPath(), err), "usage: " + cmd.UseLine()}
		}
		return nil
	}
}

// usageError is a command that was written wrongly.
type usageError struct {
	error
	hint string
}

func (e usageError) Hint() string  { return e.hint }
func (e usageError) Unwrap() error { return e.error }

// hinted is an error with what to do about it.
type hinted struct {
	error
	hint string
}

func (e hinted) Hint() string  { return e.hint }
func (e hinted) Unwrap() error { return e.error }

// report prints an error for the person.
func (a *app) report(err error) {
	paint := painter(a.err)
	line := func(kind, colour, text string) {
		for l := range strings.Lines(text) {
			_, _ = fmt.Fprintf(a.err, "mcpd: %s %s\n", paint(colour, kind+":"), safe(strings.TrimRight(l, "\r\n")))
		}
	}
	var problems config.Errors
	if errors.As(err, &problems) {
		for _, p := range problems {
			hint := p.Hint
			p.Hint = ""
			line("error", red, p.Error())
			line("hint", cyan, hint)
		}
		return
	}
	line("error", red, err.Error())
	var withHint interface{ Hint() string }
	var fromDaemon *control.Error
	var notPrivate *security.NotPrivateError
	switch {
	case errors.As(err, &withHint):
		line("hint", cyan, withHint.Hint())
	case errors.As(err, &fromDaemon):
		line("hint", cyan, fromDaemon.Hint)
	case errors.As(err, &notPrivate): // says so itself
	}
}

// interruptible ends when the person wants the command to end.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}

func (a *app) configPath() (string, error) { return config.DefaultPath(a.configFlag, a.env) }

func (a *app) stateDir() (string, error) { return config.StateDir(a.stateFlag, a.env) }

// connection is what a command needs to talk to the running daemon.
type connection struct {
	*control.Client
	identity control.Identity
	token    string
}

// connect finds the running daemon.
func (a *app) connect() (*connection, error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	info, err := instance.Find(dir)
	switch {
	case errors.Is(err, instance.ErrNotRunning):
		return nil, hinted{fmt.Errorf("%w (with the state folder %s)", err, dir), "start it with: " + a.sameFiles("mcpd run")}
	case err != nil:
		return nil, err
	case info.Address == "":
		return nil, hinted{errors.New("mcpd is just starting, or about to end"), "try again in a moment"}
	}
	if info.Key.IsZero() {
		return nil, hinted{fmt.Errorf("the mcpd that runs (process %d) cannot prove that it is yours: it is of an older version", info.PID), "restart it"}
	}
	store, err := security.OpenTokenStore(dir, security.TokenStoreOptions{})
	if err != nil {
		return nil, err
	}
	token, err := store.Show()
	if err != nil {
		return nil, err
	}
	id := control.Identity{Address: info.Address, Key: info.Key}
	return &connection{id.NewClient(token.Reveal()), id, token.Reveal()}, nil
}

// withDaemon runs fn with a connection, until it is done or interrupted.
func (a *app) withDaemon(cmd *cobra.Command, fn func(context.Context, *connection) error) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := interruptible(cmd)
	defer stop()
	return fn(ctx, c)
}

// printJSON writes a value as indented JSON.
func (a *app) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

// completeServers offers the names of the config file.
func (a *app) completeServers(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	path, err := a.configPath()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := config.Load(path, a.env)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range c.Servers {
		names = append(names, name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
