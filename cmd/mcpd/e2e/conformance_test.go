package e2e

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// expectedFailures holds, by set of requirements, the scenarios that pass directly and cannot pass through mcpd, each
// with its reason.
//
//go:embed testdata/expected-failures.json
var expectedFailures []byte

// pending are scenarios that no set of requirements demands yet; they are run one by one.
var pending = []string{"json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"}

// outcome is what the suite found in one scenario.
type outcome []check

type check struct {
	ID      string          `json:"id"`
	Status  string          `json:"status"`
	Error   string          `json:"errorMessage"`
	Details json.RawMessage `json:"details"`
}

// count is how many checks of an id ended with a status; an empty id means all.
func (o outcome) count(id, status string) (n int) {
	for _, c := range o {
		if (id == "" || c.ID == id) && c.Status == status {
			n++
		}
	}
	return n
}

func (o outcome) passed() bool { return o.count("", "FAILURE") == 0 }

// lost are the checks that direct succeeded in more often than o, or that failed in o alone.
func (o outcome) lost(direct outcome) []string {
	var ids []string
	for _, c := range append(slices.Clone(direct), o...) {
		fewer := o.count(c.ID, "SUCCESS") < direct.count(c.ID, "SUCCESS")
		if (fewer || o.count(c.ID, "FAILURE") > 0) && !slices.Contains(ids, c.ID) {
			ids = append(ids, c.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// describe tells what became of some checks.
func (o outcome) describe(ids []string) string {
	var b strings.Builder
	for _, c := range o {
		if slices.Contains(ids, c.ID) {
			fmt.Fprintf(&b, "\n\t%s %s: %s %.2000s", c.Status, c.ID, c.Error, c.Details)
		}
	}
	return b.String()
}

// runSuite runs the conformance suite against a URL and returns the outcome of each scenario.
func runSuite(t *testing.T, x tools, target string, args ...string) map[string]outcome {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, x.node, append([]string{x.script("conformance", "dist", "index.js"), "server", "--url", target, "-o", dir}, args...)...)
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the suite does not end: %v\n%s", err, text)
	}
	folders, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	// server-SCENARIO-TIME
	name := regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)
	found := map[string]outcome{}
	for _, folder := range folders {
		parts := name.FindStringSubmatch(folder.Name())
		if parts == nil {
			t.Fatalf("unknown result %q", folder.Name())
		}
		data, err := os.ReadFile(filepath.Join(dir, folder.Name(), "checks.json"))
		if err != nil {
			t.Fatal(err)
		}
		var checks []check
		if err := json.Unmarshal(data, &checks); err != nil {
			t.Fatal(err)
		}
		found[parts[1]] = append(found[parts[1]], checks...)
	}
	if len(found) == 0 {
		t.Fatalf("the suite ran nothing:\n%s", text)
	}
	return found
}

// serveDirectly runs the SDK's test server over HTTP, without mcpd, and returns its URL.
func serveDirectly(t *testing.T, stateless bool) string {
	t.Helper()
	addr := freeAddress(t)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, sdkServer(t), "-http", addr, fmt.Sprintf("-stateless=%v", stateless))
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed, and says so
	})
	deadline := time.Now().Add(patience)
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return "http://" + addr + "/mcp"
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// serveThroughMcpd runs the same server on stdio behind mcpd, with a proxy in front that adds the token, which the suite
// cannot send. The proxy touches neither Host nor Origin: both name the proxy, as the suite sees it.
func serveThroughMcpd(t *testing.T) string {
	t.Helper()
	front := httptest.NewUnstartedServer(nil)
	proxyAddr := front.Listener.Addr().String()
	d := start(t, setup{
		security: fmt.Sprintf("allowed_hosts = [%q]\nallowed_origins = [%q]", proxyAddr, "http://"+proxyAddr),
		servers:  []string{table("sdk", sdkServer(t), nil)},
	})
	back, err := url.Parse("http://" + d.addr)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(back)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+d.token)
		},
	}
	// The body is read whole before it is passed on. A proxy that still reads it while the answer already comes loses the
	// answer now and then: the server closes the body with the first byte that goes out.
	front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	})
	front.Start()
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		transport.CloseIdleConnections()
	})
	return front.URL + endpoint("sdk")
}

func TestTheConformanceSuitePassesThroughMcpdWhereItPassesDirectly(t *testing.T) {
	x := npm(t)
	var expected map[string]map[string]expectation
	if err := json.Unmarshal(expectedFailures, &expected); err != nil {
		t.Fatal(err)
	}
	through := serveThroughMcpd(t)
	for _, requirements := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(requirements, func(t *testing.T) {
			// The legacy set needs sessions for what a server asks its client; directly the server has them.
			direct := serveDirectly(t, requirements == modernVersion)
			compare(t, runSuite(t, x, direct, "--requirements", requirements),
				runSuite(t, x, through, "--requirements", requirements), expected[requirements])
		})
	}
	t.Run("pending", func(t *testing.T) {
		direct := serveDirectly(t, true)
		for _, scenario := range pending {
			args := []string{"--scenario", scenario, "--spec-version", modernVersion}
			compare(t, runSuite(t, x, direct, args...), runSuite(t, x, through, args...), nil)
		}
	})
}

// expectation is what a scenario cannot show through mcpd, and why.
type expectation struct {
	Checks []string `json:"checks"` // ids of the checks that are lost
	Reason string   `json:"reason"`
}

// compare demands that every scenario that passed directly passed through mcpd too, with at least as many successes of
// each check, except those of the expected failures, which must be lost.
func compare(t *testing.T, direct, through map[string]outcome, expected map[string]expectation) {
	t.Helper()
	passed := 0
	for _, scenario := range slices.Sorted(maps.Keys(direct)) {
		d, m := direct[scenario], through[scenario]
		want, listed := expected[scenario]
		if listed && (strings.TrimSpace(want.Reason) == "" || len(want.Checks) == 0) {
			t.Errorf("%s is expected to fail without a reason or without checks", scenario)
		}
		if !d.passed() {
			if listed {
				t.Errorf("%s fails directly, so it has no place among the expected failures", scenario)
			}
			continue
		}
		if _, ran := through[scenario]; !ran {
			t.Errorf("%s did not run through mcpd", scenario)
			continue
		}
		lost := m.lost(d)
		slices.Sort(want.Checks)
		switch {
		case !slices.Equal(lost, want.Checks):
			t.Errorf("%s loses the checks %q, expected %q\ndirectly:%s\nthrough mcpd:%s", scenario, lost, want.Checks, d.describe(lost), m.describe(lost))
		case !listed:
			passed++
		}
	}
	for scenario := range expected {
		if _, ran := direct[scenario]; !ran {
			t.Errorf("%s is expected to fail, but is no scenario", scenario)
		}
	}
	if passed == 0 {
		t.Error("nothing passed")
	}
	t.Logf("%d of %d scenarios pass directly and through mcpd in full", passed, len(direct))
}
