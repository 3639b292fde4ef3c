//go:build unix

package socket

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// handedOver are descriptors as launchd gives them: the receiver's to close.
func handedOver(t *testing.T, network string, addresses ...string) (fds []int, bound []netip.AddrPort) {
	t.Helper()
	for _, a := range addresses {
		l, err := net.Listen(network, a)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // launchd's own
		raw, err := l.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			copied, err := syscall.Dup(int(fd))
			if err != nil {
				t.Error(err)
			}
			fds = append(fds, copied)
		}); err != nil {
			t.Fatal(err)
		}
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			bound = append(bound, tcp.AddrPort())
		}
	}
	return fds, bound
}

func TestWhatLaunchdHoldsServesTheConfiguredAddress(t *testing.T) {
	fds, bound := handedOver(t, "tcp", "127.0.0.1:0", "[::1]:0")
	var asked string
	files, err := launchdFiles(func(name string) ([]int, syscall.Errno) {
		asked = name
		return fds, 0
	})
	if err != nil || asked != LaunchdName {
		t.Fatalf("asked for %q: %v", asked, err)
	}
	s := &Set{}
	if err := s.add(files); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, addr := range bound {
		// Who calls before the daemon is there waits.
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		l := s.Claim(addr)
		if l == nil {
			t.Fatalf("nothing of what launchd holds is for %s", addr)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, werr := io.WriteString(in, "hello")
		cerr := in.Close()
		got, err := io.ReadAll(c)
		if string(got) != "hello" || err != nil || werr != nil || cerr != nil {
			t.Errorf("the client got %q: %v, %v, %v", got, err, werr, cerr)
		}
		_, _ = c.Close(), l.Close()
		// The port stays launchd's.
		if again, err := net.Listen("tcp", addr.String()); err == nil {
			_ = again.Close()
			t.Errorf("%s is free once the daemon has ended", addr)
		}
	}
	if left := s.Addresses(); len(left) != 0 {
		t.Errorf("nobody claimed %v", left)
	}
}

func TestWithoutLaunchdsSocketsTheDaemonOpensItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		errno syscall.Errno
		says  string
	}{
		"not a job of launchd":         {syscall.ESRCH, ""},
		"a job without sockets":        {syscall.ENOENT, ""},
		"a system without launchd":     {syscall.ENOSYS, ""},
		"sockets that were taken once": {syscall.EALREADY, "launchd does not hand over the sockets that it holds"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := launchdFiles(func(string) ([]int, syscall.Errno) { return nil, tc.errno })
			if len(files) != 0 {
				t.Errorf("there are %d files", len(files))
			}
			switch {
			case tc.says == "" && err != nil:
				t.Error(err)
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestASocketOfLaunchdThatIsNotTCPIsAnError(t *testing.T) {
	fds, _ := handedOver(t, "unix", t.TempDir()+"/s")
	files, err := launchdFiles(func(string) ([]int, syscall.Errno) { return fds, 0 })
	if err != nil {
		t.Fatal(err)
	}
	s := &Set{}
	if err := s.add(files); err == nil || len(s.Addresses()) != 0 {
		t.Errorf("it was taken: %v", err)
	}
}
