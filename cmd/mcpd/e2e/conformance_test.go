package e2e

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
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
type outcome struct{ succeeded, failed int }

func (o outcome) passed() bool { return o.failed == 0 }

func (o outcome) String() string {
	return fmt.Sprintf("%d checks succeeded, %d failed", o.succeeded, o.failed)
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
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("suite against %s %v:\n%s", target, args, text)
		}
	})
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
		var checks []struct {
			Status string `json:"status"`
		}
		if err := json.Unmarshal(data, &checks); err != nil {
			t.Fatal(err)
		}
		o := found[parts[1]]
		for _, check := range checks {
			switch check.Status {
			case "SUCCESS":
				o.succeeded++
			case "FAILURE":
				o.failed++
			}
		}
		found[parts[1]] = o
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
	front.Config.Handler = &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(back)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+d.token)
		},
	}
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
	var expected map[string]map[string]string
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

// compare demands that every scenario that passed directly passed through mcpd too, with at least as many checks, except
// the expected failures, which must fail.
func compare(t *testing.T, direct, through map[string]outcome, expected map[string]string) {
	t.Helper()
	passed := 0
	for _, scenario := range slices.Sorted(maps.Keys(direct)) {
		d, m := direct[scenario], through[scenario]
		_, ran := through[scenario]
		reason, listed := expected[scenario]
		switch {
		case !d.passed():
			if listed {
				t.Errorf("%s fails directly, so it has no place among the expected failures", scenario)
			}
		case !ran:
			t.Errorf("%s did not run through mcpd", scenario)
		case listed && m.passed() && m.succeeded >= d.succeeded:
			t.Errorf("%s passes through mcpd now: take it out of the expected failures", scenario)
		case listed:
			if strings.TrimSpace(reason) == "" {
				t.Errorf("%s is expected to fail without a reason", scenario)
			}
		case !m.passed() || m.succeeded < d.succeeded:
			t.Errorf("%s: directly %v, through mcpd %v", scenario, d, m)
		default:
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
	t.Logf("%d of %d scenarios pass directly and through mcpd", passed, len(direct))
}
