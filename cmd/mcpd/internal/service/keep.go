package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Keep restarts the daemon as systemd does, for the Task Scheduler of Windows,
// which waits a minute before it starts anything again and takes no exit code
// for a failure.
const (
	keepPause  = 2 * time.Second
	keepBurst  = 10
	keepWindow = 2 * time.Minute
)

// Keep runs a program until it ends well or ctx ends, and starts it again when
// it ends otherwise. What runs under it ends with this process, however that
// ends.
func Keep(ctx context.Context, program string, args []string) error {
	if err := endTogether(); err != nil {
		return err
	}
	return keep(ctx, time.Now, pause, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Cancel = func() error { return interrupt(cmd.Process) }
		cmd.WaitDelay = stopPatience
		return cmd.Run()
	})
}

// stopPatience is how long the daemon may take to stop: its drain_timeout, and
// the steps in which it stops its servers.
const stopPatience = 2 * time.Minute

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func keep(ctx context.Context, now func() time.Time, pause func(context.Context, time.Duration), once func(context.Context) error) error {
	var starts []time.Time
	for {
		starts = append(starts, now())
		err := once(ctx)
		var exit *exec.ExitError
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case !errors.As(err, &exit):
			return fmt.Errorf("cannot start the daemon: %w", err)
		}
		if n := len(starts) - keepBurst; n >= 0 && now().Sub(starts[n]) < keepWindow {
			return fmt.Errorf("the daemon ended %d times in %s, so it is not started again: %w", keepBurst, keepWindow, err)
		}
		pause(ctx, keepPause)
		if ctx.Err() != nil {
			return nil
		}
	}
}
