package daemon

import (
	"errors"
	"net/http"

	"mcpd/bridge/ledger"
	"mcpd/cmd/mcpd/internal/control"
	"mcpd/config"
)

func ledgerLimits(c *config.Config) ledger.Limits {
	return ledger.Limits{Keep: c.Ledger.Keep, MaxBytes: c.Ledger.MaxBytes}
}

func (d *Daemon) ledgerStatus() control.Ledger {
	s, err := d.ledger.Stats()
	l := control.Ledger{Entries: s.Entries, Bytes: s.Bytes, MaxBytes: s.MaxBytes, Unknown: s.Unknown, Running: s.Running}
	if err != nil {
		l.Error = err.Error()
	}
	return l
}

// mostListed bounds one answer about the ledger.
const mostListed = 10_000

// Ledger implements control.Daemon.
func (d *Daemon) Ledger(state string) ([]control.LedgerEntry, error) {
	entries, err := d.ledger.List(ledger.State(state), mostListed)
	return entries, ledgerError(err)
}

// ResolveLedger implements control.Daemon.
func (d *Daemon) ResolveLedger(id string, done bool) (control.LedgerEntry, error) {
	entry, err := d.ledger.Resolve(id, done)
	if err == nil {
		d.logger.Info("an unknown outcome was settled", "entry", entry.ID, "server", entry.Server, "tool", entry.Tool, "took_effect", done)
	}
	return entry, ledgerError(err)
}

func ledgerError(err error) error {
	var e *control.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ledger.ErrNotFound):
		e = control.Errorf(http.StatusNotFound, "no call of that id has an unknown outcome")
		e.Hint = "mcpd ledger list shows those that have"
	case errors.Is(err, ledger.ErrAmbiguous):
		e = control.Errorf(http.StatusConflict, "more than one id begins like that")
		e.Hint = "give more of it"
	default:
		e = control.Errorf(http.StatusServiceUnavailable, "%v", err)
	}
	return e
}
