package portowner

import (
	"bytes"
	"context"
	"encoding/hex"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Find says who listens on an address. Of other users' programs only the user is
// seen.
func Find(_ context.Context, addr netip.AddrPort) Owner {
	var owner Owner
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			// sl local_address rem_address st … uid timeout inode; state 0A is LISTEN
			if len(f) > 9 && f[3] == "0A" && overlaps(f[1], addr) {
				inodes["socket:["+f[9]+"]"] = true
				owner.User = userName(f[7])
			}
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil || len(inodes) == 0 {
		return owner
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !inodes[target] {
			continue
		}
		process := strings.Split(link, "/")[2]
		pid, err := strconv.Atoi(process)
		if err != nil {
			continue
		}
		comm, err := os.ReadFile("/proc/" + process + "/comm")
		if err != nil {
			comm = nil
		}
		found := Owner{PID: pid, Name: string(bytes.TrimSpace(comm)), User: owner.User}
		// A service manager has what it holds together with whom it started.
		if !found.IsServiceManager() {
			return found
		}
		owner = found
	}
	return owner
}

// userName is a user's name, or the number where it has none.
func userName(uid string) string {
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return uid
}

// overlaps says whether a socket at local, in the kernel's form, is in the way
// of addr: it has the port, and the address or every address.
func overlaps(local string, addr netip.AddrPort) bool {
	host, port, ok := strings.Cut(local, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || uint16(n) != addr.Port() {
		return false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return false
	}
	for i := 0; i < len(raw); i += 4 { // words in the order of the machine, little-endian wherever mcpd runs
		slices.Reverse(raw[i : i+4])
	}
	bound, ok := netip.AddrFromSlice(raw)
	return ok && (bound.IsUnspecified() || bound.Unmap() == addr.Addr().Unmap())
}
