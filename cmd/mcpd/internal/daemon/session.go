package daemon

import (
	"context"
	"errors"
	"time"

	"mcpd/bridge"
	"mcpd/supervisor"
)

// session makes a bridge's conversation one that a supervisor can look after.
type session struct{ *bridge.Conn }

func (s session) Load() supervisor.Load { return supervisor.Load(s.Conn.Load()) }

// dialer greets fresh children on behalf of an Upstream.
type dialer struct{ upstream *bridge.Upstream }

func (d dialer) Dial(ctx context.Context, p supervisor.Pipes) (session, error) {
	conn, err := d.upstream.Dial(ctx, bridge.Pipes{Stdin: p.Stdin, Stdout: p.Stdout, Junk: p.Junk})
	if err != nil {
		var restart *bridge.RestartError
		if errors.As(err, &restart) {
			err = &supervisor.RetryStart{Cause: err}
		}
		return session{}, err
	}
	return session{conn}, nil
}

func (d dialer) Ready(s session) { d.upstream.Ready(s.Conn) }

// retryLater tells the bridge when a server that is not available may be.
type retryLater struct{ *supervisor.UnavailableError }

func withRetry(err error) error {
	var u *supervisor.UnavailableError
	if errors.As(err, &u) {
		return retryLater{u}
	}
	return err
}

func (e retryLater) Unwrap() error             { return e.UnavailableError }
func (e retryLater) RetryDelay() time.Duration { return e.RetryAfter }
