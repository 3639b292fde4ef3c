package doctor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpd/cmd/mcpd/internal/daemon"
	"mcpd/config"
)

const slowShell = 4 * time.Second

// checkShell finds out the environment that servers get.
func (d *doctor) checkShell(ctx context.Context) {
	const check = "login shell"
	login := d.LoginEnvironment
	if d.config != nil && !d.config.Daemon.LoginEnv || runtime.GOOS == "windows" {
		login = nil
	}
	start := time.Now()
	trial, err := daemon.NewTrial(ctx, daemon.TrialOptions{
		StateDir: d.StateDir, Version: d.Version, Logger: discard(), Environ: d.Environ, LoginEnvironment: login,
	})
	took := time.Since(start)
	if err != nil {
		return // interrupted
	}
	d.trial = trial
	switch {
	case login == nil:
		d.ok(check, "it is not asked; servers get the environment that mcpd has")
	case trial.EnvironmentError() != "":
		d.trouble(check, "its environment cannot be had, so programs from nvm, Homebrew or uv may not be found", []string{trial.EnvironmentError()},
			[]string{"see that your shell's files work without a terminal and end within 10 seconds", "or switch it off: [daemon] login_shell_env = false"})
	case took > slowShell:
		d.note(check, fmt.Sprintf("it takes %.1f s, and mcpd waits for 10 s at most; servers start only after that", took.Seconds()), "see what in your shell's files is slow")
	default:
		d.ok(check, fmt.Sprintf("its environment was had in %.1f s", took.Seconds()))
	}
}

// launchers are programs whose version people are asked for.
func launchers() []string {
	return []string{"node", "npx", "npm", "pnpm", "bun", "bunx", "deno", "uv", "uvx", "python", "python3", "pipx", "docker", "podman"}
}

// checkPrograms shows what is found for each command.
func (d *doctor) checkPrograms(ctx context.Context) {
	if d.trial == nil {
		return
	}
	type use struct {
		path  string
		users []string
		env   []string
	}
	uses := map[string]*use{}
	var order []string
	for _, s := range d.servers(false) {
		env := d.trial.Environment(s)
		path, problem, mend := find(s, env, d.Environment.Home)
		if problem != "" {
			d.broken[s.Name] = true
			var details []string
			if !strings.ContainsAny(s.Command, `/\`) {
				details = append(details, "searched: "+env["PATH"])
			}
			d.trouble("command of "+s.Name, problem, details, mend)
			continue
		}
		key := path
		if uses[key] == nil {
			uses[key] = &use{path: path, env: pairs(env)}
			order = append(order, key)
		}
		uses[key].users = append(uses[key].users, s.Name)
	}
	for _, key := range order {
		u := uses[key]
		name := strings.ToLower(strings.TrimSuffix(filepath.Base(u.path), filepath.Ext(u.path)))
		if !slices.Contains(launchers(), name) {
			d.ok("program", fmt.Sprintf("%s, for %s", u.path, strings.Join(u.users, ", ")))
			continue
		}
		v, err := versionOf(ctx, u.path, u.env)
		if err != nil {
			d.trouble("program", fmt.Sprintf("%s, for %s, does not run: %v", u.path, strings.Join(u.users, ", "), err), nil,
				[]string{"try it yourself: " + u.path + " --version"})
			continue
		}
		d.ok("program", fmt.Sprintf("%s %s, for %s", u.path, v, strings.Join(u.users, ", ")))
		if name == "npx" || name == "npm" || name == "pnpm" {
			d.checkNode(ctx, u.env)
		}
	}
}

const leastNode = 18

// checkNode looks at the node that npx runs.
func (d *doctor) checkNode(ctx context.Context, env []string) {
	path, err := lookPath("node", value(env, "PATH"), value(env, "PATHEXT"))
	if err != nil {
		d.trouble("program", "npx is there, but node is not in PATH", nil, []string{"install Node.js: https://nodejs.org"})
		return
	}
	v, err := versionOf(ctx, path, env)
	if err != nil {
		d.trouble("program", fmt.Sprintf("%s does not run: %v", path, err), nil, []string{"try it yourself: " + path + " --version"})
		return
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(v, "v"), ".")
	if n, err := strconv.Atoi(major); err == nil && n < leastNode {
		d.trouble("program", fmt.Sprintf("%s is version %s, too old for most servers", path, v), nil, []string{fmt.Sprintf("install Node.js %d or newer", leastNode)})
		return
	}
	d.ok("program", path+" "+v)
}

// find says which file a server's command is, or what is wrong with it.
func find(s config.Server, env map[string]string, home string) (path, problem string, mend []string) {
	if strings.ContainsAny(s.Command, "/"+string(filepath.Separator)) {
		info, err := os.Stat(s.Command)
		switch {
		case err != nil:
			return "", fmt.Sprintf("%s cannot be found: %s", s.Raw.Command, cause(err)), []string{"correct command in the config, or install it"}
		case info.IsDir():
			return "", s.Raw.Command + " is a folder", []string{"name the program in it"}
		case runtime.GOOS != "windows" && info.Mode()&0o111 == 0:
			return "", s.Raw.Command + " is not executable", []string{"chmod +x " + s.Raw.Command}
		}
		return s.Command, "", nil
	}
	path, err := lookPath(s.Command, env["PATH"], env["PATHEXT"])
	if err == nil {
		return path, "", nil
	}
	return "", fmt.Sprintf("%q is not in the PATH of servers", s.Raw.Command), hints(s.Command, env["PATH"], home)
}

// lookPath finds a program as the supervisor does: relative folders of PATH do
// not count.
func lookPath(name, path, extensions string) (string, error) {
	suffixes := []string{""}
	if runtime.GOOS == "windows" && filepath.Ext(name) == "" {
		if extensions == "" {
			extensions = ".COM;.EXE;.BAT;.CMD"
		}
		suffixes = strings.Split(strings.ToLower(extensions), ";")
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, suffix := range suffixes {
			file := filepath.Join(dir, name+suffix)
			if info, err := os.Stat(file); err == nil && !info.IsDir() && (runtime.GOOS == "windows" || info.Mode()&0o111 != 0) {
				return file, nil
			}
		}
	}
	return "", exec.ErrNotFound
}

// hints say how a program that was not found may be had.
func hints(name, path, home string) []string {
	var list []string
	for _, pattern := range []string{
		".local/bin", ".cargo/bin", "go/bin", ".bun/bin", ".deno/bin", ".volta/bin", ".asdf/shims", ".local/share/mise/shims", ".nvm/versions/node/*/bin",
	} {
		if dirs, err := filepath.Glob(filepath.Join(home, filepath.FromSlash(pattern))); err == nil && home != "" {
			for _, dir := range dirs {
				if file, err := lookPath(name, dir, ""); err == nil {
					list = append(list, fmt.Sprintf("it is at %s: write that as command, or have your shell put its folder into PATH", file))
				}
			}
		}
	}
	for _, dir := range []string{"/opt/homebrew/bin", "/usr/local/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin"} {
		if file, err := lookPath(name, dir, ""); err == nil {
			list = append(list, fmt.Sprintf("it is at %s: write that as command, or have your shell put its folder into PATH", file))
		}
	}
	if len(list) > 0 {
		return list
	}
	switch name {
	case "node", "npx", "npm":
		return []string{"install Node.js: https://nodejs.org"}
	case "uv", "uvx":
		return []string{"install uv: https://docs.astral.sh/uv"}
	case "docker":
		return []string{"install Docker: https://docs.docker.com/get-docker"}
	case "bun", "bunx":
		return []string{"install Bun: https://bun.sh"}
	}
	if near := config.Nearest(name, slices.DeleteFunc(executables(path), func(s string) bool { return s == name })); near != "" {
		list = append(list, fmt.Sprintf("did you mean %q?", near))
	}
	return append(list, "install it, or write its full path as command")
}

// executables are the names of what is in PATH.
func executables(path string) []string {
	names := map[string]bool{}
	for _, dir := range filepath.SplitList(path) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			name := e.Name()
			if runtime.GOOS == "windows" {
				name = strings.TrimSuffix(name, filepath.Ext(name))
			}
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

const versionTimeout = 10 * time.Second

// versionOf asks a program for its version.
func versionOf(ctx context.Context, path string, env []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = env
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("no answer in %s", versionTimeout)
	}
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if v := regexp.MustCompile(`v?\d+(\.\d+)+\S*`).FindString(first); v != "" {
		return strings.TrimRight(v, ",;)"), nil
	}
	return "(of no version that it tells)", nil
}

func pairs(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

func value(env []string, name string) string {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && (k == name || runtime.GOOS == "windows" && strings.EqualFold(k, name)) {
			return v
		}
	}
	return ""
}
