// Package portowner finds out which program listens on an address, for messages
// that say why mcpd cannot. It owns no socket and changes nothing, and nothing is
// decided by what it finds: by the time it is read it may be otherwise.
package portowner

import "fmt"

// Owner is who listens on an address, as far as this user may know.
type Owner struct {
	PID  int    // 0 where it is not seen
	Name string // of the program; "" where it is not seen
	User string // whose it is; "" where that is not known
}

// String names the owner for a person, and is "" for one that is not known.
func (o Owner) String() string {
	switch {
	case o.PID != 0 && o.Name != "":
		return fmt.Sprintf("process %d (%s)", o.PID, o.Name)
	case o.PID != 0:
		return fmt.Sprintf("process %d", o.PID)
	case o.User != "":
		return "a program of the user " + o.User
	}
	return ""
}

// IsServiceManager says whether it is a program that holds ports for others.
func (o Owner) IsServiceManager() bool { return o.Name == "systemd" || o.Name == "launchd" }
