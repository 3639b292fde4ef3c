//go:build !darwin

package socket

import "syscall"

// activate has nobody to ask where there is no launchd.
func activate(string) ([]int, syscall.Errno) { return nil, syscall.ENOSYS }
