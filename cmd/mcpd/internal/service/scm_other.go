//go:build !windows

package service

import "errors"

// newSCM is reached on Windows only.
func newSCM() (Manager, error) {
	return nil, errors.New("service: this program was built without the Windows service manager")
}
