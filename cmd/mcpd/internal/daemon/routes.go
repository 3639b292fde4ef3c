package daemon

import (
	"io"
	"net/http"
	"strings"
	"time"

	"mcpd/bridge"
	"mcpd/cmd/mcpd/internal/control"
	"mcpd/security"
)

// router finds what is served at a path. It matches whole paths itself and
// never redirects: a client that follows a redirect may lose its token or its
// body on the way.
type router struct {
	endpoint *bridge.Endpoint
	api      *control.API
}

// postOnly are the methods of a server's endpoint.
var postOnly = []string{http.MethodPost}

// Route implements security.Router.
func (r router) Route(path string) (security.Route, bool) {
	if path == "/healthz" {
		return security.Route{Methods: []string{http.MethodGet}, Public: true, Handler: http.HandlerFunc(healthz)}, true
	}
	switch name, which := serverOf(path); which {
	case endpointWithSessions:
		return security.Route{Methods: bridge.SessionMethods(), Server: name, Handler: r.endpoint.SessionHandler(name)}, true
	case endpointOfServer:
		return security.Route{Methods: postOnly, Server: name, Handler: r.endpoint.Handler(name)}, true
	}
	return r.api.Route(path)
}

// The endpoints of a server, each with or without one slash behind it.
const (
	endpointOfServer     = "mcp"
	endpointWithSessions = "legacy/mcp"
)

// serverOf returns NAME and which of its endpoints is at /servers/NAME/…,
// whether or not such a server is configured; "" for another path.
func serverOf(path string) (name, endpoint string) {
	rest, ok := strings.CutPrefix(path, "/servers/")
	name, rest, _ = strings.Cut(rest, "/")
	endpoint = strings.TrimSuffix(rest, "/")
	if ok && isServerName(name) && (endpoint == endpointOfServer || endpoint == endpointWithSessions) {
		return name, endpoint
	}
	return "", ""
}

// isServerName reports whether a server can have this name: a letter or digit,
// then up to 63 letters, digits, dots, underscores and hyphens.
func isServerName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		b := s[i]
		alnum := 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
		if !alnum && (i == 0 || b != '.' && b != '_' && b != '-') {
			return false
		}
	}
	return true
}

func healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// literalPath hides from next that a path was written with escapes. Nothing
// that mcpd serves needs them, and a path that is read as it was written
// cannot be read in two ways.
func literalPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.EscapedPath(), "%") {
			u := *r.URL
			u.Path, u.RawPath = escapedPath, ""
			r = r.WithContext(r.Context()) // a copy
			r.URL = &u
		}
		next.ServeHTTP(w, r)
	})
}

// refusedBodyTimeout is how long a body may take that nobody reads: before it
// answers, net/http reads what is left of a request that was refused early.
// Who does read a body sets a longer deadline.
const refusedBodyTimeout = 2 * time.Second

// boundedBody keeps a client that announces a body and never sends it from
// holding up the answer and the connection.
func boundedBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// Where it cannot be set there is no connection to hold up either.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// escapedPath is what no route has.
const escapedPath = "/%"
