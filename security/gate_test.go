package security

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFourCallersOriginTimesToken(t *testing.T) {
	for _, tc := range []struct {
		name   string
		origin string
		token  bool
		status int
	}{
		{"a program without an Origin, with the token, gets in", "", true, http.StatusOK},
		{"a page of a listed Origin, with the token, gets in", testOrigin, true, http.StatusOK},
		{"a page of a listed Origin, without the token, is refused", testOrigin, false, http.StatusUnauthorized},
		{"a page of another Origin is refused, even with the token", "https://evil.example", true, http.StatusForbidden},
		{"a page of another Origin, without the token, is refused for its Origin", "https://evil.example", false, http.StatusForbidden},
		{"a program without an Origin and without the token is refused", "", false, http.StatusUnauthorized},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newGateFixture(t)
			resp := f.call(http.MethodPost, "/servers/alpha/mcp", func(r *http.Request) {
				if tc.origin != "" {
					r.Header.Set("Origin", tc.origin)
				}
				if tc.token {
					bearer(f.token)(r)
				}
			})
			if resp.StatusCode != tc.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tc.status)
			}
			if got, want := f.count() == 1, tc.status == http.StatusOK; got != want {
				t.Errorf("handler reached: %v, want %v", got, want)
			}
		})
	}
}

func TestHostIsComparedWhole(t *testing.T) {
	policy, err := compilePolicy(Policy{Hosts: []string{"127.0.0.1:7317", "LocalHost:7317", "[::1]:7317", "mcp.internal", "web.internal:80"}})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"127.0.0.1:7317":              true,
		"localhost:7317":              true,
		"LOCALHOST:7317":              true,
		"lOcAlHoSt:7317":              true,
		"[::1]:7317":                  true,
		"mcp.internal":                true,
		"MCP.internal":                true,
		"web.internal:80":             true,
		"web.internal":                true,
		"":                            false,
		"localhost":                   false,
		"localhost:":                  false,
		"localhost:80":                false,
		"localhost:7318":              false,
		"localhost:07317":             false,
		"localhost:73170":             false,
		"localhost.:7317":             false,
		"localhost:7317.":             false,
		"localhost:7317:7317":         false,
		" localhost:7317":             false,
		"localhost:7317 ":             false,
		"localhost:7317/":             false,
		"localhost:7317\x00":          false,
		"localhost:7317.evil.example": false,
		"localhost.evil.example:7317": false,
		"evil.localhost:7317":         false,
		"evil-localhost:7317":         false,
		"xlocalhost:7317":             false,
		"user@localhost:7317":         false,
		"localhost:7317@evil.example": false,
		"localhost:7317,evil.example": false,
		"evil.example":                false,
		"evil.example:7317":           false,
		"127.0.0.1":                   false,
		"127.0.0.1.:7317":             false,
		"127.0.0.2:7317":              false,
		"127.1:7317":                  false,
		"2130706433:7317":             false,
		"0x7f000001:7317":             false,
		"0.0.0.0:7317":                false,
		"::1:7317":                    false,
		"[::1]":                       false,
		"[::1%25lo]:7317":             false,
		"[0:0:0:0:0:0:0:1]:7317":      false,
		"[::ffff:127.0.0.1]:7317":     false,
		"[::1]:7317]":                 false,
		"mcp.internal:80":             false,
		"mcp.internal:7317":           false,
		"mcp.internal.":               false,
		"loc\u0430lhost:7317":         false, // a Cyrillic a
		"\u212Aelvin:7317":            false,
	} {
		if got := policy.allowsHost(host); got != want {
			t.Errorf("Host %q: let through = %v, want %v", host, got, want)
		}
	}
}

func TestOriginIsComparedWhole(t *testing.T) {
	policy, err := compilePolicy(Policy{Origins: []string{
		"http://localhost:6274", "https://App.example", "http://plain.example:80", "https://tls.example:443",
		"http://[::1]:7317", "vscode-file://vscode-app",
	}})
	if err != nil {
		t.Fatal(err)
	}
	for origin, want := range map[string]bool{
		"http://localhost:6274":                       true,
		"https://app.example":                         true,
		"http://plain.example":                        true,
		"https://tls.example":                         true,
		"http://[::1]:7317":                           true,
		"vscode-file://vscode-app":                    true,
		"":                                            false,
		"null":                                        false,
		"NULL":                                        false,
		"*":                                           false,
		"http://localhost":                            false,
		"http://localhost:6275":                       false,
		"http://localhost:62740":                      false,
		"http://localhost:6274/":                      false,
		"http://localhost:6274/x":                     false,
		"http://localhost:6274.evil.example":          false,
		"http://localhost:6274@evil.example":          false,
		"http://localhost:6274#evil.example":          false,
		"http://localhost:6274?evil":                  false,
		"http://localhost:6274\\.evil":                false,
		"http://localhost.evil.example:6274":          false,
		"http://evil.example/http://localhost:6274":   false,
		"http://evil.localhost:6274":                  false,
		"http://evillocalhost:6274":                   false,
		"http://user@localhost:6274":                  false,
		"http://localhost.:6274":                      false,
		"https://localhost:6274":                      false,
		"ws://localhost:6274":                         false,
		"//localhost:6274":                            false,
		"localhost:6274":                              false,
		"HTTP://localhost:6274":                       false,
		"http://LOCALHOST:6274":                       false,
		" http://localhost:6274":                      false,
		"http://localhost:6274 ":                      false,
		"http://localhost:6274,http://localhost:6274": false,
		"http://localhost:6274 http://evil.example":   false,
		"http://127.0.0.1:6274":                       false,
		"https://App.example":                         false,
		"https://app.example:443":                     false,
		"http://app.example":                          false,
		"https://sub.app.example":                     false,
		"https://app.example.evil.example":            false,
		"http://plain.example:80":                     false,
		"https://plain.example":                       false,
		"http://tls.example":                          false,
		"http://::1:7317":                             false,
		"http://[::1]":                                false,
		"file://":                                     false,
		"vscode-file://vscode-app.evil":               false,
	} {
		if got := policy.allowsOrigin(origin); got != want {
			t.Errorf("Origin %q: let through = %v, want %v", origin, got, want)
		}
	}
}

func TestPolicyNamesEntriesThatCanNeverMatch(t *testing.T) {
	for _, tc := range []struct {
		policy Policy
		want   string
	}{
		{Policy{Origins: []string{"null"}}, "sandboxed"},
		{Policy{Origins: []string{"*"}}, "wildcards"},
		{Policy{Origins: []string{"http://*.example"}}, "wildcards"},
		{Policy{Origins: []string{"http://localhost:6274/"}}, "slash"},
		{Policy{Origins: []string{"http://localhost:6274/app"}}, "path"},
		{Policy{Origins: []string{"localhost:6274"}}, "scheme"},
		{Policy{Origins: []string{"file://"}}, "empty"},
		{Policy{Origins: []string{""}}, "empty"},
		{Policy{Origins: []string{"http://user@localhost"}}, "character"},
		{Policy{Origins: []string{"http://bücher.example"}}, "xn--"},
		{Policy{Origins: []string{"1http://localhost"}}, "scheme"},
		{Policy{Hosts: []string{""}}, "empty"},
		{Policy{Hosts: []string{"*:7317"}}, "wildcards"},
		{Policy{Hosts: []string{"http://localhost:7317"}}, "only the name"},
		{Policy{Hosts: []string{"localhost:0"}}, "port"},
		{Policy{Hosts: []string{"localhost:65536"}}, "port"},
		{Policy{Hosts: []string{"localhost:007"}}, "port"},
		{Policy{Hosts: []string{"localhost:"}}, "port"},
		{Policy{Hosts: []string{"::1"}}, "brackets"},
		{Policy{Hosts: []string{"[::1"}}, "bracket"},
		{Policy{Hosts: []string{"[127.0.0.1]:7317"}}, "IPv6"},
		{Policy{Hosts: []string{"[fe80::1%eth0]:7317"}}, "IPv6"},
		{Policy{Hosts: []string{":7317"}}, "name"},
		{Policy{Hosts: []string{"localhost/x"}}, "slash"},
	} {
		err := tc.policy.Validate()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want one about %q", tc.policy, err, tc.want)
		}
		// What is not valid lets nothing in.
		compiled, _ := compilePolicy(tc.policy)
		if len(compiled.hosts)+len(compiled.origins) != 0 {
			t.Errorf("%+v: lets %v %v in", tc.policy, slices.Collect(maps.Keys(compiled.hosts)), slices.Collect(maps.Keys(compiled.origins)))
		}
	}
	good := Policy{Hosts: []string{"Example.COM:8080"}, Origins: []string{"HTTPS://Example.com:443", "chrome-extension://abcdef"}}
	if err := good.Validate(); err != nil {
		t.Errorf("a good policy: %v", err)
	}
}

func TestLoopbackPolicyIsTheAddressAndItsThreeNames(t *testing.T) {
	want := Policy{
		Hosts:   []string{"127.0.0.1:7317", "localhost:7317", "[::1]:7317"},
		Origins: []string{"http://127.0.0.1:7317", "http://localhost:7317", "http://[::1]:7317"},
	}
	if diff := cmp.Diff(want, LoopbackPolicy(netip.MustParseAddrPort("127.0.0.1:7317"))); diff != "" {
		t.Error(diff)
	}
	other := LoopbackPolicy(netip.MustParseAddrPort("127.0.0.2:7317"))
	if len(other.Hosts) != 4 || other.Hosts[0] != "127.0.0.2:7317" {
		t.Errorf("127.0.0.2: %v", other.Hosts)
	}
	if err := other.Validate(); err != nil {
		t.Error(err)
	}
}

// fault is one thing wrong with a request, in the order in which the gate
// looks for them, and the answer that shows which one was found.
type fault struct {
	name   string
	apply  func(f *gateFixture, r *http.Request)
	status int
	code   int // of the JSON-RPC error; 0: no body at all
}

func faultsInOrder() []fault {
	return []fault{
		{"host", func(_ *gateFixture, r *http.Request) { r.Host = "rebound.example:7317" }, 403, CodeForbiddenHost},
		{"origin", func(_ *gateFixture, r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403, CodeForbiddenOrigin},
		{"path", func(_ *gateFixture, r *http.Request) { r.URL.Path = "/.well-known/oauth-protected-resource" }, 404, 0},
		{"method", func(_ *gateFixture, r *http.Request) { r.Method = http.MethodGet }, 405, CodeMethodNotAllowed},
		{"token", func(_ *gateFixture, r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }, 401, CodeUnauthorized},
		{"right", func(f *gateFixture, r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+f.limited)
		}, 403, CodeForbiddenRight},
	}
}

func TestEachEarlierCheckWinsOverEachLaterOne(t *testing.T) {
	f := newGateFixture(t)
	faults := faultsInOrder()
	// Every set of faults: the answer is that of the first.
	for set := 1; set < 1<<len(faults); set++ {
		var first *fault
		var names []string
		resp := f.call(http.MethodPost, "/servers/beta/mcp", func(r *http.Request) {
			bearer(f.token)(r)
			// Backwards: "token" overrides the header that "right" sets.
			for i := len(faults) - 1; i >= 0; i-- {
				if set&(1<<i) != 0 {
					faults[i].apply(f, r)
					first = &faults[i]
					names = append(names, faults[i].name)
				}
			}
		})
		got := fault{name: first.name, status: resp.StatusCode}
		if body := bodyOf(t, resp); body != "" {
			got.code = errorCode(t, body)
		}
		if got.status != first.status || got.code != first.code {
			t.Errorf("faults %v: answered %d, code %d; want the answer to %q: %d, code %d",
				names, got.status, got.code, first.name, first.status, first.code)
		}
	}
	if f.count() != 0 {
		t.Errorf("%d faulty requests reached the handler", f.count())
	}
	if resp := f.call(http.MethodPost, "/servers/beta/mcp", bearer(f.token)); resp.StatusCode != http.StatusOK {
		t.Errorf("without a fault: %d", resp.StatusCode)
	}
}

// errorCode checks that body is a JSON-RPC error without an id, and returns
// its code.
func errorCode(t *testing.T, body string) int {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if got := slices.Sorted(maps.Keys(members)); !slices.Equal(got, []string{"error", "jsonrpc"}) {
		t.Errorf("members %v, want error and jsonrpc alone", got)
	}
	var e struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal(members["error"], &e); err != nil {
		t.Fatal(err)
	}
	if -32768 <= e.Code && e.Code <= -32000 {
		t.Errorf("code %d lies in the reserved range", e.Code)
	}
	if !strings.HasPrefix(e.Message, "refused: ") {
		t.Errorf("message %q", e.Message)
	}
	return e.Code
}

func TestRefusalsSayWhichKeyHelps(t *testing.T) {
	for body, key := range map[string]string{bodyHost: "allowed_hosts", bodyOrigin: "allowed_origins", bodyToken: "mcpd token show"} {
		if !strings.Contains(body, key) {
			t.Errorf("%q does not name %s", body, key)
		}
		errorCode(t, body)
	}
}

func TestPreflightComesBeforeTheTokenAndAfterTheOrigin(t *testing.T) {
	f := newGateFixture(t)
	preflight := func(origin string, edit func(http.Header)) *http.Response {
		return f.call(http.MethodOptions, "/servers/alpha/mcp", func(r *http.Request) {
			if origin != "" {
				r.Header.Set("Origin", origin)
				r.Header.Set("Access-Control-Request-Method", http.MethodPost)
			}
			if edit != nil {
				edit(r.Header)
			}
		})
	}
	t.Run("a listed Origin gets exactly itself", func(t *testing.T) {
		resp := preflight(testOrigin, func(h http.Header) {
			h.Set("Access-Control-Request-Headers", "authorization, mcp-param-region,X-Other , Mcp-Param-Zone,mcp-param-region, mcp-param-, mcp-param-a b")
		})
		if resp.StatusCode != http.StatusNoContent || bodyOf(t, resp) != "" {
			t.Errorf("status %d", resp.StatusCode)
		}
		want := http.Header{
			"Allow":                         {"POST, OPTIONS"},
			"Access-Control-Allow-Origin":   {testOrigin},
			"Access-Control-Allow-Methods":  {"POST, OPTIONS"},
			"Access-Control-Allow-Headers":  {corsHeaders + ", mcp-param-region, mcp-param-zone"},
			"Access-Control-Expose-Headers": {"Retry-After, WWW-Authenticate"},
			"Access-Control-Max-Age":        {"600"},
			"Vary":                          {"Origin"},
			"Cache-Control":                 {"no-store"},
			"X-Content-Type-Options":        {"nosniff"},
			"Cross-Origin-Resource-Policy":  {"same-origin"},
		}
		if diff := cmp.Diff(want, resp.Header); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("every header that clients send is allowed", func(t *testing.T) {
		allowed := preflight(testOrigin, nil).Header.Get("Access-Control-Allow-Headers")
		for _, name := range []string{
			"Authorization", "Content-Type", "Accept", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name",
			"Mcp-Session-Id", "Last-Event-ID",
		} {
			if !slices.Contains(strings.Split(allowed, ", "), name) {
				t.Errorf("%s is not in %q", name, allowed)
			}
		}
	})
	t.Run("a private network preflight is answered", func(t *testing.T) {
		resp := preflight(testOrigin, func(h http.Header) { h.Set("Access-Control-Request-Private-Network", "true") })
		if got := resp.Header.Get("Access-Control-Allow-Private-Network"); got != "true" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("what is echoed is bounded", func(t *testing.T) {
		resp := preflight(testOrigin, func(h http.Header) {
			for i := range 1000 {
				h.Add("Access-Control-Request-Headers", fmt.Sprintf("mcp-param-%d, mcp-param-%s", i, strings.Repeat("x", 200)))
			}
		})
		allowed := strings.Split(resp.Header.Get("Access-Control-Allow-Headers"), ", ")
		if want := strings.Count(corsHeaders, ",") + 1 + corsMaxParams; len(allowed) != want {
			t.Errorf("%d names, want %d", len(allowed), want)
		}
	})
	t.Run("another Origin is refused and told nothing", func(t *testing.T) {
		resp := preflight("https://evil.example", nil)
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("status %d", resp.StatusCode)
		}
		for name := range resp.Header {
			if strings.HasPrefix(name, "Access-Control-") || name == "Allow" {
				t.Errorf("header %s", name)
			}
		}
	})
	t.Run("without an Origin it is not a preflight", func(t *testing.T) {
		resp := preflight("", nil)
		if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Allow") != "POST, OPTIONS" {
			t.Errorf("%d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
		}
		for name := range resp.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("header %s", name)
			}
		}
	})
	t.Run("a known and an unknown server look the same", func(t *testing.T) {
		known := preflight(testOrigin, nil)
		unknown := f.call(http.MethodOptions, "/servers/nobody/mcp", func(r *http.Request) {
			r.Header.Set("Origin", testOrigin)
			r.Header.Set("Access-Control-Request-Method", http.MethodPost)
		})
		if diff := cmp.Diff(known.Header, unknown.Header); diff != "" {
			t.Error(diff)
		}
	})
	if f.count() != 0 {
		t.Error("a preflight reached the handler")
	}
}

func TestNoAnswerAllowsEveryOriginOrCredentials(t *testing.T) {
	f := newGateFixture(t)
	for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS", "DELETE", "PUT", "PATCH", "TRACE", "post"} {
		for _, path := range []string{"/", "/healthz", "/api/v1/status", "/servers/alpha/mcp", "/.well-known/x"} {
			for _, origin := range []string{"", "null", "*", testOrigin, "https://evil.example"} {
				for _, token := range []string{"", f.token, f.limited} {
					resp := f.call(method, path, func(r *http.Request) {
						if origin != "" {
							r.Header.Set("Origin", origin)
						}
						if token != "" {
							bearer(token)(r)
						}
					})
					got := resp.Header.Get("Access-Control-Allow-Origin")
					want := ""
					if origin == testOrigin {
						want = testOrigin
					}
					if got != want || resp.Header.Get("Access-Control-Allow-Credentials") != "" {
						t.Errorf("%s %s from %q: %v", method, path, origin, resp.Header)
					}
					if resp.Header.Get("Vary") != "Origin" || resp.Header.Get("X-Content-Type-Options") != "nosniff" ||
						resp.Header.Get("Cache-Control") != "no-store" {
						t.Errorf("%s %s from %q lacks a header: %v", method, path, origin, resp.Header)
					}
				}
			}
		}
	}
}

func TestWellKnownPathsAreBare404BeforeTheToken(t *testing.T) {
	f := newGateFixture(t)
	for _, path := range []string{
		"/.well-known", "/.well-known/", "/.well-known/oauth-protected-resource",
		"/.well-known/oauth-protected-resource/servers/alpha/mcp", "/.well-known/oauth-authorization-server",
		"/.well-known/openid-configuration", "/servers/alpha/mcp/.well-known/openid-configuration",
		"/servers/.well-known/mcp", // would otherwise be a server's path
		"/register", "/", "/servers", "/servers/alpha", "/servers/alpha/sse",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			for _, token := range []string{"", "wrong", f.token} {
				resp := f.call(method, path, func(r *http.Request) {
					if token != "" {
						bearer(token)(r)
					}
				})
				if resp.StatusCode != http.StatusNotFound || bodyOf(t, resp) != "" || resp.Header.Get("Content-Type") != "" ||
					resp.Header.Get("Www-Authenticate") != "" {
					t.Errorf("%s %s: %d %v", method, path, resp.StatusCode, resp.Header)
				}
			}
		}
	}
	if isWellKnown("/servers/my.well-known/mcp") || isWellKnown("/x/.well-knownx") {
		t.Error("a path that only looks like .well-known is taken for one")
	}
	if f.count() != 0 {
		t.Error("a request reached the handler")
	}
}

func TestMethods(t *testing.T) {
	f := newGateFixture(t)
	for _, tc := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"POST", "/servers/alpha/mcp", 200, ""},
		{"GET", "/servers/alpha/mcp", 405, "POST, OPTIONS"},
		{"HEAD", "/servers/alpha/mcp", 405, "POST, OPTIONS"},
		{"DELETE", "/servers/alpha/mcp", 405, "POST, OPTIONS"},
		{"PUT", "/servers/nobody/mcp", 405, "POST, OPTIONS"},
		{"TRACE", "/servers/alpha/mcp", 405, "POST, OPTIONS"},
		{"post", "/servers/alpha/mcp", 405, "POST, OPTIONS"},
		{"options", "/servers/alpha/mcp", 405, "POST, OPTIONS"},
		{"GET", "/healthz", 200, ""},
		{"HEAD", "/healthz", 200, ""},
		{"POST", "/healthz", 405, "GET, HEAD, OPTIONS"},
		{"OPTIONS", "/healthz", 204, "GET, HEAD, OPTIONS"},
	} {
		resp := f.call(tc.method, tc.path, bearer(f.token))
		if resp.StatusCode != tc.status || resp.Header.Get("Allow") != tc.allow {
			t.Errorf("%s %s: %d, Allow %q; want %d, %q", tc.method, tc.path, resp.StatusCode, resp.Header.Get("Allow"), tc.status, tc.allow)
		}
	}
}

func TestPublicRoutesSkipTheTokenAndNothingElse(t *testing.T) {
	f := newGateFixture(t)
	if resp := f.call("GET", "/healthz", nil); resp.StatusCode != 200 {
		t.Errorf("without a token: %d", resp.StatusCode)
	}
	if resp := f.call("GET", "/healthz", bearer("wrong")); resp.StatusCode != 200 {
		t.Errorf("with a wrong token: %d", resp.StatusCode)
	}
	if resp := f.call("GET", "/healthz", func(r *http.Request) { r.Host = "evil.example" }); resp.StatusCode != 403 {
		t.Errorf("from another Host: %d", resp.StatusCode)
	}
	if resp := f.call("GET", "/healthz", func(r *http.Request) { r.Header.Set("Origin", "null") }); resp.StatusCode != 403 {
		t.Errorf("from another Origin: %d", resp.StatusCode)
	}
	for _, p := range f.reached {
		if p != nil {
			t.Errorf("principal %v on a public route", p)
		}
	}
	// A route that is public and demands a right is a contradiction: refused.
	closed := f.gate.Handler(routeFunc(func(string) (Route, bool) {
		return Route{Methods: []string{"GET"}, Public: true, Admin: true, Handler: http.NotFoundHandler()}, true
	}))
	f.handler = closed
	if resp := f.call("GET", "/x", bearer(f.token)); resp.StatusCode != 403 {
		t.Errorf("public and admin: %d", resp.StatusCode)
	}
}

type routeFunc func(string) (Route, bool)

func (f routeFunc) Route(path string) (Route, bool) { return f(path) }

func TestRightsOfAToken(t *testing.T) {
	f := newGateFixture(t)
	admin := mustCreate(t, f.store, "operator", CreateOptions{Admin: true, Servers: []string{"beta"}})
	everyone := mustCreate(t, f.store, "all", CreateOptions{})
	for _, tc := range []struct {
		name, token, method, path string
		status                    int
	}{
		{"the default token may use any server", f.token, "POST", "/servers/alpha/mcp", 200},
		{"the default token may control", f.token, "GET", "/api/v1/status", 200},
		{"a limited token may use its server", f.limited, "POST", "/servers/alpha/mcp", 200},
		{"a limited token may use its server, with a slash", f.limited, "POST", "/servers/alpha/mcp/", 200},
		{"a limited token may not use another", f.limited, "POST", "/servers/beta/mcp", 403},
		{"a limited token may not use one like its own", f.limited, "POST", "/servers/Alpha/mcp", 403},
		{"a limited token may not control", f.limited, "GET", "/api/v1/status", 403},
		{"a token for every server may use any", everyone, "POST", "/servers/beta/mcp", 200},
		{"a token for every server may not control", everyone, "GET", "/api/v1/status", 403},
		{"an admin token for one server may control", admin, "GET", "/api/v1/status", 200},
		{"an admin token for one server may not use another", admin, "POST", "/servers/alpha/mcp", 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if resp := f.call(tc.method, tc.path, bearer(tc.token)); resp.StatusCode != tc.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tc.status)
			}
		})
	}
	t.Run("without the right, a known and an unknown server look the same", func(t *testing.T) {
		known := f.call("POST", "/servers/beta/mcp", bearer(f.limited))
		unknown := f.call("POST", "/servers/nobody/mcp", bearer(f.limited))
		if bodyOf(t, known) != bodyOf(t, unknown) || !cmp.Equal(known.Header, unknown.Header) {
			t.Error("the answers differ")
		}
	})
}

func TestHandlerGetsThePrincipal(t *testing.T) {
	f := newGateFixture(t)
	f.call("POST", "/servers/alpha/mcp", bearer(f.limited))
	if len(f.reached) != 1 || f.reached[0] == nil || f.reached[0].Name != "limited" || f.reached[0].ID == "" ||
		f.reached[0].Admin || !f.reached[0].MayUse("alpha") || f.reached[0].MayUse("beta") {
		t.Errorf("reached with %+v", f.reached)
	}
}

func TestSetPolicyHoldsForTheNextRequest(t *testing.T) {
	f := newGateFixture(t)
	call := func() int {
		return f.call("POST", "/servers/alpha/mcp", func(r *http.Request) {
			bearer(f.token)(r)
			r.Header.Set("Origin", "https://new.example")
		}).StatusCode
	}
	if got := call(); got != 403 {
		t.Errorf("before: %d", got)
	}
	f.gate.SetPolicy(Policy{Hosts: []string{testHost}, Origins: []string{"https://new.example", "*"}})
	if got := call(); got != 200 {
		t.Errorf("added: %d", got)
	}
	if !strings.Contains(f.log.String(), "wildcards are not supported") {
		t.Error("the entry that is not valid was not logged")
	}
	f.gate.SetPolicy(Policy{Hosts: []string{testHost}})
	if got := call(); got != 403 {
		t.Errorf("taken away: %d", got)
	}
}

func TestPolicyMayChangeWhileRequestsRun(t *testing.T) {
	f := newGateFixture(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				f.call("POST", "/servers/alpha/mcp", bearer(f.token))
				f.call("POST", "/servers/alpha/mcp", func(r *http.Request) { r.Header.Set("Origin", "http://x.example") })
			}
		})
	}
	for range 200 {
		f.gate.SetPolicy(LoopbackPolicy(netip.MustParseAddrPort(testHost)))
	}
	wg.Wait()
	if got := f.gate.Refusals().Origin; got != 800 {
		t.Errorf("%d refusals counted, want 800", got)
	}
	if f.count() != 800 {
		t.Errorf("%d requests let through, want 800", f.count())
	}
}

func TestRefusalsAreCountedByReason(t *testing.T) {
	f := newGateFixture(t)
	revoked := mustCreate(t, f.store, "old", CreateOptions{})
	if err := f.store.Revoke("old"); err != nil {
		t.Fatal(err)
	}
	f.call("POST", "/servers/a/mcp", func(r *http.Request) { r.Host = "x" })
	f.call("POST", "/servers/a/mcp", func(r *http.Request) { r.Header.Set("Origin", "x") })
	f.call("GET", "/.well-known/x", nil)
	f.call("GET", "/nothing", nil)
	f.call("GET", "/servers/a/mcp", nil)
	f.call("POST", "/servers/a/mcp", nil)
	f.call("POST", "/servers/a/mcp", bearer("x"))
	f.call("POST", "/servers/a/mcp", bearer(revoked))
	f.call("POST", "/servers/a/mcp", bearer(f.limited))
	f.call("POST", "/servers/a/mcp", bearer(f.token))
	want := RefusalCounts{Host: 1, Origin: 1, WellKnown: 1, UnknownPath: 1, Method: 1, NoToken: 1, UnknownToken: 1, RevokedToken: 1, Right: 1}
	if diff := cmp.Diff(want, f.gate.Refusals()); diff != "" {
		t.Error(diff)
	}
}

func TestAnAuthenticatorThatFailsLetsNobodyIn(t *testing.T) {
	for name, auth := range map[string]authFunc{
		"it returns an error of its own": func(string) (*Principal, error) { return nil, fmt.Errorf("no disk") },
		"it returns nothing at all":      func(string) (*Principal, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newGateFixture(t)
			f.gate.auth = auth
			if resp := f.call("POST", "/servers/alpha/mcp", bearer(f.token)); resp.StatusCode != 401 {
				t.Errorf("status %d", resp.StatusCode)
			}
			if f.gate.Refusals().AuthFailure != 1 {
				t.Errorf("%+v", f.gate.Refusals())
			}
		})
	}
}

type authFunc func(string) (*Principal, error)

func (f authFunc) Authenticate(bearer string) (*Principal, error) { return f(bearer) }

func TestARefusalIsLoggedOnceAMinuteWithItsValue(t *testing.T) {
	f := newGateFixture(t)
	from := func(origin string) {
		f.call("POST", "/servers/alpha/mcp", func(r *http.Request) { r.Header.Set("Origin", origin) })
	}
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			from("https://evil.example")
		}
		from("https://other.example")
		lines := f.log.lines()
		if len(lines) != 2 || !strings.Contains(lines[0], "https://evil.example") || !strings.Contains(lines[0], "allowed_origins") ||
			!strings.Contains(lines[1], "https://other.example") {
			t.Fatalf("logged %q", lines)
		}
		time.Sleep(refusalWindow - time.Second)
		from("https://evil.example")
		if got := len(f.log.lines()); got != 2 {
			t.Fatalf("%d lines before the minute was over", got)
		}
		time.Sleep(time.Second)
		from("https://evil.example")
		lines = f.log.lines()
		if len(lines) != 3 || !strings.Contains(lines[2], "more_since_last=50") {
			t.Fatalf("logged %q", lines)
		}
	})
}

func TestAFloodOfDifferentValuesIsBounded(t *testing.T) {
	f := newGateFixture(t)
	synctest.Test(t, func(t *testing.T) {
		for i := range 20_000 {
			f.call("POST", "/x", func(r *http.Request) { r.Header.Set("Origin", fmt.Sprintf("https://%d.example", i)) })
			f.call("POST", "/x", func(r *http.Request) { r.Host = fmt.Sprintf("%d.example", i) })
		}
		if got, most := len(f.log.lines()), refusalKinds+int(reasonCount); got > most {
			t.Errorf("%d lines in one minute, at most %d", got, most)
		}
		if got, most := len(f.gate.refused.seen), refusalKinds+int(reasonCount); got > most {
			t.Errorf("%d values remembered, at most %d", got, most)
		}
		// A flood does not silence the log for longer than a minute.
		time.Sleep(refusalWindow + refusalSweep)
		f.call("POST", "/x", func(r *http.Request) { r.Header.Set("Origin", "https://honest.example") })
		if !strings.Contains(f.log.String(), "https://honest.example") {
			t.Error("an Origin refused after the flood is not in the log")
		}
		if got := f.gate.Refusals(); got.Origin != 20_001 || got.Host != 20_000 {
			t.Errorf("counted %+v", got)
		}
	})
}

func TestLoggedValuesAreQuotedAndShort(t *testing.T) {
	f := newGateFixture(t)
	f.call("POST", "/x", func(r *http.Request) {
		r.Host = "a\nlevel=ERROR msg=\"forged\"\x1b[31m" + strings.Repeat("x", 5000)
	})
	lines := f.log.lines()
	if len(lines) != 1 || len(lines[0]) > 1000 || strings.Contains(lines[0], "\x1b") {
		t.Errorf("logged %q", lines)
	}
}
