package importer

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"mcpd/config"
)

// Source is a file and what is known of it.
type Source struct {
	Path string // absolute
	// Project is the folder that the file's servers run in; empty for the file
	// of a user.
	Project string
	// Literal files expand nothing: see [Program].
	Literal bool
}

// Server is what became of one server of a file.
type Server struct {
	// Name is what the file calls it.
	Name string
	// Project is the folder of the project that it belongs to; empty where it
	// belongs to the user.
	Project string
	// Entry can be written where Skip is empty. Its name is a valid one.
	Entry config.Entry
	// Disabled says that the file has it switched off.
	Disabled bool
	// Skip is why it cannot be taken over.
	Skip string
	// Notes are what was not taken over of it, or not as it stands there.
	Notes []string
}

// Read finds the servers in a file, in the order in which they stand there.
func Read(s Source, data []byte, env config.Environment) ([]Server, error) {
	root, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", s.Path, err)
	}
	var servers []Server
	found := false
	read := func(value jsontext.Value, project string) error {
		list, err := members(value)
		if err != nil {
			return fmt.Errorf("%s cannot be read: its list of servers: %w", s.Path, err)
		}
		found = true
		for _, m := range list {
			r := reader{source: s, env: env, server: Server{Name: m.name, Project: project}}
			r.read(m.value)
			servers = append(servers, r.server)
		}
		return nil
	}
	keys := []string{"mcpServers", "servers", "context_servers", "amp.mcpServers"}
	if name := root.repeated(keys...); name != "" {
		return nil, fmt.Errorf("%s has %q twice, and there is no telling which one counts", s.Path, name)
	}
	for _, key := range keys {
		if value, ok := root.get(key); ok && value.Kind() == '{' {
			if err := read(value, s.Project); err != nil {
				return nil, err
			}
		}
	}
	if value, ok := root.sub("mcp").get("servers"); ok { // older settings of VS Code
		if err := read(value, s.Project); err != nil {
			return nil, err
		}
	}
	for _, p := range root.sub("projects") { // Claude Code
		o, err := split(p.value)
		if err != nil {
			continue // of another program, and about something else
		}
		if value, ok := o.get("mcpServers"); ok {
			if err := read(value, p.name); err != nil {
				return nil, err
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("%s has none of mcpServers, servers and context_servers, so there is nothing to import", s.Path)
	}
	return servers, nil
}

// reader turns one server into an entry.
type reader struct {
	source Source
	env    config.Environment
	server Server
}

func (r *reader) skip(format string, args ...any) {
	if r.server.Skip == "" {
		r.server.Skip = fmt.Sprintf(format, args...)
	}
}

func (r *reader) note(format string, args ...any) {
	r.server.Notes = append(r.server.Notes, fmt.Sprintf(format, args...))
}

func (r *reader) read(value jsontext.Value) {
	r.server.Entry.Name = ValidName(r.server.Name)
	if r.server.Entry.Name != r.server.Name {
		r.note("it is called %s here: names have only the characters A-Z a-z 0-9 . _ -", r.server.Entry.Name)
	}
	o, err := members(value)
	if err != nil {
		r.skip("its settings cannot be read: %v", err)
		return
	}
	// Older settings of Zed have path, args and env in command.
	if command := o.sub("command"); command != nil {
		o = slices.DeleteFunc(slices.Clone(o), func(m member) bool { return m.name == "command" })
		for _, m := range command {
			if m.name == "path" {
				m.name = "command"
			}
			o = append(o, m)
		}
	}
	r.remote(o)
	if r.server.Skip != "" {
		return
	}
	for _, m := range o {
		r.field(m)
	}
	if r.server.Entry.Raw.Command == "" {
		r.skip("it has no command")
		return
	}
	r.settle()
}

// remote finds servers that run elsewhere.
func (r *reader) remote(o object) {
	kind, _ := text(first(o, "type", "transport"))
	for _, key := range []string{"url", "serverUrl", "httpUrl", "uri"} {
		value, ok := o.get(key)
		if !ok {
			continue
		}
		if _, stdio := o.get("command"); stdio && kind != "http" && kind != "sse" && kind != "streamable-http" {
			r.note("%s is not taken over: its command is", key)
			continue
		}
		where, _ := text(value)
		r.skip("it is a remote server%s, and mcpd runs local ones (stdio) only", place(where))
		return
	}
	switch strings.ToLower(kind) {
	case "", "stdio", "local":
	default:
		r.skip("it is a server of type %q, and mcpd runs local ones (stdio) only", kind)
	}
}

// place names the host of a URL and nothing else of it.
func place(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return " at " + u.Hostname()
}

func first(o object, names ...string) jsontext.Value {
	for _, name := range names {
		if value, ok := o.get(name); ok {
			return value
		}
	}
	return nil
}

func (r *reader) field(m member) {
	raw := &r.server.Entry.Raw
	switch m.name {
	case "command":
		if list, ok := elements(m.value); ok && len(list) > 0 { // opencode
			r.list(list, "command")
			if len(raw.Args) > 0 {
				raw.Command, raw.Args = raw.Args[0], raw.Args[1:]
			}
			return
		}
		command, ok := text(m.value)
		if !ok {
			r.skip("its command is not a text")
			return
		}
		raw.Command = r.expand(command, "its command")
	case "args":
		list, ok := elements(m.value)
		if !ok {
			if m.value.Kind() != 'n' {
				r.skip("its args are not an array")
			}
			return
		}
		r.list(list, "args")
	case "env", "environment":
		r.variables(m.value)
	case "cwd", "workingDirectory":
		cwd, ok := text(m.value)
		if !ok {
			if m.value.Kind() != 'n' {
				r.skip("its working folder is not a text")
			}
			return
		}
		raw.Cwd = r.expand(cwd, "its working folder")
	case "disabled":
		r.server.Disabled = r.server.Disabled || m.value.Kind() == 't'
	case "enabled":
		r.server.Disabled = r.server.Disabled || m.value.Kind() == 'f'
	case "type", "transport", "name", "description", "source", "gallery", "version", "url", "serverUrl", "httpUrl", "uri", "headers", "settings":
	case "envFile":
		r.note("envFile is not taken over: put the variables of that file into env, or into private files for ${file:…}")
	case "alwaysAllow", "autoApprove", "disabledTools", "includeTools", "excludeTools", "trust", "tools", "sandboxEnabled", "sandbox":
		r.note("%s is not taken over: what a client may call without asking stays the client's business", m.name)
	default:
		r.note("%s is not taken over: mcpd has nothing like it", printable(m.name))
	}
}

// printable is a name of the file that is fit for a sentence.
func printable(name string) string {
	if len(name) > 40 {
		name = name[:40]
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
}

func (r *reader) list(values []jsontext.Value, what string) {
	raw := &r.server.Entry.Raw
	for i, value := range values {
		arg, ok := scalar(value)
		if !ok {
			r.skip("element %d of its %s is not a text", i+1, what)
			return
		}
		raw.Args = append(raw.Args, r.expand(arg, "its "+what))
	}
}

func (r *reader) variables(value jsontext.Value) {
	if value.Kind() == 'n' {
		return
	}
	o, err := members(value)
	if err != nil {
		r.skip("its env cannot be read: %v", err)
		return
	}
	for _, m := range o {
		if m.value.Kind() == 'n' {
			r.note("env.%s is not taken over: mcpd cannot take a variable away", printable(m.name))
			continue
		}
		v, ok := scalar(m.value)
		if !ok {
			r.skip("env.%s is not a text", printable(m.name))
			return
		}
		if r.server.Entry.Raw.Env == nil {
			r.server.Entry.Raw.Env = make(map[string]string)
		}
		r.server.Entry.Raw.Env[m.name] = r.expand(v, "env."+printable(m.name))
	}
}

// settle makes command and folder such that they do not depend on where the
// program was started.
func (r *reader) settle() {
	raw := &r.server.Entry.Raw
	if strings.HasPrefix(raw.Command, "~/") {
		raw.Command = "${home}" + raw.Command[1:]
	}
	if strings.HasPrefix(raw.Cwd, "~/") || raw.Cwd == "~" {
		raw.Cwd = "${home}" + raw.Cwd[1:]
	}
	if len(raw.Args) == 0 && !hasSeparator(r.env, raw.Command) && !strings.ContainsAny(raw.Command, `"'$\`) {
		if words := strings.Fields(raw.Command); len(words) > 1 {
			raw.Command, raw.Args = words[0], words[1:]
			r.note("its command was split into a command and arguments at the spaces")
		}
	}
	if raw.Cwd != "" && !isAbsolute(r.env, raw.Cwd) && !strings.HasPrefix(raw.Cwd, "${") {
		if r.server.Project == "" {
			r.skip("its working folder is relative, and it is not known to what")
			return
		}
		raw.Cwd = join(r.env, r.server.Project, raw.Cwd)
	}
	if raw.Cwd == "" && r.server.Project != "" {
		raw.Cwd = escape(r.server.Project)
	}
	if hasSeparator(r.env, raw.Command) && !isAbsolute(r.env, raw.Command) && !strings.HasPrefix(raw.Command, "${") {
		if raw.Cwd == "" {
			r.skip("its command is a relative path, and it is not known to what")
			return
		}
		raw.Command = join(r.env, raw.Cwd, raw.Command)
	}
	program := strings.TrimSuffix(strings.ToLower(base(r.env, raw.Command)), ".exe")
	if program == "mcpd" && len(raw.Args) > 0 && raw.Args[0] == "connect" {
		r.skip("it is mcpd itself")
	}
}

// ValidName makes a name that mcpd allows from any other.
func ValidName(name string) string {
	var b strings.Builder
	for _, c := range name {
		alphanumeric := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		switch {
		case alphanumeric, b.Len() > 0 && (c == '.' || c == '_' || c == '-'):
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	valid := strings.Trim(b.String()[:min(b.Len(), 64)], "-")
	if valid == "" {
		return "server"
	}
	device, _, _ := strings.Cut(strings.ToLower(valid), ".")
	numbered := len(device) == 4 && (strings.HasPrefix(device, "com") || strings.HasPrefix(device, "lpt")) && device[3] >= '0' && device[3] <= '9'
	if numbered || slices.Contains([]string{"con", "prn", "aux", "nul"}, device) {
		valid = "mcp-" + valid[:min(len(valid), 60)]
	}
	return valid
}

// NextName is the name to try for name after one is taken: NAME-2 after NAME,
// NAME-3 after that.
func NextName(name, taken string) string {
	for n := 2; ; n++ {
		suffix := fmt.Sprintf("-%d", n)
		next := name[:min(len(name), 64-len(suffix))] + suffix
		if taken == name {
			return next
		}
		if next == taken {
			taken = name // the one after it
		}
	}
}
