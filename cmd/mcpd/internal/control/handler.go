package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mcpd/security"
)

// Daemon is what the control interface asks. Its errors may be *Error; any
// other error is answered with 500 and its text stays in the log.
type Daemon interface {
	Status() Status
	// StartServer, StopServer and RestartServer return when the server got
	// there, or with the reason why it did not, or when ctx ends.
	StartServer(ctx context.Context, name string) error
	StopServer(ctx context.Context, name string) error
	RestartServer(ctx context.Context, name string) error
	// Logs yields the last n lines of a server's log, and with follow the new
	// ones until ctx ends or the daemon stops.
	Logs(ctx context.Context, name string, n int, follow bool) (iter.Seq[LogLine], error)
	// Reload reads the config file now. A file with errors is a Reload with
	// OK false and not an error.
	Reload(ctx context.Context) (Reload, error)
	Tokens() Tokens
	// Ledger lists the remembered calls, of one state or of all ("").
	Ledger(state string) ([]LedgerEntry, error)
	// ResolveLedger settles the unknown outcome of a call.
	ResolveLedger(id string, done bool) (LedgerEntry, error)
	// Identity is what the daemon proves itself with.
	Identity() Identity
}

// LogLine is one line of a server's log.
type LogLine struct {
	Time   time.Time `json:"time"`
	Stream string    `json:"stream"` // stderr, stdout (a line that is no message) or mcpd
	Text   string    `json:"text"`
}

const (
	maxBody     = 64 << 10 // bytes of a request to the control interface
	defaultTail = 100      // lines of a log where n is not given
	maxTail     = 100_000
)

// API routes and answers the requests below [Prefix].
type API struct {
	daemon Daemon
	logger *slog.Logger
}

// NewAPI returns the control interface of d.
func NewAPI(d Daemon, logger *slog.Logger) *API {
	return &API{daemon: d, logger: logger}
}

// Route finds the route of a path in which nothing is escaped. Every route
// needs the admin right, but for the one by which the daemon proves itself to
// those who hold a token back until then.
func (a *API) Route(path string) (security.Route, bool) {
	rest, ok := strings.CutPrefix(path, Prefix)
	if !ok {
		return security.Route{}, false
	}
	seg := strings.Split(rest, "/")
	switch {
	case len(seg) == 1 && seg[0] == "status":
		return a.route(a.status, http.MethodGet), true
	case len(seg) == 1 && seg[0] == challengePath:
		route := a.route(a.challenge, http.MethodPost)
		route.Public, route.Admin = true, false
		return route, true
	case len(seg) == 1 && seg[0] == "reload":
		return a.route(a.reload, http.MethodPost), true
	case len(seg) == 1 && seg[0] == "ledger":
		return a.route(a.ledger, http.MethodGet), true
	case len(seg) == 2 && seg[0] == "ledger" && seg[1] == "resolve":
		return a.route(a.resolveLedger, http.MethodPost), true
	case len(seg) == 1 && seg[0] == "tokens":
		return a.route(a.tokens, http.MethodGet, http.MethodPost), true
	case len(seg) == 2 && seg[0] == "tokens" && seg[1] == "rotate":
		return a.route(a.rotate, http.MethodPost), true
	case len(seg) == 2 && seg[0] == "tokens" && seg[1] == "revoke":
		return a.route(a.revoke, http.MethodPost), true
	case len(seg) == 3 && seg[0] == "servers" && seg[1] != "":
		switch seg[2] {
		case "start":
			return a.route(a.act(seg[1], a.daemon.StartServer), http.MethodPost), true
		case "stop":
			return a.route(a.act(seg[1], a.daemon.StopServer), http.MethodPost), true
		case "restart":
			return a.route(a.act(seg[1], a.daemon.RestartServer), http.MethodPost), true
		case "logs":
			return a.route(a.logs(seg[1]), http.MethodGet), true
		}
	}
	return security.Route{}, false
}

// handlerFunc answers a request, or says what went wrong before anything was
// written.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

func (a *API) route(h handlerFunc, methods ...string) security.Route {
	return security.Route{
		Methods: methods,
		Admin:   true,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			if err := h(w, r); err != nil {
				a.fail(w, r, err)
			}
		}),
	}
}

// fail is the one place where an error becomes an answer.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // nobody is there to read it
	}
	var e *Error
	if !errors.As(err, &e) {
		a.logger.Error("a control request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		e = &Error{
			Status:  http.StatusInternalServerError,
			Message: "the daemon could not do it",
			Hint:    "the daemon's log says why",
		}
	}
	writeJSON(w, e.Status, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // all types here can be marshalled
		panic(fmt.Sprintf("control: %T: %v", v, err))
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

func (a *API) status(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, a.daemon.Status())
	return nil
}

func (a *API) reload(w http.ResponseWriter, r *http.Request) error {
	re, err := a.daemon.Reload(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, re)
	return nil
}

func (a *API) act(name string, do func(context.Context, string) error) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := do(r.Context(), name); err != nil {
			return err
		}
		for _, s := range a.daemon.Status().Servers {
			if s.Name == name {
				writeJSON(w, http.StatusOK, s)
				return nil
			}
		}
		return Errorf(http.StatusNotFound, "server %q left the config meanwhile", name)
	}
}

func (a *API) logs(name string) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := r.URL.Query()
		n := defaultTail
		if s := q.Get("n"); s != "" {
			var err error
			if n, err = strconv.Atoi(s); err != nil || n < 0 || n > maxTail {
				return Errorf(http.StatusBadRequest, "n must be a number from 0 to %d", maxTail)
			}
		}
		var follow bool
		switch q.Get("follow") {
		case "", "0", "false":
		case "1", "true":
			follow = true
		default:
			return Errorf(http.StatusBadRequest, "follow must be 0 or 1")
		}
		lines, err := a.daemon.Logs(r.Context(), name, n, follow)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusOK)
		rc := http.NewResponseController(w)
		if follow {
			_ = rc.Flush() // the headers: the log may be empty
		}
		enc := json.NewEncoder(w)
		for l := range lines {
			if follow {
				_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
			}
			if err := enc.Encode(l); err != nil {
				return nil //nolint:nilerr // the reader is gone
			}
			if follow {
				_ = rc.Flush()
			}
		}
		return nil
	}
}

// writeTimeout is how long the reader of a followed log may refuse a line.
const writeTimeout = 30 * time.Second

func (a *API) ledger(w http.ResponseWriter, r *http.Request) error {
	state := r.URL.Query().Get("state")
	switch state {
	case "", "running", "done", "unknown":
	default:
		return Errorf(http.StatusBadRequest, "state must be running, done or unknown")
	}
	entries, err := a.daemon.Ledger(state)
	if err != nil {
		return err
	}
	if entries == nil {
		entries = []LedgerEntry{}
	}
	writeJSON(w, http.StatusOK, entries)
	return nil
}

func (a *API) resolveLedger(w http.ResponseWriter, r *http.Request) error {
	var req LedgerResolve
	if err := readJSON(r.Body, &req); err != nil {
		return err
	}
	if req.Done == nil || req.ID == "" {
		return Errorf(http.StatusBadRequest, "id and done must be there")
	}
	entry, err := a.daemon.ResolveLedger(req.ID, *req.Done)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, entry)
	return nil
}

func (a *API) tokens(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodGet {
		writeJSON(w, http.StatusOK, a.daemon.Tokens().List())
		return nil
	}
	var req NewToken
	if err := readJSON(r.Body, &req); err != nil {
		return err
	}
	t, err := a.daemon.Tokens().Create(req)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, t)
	return nil
}

func (a *API) revoke(w http.ResponseWriter, r *http.Request) error {
	var req RevokeToken
	if err := readJSON(r.Body, &req); err != nil {
		return err
	}
	if err := a.daemon.Tokens().Revoke(req.Token); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) rotate(w http.ResponseWriter, _ *http.Request) error {
	if err := a.daemon.Tokens().Rotate(); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func readJSON(r io.Reader, v any) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return Errorf(http.StatusRequestEntityTooLarge, "the request is larger than %d bytes", tooLarge.Limit)
		}
		return Errorf(http.StatusBadRequest, "the request is not the JSON that is expected here")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Errorf(http.StatusBadRequest, "the request holds more than one JSON value")
	}
	return nil
}
