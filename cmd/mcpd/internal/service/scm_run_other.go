//go:build !windows

package service

import (
	"context"
	"errors"
)

// RunUnderSCM is for Windows.
func RunUnderSCM(context.Context, func(context.Context, func()) int) (int, error) {
	return 1, errors.New("only Windows has a service manager of that kind")
}
