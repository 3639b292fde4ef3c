package instance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"mcpd/security"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func stateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := security.MakePrivateDir(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func claim(t *testing.T, dir string) *Instance {
	t.Helper()
	in, err := Claim(t.Context(), dir, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestASecondDaemonIsRefusedAndToldOfTheFirst(t *testing.T) {
	dir := stateDir(t)
	in := claim(t, dir)
	if err := in.Announce("127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	_, err := Claim(t.Context(), dir, "v2")
	var held *HeldError
	if !errors.As(err, &held) || held.Holder.PID != os.Getpid() || held.Holder.Address != "127.0.0.1:1" {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), dir) {
		t.Errorf("%q does not name the folder", err)
	}
	if err := in.Release(); err != nil {
		t.Fatal(err)
	}
	if err := claim(t, dir).Release(); err != nil {
		t.Errorf("after the first is gone: %v", err)
	}
}

func TestADaemonIsFoundAsLongAsItRuns(t *testing.T) {
	dir := stateDir(t)
	if _, err := Find(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("before: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("looking left something behind: %v %v", list, err)
	}
	in := claim(t, dir)
	if info, err := Find(dir); err != nil || info.Address != "" || info.PID != os.Getpid() {
		t.Errorf("while it starts: %+v %v", info, err)
	}
	if err := in.Announce("127.0.0.1:7"); err != nil {
		t.Fatal(err)
	}
	if info, err := Find(dir); err != nil || info.Address != "127.0.0.1:7" || info.Version != "v1" {
		t.Errorf("while it runs: %+v %v", info, err)
	}
	if err := in.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after: %v", err)
	}
}

func TestWhatADeadDaemonLeftBehindIsNotBelieved(t *testing.T) {
	dir := stateDir(t)
	in := claim(t, dir)
	if err := in.Announce("127.0.0.1:7"); err != nil {
		t.Fatal(err)
	}
	if err := in.lock.Close(); err != nil { // what the system does when a process is killed
		t.Fatal(err)
	}
	if info, err := Find(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestManyWhoLookDoNotKeepADaemonFromStarting(t *testing.T) {
	dir := stateDir(t)
	if err := claim(t, dir).Release(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	looked := make(chan error, 1)
	go func() {
		defer close(looked)
		for ctx.Err() == nil {
			if _, err := Find(dir); err != nil && !errors.Is(err, ErrNotRunning) {
				looked <- err
				return
			}
		}
	}()
	for range 20 {
		if err := claim(t, dir).Release(); err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := <-looked; err != nil {
		t.Error(err)
	}
}

func TestADamagedFileIsAnError(t *testing.T) {
	dir := stateDir(t)
	in := claim(t, dir)
	defer func() { _ = in.Release() }()
	if err := security.WritePrivateFile(filepath.Join(dir, infoName), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("got %v", err)
	}
}
