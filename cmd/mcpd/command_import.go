package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/importer"
	"mcpd/config"
	"mcpd/security"
)

// maxImported bounds the servers of one import. The config is checked as a whole
// after each, as if it had been added by hand.
const maxImported = 500

// importOptions are the flags of import.
type importOptions struct {
	dry, rename, secretsToFiles, withDisabled bool
	project                                   string
	only                                      []string
}

func (a *app) importCommand() *cobra.Command {
	var o importOptions
	var names []string
	list := "" // for the help
	for _, p := range importer.Programs() {
		names = append(names, p.Name)
		list += fmt.Sprintf("  %-16s %s\n", p.Name, p.Title)
	}
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "import EDITOR|FILE",
		Short: "Take over the servers of another program's settings",
		Long: `Take over the servers that another program has in its settings, and say for each
what could not be taken over and why. The program's own file is only read. EDITOR
is one of:

` + list + `
FILE is any file with mcpServers, servers or context_servers, in JSON with or
without comments.

Servers that run elsewhere (with a URL), that are switched off, or whose name is
taken are skipped. Variables such as ${workspaceFolder}, ${env:NAME} and ${NAME}
are translated; a server with one that has no counterpart is skipped. Secrets
that are written out are taken over as they are, with a warning, or put into
private files in the folder secrets beside the config (--secrets-to-files).`,
		Example: `  mcpd import claude-desktop --dry-run
  mcpd import cursor --secrets-to-files
  mcpd import vscode --project ~/src/app
  mcpd import ./mcp.json --rename`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("mcpd import needs one EDITOR or FILE"), "editors: " + strings.Join(names, ", ")}
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names, cobra.ShellCompDirectiveDefault // and files
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			return a.importFrom(ctx, args[0], o)
		},
	})
	f := cmd.Flags()
	f.BoolVarP(&o.dry, "dry-run", "n", false, "say what would be taken over, and change nothing")
	f.BoolVar(&o.rename, "rename", false, "where a name is taken, take the server over as NAME-2")
	f.BoolVar(&o.secretsToFiles, "secrets-to-files", false, "put secrets that are written out into private files")
	f.BoolVar(&o.withDisabled, "with-disabled", false, "take over servers that are switched off, as disabled")
	f.StringVar(&o.project, "project", "", "read the EDITOR's file of the project in `DIR`; for FILE, the folder that its servers run in")
	f.StringSliceVar(&o.only, "only", nil, "take over only the server `NAME`; may be given more than once")
	return cmd
}

// importReport is what import says.
type importReport struct {
	Sources []string       `json:"sources"` // the files that were read
	DryRun  bool           `json:"dry_run,omitempty"`
	Servers []importedItem `json:"servers"`
	editReport
}

// importedItem is one server of an import.
type importedItem struct {
	Name    string `json:"name"` // in the config
	From    string `json:"from"` // in the file
	Project string `json:"project,omitempty"`
	// Result is added, unchanged (it is there already) or skipped.
	Result   string   `json:"result"`
	Reason   string   `json:"reason,omitempty"` // why it was skipped
	Command  string   `json:"command,omitempty"`
	Notes    []string `json:"notes,omitempty"`    // what was not taken over
	Warnings []string `json:"warnings,omitempty"` // what was, and better were not
	Secrets  []string `json:"secrets,omitempty"`  // the private files that were made for it
}

// Results of importedItem.
const (
	imported  = "added"
	unchanged = "unchanged"
	skipped   = "skipped"
)

func (a *app) importFrom(ctx context.Context, what string, o importOptions) error {
	sources, err := a.sources(what, o.project)
	if err != nil {
		return err
	}
	r := importReport{DryRun: o.dry, Servers: []importedItem{}}
	var servers []importer.Server
	for _, s := range sources {
		data, err := importer.ReadFile(s.Path)
		if err != nil {
			return fmt.Errorf("cannot read the settings: %w", err)
		}
		found, err := importer.Read(s, data, a.env)
		if err != nil {
			return err
		}
		r.Sources = append(r.Sources, s.Path)
		servers = append(servers, found...)
	}
	if len(o.only) > 0 {
		for _, name := range o.only {
			if !slices.ContainsFunc(servers, func(s importer.Server) bool { return s.Name == name }) {
				return fmt.Errorf("there is no server %q in %s", name, strings.Join(r.Sources, ", "))
			}
		}
		servers = slices.DeleteFunc(servers, func(s importer.Server) bool { return !slices.Contains(o.only, s.Name) })
	}
	if len(servers) > maxImported {
		return hinted{
			fmt.Errorf("%s has %d servers, and at most %d are taken over at a time", strings.Join(r.Sources, ", "), len(servers), maxImported),
			"name those you want with --only",
		}
	}

	path, err := a.configPath()
	if err != nil {
		return err
	}
	v := &vault{dir: filepath.Join(filepath.Dir(path), "secrets"), env: a.env, pending: map[string]string{}}
	_, changed, err := a.editConfig(ctx, o.dry, func(e *config.Editor) error {
		for _, s := range servers {
			r.Servers = append(r.Servers, takeOver(e, s, o, v))
		}
		if o.dry {
			return nil
		}
		return v.write() // before the config, which refers to them
	})
	if err != nil {
		return errors.Join(hintedEdit(path, err), v.undo())
	}
	if !changed {
		if err := v.undo(); err != nil {
			return err
		}
	}
	r.editReport = editReport{Config: path, Changed: changed && !o.dry, Message: r.summary(path, o.dry)}
	if !o.dry {
		a.tell(ctx, &r.editReport)
	}
	if !r.Changed && r.Daemon == daemonNotRunning {
		r.Next = ""
	}
	if a.json {
		return a.printJSON(r)
	}
	a.showImport(r)
	return a.reportEdit(r.editReport)
}

// sources finds the files that are meant.
func (a *app) sources(what, project string) ([]importer.Source, error) {
	if project != "" {
		var err error
		if project, err = filepath.Abs(project); err != nil {
			return nil, fmt.Errorf("the folder of --project: %w", err)
		}
	}
	p, known := importer.FindProgram(what)
	if !known {
		path, err := filepath.Abs(what)
		if err != nil {
			return nil, fmt.Errorf("the path of the file: %w", err)
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			var names []string
			for _, p := range importer.Programs() {
				names = append(names, p.Name)
			}
			return nil, hinted{fmt.Errorf("there is no file %s, and no editor of that name is known", path), "editors: " + strings.Join(names, ", ")}
		}
		if project == "" {
			project, _ = importer.ProjectOf(a.env, path)
		}
		return []importer.Source{{Path: path, Project: project, Literal: filepath.Base(path) == "claude_desktop_config.json"}}, nil
	}
	if project != "" {
		path, ok := p.ProjectPath(a.env, project)
		if !ok {
			return nil, usageError{fmt.Errorf("%s keeps no servers in projects", p.Title), "leave --project out"}
		}
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s has no servers for this project: %w", p.Title, err)
		}
		return []importer.Source{{Path: path, Project: project, Literal: p.Literal}}, nil
	}
	var list []importer.Source
	paths := p.Paths(a.env)
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			list = append(list, importer.Source{Path: path, Literal: p.Literal})
		}
	}
	if len(list) == 0 {
		return nil, hinted{fmt.Errorf("%s has no settings with servers here: there is no %s", p.Title, strings.Join(paths, " or ")), "name the FILE if it is elsewhere"}
	}
	return list, nil
}

// takeOver adds one server, or says why not.
func takeOver(e *config.Editor, s importer.Server, o importOptions, v *vault) importedItem {
	item := importedItem{Name: s.Entry.Name, From: s.Name, Project: s.Project, Result: skipped, Notes: s.Notes}
	skip := func(format string, args ...any) importedItem {
		item.Reason = fmt.Sprintf(format, args...)
		return item
	}
	if s.Skip != "" {
		return skip("%s", s.Skip)
	}
	entry := s.Entry
	if s.Disabled {
		if !o.withDisabled {
			return skip("it is switched off there; --with-disabled takes it over, as disabled")
		}
		entry.Disabled = true
	}
	secret := v.begin()
	if o.secretsToFiles {
		// A server that was taken over before has its secrets in files already.
		entry = secret.move(entry)
	} else if list := secretsOf(entry); len(list) > 0 {
		item.Warnings = append(item.Warnings, strings.Join(list, ", ")+
			" is written out in the config, as it was there; --secrets-to-files puts it into a private file")
	}
	trial := e.Clone()
	added, err := trial.Add(entry, false)
	var exists *config.ExistsError
	if errors.As(err, &exists) {
		if !o.rename {
			return skip("the config has another server of that name; --rename takes it over as %s", importer.NextName(entry.Name, entry.Name))
		}
		// The same server may have got such a name the last time.
		for errors.As(err, &exists) {
			tried := entry.Name
			entry = s.Entry
			entry.Disabled = s.Disabled
			entry.Name = importer.NextName(s.Entry.Name, tried)
			item.Name = entry.Name
			if o.secretsToFiles {
				secret = v.begin()
				entry = secret.move(entry)
			}
			added, err = trial.Add(entry, false)
		}
	}
	if err != nil {
		return skip("%s", err)
	}
	if problems := trial.ProblemsOf(entry.Name, secret.environment()); len(problems) > 0 {
		list := make([]string, len(problems))
		for i, p := range problems {
			list[i] = p.Message
		}
		return skip("it would not be valid: %s", strings.Join(list, "; "))
	}
	item.Result, item.Command = unchanged, entry.Raw.Command
	if added {
		item.Result = imported
		item.Secrets = secret.commit()
		*e = *trial
	}
	return item
}

// secretsOf names what looks like a secret in an entry.
func secretsOf(entry config.Entry) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(entry.Raw.Env)) {
		if importer.LooksSecret(name, entry.Raw.Env[name]) {
			list = append(list, "the value of "+name)
		}
	}
	for _, s := range importer.SecretArguments(entry.Raw.Args) {
		list = append(list, fmt.Sprintf("argument %d", s.Index+1))
	}
	return list
}

// vault is the folder of private files that secrets are moved to.
type vault struct {
	dir     string
	env     config.Environment
	pending map[string]string // content by path
	written []string
}

// move is what one server moves there, until it is committed.
type move struct {
	vault *vault
	files map[string]string // content by path
}

func (v *vault) begin() *move { return &move{v, map[string]string{}} }

// move is the entry with references in the place of secrets.
func (m *move) move(entry config.Entry) config.Entry {
	entry.Raw.Env = maps.Clone(entry.Raw.Env)
	for _, name := range slices.Sorted(maps.Keys(entry.Raw.Env)) {
		if value := entry.Raw.Env[name]; importer.LooksSecret(name, value) && !strings.Contains(value, "${") {
			entry.Raw.Env[name] = m.keep(entry.Name+"-"+name, value)
		}
	}
	entry.Raw.Args = slices.Clone(entry.Raw.Args)
	for _, s := range importer.SecretArguments(entry.Raw.Args) {
		if value := strings.TrimPrefix(entry.Raw.Args[s.Index], s.Prefix); !strings.Contains(value, "${") {
			name := s.Name
			if name == "" {
				name = fmt.Sprintf("argument-%d", s.Index+1)
			}
			entry.Raw.Args[s.Index] = s.Prefix + m.keep(entry.Name+"-"+name, value)
		}
	}
	return entry
}

// keep chooses a file that is free, or has this very content, and returns the
// reference to it.
func (m *move) keep(name, value string) string {
	name = importer.ValidName(name)
	path := ""
	for n := 1; ; n++ {
		file := name
		if n > 1 {
			file = fmt.Sprintf("%s-%d", name, n)
		}
		path = filepath.Join(m.vault.dir, file)
		if m.free(path, value) {
			break
		}
	}
	m.files[path] = value + "\n"
	return "${file:secrets/" + filepath.Base(path) + "}"
}

func (m *move) free(path, value string) bool {
	for _, files := range []map[string]string{m.files, m.vault.pending} {
		if content, ok := files[path]; ok {
			return content == value+"\n"
		}
	}
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	content, err := security.ReadPrivateFile(path)
	return err == nil && string(content) == value+"\n"
}

func (m *move) commit() []string {
	maps.Copy(m.vault.pending, m.files)
	return slices.Sorted(maps.Keys(m.files))
}

// environment is the environment with the files that are still to be written.
func (m *move) environment() config.Environment {
	env := m.vault.env
	read := env.ReadFile
	env.ReadFile = func(path string) ([]byte, error) {
		for _, files := range []map[string]string{m.files, m.vault.pending} {
			if content, ok := files[filepath.Clean(path)]; ok {
				return []byte(content), nil
			}
		}
		return read(path)
	}
	return env
}

// write writes the files that are not there yet.
func (v *vault) write() error {
	if len(v.pending) == 0 {
		return nil
	}
	if err := security.MakePrivateDir(v.dir); err != nil {
		return fmt.Errorf("the folder for secrets: %w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(v.pending)) {
		if content, err := security.ReadPrivateFile(path); err == nil && bytes.Equal(content, []byte(v.pending[path])) {
			continue
		}
		if err := security.WritePrivateFile(path, []byte(v.pending[path])); err != nil {
			return fmt.Errorf("a file for a secret: %w", err)
		}
		v.written = append(v.written, path)
	}
	return nil
}

// undo removes what was written, where the config was not.
func (v *vault) undo() error {
	var errs []error
	for _, path := range v.written {
		errs = append(errs, os.Remove(path))
	}
	v.written = nil
	return errors.Join(errs...)
}

func (r importReport) count(result string) int {
	n := 0
	for _, s := range r.Servers {
		if s.Result == result {
			n++
		}
	}
	return n
}

func (r importReport) summary(path string, dry bool) string {
	would := ""
	if dry {
		would = "would be "
	}
	text := fmt.Sprintf("%s: %d %sadded, %d skipped", path, r.count(imported), would, r.count(skipped))
	if n := r.count(unchanged); n > 0 {
		text += fmt.Sprintf(", %d there already", n)
	}
	if dry {
		text += "; nothing was written"
	}
	return text
}

// showImport lists the servers with what is to be said about each.
func (a *app) showImport(r importReport) {
	paint := painter(a.out)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format, args...) }
	for _, path := range r.Sources {
		p("from %s\n", safe(path))
	}
	for _, s := range r.Servers {
		sign, colour := map[string]string{imported: "+", unchanged: "=", skipped: "-"}[s.Result],
			map[string]string{imported: green, skipped: yellow}[s.Result]
		name := s.Name
		if s.Result == skipped || s.Name == s.From {
			name = s.From
		} else {
			name += " (there: " + s.From + ")"
		}
		p("%s %s\n", paint(colour, sign), printable(name))
		detail := func(kind, text string) {
			if text != "" {
				p("    %s%s\n", kind, printable(text))
			}
		}
		detail("skipped: ", s.Reason)
		if s.Result == skipped {
			continue
		}
		if s.Result == unchanged {
			detail("", "it is there already, just so")
		}
		for _, n := range s.Notes {
			detail("note: ", n)
		}
		for _, f := range s.Secrets {
			detail("secret in: ", f)
		}
		for _, w := range s.Warnings {
			detail(paint(yellow, "warning: "), w)
		}
	}
}
