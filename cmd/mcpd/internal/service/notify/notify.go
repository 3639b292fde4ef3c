// Package notify tells the service manager how the daemon is: ready, stopping,
// alive. It speaks the sd_notify protocol of systemd; where no manager listens
// every call does nothing.
//
// It decides nothing about health: what alive means is the caller's to say.
package notify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// States for [Notifier.Notify].
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
	alive    = daemon.SdNotifyWatchdog
)

const variableSocket = "NOTIFY_SOCKET"

// Status is the one line that `systemctl status` shows about the daemon.
func Status(text string) string {
	return "STATUS=" + strings.NewReplacer("\n", " ", "\r", " ").Replace(text)
}

// Notifier is the way to the service manager.
type Notifier struct {
	socket   string
	interval time.Duration // of the watchdog; 0 is none
	ready    func()
}

// OnReady has fn called when the daemon is ready: for service managers that
// are told otherwise. It is called before the daemon is made.
func (n *Notifier) OnReady(fn func()) { n.ready = fn }

// Take finds the service manager in the process's environment, and takes it out
// of there so that no child process speaks in the daemon's name. It is called
// once, before anything reads the environment to hand it on.
func Take() (*Notifier, error) {
	n := &Notifier{socket: os.Getenv(variableSocket)}
	interval, err := daemon.SdWatchdogEnabled(true)
	n.interval = interval
	if uerr := os.Unsetenv(variableSocket); uerr != nil {
		err = errors.Join(err, uerr)
	}
	if err != nil {
		return n, fmt.Errorf("cannot understand what the service manager says: %w", err)
	}
	return n, nil
}

// Notify sends states. An error means that a manager is there and was not
// reached.
func (n *Notifier) Notify(states ...string) error {
	if n != nil && n.ready != nil && slices.Contains(states, Ready) {
		n.ready()
	}
	if n == nil || n.socket == "" {
		return nil
	}
	if err := send(n.socket, strings.Join(states, "\n")); err != nil {
		return fmt.Errorf("cannot tell the service manager: %w", err)
	}
	return nil
}

// Interval is how often the service manager wants to hear that the daemon is
// alive; 0 means that it does not.
func (n *Notifier) Interval() time.Duration {
	if n == nil || n.socket == "" {
		return 0
	}
	return n.interval
}

// Watchdog tells the service manager that the daemon is alive for as long as
// check says so, until ctx ends. check is asked twice in an interval and has
// half of one to answer; where it fails nothing is sent, so that the manager
// restarts a daemon that fails for a whole interval. report takes each failure.
func (n *Notifier) Watchdog(ctx context.Context, check func(context.Context) error, report func(error)) {
	interval := n.Interval()
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, interval/2)
		err := check(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = n.Notify(alive)
		}
		if err != nil {
			report(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
