package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"mcpd/cmd/mcpd/internal/portowner"
	"mcpd/cmd/mcpd/internal/service/socket"
)

// PortTakenError says that another program listens on mcpd's address.
type PortTakenError struct {
	Addr  netip.AddrPort
	Owner portowner.Owner // as far as it can be seen
}

func (e *PortTakenError) Error() string {
	who := e.Owner.String()
	switch {
	case who == "":
		who = "another program"
	case e.Owner.IsServiceManager():
		return fmt.Sprintf("cannot listen on %s: %s holds it for a service", e.Addr, who)
	case e.Owner.Name == "mcpd":
		return fmt.Sprintf("cannot listen on %s: %s already does, with another state folder", e.Addr, who)
	}
	return fmt.Sprintf("cannot listen on %s: %s already does (not an mcpd with this state folder)", e.Addr, who)
}

// Hint says how to find that program, and what to do.
func (e *PortTakenError) Hint() string {
	const otherPort = "or set another port in the config file: [daemon] listen = \"127.0.0.1:PORT\""
	switch {
	case e.Owner.IsServiceManager():
		return "if that is mcpd's own: mcpd service start, or mcpd service stop to run it here instead; " + otherPort
	case e.Owner.PID != 0:
		return fmt.Sprintf("end process %d, %s", e.Owner.PID, otherPort)
	}
	var find string
	switch runtime.GOOS {
	case "windows":
		find = fmt.Sprintf(`netstat -ano | findstr :%d`, e.Addr.Port())
	case "linux":
		find = fmt.Sprintf(`sudo ss -ltnp "sport = :%d"`, e.Addr.Port())
	default:
		find = fmt.Sprintf("sudo lsof -nP -iTCP:%d -sTCP:LISTEN", e.Addr.Port())
	}
	return "find it with: " + find + "; " + otherPort
}

// listen opens the addresses of the daemon: addr, and for 127.0.0.1 the same
// port of ::1 too. Programs that are told "localhost" try ::1 first on many
// systems; whoever held that port would be sent their tokens.
func listen(ctx context.Context, addr netip.AddrPort) ([]net.Listener, error) {
	return listenOrTake(ctx, addr, nil)
}

// listenOrTake is listen where the service manager may hold some of the
// addresses; those are taken over.
func listenOrTake(ctx context.Context, addr netip.AddrPort, held *socket.Set) ([]net.Listener, error) {
	if !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("cannot listen on %s: it is not a loopback address", addr)
	}
	for try := 1; ; try++ {
		ls, err := listenBoth(ctx, addr, held)
		var taken *PortTakenError
		if errors.As(err, &taken) && addr.Port() == 0 && try < anyPortTries {
			continue // the system chose a port that is free on one of them only
		}
		if taken != nil {
			taken.Owner = portowner.Find(ctx, taken.Addr)
		}
		return ls, err
	}
}

const anyPortTries = 10

func listenBoth(ctx context.Context, addr netip.AddrPort, held *socket.Set) ([]net.Listener, error) {
	lc := net.ListenConfig{Control: exclusive}
	open := func(addr netip.AddrPort) (net.Listener, error) {
		if l := held.Claim(addr); l != nil {
			return l, nil
		}
		return lc.Listen(ctx, "tcp", addr.String())
	}
	first, err := open(addr)
	if err != nil {
		if addrInUse(err) {
			return nil, &PortTakenError{Addr: addr}
		}
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, cause(err))
	}
	ls := []net.Listener{first}
	if addr.Addr() != netip.MustParseAddr("127.0.0.1") {
		return ls, nil
	}
	six := netip.AddrPortFrom(netip.IPv6Loopback(), boundTo(first).Port())
	second, err := open(six)
	switch {
	case err == nil:
		return append(ls, second), nil
	case addrInUse(err):
		_ = first.Close()
		return nil, &PortTakenError{Addr: six}
	default:
		return ls, nil // a system without IPv6
	}
}

// boundTo returns the address that a TCP listener got.
func boundTo(l net.Listener) netip.AddrPort {
	ap, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil { // every TCP listener has such an address
		panic(err)
	}
	return ap
}

// cause leaves out of a network error what the message says already.
func cause(err error) error {
	var oe *net.OpError
	if errors.As(err, &oe) {
		return oe.Err
	}
	return err
}
