package daemon

import "mcpd/cmd/mcpd/internal/control"

// Identity is what this daemon proves to commands that it is itself with.
func (d *Daemon) Identity() control.Identity {
	return control.Identity{Address: d.Addr(), Key: d.instance.Key()}
}
