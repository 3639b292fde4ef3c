package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// The environment variables that say where things are, after the flags and before the system's own rules.
const (
	VariableConfig   = "MCPD_CONFIG"
	VariableStateDir = "MCPD_STATE_DIR"
)

const (
	programName = "mcpd"
	fileName    = "mcpd.toml"
)

var errNoHome = errors.New("the home folder of this user is not known")

// DefaultPath says which configuration file is meant: flag, if it is not empty, else $MCPD_CONFIG, else
// $XDG_CONFIG_HOME/mcpd/mcpd.toml (~/.config if that is unset or relative) on Linux and other Unix systems,
// ~/Library/Application Support/mcpd/mcpd.toml on macOS, %AppData%\mcpd\mcpd.toml on Windows. The path is absolute; the
// file need not exist.
func DefaultPath(flag string, env Environment) (string, error) {
	if path := firstOf(flag, env.variable(VariableConfig)); path != "" {
		return absolute(path)
	}
	base, err := env.base("XDG_CONFIG_HOME", ".config", "AppData", "Roaming")
	if err != nil {
		return "", fmt.Errorf("cannot tell where the configuration is: %w; say --config FILE or set %s", err, VariableConfig)
	}
	return env.join(base, programName, fileName), nil
}

// StateDir says which folder holds tokens, logs and caches: flag, if it is not empty, else $MCPD_STATE_DIR, else
// $XDG_STATE_HOME/mcpd (~/.local/state if that is unset or relative) on Linux and other Unix systems,
// ~/Library/Application Support/mcpd/state on macOS, %LocalAppData%\mcpd on Windows. The path is absolute; the folder
// need not exist.
func StateDir(flag string, env Environment) (string, error) {
	if path := firstOf(flag, env.variable(VariableStateDir)); path != "" {
		return absolute(path)
	}
	base, err := env.base("XDG_STATE_HOME", ".local/state", "LocalAppData", "Local")
	if err != nil {
		return "", fmt.Errorf("cannot tell where the state is kept: %w; say --state-dir DIR or set %s", err, VariableStateDir)
	}
	if env.os() == "darwin" {
		return env.join(base, programName, "state"), nil
	}
	return env.join(base, programName), nil
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func absolute(path string) (string, error) {
	result, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("cannot make the path %q absolute: %w", path, err)
	}
	return result, nil
}

// base is the system's folder for one kind of files: on Unix the XDG variable or its default below the home folder, on
// Windows a variable or its usual place.
func (e Environment) base(xdg, unixDefault, windows, roaming string) (string, error) {
	switch e.os() {
	case "windows":
		if dir := e.variable(windows); isAbsolute("windows", dir) {
			return dir, nil
		}
		if e.Home == "" {
			return "", errNoHome
		}
		return e.join(e.Home, "AppData", roaming), nil
	case "darwin":
		if e.Home == "" {
			return "", errNoHome
		}
		return e.join(e.Home, "Library", "Application Support"), nil
	}
	// The XDG specification says to ignore relative paths.
	if dir := e.variable(xdg); isAbsolute(e.os(), dir) {
		return dir, nil
	}
	if e.Home == "" {
		return "", errNoHome
	}
	return e.join(e.Home, unixDefault), nil
}

// join is filepath.Join with the separator of the system that is named.
func (e Environment) join(parts ...string) string {
	separator := "/"
	if e.os() == "windows" {
		separator = `\`
	}
	parts[0] = strings.TrimRight(parts[0], separator)
	return strings.Join(parts, separator)
}
