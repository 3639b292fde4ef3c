package main

import (
	"errors"
	"path/filepath"

	"mcpd/cmd/mcpd/internal/service"
	"mcpd/config"
)

// windowsServiceUser is the account of a service of the machine. Another
// account needs its password, which is given to Windows and not to mcpd.
func windowsServiceUser(name string, env config.Environment) (string, config.Environment, error) {
	if name != "" {
		return "", env, usageError{
			errors.New("--user would need the password of that account"),
			"install without it, then set the account in services.msc (mcpd, Properties, Log On)",
		}
	}
	base := filepath.Join(service.ProgramData(), "mcpd")
	if err := service.MakeMachineDir(base); err != nil {
		return "", env, err
	}
	env.Home = base
	getenv := env.Getenv
	env.Getenv = func(name string) (string, bool) {
		switch name {
		case config.VariableConfig:
			return filepath.Join(base, "mcpd.toml"), true
		case config.VariableStateDir:
			return filepath.Join(base, "state"), true
		}
		return getenv(name)
	}
	return service.DefaultAccount, env, nil
}
