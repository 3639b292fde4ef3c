package importer

import (
	"path"
	"runtime"
	"strings"

	"mcpd/config"
)

// The functions here follow the rules of the system that the environment
// names, which in tests is another one.

func system(e config.Environment) string {
	if e.OS == "" {
		return runtime.GOOS
	}
	return e.OS
}

func separator(e config.Environment) string {
	if system(e) == "windows" {
		return `\`
	}
	return "/"
}

// slashed is a path with slashes only.
func slashed(e config.Environment, p string) string {
	if system(e) == "windows" {
		return strings.ReplaceAll(p, `\`, "/")
	}
	return p
}

func join(e config.Environment, parts ...string) string {
	for i, p := range parts {
		parts[i] = slashed(e, p)
	}
	joined := path.Join(parts...)
	if strings.HasPrefix(parts[0], "//") { // \\server\share
		joined = "/" + joined
	}
	return strings.ReplaceAll(joined, "/", separator(e))
}

func isAbsolute(e config.Environment, p string) bool {
	p = slashed(e, p)
	if system(e) != "windows" {
		return strings.HasPrefix(p, "/")
	}
	return strings.HasPrefix(p, "//") || len(p) > 2 && p[1] == ':' && p[2] == '/'
}

func base(e config.Environment, p string) string { return path.Base(slashed(e, p)) }

// parent is the folder of a path, n levels up.
func parent(e config.Environment, p string, n int) string {
	p = slashed(e, p)
	for range n {
		p = path.Dir(p)
	}
	return strings.ReplaceAll(p, "/", separator(e))
}

// hasSeparator says whether a command is a path and not the name of a program.
func hasSeparator(e config.Environment, p string) bool { return strings.Contains(slashed(e, p), "/") }

// ProjectOf is the project that a file belongs to by its place, if it is one
// that programs keep in a project's folder.
func ProjectOf(e config.Environment, file string) (string, bool) {
	p := slashed(e, file)
	switch name, folder := path.Base(p), path.Base(path.Dir(p)); {
	case folder == ".vscode" && (name == "mcp.json" || name == "settings.json"),
		folder == ".cursor" && name == "mcp.json",
		folder == ".zed" && name == "settings.json":
		dir := parent(e, file, 2)
		if slashed(e, dir) == strings.TrimRight(slashed(e, e.Home), "/") { // ~/.cursor/mcp.json is the user's own
			return "", false
		}
		return dir, true
	case name == ".mcp.json":
		return parent(e, file, 1), true
	}
	return "", false
}
