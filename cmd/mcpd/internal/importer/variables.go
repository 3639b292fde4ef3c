package importer

import (
	"slices"
	"strings"
)

// escape makes a text mean itself in mcpd's file.
func escape(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// expand puts mcpd's references in the place of those of the program, or skips
// the server where one has no counterpart. what names the text for the person.
func (r *reader) expand(s, what string) string {
	if r.source.Literal {
		return escape(s)
	}
	var b strings.Builder
	for {
		at := strings.Index(s, "${")
		if at < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:at])
		s = s[at:]
		end := strings.IndexByte(s, '}')
		if end < 0 {
			b.WriteString(escape(s))
			return b.String()
		}
		value, ok := r.reference(s[2:end], what)
		if !ok {
			return ""
		}
		b.WriteString(value)
		s = s[end+1:]
	}
}

func (r *reader) reference(inside, what string) (string, bool) {
	kind, argument, _ := strings.Cut(inside, ":")
	switch {
	case kind == "env":
		return r.environment(argument, "", false, what)
	case inside == "userHome" || inside == "HOME":
		return "${home}", true
	case inside == "pathSeparator" || inside == "/":
		return separator(r.env), true
	case inside == "workspaceFolder" || inside == "workspaceRoot" || inside == "cwd" || inside == "CLAUDE_PROJECT_DIR":
		if r.server.Project == "" {
			r.skip("%s depends on the project that is open (${%s}); import the project's own file, or name the folder with --project", what, inside)
			return "", false
		}
		return escape(r.server.Project), true
	case inside == "workspaceFolderBasename" && r.server.Project != "":
		return escape(base(r.env, r.server.Project)), true
	case kind == "input":
		r.skip("%s is asked for by the editor (${input:%s}), which mcpd cannot do; add it with: mcpd add NAME --env 'KEY=${file:PATH}' -- COMMAND",
			what, printable(argument))
		return "", false
	}
	name, fallback, hasFallback := strings.Cut(inside, ":-")
	if isVariable(name) && (hasFallback || name == inside) && strings.ToUpper(name) == name {
		return r.environment(name, fallback, hasFallback, what)
	}
	r.skip("%s has ${%s…}, for which mcpd has no counterpart", what, printable(kind))
	return "", false
}

// environment is a reference to a variable. The config would not be valid with
// one that is not set.
func (r *reader) environment(name, fallback string, hasFallback bool, what string) (string, bool) {
	set := false
	if r.env.Getenv != nil {
		_, set = r.env.Getenv(name)
	}
	switch {
	case !isVariable(name):
		r.skip("%s refers to a variable with a name that mcpd does not allow", what)
		return "", false
	case set:
		if note := "mcpd needs the variable " + name + " in its environment"; !slices.Contains(r.server.Notes, note) {
			r.note("%s", note)
		}
		return "${env:" + name + "}", true
	case hasFallback:
		r.note("%s has the default value of the variable %s, which is not set here", what, name)
		return escape(fallback), true
	}
	r.skip("%s refers to the variable %s, which is not set here; set it for mcpd, and import again", what, name)
	return "", false
}

func isVariable(name string) bool {
	return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_()") == ""
}
