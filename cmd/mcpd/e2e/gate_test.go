package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const trustedOrigin = "http://localhost:6274"

const trusting = `allowed_origins = ["` + trustedOrigin + `"]`

// refusals must say as little as possible: an error without an id, and no word of which servers exist.
func checkRefusal(t *testing.T, r response) {
	t.Helper()
	if strings.Contains(r.body, `"id"`) {
		t.Errorf("the refusal has an id: %s", r.body)
	}
	if strings.Contains(r.body, "hidden-server") {
		t.Errorf("the refusal names a server: %s", r.body)
	}
	if r.header.Get("Access-Control-Allow-Origin") == "*" {
		t.Error("the refusal is readable by every origin")
	}
}

func TestOnlyATrustedOrAbsentOriginTogetherWithTheTokenIsServed(t *testing.T) {
	d := start(t, setup{security: trusting, servers: []string{server("hidden-server", nil)}})
	const absent = "-"
	for _, test := range []struct {
		name, origin, authorization string
		want                        int
	}{
		{"a trusted page with the token", trustedOrigin, "Bearer " + d.token, 200},
		{"a trusted page without the token", trustedOrigin, absent, 401},
		{"a foreign page with the token", "https://evil.example", "Bearer " + d.token, 403},
		{"a foreign page without the token", "https://evil.example", absent, 403},
		{"a program with the token", absent, "Bearer " + d.token, 200},
		{"a program without the token", absent, absent, 401},
		{"mcpd's own page with the token", "http://" + d.addr, "Bearer " + d.token, 200},
		{"a program with a token that is too long", absent, "Bearer " + d.token + "x", 401},
		{"a program with a token that is too short", absent, "Bearer " + d.token[:len(d.token)-1], 401},
		{"a program with an empty token", absent, "Bearer ", 401},
		{"a program with the token in another scheme", absent, "Basic " + d.token, 401},
		{"a sandboxed page", "null", "Bearer " + d.token, 403},
		{"a suffix on a trusted origin", trustedOrigin + ".evil.example", "Bearer " + d.token, 403},
		{"digits on the port of a trusted origin", trustedOrigin + "0", "Bearer " + d.token, 403},
		{"another port of a trusted host", "http://localhost:6275", "Bearer " + d.token, 403},
		{"another scheme of a trusted host", "https://localhost:6274", "Bearer " + d.token, 403},
		{"a trusted origin with a path", trustedOrigin + "/", "Bearer " + d.token, 403},
		{"a trusted origin as user information", "http://localhost:6274@evil.example", "Bearer " + d.token, 403},
		{"another address of the same machine", "http://127.0.0.1:6274", "Bearer " + d.token, 403},
		{"an empty origin", "", "Bearer " + d.token, 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := d.stats("hidden-server").Methods["prompts/list"]
			r := d.post("hidden-server", modern("1", "prompts/list", "", ""))
			if test.origin != absent {
				r.Header.Set("Origin", test.origin)
			}
			r.Header.Del("Authorization")
			if test.authorization != absent {
				r.Header.Set("Authorization", test.authorization)
			}
			got := d.do(r)
			if got.status != test.want {
				t.Fatalf("status %d, want %d: %s", got.status, test.want, got.body)
			}
			ran := d.stats("hidden-server").Methods["prompts/list"] - before
			if test.want == 200 {
				if ran != 1 {
					t.Errorf("the child saw %d requests, want 1", ran)
				}
				return
			}
			checkRefusal(t, got)
			if ran != 0 {
				t.Error("the child saw a refused request")
			}
			if challenge := got.header.Get("WWW-Authenticate"); test.want == 401 && challenge != `Bearer realm="mcpd"` {
				t.Errorf("WWW-Authenticate is %q", challenge)
			}
		})
	}
}

func TestOnlyItsOwnHostNamesAreServed(t *testing.T) {
	d := start(t, setup{servers: []string{server("hidden-server", nil)}})
	port := d.addr[strings.LastIndex(d.addr, ":"):]
	for host, want := range map[string]int{
		"127.0.0.1" + port: 200, "localhost" + port: 200, "LOCALHOST" + port: 200, "[::1]" + port: 200,
		"localhost": 403, "localhost:1": 403, "evil.example" + port: 403, "localhost.evil.example" + port: 403,
		"127.0.0.1.nip.io" + port: 403, "127.0.0.2" + port: 403, "0.0.0.0" + port: 403, "evil-localhost" + port: 403,
	} {
		t.Run(host, func(t *testing.T) {
			r := d.post("hidden-server", modern("1", "tools/list", "", ""))
			r.Host = host
			got := d.do(r)
			if got.status != want {
				t.Errorf("status %d, want %d: %s", got.status, want, got.body)
			}
			if want != 200 {
				checkRefusal(t, got)
			}
		})
	}
}

func TestOtherMethodsAre405AndStartNothing(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	d := start(t, setup{servers: []string{server("lazy", []string{"-journal", journal}, `start = "lazy"`)}})
	for _, method := range []string{"GET", "DELETE", "PUT", "PATCH", "HEAD"} {
		r := d.request(method, endpoint("lazy"), "")
		r.Header.Set("Mcp-Session-Id", "abc")
		r.Header.Set("Accept", "text/event-stream")
		got := d.do(r)
		if got.status != 405 || got.header.Get("Allow") != "POST, OPTIONS" {
			t.Errorf("%s: status %d, Allow %q", method, got.status, got.header.Get("Allow"))
		}
	}
	if _, err := os.Stat(journal); !os.IsNotExist(err) {
		t.Errorf("the child was started: %v", err)
	}
}

func TestAPreflightIsAnsweredForListedOriginsAloneAndWithoutAToken(t *testing.T) {
	d := start(t, setup{security: trusting, servers: []string{server("s", nil)}})
	for origin, want := range map[string]int{trustedOrigin: 204, trustedOrigin + ".evil.example": 403, "null": 403, "https://evil.example": 403} {
		r := d.request(http.MethodOptions, endpoint("s"), "")
		r.Header.Del("Authorization")
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", "authorization,content-type,mcp-method,mcp-name,mcp-protocol-version")
		got := d.do(r)
		if got.status != want {
			t.Errorf("%s: status %d, want %d", origin, got.status, want)
		}
		allowed := got.header.Get("Access-Control-Allow-Origin")
		if want != 204 {
			if allowed != "" {
				t.Errorf("%s: Access-Control-Allow-Origin is %q", origin, allowed)
			}
			continue
		}
		if allowed != origin || !strings.Contains(got.header.Get("Access-Control-Allow-Methods"), "POST") {
			t.Errorf("%s: allows origin %q, methods %q", origin, allowed, got.header.Get("Access-Control-Allow-Methods"))
		}
		headers := strings.ToLower(got.header.Get("Access-Control-Allow-Headers"))
		for _, header := range []string{"authorization", "content-type", "mcp-method", "mcp-name", "mcp-protocol-version"} {
			if !strings.Contains(headers, header) {
				t.Errorf("the header %s is not allowed: %q", header, headers)
			}
		}
	}
}

func TestAServedPageMayReadTheAnswer(t *testing.T) {
	d := start(t, setup{security: trusting, servers: []string{server("s", nil)}})
	r := d.post("s", modern("1", "tools/list", "", ""))
	r.Header.Set("Origin", trustedOrigin)
	got := d.do(r)
	if got.header.Get("Access-Control-Allow-Origin") != trustedOrigin || !strings.Contains(got.header.Get("Vary"), "Origin") {
		t.Errorf("Access-Control-Allow-Origin %q, Vary %q", got.header.Get("Access-Control-Allow-Origin"), got.header.Get("Vary"))
	}
}

func TestWellKnownPathsAreABare404(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	for _, path := range []string{
		"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/servers/s/mcp",
		"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration", "/.well-known/", "/register",
	} {
		for _, method := range []string{"GET", "POST"} {
			r := d.request(method, path, "")
			r.Header.Del("Authorization")
			got := d.do(r)
			if got.status != 404 || strings.ContainsAny(got.body, "{}") {
				t.Errorf("%s %s: %d %q", method, path, got.status, got.body)
			}
		}
	}
}

func TestWithoutATokenKnownAndUnknownServersLookTheSame(t *testing.T) {
	d := start(t, setup{servers: []string{server("hidden-server", nil)}})
	ask := func(name string) response {
		r := d.post(name, modern("1", "tools/list", "", ""))
		r.Header.Set("Authorization", "Bearer wrong")
		got := d.do(r)
		got.header.Del("Date")
		return got
	}
	known, unknown := ask("hidden-server"), ask("no-such-server")
	if known.status != 401 || unknown.status != 401 || known.body != unknown.body || len(known.header) != len(unknown.header) {
		t.Errorf("known: %+v\nunknown: %+v", known, unknown)
	}
}

func TestAnUnknownServerIsA404ThatNamesTheServers(t *testing.T) {
	d := start(t, setup{servers: []string{server("alpha", nil), server("beta", nil)}})
	got := d.do(d.post("gamma", modern(`"x"`, "tools/list", "", "")))
	if got.status != 404 || !strings.Contains(got.body, "alpha") || !strings.Contains(got.body, "beta") || !strings.Contains(got.body, `"id":"x"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestOneTrailingSlashIsTheSameEndpointAndNothingRedirects(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	for path, want := range map[string]int{
		endpoint("s") + "/": 200, endpoint("s") + "//": 404, "/servers//s/mcp": 404, "/servers/s/../s/mcp": 404, "/": 404,
	} {
		r := d.post("s", modern("1", "tools/list", "", ""))
		r.URL.Path = path
		if got := d.do(r); got.status != want {
			t.Errorf("%s: status %d, want %d", path, got.status, want)
		}
	}
}

func TestSessionIDsAndLastEventIDsAreIgnored(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	r := d.post("s", toolCall("1", "progress", `{"count":2}`, `"progressToken":1`))
	r.Header.Set("Mcp-Session-Id", "0123456789")
	r.Header.Set("Last-Event-ID", "7")
	got := d.do(r)
	if got.status != 200 || len(dataOf(got.body)) != 3 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got.header.Get("Mcp-Session-Id") != "" {
		t.Error("a session id came back")
	}
	for line := range strings.Lines(got.body) {
		if strings.HasPrefix(line, "id:") {
			t.Errorf("an event has an id: %q", line)
		}
	}
	if got.header.Get("Cache-Control") != "no-store" || got.header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("stream headers: %v", got.header)
	}
}

func TestBodiesAndHeadersThatCannotBeServed(t *testing.T) {
	d := start(t, setup{security: `max_request_bytes = "64KiB"`, servers: []string{server("s", nil)}})
	good := modern("1", "tools/list", "", "")
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, test := range []struct {
		name, body string
		change     func(*http.Request)
		status     int
		code       string // in the body, or ""
	}{
		{"a body over the limit", toolCall("1", "echo", `{"text":"`+strings.Repeat("x", 65<<10)+`"}`, ""), nil, 413, ""},
		{"another content type", good, with("Content-Type", "text/plain"), 415, ""},
		{"a content type with a charset is served", good, with("Content-Type", "application/json; charset=utf-8"), 200, ""},
		{"an Accept that excludes both types", good, with("Accept", "text/html"), 406, ""},
		{"an Accept of anything is served", good, with("Accept", "*/*"), 200, ""},
		{"no JSON", "{", nil, 400, "-32700"},
		{"no UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", nil, 400, "-32700"},
		{"an empty body", "", nil, 400, "-32700"},
		{"two messages", good + good, nil, 400, "-32700"},
		{"a batch", "[" + good + "]", nil, 400, "-32600"},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 400, "-32600"},
		{"a null id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, 400, "-32600"},
		{"a fractional id", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, nil, 400, "-32600"},
		{"a method twice", `{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}`, nil, 400, "-32"},
		{"a name twice", modern("1", "tools/call", `"name":"echo","name":"crash"`, ""), nil, 400, "-32"},
		{"a version twice", modern("1", "tools/list", "", `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`), nil, 400, "-32"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := d.post("s", test.body)
			if test.name == "a name twice" {
				r.Header.Set("Mcp-Name", "echo")
			}
			if test.change != nil {
				test.change(r)
			}
			got := d.do(r)
			if got.status != test.status || !strings.Contains(got.body, test.code) {
				t.Errorf("%d %s, want %d %s", got.status, got.body, test.status, test.code)
			}
			if strings.Contains(strings.ReplaceAll(got.body, " ", ""), `"id":null`) {
				t.Errorf("an error has a null id: %s", got.body)
			}
		})
	}
	if methods := d.stats("s").Methods; methods["tools/call"] != 1 { // that of stats itself
		t.Errorf("the child saw %v", methods)
	}
}

func TestANotificationIs202WithoutABody(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	r := d.post("s", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if got := d.do(r); got.status != 202 || got.body != "" {
		t.Errorf("%d %q", got.status, got.body)
	}
}

func TestHealthSaysOnlyOkAndNeedsNoToken(t *testing.T) {
	d := start(t, setup{servers: []string{server("hidden-server", nil)}})
	r := d.request(http.MethodGet, "/healthz", "")
	r.Header.Del("Authorization")
	if got := d.do(r); got.status != 200 || strings.TrimSpace(got.body) != "ok" {
		t.Errorf("%d %q", got.status, got.body)
	}
	r = d.request(http.MethodGet, "/api/v1/status", "")
	r.Header.Del("Authorization")
	if got := d.do(r); got.status != 401 {
		t.Errorf("status without a token: %d %q", got.status, got.body)
	} else {
		checkRefusal(t, got)
	}
}

func TestTheTokenIsPrivateAndARotatedOneIsRefused(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	if len(d.token) < 43 { // 256 bits in base64
		t.Errorf("the token has only %d characters", len(d.token))
	}
	for _, file := range []string{"token", "tokens.json"} {
		info, err := os.Stat(filepath.Join(d.stateDir(), file))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", file, info.Mode())
		}
	}
	stored, err := os.ReadFile(filepath.Join(d.stateDir(), "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(stored), d.token) {
		t.Error("tokens.json holds the token itself")
	}
	old := d.token
	if _, errOut, code := d.mcpd("token", "rotate"); code != 0 {
		t.Fatalf("mcpd token rotate: %d %s", code, errOut)
	}
	d.token = d.showToken()
	if d.token == old {
		t.Fatal("rotate changed nothing")
	}
	if got := d.do(d.post("s", modern("1", "tools/list", "", ""))); got.status != 200 {
		t.Errorf("new token: %d %s", got.status, got.body)
	}
	r := d.post("s", modern("1", "tools/list", "", ""))
	r.Header.Set("Authorization", "Bearer "+old)
	if got := d.do(r); got.status != 401 {
		t.Errorf("old token: %d %s", got.status, got.body)
	}
}
