package importer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpd/config"
)

func world(system string, variables map[string]string) config.Environment {
	home := map[string]string{"linux": "/home/ada", "darwin": "/Users/ada", "windows": `C:\Users\ada`}[system]
	return config.Environment{
		OS: system, Home: home,
		Getenv: func(name string) (string, bool) {
			value, ok := variables[name]
			return value, ok
		},
	}
}

func TestEachProgramsFileIsWhereTheProgramKeepsIt(t *testing.T) {
	for _, c := range []struct{ program, linux, darwin, windows string }{
		{
			"claude-desktop", "/home/ada/.config/Claude/claude_desktop_config.json",
			"/Users/ada/Library/Application Support/Claude/claude_desktop_config.json",
			`C:\Users\ada\AppData\Roaming\Claude\claude_desktop_config.json`,
		},
		{"claude-code", "/home/ada/.claude.json", "/Users/ada/.claude.json", `C:\Users\ada\.claude.json`},
		{
			"vscode", "/home/ada/.config/Code/User/mcp.json", "/Users/ada/Library/Application Support/Code/User/mcp.json",
			`C:\Users\ada\AppData\Roaming\Code\User\mcp.json`,
		},
		{
			"vscode-insiders", "/home/ada/.config/Code - Insiders/User/mcp.json",
			"/Users/ada/Library/Application Support/Code - Insiders/User/mcp.json",
			`C:\Users\ada\AppData\Roaming\Code - Insiders\User\mcp.json`,
		},
		{"cursor", "/home/ada/.cursor/mcp.json", "/Users/ada/.cursor/mcp.json", `C:\Users\ada\.cursor\mcp.json`},
		{
			"windsurf", "/home/ada/.codeium/windsurf/mcp_config.json", "/Users/ada/.codeium/windsurf/mcp_config.json",
			`C:\Users\ada\.codeium\windsurf\mcp_config.json`,
		},
		{"zed", "/home/ada/.config/zed/settings.json", "/Users/ada/.config/zed/settings.json", `C:\Users\ada\AppData\Roaming\Zed\settings.json`},
	} {
		p, ok := FindProgram(c.program)
		if !ok {
			t.Errorf("%s is not known", c.program)
			continue
		}
		for system, want := range map[string]string{"linux": c.linux, "darwin": c.darwin, "windows": c.windows} {
			if got := p.Paths(world(system, nil)); !slices.Equal(got, []string{want}) {
				t.Errorf("%s on %s: %q, want %q", c.program, system, got, want)
			}
			if got := p.Paths(config.Environment{OS: system}); len(got) != 0 {
				t.Errorf("%s on %s without a home folder: %q", c.program, system, got)
			}
		}
	}
	moved := map[string]string{"XDG_CONFIG_HOME": "/etc/xdg", "APPDATA": `D:\Roaming`, "CLAUDE_CONFIG_DIR": "/srv/claude"}
	for _, c := range []struct{ program, system, want string }{
		{"zed", "linux", "/etc/xdg/zed/settings.json"},
		{"zed", "darwin", "/Users/ada/.config/zed/settings.json"},
		{"claude-desktop", "windows", `D:\Roaming\Claude\claude_desktop_config.json`},
		{"claude-code", "linux", "/srv/claude/.claude.json"},
	} {
		p, _ := FindProgram(c.program)
		if got := p.Paths(world(c.system, moved)); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s on %s: %q, want %q", c.program, c.system, got, c.want)
		}
	}
}

func TestAFileInAProjectBelongsToIt(t *testing.T) {
	linux, windows := world("linux", nil), world("windows", nil)
	for _, c := range []struct {
		env        config.Environment
		file, want string
	}{
		{linux, "/src/app/.mcp.json", "/src/app"},
		{linux, "/src/app/.vscode/mcp.json", "/src/app"},
		{linux, "/src/app/.zed/settings.json", "/src/app"},
		{windows, `D:\src\app\.cursor\mcp.json`, `D:\src\app`},
		{linux, "/home/ada/.cursor/mcp.json", ""},
		{linux, "/src/app/mcp.json", ""},
	} {
		if got, _ := ProjectOf(c.env, c.file); got != c.want {
			t.Errorf("%s: %q, want %q", c.file, got, c.want)
		}
	}
}

// taken is a short form of a server: what is written, or why it is not.
func short(s Server) []string {
	list := []string{s.Name}
	if s.Skip != "" {
		return append(list, "SKIP "+s.Skip)
	}
	e := s.Entry
	if e.Name != s.Name {
		list = append(list, "name "+e.Name)
	}
	list = append(list, strings.Join(append([]string{"run", e.Raw.Command}, e.Raw.Args...), " | "))
	if e.Raw.Cwd != "" {
		list = append(list, "in "+e.Raw.Cwd)
	}
	var variables []string
	for k, v := range e.Raw.Env {
		variables = append(variables, k+"="+v)
	}
	slices.Sort(variables)
	if len(variables) > 0 {
		list = append(list, strings.Join(variables, " "))
	}
	if s.Disabled {
		list = append(list, "OFF")
	}
	for _, n := range s.Notes {
		list = append(list, "note "+n)
	}
	return list
}

const calledHere = "note it is called %s here: names have only the characters A-Z a-z 0-9 . _ -"

func TestServersAreTakenOverFromEachProgramsFile(t *testing.T) {
	set := map[string]string{"DATABASE_URI": "x", "PROXY": "y"}
	for _, c := range []struct {
		file, system string
		source       Source
		want         [][]string
	}{
		{"claude_desktop_config.json", "darwin", Source{Literal: true}, [][]string{
			{"filesystem", "run | npx | -y | @modelcontextprotocol/server-filesystem | /Users/ada/Desktop | $${not a reference}"},
			{
				"Brave Search", "name Brave-Search", "run | docker | run | -i | --rm | -e | BRAVE_API_KEY | mcp/brave-search",
				"BRAVE_API_KEY=BSA-0123456789abcdef", strings.Replace(calledHere, "%s", "Brave-Search", 1),
			},
		}},
		{"claude.json", "linux", Source{}, [][]string{
			{"postgres", "SKIP env.TOKEN refers to the variable UNSET_TOKEN, which is not set here; set it for mcpd, and import again"},
			{"sentry", "SKIP it is a remote server at mcp.sentry.dev, and mcpd runs local ones (stdio) only"},
			{
				"app-db", "run | /home/ada/src/app/scripts/db-mcp", "in /home/ada/src/app", "HOME_DIR=${home} MODE=dev",
				"note env.MODE has the default value of the variable MODE, which is not set here",
			},
		}},
		{"vscode-mcp.json", "linux", Source{Project: "/src/app"}, [][]string{
			{
				"playwright", "run | npx | -y | @playwright/mcp@latest | --out=/src/app/out", "in /src/app", "PORT=8123 PROXY=${env:PROXY}",
				"note env.DEBUG is not taken over: mcpd cannot take a variable away",
				"note mcpd needs the variable PROXY in its environment",
				"note envFile is not taken over: put the variables of that file into env, or into private files for ${file:…}",
				"note dev is not taken over: mcpd has nothing like it",
			},
			{"github", "SKIP env.GITHUB_TOKEN is asked for by the editor (${input:gh}), which mcpd cannot do; add it with: mcpd add NAME --env 'KEY=${file:PATH}' -- COMMAND"},
			{"docs", "SKIP it is a remote server at learn.example.com, and mcpd runs local ones (stdio) only"},
			{"tasks", "run | python | ${home}/tasks.py", "in /src/app/tools"},
			{"weird", "SKIP its args has ${command…}, for which mcpd has no counterpart"},
		}},
		{"cursor-mcp.json", "linux", Source{}, [][]string{
			{"one-line", "run | npx | -y | mcp-server", "API_KEY=${env:PROXY}", "note mcpd needs the variable PROXY in its environment", "note its command was split into a command and arguments at the spaces"},
			{"linear", "SKIP it is a remote server at mcp.linear.app, and mcpd runs local ones (stdio) only"},
			{"in-project", "SKIP its args depends on the project that is open (${workspaceFolder}); import the project's own file, or name the folder with --project"},
		}},
		{"windsurf-mcp_config.json", "windows", Source{}, [][]string{
			{"git", "run | py | -m | mcp_server_git", "OFF"},
			{"figma", "SKIP it is a remote server at mcp.figma.example, and mcpd runs local ones (stdio) only"},
			{
				"con", "name mcp-con", `run | C:\Tools\con.exe | --port | 3000 | true`, strings.Replace(calledHere, "%s", "mcp-con", 1),
				"note disabledTools is not taken over: what a client may call without asking stays the client's business",
				"note alwaysAllow is not taken over: what a client may call without asking stays the client's business",
			},
		}},
		{"zed-settings.json", "linux", Source{Literal: true}, [][]string{
			{"new-style", "run | uvx | mcp-server-time", "LITERAL=$${HOME}"},
			{"old-style", "run | /opt/old | --x", "A=1"},
			{"extension", "SKIP it has no command"},
			{"off", "run | x", "OFF"},
			{"far", "SKIP it is a remote server at far.example, and mcpd runs local ones (stdio) only"},
		}},
	} {
		t.Run(c.file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", c.file))
			if err != nil {
				t.Fatal(err)
			}
			env := world(c.system, set)
			for _, bom := range []string{"", "\ufeff"} {
				servers, err := Read(c.source, append([]byte(bom), data...), env)
				if err != nil {
					t.Fatal(err)
				}
				var got [][]string
				for _, s := range servers {
					got = append(got, short(s))
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if bom == "" {
					writable(t, servers, env)
				}
			}
		})
	}
}

// writable holds that what is taken over can stand in the config.
func writable(t *testing.T, servers []Server, env config.Environment) {
	t.Helper()
	e, err := config.NewEditor("mcpd.toml", nil, env)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if s.Skip != "" {
			continue
		}
		if _, err := e.Add(s.Entry, false); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if problems := e.ProblemsOf(s.Entry.Name, env); len(problems) > 0 {
			t.Errorf("%s: %v", s.Name, problems)
		}
	}
}

func TestWhatIsNoListOfServersIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "it is empty",
		"[]":                                "not a JSON object",
		"{":                                 "not valid JSON",
		`{"a": 1}`:                          "none of mcpServers",
		`{"mcpServers": []}`:                "none of mcpServers",
		`{"mcpServers":{"a":1,"a":2}}`:      `"a" twice`,
		`{"mcpServers":{},"mcpServers":{}}`: `"mcpServers" twice`,
		"\xff\xfe{\x00}\x00":                "not UTF-8",
		strings.Repeat("[", 10_000_000):     "nested more than",
		`{"a":"]\"]",/*]*/` + "//]\n" + `"b":` + strings.Repeat(`{"]":`, 2000): "nested more than",
	} {
		if servers, err := Read(Source{Path: "f"}, []byte(text), world("linux", nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, %v; want %q", text, servers, err, want)
		}
	}
	for text, want := range map[string]string{
		`1`:                                         "not a JSON object",
		`{}`:                                        "no command",
		`{"command":1}`:                             "not a text",
		`{"command":"x","args":"y"}`:                "args are not an array",
		`{"command":"x","args":[{}]}`:               "element 1",
		`{"command":"x","env":[]}`:                  "env cannot be read: it is not a JSON object",
		`{"command":"x","command":"y"}`:             `"command" twice`,
		`{"command":"x","env":{"A":[]}}`:            "env.A is not a text",
		`{"command":"x","cwd":"here"}`:              "relative",
		`{"command":"./x"}`:                         "relative",
		`{"type":"ws","command":"x"}`:               `of type "ws"`,
		`{"command":"mcpd","args":["connect","a"]}`: "mcpd itself",
	} {
		servers, err := Read(Source{Path: "f"}, []byte(`{"mcpServers":{"a":`+text+`}}`), world("linux", nil))
		if err != nil || len(servers) != 1 || !strings.Contains(servers[0].Skip, want) {
			t.Errorf("%s: %+v, %v; want %q", text, servers, err, want)
		}
	}
}

func TestWhatTheFileSaysAboutOtherThingsDoesNotMatter(t *testing.T) {
	servers, err := Read(Source{Path: "f"}, []byte(`{
		"theme": {"a": 1, "a": 2}, "theme": [], "projects": {"/p": {"x": 1, "x": 2}, "/q": 1},
		"context_servers": {"a": {"command": "x", "settings": {"k": 1, "k": 2}}},
	}`), world("linux", nil))
	if err != nil || len(servers) != 1 || servers[0].Skip != "" {
		t.Errorf("%+v, %v", servers, err)
	}
}

func TestBracketsInTextsAndCommentsAreNotNesting(t *testing.T) {
	many := strings.Repeat("[", 2000)
	text := "\ufeff// " + many + "\r\n{/* " + many + ` */ "x": "\"` + many + `", "y": [[], {}, [],], "mcpServers": {"a": {"command": "c"}},}` + " // " + many
	servers, err := Read(Source{Path: "f"}, []byte(text), world("linux", nil))
	if err != nil || len(servers) != 1 || servers[0].Entry.Raw.Command != "c" {
		t.Errorf("%+v, %v", servers, err)
	}
}

func TestNamesAreMadeValid(t *testing.T) {
	for name, want := range map[string]string{
		"files": "files", "@scope/pkg name!": "scope-pkg-name", "": "server", "ä": "server", "NUL.txt": "mcp-NUL.txt",
		"-a-": "a", strings.Repeat("x", 99): strings.Repeat("x", 64), "a.b_c": "a.b_c",
	} {
		if got := ValidName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	for _, c := range []struct{ taken, want string }{{"a", "a-2"}, {"a-2", "a-3"}, {"a-9", "a-10"}} {
		if got := NextName("a", c.taken); got != c.want {
			t.Errorf("after %q: %q, want %q", c.taken, got, c.want)
		}
	}
	if got := NextName(strings.Repeat("x", 64), strings.Repeat("x", 64)); got != strings.Repeat("x", 62)+"-2" {
		t.Errorf("%q", got)
	}
}

func TestSecretsAreRecognised(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"API_TOKEN", "abcdefgh", true},
		{"apiKey", "abcdefgh", true},
		{"GITHUB_PERSONAL_ACCESS_TOKEN", "x1", true},
		{"OPENAI_API_KEY", "${env:KEY}", false},
		{"TOKEN", "${env:A}${file:b}", false},
		{"TOKEN", "", false},
		{"TOKEN", "true", false},
		{"MAX_TOKENS", "4096", false},
		{"TOKEN_FILE", "secret.txt", false},
		{"PRIVATE_KEY", "/home/ada/.ssh/id", false},
		{"KEY_FILE", "x", false},
		{"KEYBOARD", "dvorak", false},
		{"X", "ghp_0123456789abcdef0123", true},
		{"X", "sk-0123456789abcdef", true},
		{"X", "sk-short", false},
		{"DATABASE_URL", "postgres://ada:pw@localhost/db", true},
		{"DATABASE_URL", "postgres://localhost/db", false},
		{"ENDPOINT", "https://x.example/mcp?api_key=0123456789", true},
		{"PATH", "/usr/bin:/bin", false},
	} {
		if got := LooksSecret(c.name, c.value); got != c.want {
			t.Errorf("%s=%s: %v", c.name, c.value, got)
		}
	}
	got := SecretArguments([]string{"--api-key", "abcdefgh", "--token=xyz12345", "-y", "TOKEN=abc123de", "--verbose", "--", "postgres://a:b@c/d", "--token=${env:T}"})
	want := []SecretArgument{{1, "", "api-key"}, {2, "--token=", "token"}, {4, "TOKEN=", "TOKEN"}, {7, "", ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzRead: no file makes Read panic, and what it takes over, the config takes.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		env := world("linux", map[string]string{"A": "b"})
		servers, err := Read(Source{Path: "f", Project: "/p"}, data, env)
		if err != nil {
			return
		}
		for _, s := range servers {
			if s.Skip == "" && ValidName(s.Entry.Name) != s.Entry.Name {
				t.Errorf("%q became %q", s.Name, s.Entry.Name)
			}
		}
	})
}
