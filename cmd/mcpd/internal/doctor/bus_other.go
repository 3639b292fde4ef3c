//go:build !linux

package doctor

import "context"

// checkBus has nothing to look at: only Linux has systemd.
func (d *doctor) checkBus(context.Context) {}
