//go:build unix && !linux

package supervisor

import "log/slog"

// awaitExit cannot wait without reaping here: the group is signalled right after. Its number is not given away while
// anybody is left in the group.
func awaitExit(int) bool { return false }

// killStrays does nothing here: no environment of another process can be read in a reliable way, so a descendant that
// left its process group lives on.
func killStrays(string, *slog.Logger) {}
