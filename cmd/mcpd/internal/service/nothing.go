//go:build linux || windows

package service

import "github.com/kardianos/service"

// nothing is the program that kardianos/service is told of. It never runs one:
// the service manager starts mcpd with a command line of its own.
type nothing struct{}

func (nothing) Start(service.Service) error { return nil }
func (nothing) Stop(service.Service) error  { return nil }
