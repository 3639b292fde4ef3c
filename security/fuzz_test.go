package security

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func FuzzHost(f *testing.F) {
	for _, s := range []string{"localhost:7317", "LOCALHOST", "[::1]:7317", "[::1", "a:b:c", "x:0", "evil.example:80", "\xff", "[1::%x]:1", ":", ""} {
		f.Add(s)
	}
	listed := []string{"localhost:7317", "[::1]:7317", "127.0.0.1:7317"}
	policy, err := compilePolicy(Policy{Hosts: listed})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// Let through is what differs from an entry in the case of ASCII at most.
		same := slices.ContainsFunc(listed, func(entry string) bool { return len(entry) == len(s) && strings.EqualFold(entry, s) })
		if policy.allowsHost(s) != same {
			t.Errorf("Host %q: let through = %v", s, !same)
		}
		host, err := canonicalHost(s)
		if err != nil {
			return
		}
		if again, err := canonicalHost(host); err != nil || again != host {
			t.Errorf("%q became %q, then %q, %v", s, host, again, err)
		}
		one, err := compilePolicy(Policy{Hosts: []string{s}})
		if err != nil || !one.allowsHost(host) || !one.allowsHost(strings.ToUpper(host)) {
			t.Errorf("%q as an entry does not let %q in: %v", s, host, err)
		}
		if one.allowsHost(host+".evil.example") || one.allowsHost("evil."+host) || one.allowsHost(host+".") {
			t.Errorf("%q as an entry lets more in than itself", s)
		}
	})
}

func FuzzOrigin(f *testing.F) {
	for _, s := range []string{"http://localhost:6274", "http://localhost:6274/", "null", "https://x:443", "HTTP://A", "a://b", "file://", "://", "http://[::1]:80", "http://a@b"} {
		f.Add(s)
	}
	listed := []string{"http://localhost:6274", "https://app.example", "http://[::1]:7317"}
	policy, err := compilePolicy(Policy{Origins: listed})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if policy.allowsOrigin(s) != slices.Contains(listed, s) {
			t.Errorf("Origin %q: let through = %v", s, policy.allowsOrigin(s))
		}
		origin, err := canonicalOrigin(s)
		if err != nil {
			return
		}
		if again, err := canonicalOrigin(origin); err != nil || again != origin {
			t.Errorf("%q became %q, then %q, %v", s, origin, again, err)
		}
		if lower, changed := lowerASCII(origin); changed || lower == "null" || strings.ContainsAny(origin, "*/ ") && strings.Count(origin, "/") != 2 {
			t.Errorf("%q became %q", s, origin)
		}
		one, err := compilePolicy(Policy{Origins: []string{s}})
		if err != nil || !one.allowsOrigin(origin) {
			t.Errorf("%q as an entry does not let %q in: %v", s, origin, err)
		}
		if one.allowsOrigin(origin+".evil.example") || one.allowsOrigin(origin+"0") || one.allowsOrigin(origin+"/") {
			t.Errorf("%q as an entry lets more in than itself", s)
		}
	})
}

func FuzzAuthorization(f *testing.F) {
	for _, s := range []string{"Bearer abc", "bearer  a.b-c_d~e+f/g==", "Bearer", "Bearer ", "Basic eDp5", "Bearer a b", "Bearer a,Bearer b", "Bearer =", "bEaReR x\x00", "@earer x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, field string) {
		token, ok := bearerToken([]string{field})
		if _, twice := bearerToken([]string{field, field}); twice {
			t.Error("two fields give a token")
		}
		if !ok {
			return
		}
		scheme, rest, found := strings.Cut(field, " ")
		if !found || !strings.EqualFold(scheme, "bearer") || len(scheme) != len("bearer") || strings.TrimLeft(rest, " ") != token {
			t.Errorf("%q gives %q", field, token)
		}
		if token == "" || strings.ContainsAny(token, " ,\t\"\r\n\x00") {
			t.Errorf("%q gives %q", field, token)
		}
	})
}

func FuzzPreflightHeaders(f *testing.F) {
	for _, s := range []string{"authorization,mcp-param-x", "MCP-PARAM-A , mcp-param-a", "mcp-param-", "mcp-param-a\r\nx: y", "*", "mcp-param-*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, requested string) {
		allowed := allowedHeaders([]string{requested, requested})
		rest, ok := strings.CutPrefix(allowed, corsHeaders)
		if !ok {
			t.Fatalf("%q", allowed)
		}
		if rest == "" {
			return
		}
		for _, name := range strings.Split(strings.TrimPrefix(rest, ", "), ", ") {
			if !strings.HasPrefix(name, corsPrefix) || name == corsPrefix || strings.ContainsAny(name, " ,;:\r\n\"") {
				t.Errorf("%q allows %q", requested, name)
			}
			if !strings.Contains(strings.ToLower(requested), name) {
				t.Errorf("%q was not asked for", name)
			}
		}
	})
}

func FuzzTokenFile(f *testing.F) {
	records := []tokenRecord{newRecord("a", hashOf(newToken()), CreateOptions{Servers: []string{"x"}}), newRecord("b", hashOf(newToken()), CreateOptions{Admin: true, TTL: 1})}
	good, err := encodeTokens(records)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"tokens":[]}`))
	f.Add([]byte(`{"version":1,"tokens":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := decodeTokens(data)
		if err != nil {
			return
		}
		set, err := newTokenSet(records)
		if err != nil {
			t.Fatalf("accepted, but of no use: %v", err)
		}
		for i, entry := range set.entries {
			if (entry.principal.Servers == nil) != records[i].AllServers {
				t.Errorf("token %d: rights to every server without saying so", i)
			}
		}
		encoded, err := encodeTokens(records)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeTokens(encoded)
		if err != nil || len(again) != len(records) {
			t.Errorf("does not come back: %v", err)
		}
	})
}

func FuzzRedactTokens(f *testing.F) {
	f.Add("x ", " y")
	f.Add("mcpd_", "mcpd_")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "kJ8-secret_token-value-Zq3"
		for _, text := range []string{before + tokenPrefix + secret + after, strings.Repeat(tokenPrefix, 3) + secret} {
			if got := redactTokens(text); strings.Contains(got, secret) && !strings.Contains(before+after, secret) {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}

func TestOnlyListedOriginsPassTheGate(t *testing.T) {
	f := newGateFixture(t)
	listed := []string{testOrigin, "http://" + testHost}
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom(listed).Draw(t, "base")
		position := rapid.IntRange(0, len(base)).Draw(t, "position")
		end := rapid.IntRange(position, len(base)).Draw(t, "end")
		insert := rapid.StringOfN(rapid.RuneFrom([]rune("abhLt.:/@#?-0127346,\\% ")), 0, 12, -1).Draw(t, "insert")
		origin := base[:position] + insert + base[end:]
		resp := f.call(http.MethodPost, "/servers/alpha/mcp", func(r *http.Request) {
			bearer(f.token)(r)
			r.Header["Origin"] = []string{origin}
		})
		want := http.StatusForbidden
		if slices.Contains(listed, origin) {
			want = http.StatusOK
		}
		if resp.StatusCode != want {
			t.Fatalf("Origin %q: %d", origin, resp.StatusCode)
		}
	})
}
