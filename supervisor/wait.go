package supervisor

import (
	"fmt"
	"time"
)

// patience is how many children a caller sees die in their handshake before it is answered.
const patience = 2

// wait is one caller's wait for a session.
type wait struct {
	since        time.Time
	failedStarts uint64 // at the beginning of the wait
}

// situation is what a wait is judged by.
type situation struct {
	server       string
	status       Status
	failedStarts uint64
	limit        time.Duration
	closing      bool
	lastWord     string // the last line of stderr
}

func (v *view[S]) situation(server string) situation {
	sit := situation{
		server: server, status: v.status,
		failedStarts: v.failedStarts, limit: v.startLimit, closing: v.closing,
	}
	if v.inc != nil {
		if words := v.inc.lastWords(); len(words) > 0 {
			sit.lastWord = words[len(words)-1]
		}
	}
	return sit
}

// judge says why waiting any longer cannot help, or nil.
func (w wait) judge(sit situation, now time.Time) error {
	st := sit.status
	deadline := w.since.Add(sit.limit)
	unavailable := func(retry time.Duration, format string, args ...any) error {
		return &UnavailableError{Server: sit.server, State: st.State, Reason: fmt.Sprintf(format, args...), RetryAfter: max(retry, 0)}
	}
	var untilNext time.Duration
	if !st.NextTry.IsZero() {
		untilNext = st.NextTry.Sub(now)
	}
	switch {
	case sit.closing:
		return unavailable(0, "%s", errClosing)
	case st.Held:
		return unavailable(0, "it was stopped by hand; start it with: mcpd start %s", sit.server)
	case st.State == StateFailed && (untilNext > 0 || !st.OnDemand):
		return unavailable(untilNext, "%s. Mend the cause and run: mcpd restart %s", st.LastError, sit.server)
	case sit.failedStarts >= w.failedStarts+patience:
		return unavailable(untilNext, "it ended %d times while the request waited; the last time: %s", sit.failedStarts-w.failedStarts, st.LastError)
	case st.State == StateBackoff && st.NextTry.After(deadline):
		return unavailable(untilNext, "the next start is due in %s; the last time: %s", untilNext.Round(time.Second), st.LastError)
	case !now.Before(deadline):
		reason := fmt.Sprintf("not ready after %s", sit.limit)
		if st.Installing {
			reason += ", installing?"
		}
		if st.LastError != "" {
			reason += "; the last time: " + st.LastError
		} else if sit.lastWord != "" {
			reason += "; stderr: " + sit.lastWord
		}
		return unavailable(max(untilNext, time.Second), "%s", reason)
	default:
		return nil
	}
}
