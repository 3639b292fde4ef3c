//go:build !windows

package main

import "mcpd/config"

func windowsServiceUser(name string, env config.Environment) (string, config.Environment, error) {
	return name, env, nil
}
