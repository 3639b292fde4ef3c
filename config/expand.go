package config

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// badReference is a ${…} that cannot be expanded.
type badReference struct {
	text string // as written, to find its place
	flaw flaw
}

// expander replaces references. Its errors name the reference, never what it stands for.
type expander struct {
	env       Environment
	configDir string
	// lookups is false for a disabled server: the references are checked but nothing is looked up, and the text stays.
	lookups bool
}

// expand replaces every reference in text; "$${" stands for a literal "${".
func (e expander) expand(text string) (string, []badReference) {
	var b strings.Builder
	var bad []badReference
	rest := text
	for {
		at := strings.Index(rest, "${")
		if at < 0 {
			b.WriteString(rest)
			break
		}
		if at > 0 && rest[at-1] == '$' {
			b.WriteString(rest[:at-1])
			b.WriteString("${")
			rest = rest[at+2:]
			continue
		}
		b.WriteString(rest[:at])
		rest = rest[at:]
		end := referenceEnd(rest)
		if end < 0 {
			bad = append(bad, badReference{rest, *flawf(`"${" has no closing "}"`).withHint(`write "$${" for a literal "${"`)})
			break
		}
		reference := rest[:end]
		rest = rest[end:]
		value, f := e.reference(reference)
		if f != nil {
			bad = append(bad, badReference{reference, *f})
		}
		b.WriteString(value)
	}
	if !e.lookups {
		return text, bad
	}
	return b.String(), bad
}

// referenceEnd is the length of the reference that s starts with, or -1. References may hold others:
// ${file:${home}/token}.
func referenceEnd(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "${"):
			depth++
			i++
		case s[i] == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

func (e expander) reference(text string) (string, *flaw) {
	kind, argument, hasArgument := strings.Cut(text[2:len(text)-1], ":")
	switch kind {
	case "home", "config_dir":
		if hasArgument {
			return "", flawf("%s takes nothing after its name", text).withHint("did you mean %q?", "${"+kind+"}")
		}
		if kind == "config_dir" {
			return e.configDir, nil
		}
		if e.env.Home == "" && e.lookups {
			return "", flawf("%s: the home folder of this user is not known", text)
		}
		return e.env.Home, nil
	case "env":
		return e.variable(text, argument)
	case "file":
		return e.file(text, argument)
	case "secret":
		return "", flawf("%s: secrets are not available in this version", text).
			withHint("use ${env:NAME} or ${file:PATH}")
	}
	f := flawf("%s: unknown kind of reference", text)
	if !hasArgument && isVariableName(kind) && kind == strings.ToUpper(kind) {
		return "", f.withHint("did you mean %q?", "${env:"+kind+"}") // as in a shell
	}
	if hint := didYouMean(kind, []string{"env", "file", "home", "config_dir"}); hint != "" {
		return "", f.withHint("%s", hint)
	}
	if !hasArgument && isVariableName(kind) {
		return "", f.withHint("did you mean %q?", "${env:"+kind+"}")
	}
	return "", f.withHint(`there are ${env:NAME}, ${file:PATH}, ${home} and ${config_dir}; write "$${" for a literal "${"`)
}

func (e expander) variable(text, name string) (string, *flaw) {
	if !isVariableName(name) {
		return "", flawf("%s: %q is not the name of a variable", text, name)
	}
	if !e.lookups {
		return "", nil
	}
	value, ok := e.env.lookup(name)
	if !ok {
		return "", flawf("%s: the variable %s is not set", text, name).
			withHint("set it for the daemon; an empty value is allowed")
	}
	return value, nil
}

// isVariableName keeps to what shells can set, and parentheses for Windows; so ${env:NAME:-default} is a clear error.
func isVariableName(name string) bool {
	for _, r := range name {
		letter := r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !letter && r != '_' && r != '(' && r != ')' {
			return false
		}
	}
	return name != ""
}

func (e expander) file(text, argument string) (string, *flaw) {
	if argument == "" {
		return "", flawf("%s: the path is missing", text)
	}
	name, bad := e.expand(argument)
	if len(bad) > 0 {
		return "", flawf("%s: in its path: %s", text, bad[0].flaw.message).withHint("%s", bad[0].flaw.hint)
	}
	if !e.lookups {
		return "", nil
	}
	if e.env.ReadFile == nil {
		return "", flawf("%s: no file can be read here", text)
	}
	if !isAbsolute(e.env.os(), name) {
		name = filepath.Join(e.configDir, name)
	}
	data, err := e.env.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", flawf("%s: the file does not exist", text).
			withHint("a relative path starts at the folder of the configuration")
	case err != nil:
		return "", flawf("%s: the file cannot be read: %s", text, plainCause(err))
	case len(data) > MaxReferenceBytes:
		return "", flawf("%s: the file is %s", text, tooLargeError(MaxReferenceBytes))
	}
	content := string(data)
	if trimmed, found := strings.CutSuffix(content, "\n"); found {
		content = strings.TrimSuffix(trimmed, "\r")
	}
	return content, nil
}

// plainCause leaves out the path that errors of the file system carry: an expanded path may hold an expanded value.
func plainCause(err error) string {
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		return wrapped.Err.Error()
	}
	return "the system refuses it"
}

// isAbsolute is filepath.IsAbs for the system that is named.
func isAbsolute(system, p string) bool {
	if system != "windows" {
		return path.IsAbs(p)
	}
	slashed := strings.ReplaceAll(p, `\`, "/")
	if strings.HasPrefix(slashed, "//") {
		return len(slashed) > 2 && slashed[2] != '/'
	}
	return len(slashed) >= 3 && slashed[1] == ':' && slashed[2] == '/' &&
		(slashed[0]|0x20 >= 'a' && slashed[0]|0x20 <= 'z')
}

// hasSeparator says whether p is a path rather than the bare name of a program.
func hasSeparator(system, p string) bool {
	return strings.Contains(p, "/") || (system == "windows" && strings.ContainsAny(p, `\:`))
}

// locate finds the places of bad references within the source of a value. A reference that was written with escapes is
// not found; the value itself is its place then.
func locate(source string, at span, bad []badReference) []span {
	places := make([]span, 0, len(bad))
	cursor := at.start
	for _, b := range bad {
		place := at
		for from := cursor; from < at.end; {
			i := strings.Index(source[from:at.end], b.text)
			if i < 0 {
				break
			}
			i += from
			from = i + 1
			if i > at.start && source[i-1] == '$' {
				continue
			}
			place = span{i, i + len(b.text)}
			cursor = i + len(b.text)
			break
		}
		places = append(places, place)
	}
	return slices.Clip(places)
}
