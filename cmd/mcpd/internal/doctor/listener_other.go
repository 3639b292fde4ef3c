//go:build !linux

package doctor

import (
	"context"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// listenerOf asks lsof, which macOS has.
func listenerOf(ctx context.Context, addr netip.AddrPort) (pid int, name string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	path, err := exec.LookPath("lsof")
	if err != nil {
		return 0, ""
	}
	out, err := exec.CommandContext(ctx, path, "-nP", "-iTCP:"+strconv.Itoa(int(addr.Port())), "-sTCP:LISTEN", "-Fpc").Output()
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "p") && pid == 0:
			pid, _ = strconv.Atoi(line[1:]) // 0 is none
		case strings.HasPrefix(line, "c") && name == "":
			name = line[1:]
		}
	}
	return pid, name
}
