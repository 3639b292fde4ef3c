package importer

import (
	"strings"

	"mcpd/config"
)

// Program is another program that knows MCP servers.
type Program struct {
	Name  string // as on the command line
	Title string // as people call it
	// ProjectFile is where it keeps those of one project, below the project's
	// folder, with slashes; empty where it does not.
	ProjectFile string
	// Literal programs expand nothing: "${" means itself.
	Literal bool

	paths func(config.Environment) []string
}

// Programs are those whose files are known, sorted by name.
func Programs() []Program {
	code := func(folder string) func(config.Environment) []string {
		return func(e config.Environment) []string {
			return under(e, appData(e), []string{folder, "User", "mcp.json"})
		}
	}
	home := func(parts ...string) func(config.Environment) []string {
		return func(e config.Environment) []string { return under(e, e.Home, parts) }
	}
	return []Program{
		{
			Name: "claude-code", Title: "Claude Code", ProjectFile: ".mcp.json",
			paths: func(e config.Environment) []string {
				if dir := variable(e, "CLAUDE_CONFIG_DIR"); dir != "" {
					return under(e, dir, []string{".claude.json"})
				}
				return under(e, e.Home, []string{".claude.json"})
			},
		},
		{
			Name: "claude-desktop", Title: "Claude Desktop", Literal: true,
			paths: func(e config.Environment) []string {
				return under(e, appData(e), []string{"Claude", "claude_desktop_config.json"})
			},
		},
		{Name: "cursor", Title: "Cursor", ProjectFile: ".cursor/mcp.json", paths: home(".cursor", "mcp.json")},
		{Name: "vscode", Title: "VS Code", ProjectFile: ".vscode/mcp.json", paths: code("Code")},
		{Name: "vscode-insiders", Title: "VS Code Insiders", ProjectFile: ".vscode/mcp.json", paths: code("Code - Insiders")},
		{Name: "windsurf", Title: "Windsurf", paths: home(".codeium", "windsurf", "mcp_config.json")},
		{
			Name: "zed", Title: "Zed", ProjectFile: ".zed/settings.json", Literal: true,
			paths: func(e config.Environment) []string {
				switch system(e) {
				case "windows":
					return under(e, appData(e), []string{"Zed", "settings.json"})
				case "linux":
					return under(e, appData(e), []string{"zed", "settings.json"})
				}
				return under(e, e.Home, []string{".config", "zed", "settings.json"})
			},
		},
	}
}

// FindProgram finds a program by its name on the command line.
func FindProgram(name string) (Program, bool) {
	for _, p := range Programs() {
		if p.Name == strings.ToLower(name) {
			return p, true
		}
	}
	return Program{}, false
}

// Paths are the places of the program's file for this user, which need not
// exist. There are none where the home folder is not known.
func (p Program) Paths(e config.Environment) []string { return p.paths(e) }

// ProjectPath is the place of the program's file for a project.
func (p Program) ProjectPath(e config.Environment, dir string) (string, bool) {
	if p.ProjectFile == "" {
		return "", false
	}
	return join(e, append([]string{dir}, strings.Split(p.ProjectFile, "/")...)...), true
}

// appData is the system's folder for settings of programs.
func appData(e config.Environment) string {
	switch system(e) {
	case "windows":
		if dir := variable(e, "APPDATA"); dir != "" {
			return dir
		}
		if e.Home == "" {
			return ""
		}
		return join(e, e.Home, "AppData", "Roaming")
	case "darwin":
		if e.Home == "" {
			return ""
		}
		return join(e, e.Home, "Library", "Application Support")
	}
	if dir := variable(e, "XDG_CONFIG_HOME"); isAbsolute(e, dir) {
		return dir
	}
	if e.Home == "" {
		return ""
	}
	return join(e, e.Home, ".config")
}

func under(e config.Environment, base string, parts []string) []string {
	if base == "" {
		return nil
	}
	return []string{join(e, append([]string{base}, parts...)...)}
}

func variable(e config.Environment, name string) string {
	if e.Getenv == nil {
		return ""
	}
	value, _ := e.Getenv(name)
	return value
}
