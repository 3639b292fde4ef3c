//go:build !linux

package portowner

import (
	"context"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Find asks lsof, which macOS has. Of other users' programs nothing is seen.
func Find(ctx context.Context, addr netip.AddrPort) Owner {
	var o Owner
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	path, err := exec.LookPath("lsof")
	if err != nil {
		return o
	}
	out, err := exec.CommandContext(ctx, path, "-nP", "-iTCP:"+strconv.Itoa(int(addr.Port())), "-sTCP:LISTEN", "-Fpc").Output()
	if err != nil {
		return o
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "p") && o.PID == 0:
			o.PID, _ = strconv.Atoi(line[1:]) // 0 is none
		case strings.HasPrefix(line, "c") && o.Name == "":
			o.Name = line[1:]
		}
	}
	return o
}
