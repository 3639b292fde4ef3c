// Package socket takes over listening sockets that the service manager opened
// for the daemon. The manager keeps its own handle on them, so no other program
// gets the port while the daemon is down, and clients that call meanwhile wait
// instead of being refused.
//
// It understands the LISTEN_FDS protocol of systemd. It opens no socket itself.
package socket

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/coreos/go-systemd/v22/activation"
)

// Set holds the sockets that were handed over and not claimed yet.
type Set struct{ listeners []net.Listener }

// Take takes what the service manager handed over out of the process's
// environment, so that no child process finds it there. It is called once.
// Without a manager the set is empty.
func Take() (*Set, error) {
	s := &Set{}
	var errs []error
	for _, f := range activation.Files(true) {
		l, err := net.FileListener(f) // duplicates f
		if err == nil {
			if _, ok := l.(*net.TCPListener); !ok {
				err = fmt.Errorf("%s is not a TCP socket", l.Addr())
				_ = l.Close()
			}
		}
		if cerr := f.Close(); err == nil && cerr != nil {
			err = cerr
			_ = l.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("a socket of the service manager cannot be used: %w", err))
			continue
		}
		s.listeners = append(s.listeners, l)
	}
	return s, errors.Join(errs...)
}

// Claim returns the listener for addr and leaves the rest; nil where there is
// none. The caller closes it.
func (s *Set) Claim(addr netip.AddrPort) net.Listener {
	if s == nil {
		return nil
	}
	for i, l := range s.listeners {
		if l.Addr().(*net.TCPAddr).AddrPort() == addr {
			s.listeners = append(s.listeners[:i:i], s.listeners[i+1:]...)
			return l
		}
	}
	return nil
}

// Addresses are those of the sockets that nobody claimed.
func (s *Set) Addresses() []netip.AddrPort {
	if s == nil {
		return nil
	}
	var list []netip.AddrPort
	for _, l := range s.listeners {
		list = append(list, l.Addr().(*net.TCPAddr).AddrPort())
	}
	return list
}

// Close closes what nobody claimed. The service manager keeps its own handles.
func (s *Set) Close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	s.listeners = nil
	return errors.Join(errs...)
}
