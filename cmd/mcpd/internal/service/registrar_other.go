//go:build !linux

package service

import "errors"

func systemdRegistrar(bool) (registrar, error) {
	return nil, errors.New("service: systemd is on Linux only")
}
