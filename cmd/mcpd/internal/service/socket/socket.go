// Package socket takes over listening sockets that the service manager opened
// for the daemon. The manager keeps its own handle on them, so no other program
// gets the port while the daemon is down, and clients that call meanwhile wait
// instead of being refused.
//
// It understands the LISTEN_FDS protocol of systemd, and asks launchd on macOS.
// It opens no socket itself.
package socket

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
)

// Set holds the sockets that were handed over and not claimed yet.
type Set struct{ listeners []net.Listener }

// LaunchdName is the entry of a launchd job's Sockets that is for the daemon.
const LaunchdName = "Listeners"

// Take takes over what the service manager opened for this process, and out of
// its environment what says so, so that no child process finds it there. It is
// called once. Without a manager the set is empty.
func Take() (*Set, error) {
	s := &Set{}
	errs := []error{s.add(activation.Files(true))}
	files, err := launchdFiles(activate)
	return s, errors.Join(append(errs, err, s.add(files))...)
}

// add takes over sockets. It closes the files, of which it has copies.
func (s *Set) add(files []*os.File) error {
	var errs []error
	for _, f := range files {
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
	return errors.Join(errs...)
}

// launchdFiles are the sockets that launchd holds for this process, by its call
// launch_activate_socket(3): none where it is not a launchd job's, or where the
// job has no such entry.
func launchdFiles(activate func(name string) ([]int, syscall.Errno)) ([]*os.File, error) {
	fds, errno := activate(LaunchdName)
	switch errno {
	case 0:
	case syscall.ESRCH, syscall.ENOENT, syscall.ENOSYS:
		return nil, nil
	default:
		return nil, fmt.Errorf("launchd does not hand over the sockets that it holds: %w", errno)
	}
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), LaunchdName)) //nolint:gosec // a descriptor
	}
	return files, nil
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
