//go:build !windows

package service

// newSCM is reached on Windows only.
func newSCM() Manager { return initSystem{} }
