//go:build unix

package socket_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"mcpd/cmd/mcpd/internal/service/socket"
)

const role = "MCPD_TEST_SOCKET_CHILD"

// TestMain makes the test binary the activated program as well: only a process
// of its own can be handed descriptors at 3 and up.
func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		os.Exit(activated())
	}
	goleak.VerifyTestMain(m)
}

// activated claims the address in its role, answers one connection on it, and
// prints what it found.
func activated() int {
	// As the service manager does, which knows the PID of what it starts.
	if os.Getenv("LISTEN_PID") == "" {
		_ = os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	set, err := socket.Take()
	fmt.Println("error:", err != nil)
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if _, ok := os.LookupEnv(name); ok {
			fmt.Println("left:", name)
		}
	}
	l := set.Claim(netip.MustParseAddrPort(os.Getenv(role)))
	fmt.Println("claimed:", l != nil)
	fmt.Println("rest:", len(set.Addresses()))
	if l != nil {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		_, _ = io.WriteString(c, "hello\n")
		_ = c.Close()
	}
	if err := set.Close(); err != nil || len(set.Addresses()) != 0 {
		return 1
	}
	return 0
}

func listen(t *testing.T) (*net.TCPListener, *os.File) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), f.Close() })
	return l, f
}

func start(t *testing.T, want string, extra []string, files ...*os.File) (*bufio.Scanner, func() error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append(extra, role+"="+want, "GORACE=atexit_sleep_ms=0", "LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES=mcpd.socket")...)
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return bufio.NewScanner(out), cmd.Wait
}

func TestASocketOfTheManagerServesTheConfiguredAddress(t *testing.T) {
	mine, f1 := listen(t)
	_, f2 := listen(t)
	// A client that calls before the daemon is there waits.
	c, err := net.Dial("tcp", mine.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	lines, wait := start(t, mine.Addr().String(), nil, f2, f1)
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || answer != "hello\n" {
		t.Errorf("the client got %q, %v", answer, err)
	}
	var got []string
	for lines.Scan() {
		got = append(got, lines.Text())
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
	if want := []string{"error: false", "claimed: true", "rest: 1"}; !slices.Equal(got, want) {
		t.Errorf("the activated program said %q, want %q", got, want)
	}
}

func TestWhatIsNotForTheDaemonIsNotTaken(t *testing.T) {
	mine, f := listen(t)
	for name, tc := range map[string]struct {
		addr  string
		extra []string
		want  []string
	}{
		"an address that is not configured":  {"127.0.0.1:1", nil, []string{"error: false", "claimed: false", "rest: 1"}},
		"sockets that are another process's": {mine.Addr().String(), []string{"LISTEN_PID=1"}, []string{"error: false", "claimed: false", "rest: 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			lines, wait := start(t, tc.addr, tc.extra, f)
			var got []string
			for lines.Scan() {
				got = append(got, lines.Text())
			}
			if err := wait(); err != nil {
				t.Error(err)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("the activated program said %q, want %q", got, tc.want)
			}
		})
	}
}

func TestADescriptorThatIsNoSocketIsAnError(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(r.Close(), w.Close()); err != nil {
			t.Error(err)
		}
	}()
	lines, wait := start(t, "127.0.0.1:1", nil, r)
	if !lines.Scan() || lines.Text() != "error: true" {
		t.Errorf("the activated program said %q", lines.Text())
	}
	for lines.Scan() {
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
}
