package security

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
)

// startServer serves the gate over the loopback interface, as the daemon does.
func startServer(t *testing.T) (*gateFixture, netip.AddrPort) {
	t.Helper()
	f := newGateFixture(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(listener.Addr().String())
	policy := LoopbackPolicy(addr)
	policy.Origins = append(policy.Origins, testOrigin)
	f.gate.SetPolicy(policy)
	server := &http.Server{Handler: f.handler, DisableGeneralOptionsHandler: true}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return f, addr
}

// exchange sends bytes as they are and returns all that comes back.
func exchange(t *testing.T, addr netip.AddrPort, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func statusOf(t *testing.T, answer string) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
	if err != nil {
		t.Fatalf("%v in %q", err, answer)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestRawRequestsOverLoopback(t *testing.T) {
	f, addr := startServer(t)
	auth := "Authorization: Bearer " + f.token + "\r\n"
	port := addr.Port()
	for _, tc := range []struct {
		name    string
		request string
		status  int
	}{
		{"an ordinary request", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 200},
		{"the name in capitals", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: LOCALHOST:{port}\r\n" + auth + "\r\n", 200},
		{"the IPv6 name", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: [::1]:{port}\r\n" + auth + "\r\n", 200},
		{"a rebound name", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: evil.example:{port}\r\n" + auth + "\r\n", 403},
		{"a name with a trailing dot", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: localhost.:{port}\r\n" + auth + "\r\n", 403},
		{"an empty Host", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: \r\n" + auth + "\r\n", 403},
		{"no Host in HTTP/1.1", "POST /servers/alpha/mcp HTTP/1.1\r\n" + auth + "\r\n", 400},
		{"no Host in HTTP/1.0", "POST /servers/alpha/mcp HTTP/1.0\r\n" + auth + "\r\n", 403},
		{"a Host in HTTP/1.0", "POST /servers/alpha/mcp HTTP/1.0\r\nHost: {addr}\r\n" + auth + "\r\n", 200},
		{"two Hosts", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nHost: evil.example\r\n" + auth + "\r\n", 400},
		{"two equal Hosts", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nHost: {addr}\r\n" + auth + "\r\n", 400},
		{"X-Forwarded-Host changes nothing", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: {addr}\r\n" + auth + "\r\n", 403},
		{"an absolute target with a listed authority", "POST http://{addr}/servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 200},
		{"an absolute target with a foreign authority", "POST http://evil.example/servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 403},
		{"an absolute target with another scheme", "POST https://{addr}/servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 403},
		{"an absolute target with user data", "POST http://{addr}@{addr}/servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 403},
		{"a target with two slashes", "POST //evil.example/servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 404},
		{"CONNECT", "CONNECT {addr} HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 404},
		{"CONNECT elsewhere", "CONNECT evil.example:443 HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 403},
		{"OPTIONS * from a foreign Host", "OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: {addr}\r\n\r\n", 404},
		{"a listed Origin", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nOrigin: " + testOrigin + "\r\n" + auth + "\r\n", 200},
		{"mcpd's own Origin", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nOrigin: http://{addr}\r\n" + auth + "\r\n", 200},
		{"an empty Origin", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nOrigin:\r\n" + auth + "\r\n", 403},
		{"Origin null", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nOrigin: null\r\n" + auth + "\r\n", 403},
		{"two Origins, the first listed", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nOrigin: " + testOrigin + "\r\nOrigin: https://evil.example\r\n" + auth + "\r\n", 403},
		{"the same Origin twice", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nOrigin: " + testOrigin + "\r\norigin: " + testOrigin + "\r\n" + auth + "\r\n", 403},
		{"two Authorizations", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\n" + auth + auth + "\r\n", 401},
		{"two Authorizations, one of another scheme", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\n" + auth + "Authorization: Basic eDp5\r\n\r\n", 401},
		{"bearer in lower case", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nauthorization: bearer " + f.token + "\r\n\r\n", 200},
		{"BEARER and spaces", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nAuthorization:   BEARER   " + f.token + "  \r\n\r\n", 200},
		{"Basic with the token", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Basic " + f.token + "\r\n\r\n", 401},
		{"the token alone", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nAuthorization: " + f.token + "\r\n\r\n", 401},
		{"the token and more", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer " + f.token + ", Bearer x\r\n\r\n", 401},
		{"the token in the query", "POST /servers/alpha/mcp?access_token=" + f.token + "&token=" + f.token + " HTTP/1.1\r\nHost: {addr}\r\n\r\n", 401},
		{"the token in a cookie", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nCookie: token=" + f.token + "\r\n\r\n", 401},
		{"the token in Proxy-Authorization", "POST /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nProxy-Authorization: Bearer " + f.token + "\r\n\r\n", 401},
		{"a dot segment is not resolved", "POST /x/../servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 404},
		{"an encoded .well-known", "POST /%2ewell-known/x HTTP/1.1\r\nHost: {addr}\r\n" + auth + "\r\n", 404},
		{"a method override is ignored", "GET /servers/alpha/mcp HTTP/1.1\r\nHost: {addr}\r\nX-HTTP-Method-Override: POST\r\n" + auth + "\r\n", 405},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := f.count()
			request := strings.NewReplacer("{addr}", addr.String(), "{port}", fmt.Sprint(port)).Replace(tc.request)
			answer := exchange(t, addr, request)
			if got := statusOf(t, answer); got != tc.status {
				t.Errorf("status %d, want %d; answer %q", got, tc.status, answer)
			}
			if got, want := f.count()-before, 0; tc.status == 200 {
				if got != 1 {
					t.Errorf("handler reached %d times", got)
				}
			} else if got != want {
				t.Error("handler reached")
			}
			if strings.Contains(answer, f.token) {
				t.Error("the answer holds the token")
			}
		})
	}
	if log := f.log.String(); strings.Contains(log, f.token) || strings.Contains(log, f.token[len(tokenPrefix):]) {
		t.Error("the log holds the token")
	}
}

// TestEveryRefusedTokenLooksTheSame compares whole answers: a difference would
// tell a stranger which tokens and which servers exist.
func TestEveryRefusedTokenLooksTheSame(t *testing.T) {
	f, addr := startServer(t)
	revoked := mustCreate(t, f.store, "revoked", CreateOptions{})
	if err := f.store.Revoke("revoked"); err != nil {
		t.Fatal(err)
	}
	expired := mustCreate(t, f.store, "expired", CreateOptions{TTL: 1})
	rotated := f.token
	if _, err := f.store.Rotate(); err != nil {
		t.Fatal(err)
	}
	date := regexp.MustCompile(`\r\nDate: [^\r]*`)
	var first string
	for name, auth := range map[string]string{
		"missing":     "",
		"empty":       "Authorization: \r\n",
		"malformed":   "Authorization: Bearer\r\n",
		"wrong":       "Authorization: Bearer wrong\r\n",
		"like one":    "Authorization: Bearer " + newToken().Reveal() + "\r\n",
		"almost":      "Authorization: Bearer " + f.limited[:len(f.limited)-1] + "\r\n",
		"revoked":     "Authorization: Bearer " + revoked + "\r\n",
		"expired":     "Authorization: Bearer " + expired + "\r\n",
		"rotated":     "Authorization: Bearer " + rotated + "\r\n",
		"twice":       "Authorization: Bearer " + f.limited + "\r\nAuthorization: Bearer " + f.limited + "\r\n",
		"other kind":  "Authorization: Basic eDp5\r\n",
		"very long":   "Authorization: Bearer " + strings.Repeat("x", 10_000) + "\r\n",
		"hash of one": "Authorization: Bearer " + fmt.Sprintf("%x", hashOf(NewSecret(f.limited))) + "\r\n",
	} {
		for _, server := range []string{"alpha", "nobody"} {
			answer := exchange(t, addr, "POST /servers/"+server+"/mcp HTTP/1.1\r\nHost: "+addr.String()+"\r\n"+auth+"\r\n")
			answer = date.ReplaceAllString(answer, "")
			if first == "" {
				first = answer
			}
			if answer != first {
				t.Errorf("%s token, server %s: %q\nothers: %q", name, server, answer, first)
			}
		}
	}
	if !strings.HasPrefix(first, "HTTP/1.1 401 ") || !strings.Contains(first, "\r\nWww-Authenticate: Bearer realm=\"mcpd\"\r\n") ||
		strings.Contains(first, "resource_metadata") || !strings.Contains(first, fmt.Sprint(CodeUnauthorized)) {
		t.Errorf("answered %q", first)
	}
	if got := f.gate.Refusals(); got.RevokedToken != 2 || got.ExpiredToken != 2 || got.NoToken == 0 || got.UnknownToken == 0 {
		t.Errorf("counted %+v", got)
	}
	// The log, for its owner, does tell them apart.
	for _, want := range []string{"was revoked", "has expired", "not known", "no bearer token"} {
		if !strings.Contains(f.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

// TestTokensReachNoLogAndNoAnswer puts valid tokens wherever a client could
// put them by mistake, on every path to a refusal.
func TestTokensReachNoLogAndNoAnswer(t *testing.T) {
	f, addr := startServer(t)
	revoked := mustCreate(t, f.store, "revoked", CreateOptions{})
	if err := f.store.Revoke("revoked"); err != nil {
		t.Fatal(err)
	}
	tokens := []string{f.token, f.limited, revoked, newToken().Reveal()}
	host := "Host: " + addr.String() + "\r\n"
	var answers strings.Builder
	for _, token := range tokens {
		auth := "Authorization: Bearer " + token + "\r\n"
		for _, request := range []string{
			"POST /servers/beta/mcp HTTP/1.1\r\n" + host + auth + "\r\n",
			"POST /servers/beta/mcp HTTP/1.1\r\n" + host + auth + auth + "\r\n",
			"POST /servers/beta/mcp HTTP/1.1\r\n" + host + "Authorization: " + token + "\r\n\r\n",
			"POST /servers/beta/mcp HTTP/1.1\r\n" + host + "Authorization: Bearer  " + token + " x\r\n\r\n",
			"POST /servers/" + token + "/mcp?token=" + token + " HTTP/1.1\r\n" + host + "\r\n",
			"POST /" + token + " HTTP/1.1\r\n" + host + "\r\n",
			"GET /.well-known/" + token + " HTTP/1.1\r\n" + host + auth + "\r\n",
			"GET /servers/beta/mcp HTTP/1.1\r\n" + host + auth + "\r\n",
			token + " /servers/beta/mcp HTTP/1.1\r\n" + host + "\r\n",
			"POST /servers/beta/mcp HTTP/1.1\r\nHost: " + token + "\r\n" + auth + "\r\n",
			"POST /servers/beta/mcp HTTP/1.1\r\nHost: " + strings.Repeat("x", refusalClip-20) + token + "\r\n" + auth + "\r\n",
			"POST /servers/beta/mcp HTTP/1.1\r\n" + host + "Origin: http://" + token + ".example\r\n" + auth + "\r\n",
			"POST /servers/beta/mcp HTTP/1.1\r\n" + host + "Origin: " + token + "\r\nOrigin: " + token + "\r\n\r\n",
			"OPTIONS /servers/beta/mcp HTTP/1.1\r\n" + host + "Origin: " + testOrigin + "\r\nAccess-Control-Request-Headers: " + token + "\r\n\r\n",
			"GET /api/v1/status HTTP/1.1\r\n" + host + auth + "\r\n",
		} {
			answers.WriteString(exchange(t, addr, request))
		}
	}
	log := f.log.String()
	for _, why := range []string{"Host is not in the list", "Origin is not in the list", "no valid token", "no right", "does not take its method"} {
		if !strings.Contains(log, why) {
			t.Errorf("the log has no %q: the test does not show what it should", why)
		}
	}
	for _, token := range tokens {
		// Half of a token is too much as well.
		for _, part := range []string{token[len(tokenPrefix):], token[len(tokenPrefix) : len(tokenPrefix)+12]} {
			if strings.Contains(log, part) {
				t.Error("the log holds a token")
			}
			if strings.Contains(answers.String(), part) {
				t.Error("an answer holds a token")
			}
		}
	}
}
