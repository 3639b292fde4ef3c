package portowner

import (
	"net"
	"net/netip"
	"os"
	"testing"
)

func TestTheListeningProcessIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(l.Addr().String())
	if o := Find(t.Context(), addr); o.PID != os.Getpid() || o.Name == "" || o.User == "" {
		t.Errorf("it is %+v, and should be process %d", o, os.Getpid())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if o := Find(t.Context(), addr); o.String() != "" {
		t.Errorf("nobody listens, and it is %s", o)
	}
}

func TestSocketsOfTheKernelsTable(t *testing.T) {
	for _, c := range []struct {
		local, addr string
		want        bool
	}{
		{"0100007F:1C95", "127.0.0.1:7317", true},
		{"0100007F:1C96", "127.0.0.1:7317", false},
		{"00000000:1C95", "127.0.0.1:7317", true},
		{"0200007F:1C95", "127.0.0.1:7317", false},
		{"00000000000000000000000001000000:1C95", "[::1]:7317", true},
		{"00000000000000000000000000000000:1C95", "127.0.0.1:7317", true},
		{"0000000000000000FFFF00000100007F:1C95", "127.0.0.1:7317", true},
		{"", "127.0.0.1:7317", false},
		{"XX:1C95", "127.0.0.1:7317", false},
	} {
		if got := overlaps(c.local, netip.MustParseAddrPort(c.addr)); got != c.want {
			t.Errorf("%s and %s: %v", c.local, c.addr, got)
		}
	}
}
