package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/importer"
	"mcpd/cmd/mcpd/internal/instance"
	"mcpd/config"
	"mcpd/security"
)

func (a *app) addCommand() *cobra.Command {
	var entry config.Entry
	var variables []string
	var lazy, stopFirst, replace bool
	var protocol string
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "add NAME [flags] -- COMMAND [ARGS…]",
		Short: "Add a server to the config file",
		Long: `Add a server to the config file: what follows -- is the command that starts it,
and is not read by a shell. A running mcpd takes the server over at once. Where
the file has just this server already, nothing changes. The rest of the file,
with its comments, its order and its spacing, stays as it is; a file with errors
is not touched.

References in COMMAND, ARGS, --env and --cwd are kept for the daemon to expand:
${env:NAME}, ${file:PATH}, ${home}, ${config_dir}; "$${" is a literal "${". Put
them in single quotes, or the shell takes them for its own. Keep secrets out of
the command line, where other users of this computer can see them: name a
variable of the daemon or a private file instead.`,
		Example: `  mcpd add files -- npx -y @modelcontextprotocol/server-filesystem '${home}/notes'
  mcpd add library --env 'TOKEN=${file:library-token}' --lazy --idle-stop 10m -- /opt/library/bin/library-mcp
  mcpd add files --replace-existing -- npx -y @modelcontextprotocol/server-filesystem /srv/files`,
		Args: func(cmd *cobra.Command, args []string) error {
			hint := "usage: " + cmd.UseLine()
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0:
				return usageError{errors.New("the command of the server is missing, or has no -- before it"), hint}
			case dash != 1:
				return usageError{fmt.Errorf("one NAME must stand before --, not %d words", dash), hint}
			case len(args) == 1:
				return usageError{errors.New("the command of the server is missing after --"), hint}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			entry.Name = args[0]
			entry.Raw.Command, entry.Raw.Args = args[1], args[2:]
			var err error
			if entry.Raw.Env, err = readVariables(variables); err != nil {
				return err
			}
			if lazy {
				entry.Start = config.StartLazy
			}
			if stopFirst {
				entry.Replace = config.ReplaceStopFirst
			}
			entry.Protocol = config.Protocol(protocol)
			if entry.Raw.Command, err = absoluteCommand(entry.Raw.Command); err != nil {
				return err
			}
			if entry.Raw.Cwd != "" && !strings.HasPrefix(entry.Raw.Cwd, "${") {
				if entry.Raw.Cwd, err = filepath.Abs(entry.Raw.Cwd); err != nil {
					return fmt.Errorf("the folder of --cwd: %w", err)
				}
			}
			return a.add(cmd, entry, replace)
		},
	})
	f := cmd.Flags()
	f.StringArrayVarP(&variables, "env", "e", nil, "environment variable `KEY=VALUE`; may be given more than once")
	f.StringVar(&entry.Raw.Cwd, "cwd", "", "`DIR` to start it in (default: the home folder)")
	f.BoolVar(&lazy, "lazy", false, "start it with the first request, not with mcpd")
	f.DurationVar(&entry.IdleStop, "idle-stop", 0, "stop it after this time without use, such as 10m")
	f.DurationVar(&entry.StartTimeout, "start-timeout", 0, "how long its start may take, such as 1m")
	f.DurationVar(&entry.RequestTimeout, "request-timeout", 0, "how long a request may go without answer or progress, such as 10m")
	f.BoolVar(&stopFirst, "stop-first", false, "it cannot run twice: on a change, stop the old process before the new one starts")
	f.StringVar(&protocol, "protocol", "", "`modern` or legacy: what it speaks, so that mcpd need not ask")
	f.BoolVar(&entry.Disabled, "disabled", false, "write it down, but do not run it")
	f.BoolVar(&replace, "replace-existing", false, "where another server has this name, put this one in its place")
	return cmd
}

func readVariables(list []string) (map[string]string, error) {
	variables := make(map[string]string, len(list))
	for _, pair := range list {
		name, value, found := strings.Cut(pair, "=")
		if !found || name == "" {
			return nil, usageError{errors.New("--env needs KEY=VALUE"), "for a variable of the daemon: --env 'KEY=${env:KEY}'"} // what was given may be a secret
		}
		if _, twice := variables[name]; twice {
			return nil, usageError{fmt.Errorf("--env gives %s twice", name), ""}
		}
		variables[name] = value
	}
	return variables, nil
}

// absoluteCommand makes a path such as ./server one that the daemon finds too.
// The bare name of a program stays one.
func absoluteCommand(command string) (string, error) {
	if filepath.IsAbs(command) || strings.HasPrefix(command, "${") || !strings.ContainsAny(command, "/"+string(filepath.Separator)) {
		return command, nil
	}
	path, err := filepath.Abs(command)
	if err != nil {
		return "", fmt.Errorf("the path of the command: %w", err)
	}
	return path, nil
}

func (a *app) add(cmd *cobra.Command, entry config.Entry, replace bool) error {
	ctx, stop := interruptible(cmd)
	defer stop()
	var existed bool
	path, changed, err := a.editConfig(ctx, false, func(e *config.Editor) error {
		_, _, existed = e.Find(entry.Name)
		_, err := e.Add(entry, replace)
		return err
	})
	var exists *config.ExistsError
	if errors.As(err, &exists) {
		return hinted{fmt.Errorf("%s: %w", path, err), "choose another name, or let --replace-existing put the new one in its place"}
	}
	if err != nil {
		return hintedEdit(path, err)
	}
	r := editReport{Config: path, Server: entry.Name, Changed: changed, Warnings: a.doubts(entry)}
	switch {
	case !changed:
		r.Message = fmt.Sprintf("%s: the server %q is already there, just so", path, entry.Name)
	case existed:
		r.Message = fmt.Sprintf("%s: replaced the server %q", path, entry.Name)
	default:
		r.Message = fmt.Sprintf("%s: added the server %q", path, entry.Name)
	}
	a.tell(ctx, &r)
	return a.reportEdit(r)
}

// doubts are what may be wrong with an entry that is valid.
func (a *app) doubts(entry config.Entry) []string {
	var list []string
	var secrets []string
	for _, name := range slices.Sorted(maps.Keys(entry.Raw.Env)) {
		if importer.LooksSecret(name, entry.Raw.Env[name]) {
			secrets = append(secrets, name)
		}
	}
	if n := len(importer.SecretArguments(entry.Raw.Args)); n > 0 {
		secrets = append(secrets, "an argument")
	}
	if len(secrets) > 0 {
		list = append(list, fmt.Sprintf("%s looks like a secret: on a command line, other users of this computer can see it in the process list, "+
			"and it is in the history of your shell and, readable, in the config file; better keep it in a private file (chmod 600) or in a variable "+
			"of the daemon, and write '${file:PATH}' or '${env:NAME}'", strings.Join(secrets, ", ")))
	}
	if name := entry.Raw.Command; !strings.Contains(name, "${") && !entry.Disabled {
		if _, err := exec.LookPath(name); err != nil {
			list = append(list, fmt.Sprintf("the command %q was not found here; mcpd looks in the PATH of your login shell: mcpd doctor shows what it finds", name))
		}
	}
	return list
}

// editReport is what a command says that has changed the config file.
type editReport struct {
	Config   string   `json:"config"`
	Server   string   `json:"server,omitempty"`
	Changed  bool     `json:"changed"`
	Message  string   `json:"message"`
	Daemon   string   `json:"daemon"` // running, not running, refuses, or other config
	URL      string   `json:"url,omitempty"`
	Next     string   `json:"next,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// What a report says about the daemon.
const (
	daemonRunning    = "running"
	daemonNotRunning = "not running"
	daemonRefuses    = "refuses the config"
	daemonOther      = "runs with another config"
	daemonUnknown    = "cannot be asked"
)

func (a *app) reportEdit(r editReport) error {
	if a.json {
		return a.printJSON(r)
	}
	for _, w := range r.Warnings {
		a.warn(w)
	}
	if _, err := fmt.Fprintln(a.out, safe(r.Message)); err != nil {
		return err
	}
	if r.Next != "" {
		_, err := fmt.Fprintln(a.err, r.Next)
		return err
	}
	return nil
}

// warn prints what the person should know although it worked.
func (a *app) warn(text string) {
	_, _ = fmt.Fprintf(a.err, "mcpd: %s %s\n", painter(a.err)(yellow, "warning:"), printable(text))
}

// reloadTimeout bounds how long a command waits for the daemon to read the
// file.
const reloadTimeout = 20 * time.Second

// tell has a running daemon read the changed file, and notes what came of it.
func (a *app) tell(ctx context.Context, r *editReport) {
	c, err := a.connect()
	if err != nil {
		r.Daemon = daemonUnknown
		if errors.Is(err, instance.ErrNotRunning) {
			r.Daemon = daemonNotRunning
			r.Next = "mcpd is not running; start it with: mcpd run"
		} else {
			r.Warnings = append(r.Warnings, err.Error())
		}
		// The file was checked with every reference taken for granted.
		if _, err := config.Load(r.Config, a.env); err != nil && r.Changed {
			r.Warnings = append(r.Warnings, "an mcpd with the environment of this shell would refuse the file: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	st, err := c.Status(ctx)
	switch {
	case err != nil:
		r.Daemon = daemonUnknown
		r.Warnings = append(r.Warnings, err.Error())
		return
	case !samePlace(st.ConfigPath, r.Config):
		r.Daemon = daemonOther
		r.Next = "the mcpd that is running has another config file: " + st.ConfigPath
		return
	}
	r.Daemon = daemonRunning
	if !r.Changed {
		return
	}
	re, err := c.Reload(ctx)
	switch {
	case err != nil:
		r.Daemon = daemonUnknown
		r.Warnings = append(r.Warnings, err.Error())
	case !re.OK:
		r.Daemon = daemonRefuses
		r.Warnings = append(r.Warnings, "the running mcpd refuses the file, and goes on as before: "+strings.ReplaceAll(re.Error, "\n", "; "))
	default:
		r.Next = "the running mcpd has taken it over"
		if st, err = c.Status(ctx); err == nil {
			for _, s := range st.Servers {
				if s.Name == r.Server && s.URL != "" {
					r.URL = s.URL
					r.Next += ": " + s.URL
				}
			}
		}
	}
}

func samePlace(a, b string) bool {
	if a == b {
		return true
	}
	realA, errA := filepath.EvalSymlinks(a)
	realB, errB := filepath.EvalSymlinks(b)
	return errA == nil && errB == nil && realA == realB
}

// editConfig has change edit the config file, and returns the file's path.
func (a *app) editConfig(ctx context.Context, dry bool, change func(*config.Editor) error) (path string, changed bool, err error) {
	if path, err = a.configPath(); err != nil {
		return "", false, err
	}
	dir, err := a.stateDir()
	if err != nil {
		return path, false, err
	}
	if !dry {
		if err := security.MakePrivateDir(dir); err != nil {
			return path, false, fmt.Errorf("the state folder: %w", err)
		}
	}
	changed, err = config.EditFile(ctx, path, config.EditOptions{
		Environment: a.env, LockFile: filepath.Join(dir, "config.lock"), DryRun: dry,
	}, change)
	return path, changed, err
}

// hintedEdit adds what to do about an edit that was refused.
func hintedEdit(path string, err error) error {
	var problems config.Errors
	if errors.As(err, &problems) {
		return err // each with its place and hint
	}
	var shape *config.ShapeError
	if errors.As(err, &shape) {
		return hinted{fmt.Errorf("%s:%d: %s", path, shape.Line, shape.What), shape.Hint}
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return hinted{err, "the file and its folder must be yours to write (chmod u+w); where another program makes the file, change it there"}
	}
	return err
}
