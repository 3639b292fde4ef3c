package security

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// Authenticator says whose token a bearer token is. Its errors match
// [ErrNoToken], [ErrUnknownToken], [ErrRevoked] or [ErrExpired] where one of
// them is the cause, and never hold the token. *[TokenStore] is one.
type Authenticator interface {
	Authenticate(bearer string) (*Principal, error)
}

// Route is what is served at one path.
type Route struct {
	// Methods that Handler takes. GET includes HEAD. OPTIONS is answered by
	// the gate.
	Methods []string
	// Public lets requests without a token in. All other checks hold.
	Public bool
	// Admin demands the right to control the daemon.
	Admin bool
	// Server, when not empty, demands the right to that server. It must not
	// depend on whether the server exists.
	Server string
	// Handler is called with the Principal in the request's context.
	Handler http.Handler
}

// Router finds what is served at a path, which is the decoded path of the
// URL. It must treat paths of servers that exist and of those that do not
// alike, because it is asked before the token is checked.
type Router interface {
	Route(path string) (Route, bool)
}

// Gate checks requests, in this order, and stops at the first fault:
//
//  1. Host exactly in the list, else 403
//  2. Origin absent, or one and exactly in the list, else 403
//  3. a path with a .well-known segment: 404 without a body
//  4. a path that the Router does not know: 404 without a body
//  5. OPTIONS: 204, with the CORS headers if an Origin was sent
//  6. method that the route takes, else 405 with Allow
//  7. token (unless the route is public), else 401
//  8. right of the token to the route, else 403
//
// The Host comes first because a page that rebinds a name to 127.0.0.1 is of
// the same origin as what it asks, so no later check would stop it. Preflights
// come before the token because browsers send none with them.
//
// A server that uses a Gate sets [http.Server].DisableGeneralOptionsHandler:
// otherwise net/http answers "OPTIONS *" by itself and asks no Gate.
type Gate struct {
	auth     Authenticator
	logger   *slog.Logger
	policy   atomic.Pointer[compiledPolicy]
	counters refusalCounters
	refused  *refusalLog
	fixed    fixedHeaders
}

// fixedHeaders are the values that every answer carries. They are made once:
// a http.Header takes slices, and these are full, so that an append copies.
type fixedHeaders struct {
	nosniff, noStore, vary, expose, json, challenge, corp []string
}

// NewGate returns a Gate. Entries of the policy that are not valid let nothing
// in and are logged; [Policy.Validate] finds them beforehand. A nil logger
// logs nothing.
func NewGate(auth Authenticator, policy Policy, logger *slog.Logger) *Gate {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	g := &Gate{
		auth:    auth,
		logger:  logger,
		refused: newRefusalLog(logger),
		fixed: fixedHeaders{
			nosniff:   []string{"nosniff"},
			noStore:   []string{"no-store"},
			vary:      []string{"Origin"},
			expose:    []string{"Retry-After, WWW-Authenticate"},
			json:      []string{"application/json"},
			challenge: []string{`Bearer realm="mcpd"`},
			corp:      []string{"same-origin"},
		},
	}
	g.SetPolicy(policy)
	return g
}

// SetPolicy replaces the policy for the requests that come from now on.
func (g *Gate) SetPolicy(policy Policy) {
	compiled, err := compilePolicy(policy)
	if err != nil {
		g.logger.Error("some entries under [security] are not valid and let nothing in", "error", err)
	}
	g.policy.Store(compiled)
}

// Refusals returns how many requests were refused so far.
func (g *Gate) Refusals() RefusalCounts { return g.counters.snapshot() }

// Handler returns the handler that checks each request and hands those that
// pass to what router finds for their path.
func (g *Gate) Handler(router Router) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.serve(w, r, router)
	})
}

func (g *Gate) serve(w http.ResponseWriter, r *http.Request, router Router) {
	policy := g.policy.Load()
	header := w.Header()
	header["X-Content-Type-Options"] = g.fixed.nosniff
	header["Cache-Control"] = g.fixed.noStore
	header["Cross-Origin-Resource-Policy"] = g.fixed.corp
	header["Vary"] = g.fixed.vary

	if !targetIsPlain(r) || !policy.allowsHost(r.Host) {
		g.note(r, reasonHost, r.Host)
		g.refuse(w, http.StatusForbidden, bodyHost)
		return
	}

	origins := r.Header["Origin"]
	if len(origins) > 0 {
		if len(origins) != 1 || !policy.allowsOrigin(origins[0]) {
			g.note(r, reasonOrigin, strings.Join(origins, ", "))
			g.refuse(w, http.StatusForbidden, bodyOrigin)
			return
		}
		header["Access-Control-Allow-Origin"] = origins
		header["Access-Control-Expose-Headers"] = g.fixed.expose
	}

	if isWellKnown(r.URL.Path) {
		g.counters[reasonWellKnown].Add(1)
		w.WriteHeader(http.StatusNotFound)
		return
	}
	route, found := router.Route(r.URL.Path)
	if !found {
		g.counters[reasonUnknownPath].Add(1)
		w.WriteHeader(http.StatusNotFound)
		return
	}

	if r.Method == http.MethodOptions {
		allow := allowedMethods(route.Methods)
		header.Set("Allow", allow)
		if len(origins) > 0 {
			answerPreflight(header, r.Header, allow)
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if !takesMethod(route.Methods, r.Method) {
		g.note(r, reasonMethod, r.Method)
		header.Set("Allow", allowedMethods(route.Methods))
		g.refuse(w, http.StatusMethodNotAllowed, bodyMethod)
		return
	}

	var (
		principal *Principal
		bearer    string
	)
	if !route.Public {
		var err error
		if principal, bearer, err = g.authenticate(r); err != nil {
			g.noteToken(r, err)
			header["Www-Authenticate"] = g.fixed.challenge
			g.refuse(w, http.StatusUnauthorized, bodyToken)
			return
		}
	}
	if route.Admin && (principal == nil || !principal.Admin) ||
		route.Server != "" && !principal.MayUse(route.Server) {
		var name string
		if principal != nil {
			name = principal.Name
		}
		g.note(r, reasonRight, name)
		g.refuse(w, http.StatusForbidden, bodyRight)
		return
	}
	if principal != nil {
		r = r.WithContext(withAccepted(r.Context(), principal, g.auth, bearer))
	}
	route.Handler.ServeHTTP(w, r)
}

// authenticate reads the token from the Authorization field and nowhere else:
// a query string ends up in histories and logs.
func (g *Gate) authenticate(r *http.Request) (principal *Principal, bearer string, err error) {
	bearer, ok := bearerToken(r.Header["Authorization"])
	if !ok {
		return nil, "", ErrNoToken
	}
	principal, err = g.auth.Authenticate(bearer)
	if err == nil && principal == nil {
		err = errors.New("the token was accepted without a principal")
	}
	return principal, bearer, err
}

func (g *Gate) refuse(w http.ResponseWriter, status int, body string) {
	w.Header()["Content-Type"] = g.fixed.json
	w.WriteHeader(status)
	// A client that is gone does not read its refusal.
	_, _ = io.WriteString(w, body)
}

// note counts a refusal and logs it, with the refused value.
func (g *Gate) note(r *http.Request, why reason, value string) {
	g.counters[why].Add(1)
	level, message, label, hint := slog.LevelWarn, "", "", ""
	switch why {
	case reasonHost:
		message, label = "refused a request: its Host is not in the list", "host"
		hint = "if this name for mcpd is right, add it to allowed_hosts under [security]"
	case reasonOrigin:
		message, label = "refused a request: its Origin is not in the list", "origin"
		hint = "to let this page in, add its origin to allowed_origins under [security]"
		if value == "null" {
			hint = "every sandboxed page sends null, so it cannot be allowed"
		}
	case reasonMethod:
		level = slog.LevelDebug
		message, label = "refused a request: the path does not take its method", "method"
		hint = "servers take POST only"
	case reasonRight:
		message, label = "refused a request: its token has no right to what was asked for", "token_name"
		hint = "mcpd token list shows the rights of each token"
	default:
		return
	}
	g.write(r, level, why, message, label, value, hint)
}

// noteToken counts and logs a refused token: what is wrong with it, never the
// token. The error may name it.
func (g *Gate) noteToken(r *http.Request, err error) {
	why := reasonAuthFailure
	switch {
	case errors.Is(err, ErrNoToken):
		why = reasonNoToken
	case errors.Is(err, ErrUnknownToken):
		why = reasonUnknownToken
	case errors.Is(err, ErrRevoked):
		why = reasonRevoked
	case errors.Is(err, ErrExpired):
		why = reasonExpired
	}
	g.counters[why].Add(1)
	g.write(r, slog.LevelWarn, why, "refused a request: no valid token", "cause", err.Error(),
		"mcpd token show prints the token to send; mcpd token list shows the others")
}

func (g *Gate) write(r *http.Request, level slog.Level, why reason, message, label, value, hint string) {
	ctx := context.WithoutCancel(r.Context())
	if !g.logger.Enabled(ctx, level) {
		return
	}
	shown, repeated, ok := g.refused.admit(why, printable(value))
	if !ok {
		return
	}
	g.logger.LogAttrs(ctx, level, message,
		slog.String(label, shown),
		slog.String("remote", r.RemoteAddr),
		slog.Uint64("more_since_last", repeated),
		slog.String("hint", hint))
}

// targetIsPlain refuses request targets that are written for a proxy and say
// more than http and an authority. For the others net/http takes Host from the
// target, which is what RFC 9112 section 3.2.2 demands, so that the check of
// the Host holds for them as well.
func targetIsPlain(r *http.Request) bool {
	return r.URL.User == nil && (r.URL.Scheme == "" || r.URL.Scheme == "http")
}

// isWellKnown reports whether path asks for metadata: /.well-known/..., and
// also .well-known behind another path, where some clients look for it.
func isWellKnown(path string) bool {
	const segment = "/.well-known"
	for {
		i := strings.Index(path, segment)
		if i < 0 {
			return false
		}
		path = path[i+len(segment):]
		if path == "" || path[0] == '/' {
			return true
		}
	}
}

func takesMethod(methods []string, method string) bool {
	for _, m := range methods {
		if m == method || m == http.MethodGet && method == http.MethodHead {
			return true
		}
	}
	return false
}

// allowedMethods is the value of Allow for a route.
func allowedMethods(methods []string) string {
	all := make([]string, 0, len(methods)+2)
	for _, m := range methods {
		all = append(all, m)
		if m == http.MethodGet && !slices.Contains(methods, http.MethodHead) {
			all = append(all, http.MethodHead)
		}
	}
	if !slices.Contains(all, http.MethodOptions) {
		all = append(all, http.MethodOptions)
	}
	return strings.Join(all, ", ")
}
