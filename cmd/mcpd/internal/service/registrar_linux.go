package service

import (
	"errors"

	"github.com/kardianos/service"
)

// systemdRegistrar registers units by kardianos/service. Which init system it
// would choose itself does not matter: that systemd runs is known.
func systemdRegistrar(system bool) (registrar, error) {
	for _, s := range service.AvailableSystems() {
		if s.String() == "linux-systemd" {
			return func(unit string) (registration, error) {
				return s.New(nothing{}, &service.Config{
					Name:   Name,
					Option: service.KeyValue{"UserService": !system, "SystemdScript": unit},
				})
			}, nil
		}
	}
	return nil, errors.New("service: this program was built without systemd")
}
