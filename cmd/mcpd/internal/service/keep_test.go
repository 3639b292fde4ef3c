//go:build unix

package service

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestADaemonThatCrashesIsStartedAgainUntilItCrashesTooOften(t *testing.T) {
	crash := exec.Command("/bin/sh", "-c", "exit 3").Run()
	var exit *exec.ExitError
	if !errors.As(crash, &exit) {
		t.Fatal(crash)
	}
	synctest.Test(t, func(t *testing.T) {
		began, runs := time.Now(), 0
		err := keep(t.Context(), time.Now, pause, func(context.Context) error { runs++; return exit })
		if err == nil || !strings.Contains(err.Error(), "10 times") || runs != keepBurst {
			t.Errorf("after %d runs: %v", runs, err)
		}
		if took := time.Since(began); took != (keepBurst-1)*keepPause {
			t.Errorf("it took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// One that crashes now and then is started for ever.
		runs := 0
		err := keep(t.Context(), time.Now, pause, func(context.Context) error {
			time.Sleep(time.Minute) // of the fake clock
			if runs++; runs == 50 {
				return nil
			}
			return exit
		})
		if err != nil || runs != 50 {
			t.Errorf("after %d runs: %v", runs, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := keep(ctx, time.Now, pause, func(context.Context) error { cancel(); return exit }); err != nil {
			t.Errorf("stopped on purpose: %v", err)
		}
	})
	if err := keep(t.Context(), time.Now, pause, func(context.Context) error { return errors.New("no such file") }); err == nil {
		t.Error("a program that cannot be started is no error")
	}
}
