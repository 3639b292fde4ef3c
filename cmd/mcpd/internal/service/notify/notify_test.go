//go:build unix

package notify_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpd/cmd/mcpd/internal/service/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is a service manager's end: the socket, and what came over it.
type manager struct {
	path string
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return &manager{path, conn}
}

func (m *manager) next(t *testing.T) string {
	t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := m.conn.Read(b)
	if err != nil {
		t.Fatal("nothing came:", err)
	}
	return string(b[:n])
}

func take(t *testing.T, env map[string]string) *notify.Notifier {
	t.Helper()
	for k, v := range env {
		t.Setenv(k, v)
	}
	n, err := notify.Take()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestStatesReachTheServiceManager(t *testing.T) {
	m := newManager(t)
	n := take(t, map[string]string{"NOTIFY_SOCKET": m.path})
	if err := n.Notify(notify.Ready, notify.Status("listens\non 127.0.0.1:7317")); err != nil {
		t.Fatal(err)
	}
	if got, want := m.next(t), "READY=1\nSTATUS=listens on 127.0.0.1:7317"; got != want {
		t.Errorf("the manager was told %q, want %q", got, want)
	}
}

func TestChildrenInheritNothingOfTheServiceManager(t *testing.T) {
	m := newManager(t)
	take(t, map[string]string{"NOTIFY_SOCKET": m.path, "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())})
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if v, ok := os.LookupEnv(name); ok {
			t.Errorf("%s=%s is left in the environment", name, v)
		}
	}
}

func TestWithoutAServiceManagerNothingHappens(t *testing.T) {
	n := take(t, map[string]string{"NOTIFY_SOCKET": ""})
	if err := n.Notify(notify.Ready); err != nil {
		t.Error(err)
	}
	n.Watchdog(t.Context(), func(context.Context) error {
		t.Error("health was checked for nobody")
		return nil
	}, func(err error) { t.Error(err) })
}

func TestReadyIsToldOnceToWhoAsks(t *testing.T) {
	n := take(t, map[string]string{"NOTIFY_SOCKET": ""})
	told := 0
	n.OnReady(func() { told++ })
	for _, state := range []string{notify.Status("starts"), notify.Ready, notify.Stopping} {
		if err := n.Notify(state); err != nil {
			t.Error(err)
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

func TestAManagerThatIsGoneIsAnError(t *testing.T) {
	n := take(t, map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "gone")})
	if err := n.Notify(notify.Ready); err == nil {
		t.Error("a message to nobody was no error")
	}
}

func TestADamagedWatchdogIntervalIsAnError(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := notify.Take(); err == nil {
		t.Error("an interval that is no number was taken")
	}
}

func TestTheWatchdogIsFedOnlyWhileTheDaemonIsHealthy(t *testing.T) {
	m := newManager(t)
	n := take(t, map[string]string{
		"NOTIFY_SOCKET": m.path,
		"WATCHDOG_USEC": "20000", "WATCHDOG_PID": strconv.Itoa(os.Getpid()),
	})
	if got := n.Interval(); got != 20*time.Millisecond {
		t.Fatalf("the interval is %s", got)
	}
	sick := errors.New("sick")
	results := make(chan error)
	reported := make(chan error, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.Watchdog(ctx, func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the check may take for ever")
			}
			select {
			case err := <-results:
				return err
			case <-t.Context().Done():
				return nil
			}
		}, func(err error) { reported <- err })
	}()
	results <- nil
	first := m.next(t)
	results <- sick
	results <- sick
	results <- nil
	second := m.next(t)
	if want := []string{"WATCHDOG=1", "WATCHDOG=1"}; !slices.Equal([]string{first, second}, want) {
		t.Errorf("the manager was told %q and %q", first, second)
	}
	for range 2 {
		if err := <-reported; !errors.Is(err, sick) {
			t.Errorf("reported: %v", err)
		}
	}
	cancel()
	select { // a check may be running
	case results <- nil:
		<-done
	case <-done:
	}
	if len(reported) != 0 {
		t.Errorf("a healthy check was reported: %v", <-reported)
	}
}
