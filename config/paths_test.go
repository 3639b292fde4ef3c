package config

import (
	"path/filepath"
	"runtime"
	"testing"
)

func TestTheFileAndTheStateAreWhereTheSystemWantsThem(t *testing.T) {
	const roaming, local = `C:\Users\ada\AppData\Roaming`, `D:\Local`
	for _, test := range []struct {
		name, os, home string
		variables      map[string]string
		config, state  string // empty: an error
	}{
		{"Linux", "linux", "/home/ada", nil, "/home/ada/.config/mcpd/mcpd.toml", "/home/ada/.local/state/mcpd"},
		{
			"Linux with XDG folders", "linux", "/home/ada",
			map[string]string{"XDG_CONFIG_HOME": "/c/", "XDG_STATE_HOME": "/s"},
			"/c/mcpd/mcpd.toml", "/s/mcpd",
		},
		{
			"Linux with relative XDG folders, which do not count", "linux", "/home/ada",
			map[string]string{"XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "./s"},
			"/home/ada/.config/mcpd/mcpd.toml", "/home/ada/.local/state/mcpd",
		},
		{"Linux without a home", "linux", "", nil, "", ""},
		{
			"macOS", "darwin", "/Users/ada",
			map[string]string{"XDG_CONFIG_HOME": "/c"},
			"/Users/ada/Library/Application Support/mcpd/mcpd.toml", "/Users/ada/Library/Application Support/mcpd/state",
		},
		{"macOS without a home", "darwin", "", nil, "", ""},
		{
			"Windows", "windows", `C:\Users\ada`,
			map[string]string{"AppData": roaming, "LocalAppData": local},
			roaming + `\mcpd\mcpd.toml`, local + `\mcpd`,
		},
		{
			"Windows without its variables", "windows", `C:\Users\ada`, nil,
			roaming + `\mcpd\mcpd.toml`, `C:\Users\ada\AppData\Local\mcpd`,
		},
		{"Windows without anything", "windows", "", nil, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := world{variables: test.variables}.environment()
			env.OS, env.Home = test.os, test.home
			if got, err := DefaultPath("", env); got != test.config || (err != nil) != (test.config == "") {
				t.Errorf("the file: %q, %v", got, err)
			}
			if got, err := StateDir("", env); got != test.state || (err != nil) != (test.state == "") {
				t.Errorf("the state: %q, %v", got, err)
			}
		})
	}
}

func TestFlagsGoBeforeVariablesAndBothBeforeTheSystem(t *testing.T) {
	dir := t.TempDir()
	env := world{variables: map[string]string{
		VariableConfig: filepath.Join(dir, "variable.toml"), VariableStateDir: filepath.Join(dir, "variable"),
	}}.environment()
	env.OS = runtime.GOOS
	check := func(what string, want string, got string, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
	}
	got, err := DefaultPath(filepath.Join(dir, "flag.toml"), env)
	check("--config", filepath.Join(dir, "flag.toml"), got, err)
	got, err = DefaultPath("", env)
	check(VariableConfig, filepath.Join(dir, "variable.toml"), got, err)
	got, err = StateDir(filepath.Join(dir, "flag"), env)
	check("--state-dir", filepath.Join(dir, "flag"), got, err)
	got, err = StateDir("", env)
	check(VariableStateDir, filepath.Join(dir, "variable"), got, err)

	t.Chdir(dir)
	working, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	got, err = DefaultPath("relative.toml", env)
	check("a relative path", filepath.Join(working, "relative.toml"), got, err)
}

func TestWindowsRulesHoldOnWindows(t *testing.T) {
	env := world{}.environment()
	env.OS, env.Home = "windows", `C:\Users\ada`
	text := `
[defaults]
env = { Path = 'C:\a', KEEP = "1" }
[servers.a]
command = 'C:\tools\x.exe'
cwd = '\\server\share'
env = { PATH = 'C:\b' }
`
	cfg, err := Parse(testPath, []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Servers["a"].Env; len(got) != 2 || got["PATH"] != `C:\b` {
		t.Errorf("Env = %q", got)
	}
	for _, bad := range []string{
		server(`cwd = '\x'`), server(`cwd = 'C:x'`), server(`cwd = "/x"`), server(`env = { Path = "1", PATH = "2" }`),
		"[servers.a]\ncommand = '.\\x.exe'",
	} {
		if _, err := Parse(testPath, []byte(bad), env); err == nil {
			t.Errorf("accepted\n%s", bad)
		}
	}
}
