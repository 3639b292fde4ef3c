package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// library is the table of a library whose holds are kept in dir.
func library(dir string, args []string, lines ...string) string {
	return server("library", append([]string{"-library", dir}, args...), lines...) + `
[servers.library.tools.place_hold]
idempotency_key = "key"
[servers.library.tools.place_plain_hold]
idempotency_key = { inject = true }
[servers.library.tools.search]
read_only = true
`
}

// lines are those of a file of the library.
func lines(t *testing.T, dir, file string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// placed is what a client learns of a call.
type placed struct {
	hold     int    // the number of the hold, 0 without a result
	outcome  string // mcpd/outcome
	replayed bool
	text     string
}

func readPlaced(m message) (p placed, err error) {
	var result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Structured struct {
			Hold int `json:"hold"`
		} `json:"structuredContent"`
		Meta struct {
			Outcome  string `json:"mcpd/outcome"`
			Replayed bool   `json:"mcpd/replayed"`
		} `json:"_meta"`
	}
	if m.Error != nil {
		return p, fmt.Errorf("error %d: %s", m.Error.Code, m.Error.Message)
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		return p, err
	}
	if len(result.Content) > 0 {
		p.text = result.Content[0].Text
	}
	p.hold, p.outcome, p.replayed = result.Structured.Hold, result.Meta.Outcome, result.Meta.Replayed
	return p, nil
}

func (d *daemon) place(tool, args string) placed {
	d.t.Helper()
	p, err := readPlaced(d.call("library", toolCall("1", tool, args, "")))
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

func TestAClientThatMakesTheSameCallTwiceCreatesSoManyHolds(t *testing.T) {
	const (
		withKey  = `{"title":"Dune","key":"k"}`
		injected = `{"title":"Dune","idempotency_key":"k"}`
		noKey    = `{"title":"Dune"}`
	)
	for _, test := range []struct {
		name, tool, args, crash string
		first, second           string // outcomes; "hold 1" for a result
		afterFirst, afterSecond int    // holds
		attempts                int    // that the server has seen in all
		replaysSecond           bool
	}{
		{name: "with a key", tool: "place_hold", args: withKey, first: "hold 1", second: "hold 1", afterFirst: 1, afterSecond: 1, attempts: 1, replaysSecond: true},
		{name: "with a key, killed before the effect", tool: "place_hold", args: withKey, crash: "before", first: "unknown", second: "unknown"},
		{name: "with a key, killed during the effect", tool: "place_hold", args: withKey, crash: "during", first: "unknown", second: "unknown", attempts: 1},
		{name: "with a key, killed after the effect", tool: "place_hold", args: withKey, crash: "after", first: "unknown", second: "unknown", afterFirst: 1, afterSecond: 1, attempts: 1},
		{name: "with an injected key", tool: "place_plain_hold", args: injected, first: "hold 1", second: "hold 1", afterFirst: 1, afterSecond: 1, attempts: 1, replaysSecond: true},
		{name: "with an injected key, killed after the effect", tool: "place_plain_hold", args: injected, crash: "after", first: "unknown", second: "unknown", afterFirst: 1, afterSecond: 1, attempts: 1},
		{name: "without a key, the client itself repeats", tool: "place_hold", args: noKey, first: "hold 1", second: "hold 2", afterFirst: 1, afterSecond: 2, attempts: 2},
		{name: "without a key, killed before the effect", tool: "place_hold", args: noKey, crash: "before", first: "unknown", second: "hold 1", afterSecond: 1, attempts: 1},
		{name: "without a key, killed during the effect", tool: "place_hold", args: noKey, crash: "during", first: "unknown", second: "hold 1", afterSecond: 1, attempts: 2},
		{name: "without a key, killed after the effect", tool: "place_hold", args: noKey, crash: "after", first: "unknown", second: "hold 2", afterFirst: 1, afterSecond: 2, attempts: 2},
	} {
		for _, era := range []string{"modern", "legacy"} {
			t.Run(test.name+", "+era, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				args := []string{"-era", era}
				if test.crash != "" {
					args = append(args, "-crash", test.crash)
				}
				d := start(t, setup{servers: []string{library(dir, args)}})
				check := func(which, want string, holds int) placed {
					t.Helper()
					p := d.place(test.tool, test.args)
					got := p.outcome
					if p.hold > 0 {
						got = fmt.Sprintf("hold %d", p.hold)
					}
					if got != want {
						t.Errorf("the %s call: %s, want %s (%s)", which, got, want, p.text)
					}
					if want == "unknown" && (!strings.Contains(p.text, "place_") || !strings.Contains(p.text, "library") || !strings.Contains(p.text, "ncertain")) {
						t.Errorf("the %s call is told %q", which, p.text)
					}
					if n := len(lines(t, dir, "holds")); n != holds {
						t.Errorf("%d holds after the %s call, want %d", n, which, holds)
					}
					return p
				}
				check("first", test.first, test.afterFirst)
				second := check("second", test.second, test.afterSecond)
				if second.replayed != test.replaysSecond {
					t.Errorf("the second is marked %v", second.replayed)
				}
				if n := len(lines(t, dir, "attempts")); n != test.attempts {
					t.Errorf("the server has seen %d attempts, want %d", n, test.attempts)
				}
				for _, line := range d.received("library") {
					if strings.Contains(line, "idempotency_key") {
						t.Errorf("the server got %s", line)
					}
				}
			})
		}
	}
}

func TestALostSearchIsRepeatedByMCPDItself(t *testing.T) {
	dir := t.TempDir()
	d := start(t, setup{servers: []string{library(dir, []string{"-crash", "before", "-crash-tool", "search"})}})
	var found struct {
		Found []string `json:"found"`
	}
	d.structured("library", "search", `{"text":"x"}`, &found)
	if len(found.Found) != 2 {
		t.Errorf("%+v", found)
	}
	if _, err := os.Stat(filepath.Join(dir, "crashed")); err != nil {
		t.Errorf("it has not crashed: %v", err)
	}
	out, _, code := d.mcpd("status", "library", "--json")
	if code != 0 || !strings.Contains(out, `"repeats": 1`) {
		t.Errorf("%d %s", code, out)
	}
}

func TestTheUserSettlesAnUnknownOutcome(t *testing.T) {
	dir := t.TempDir()
	d := start(t, setup{servers: []string{library(dir, []string{"-crash", "during"})}})
	const args = `{"title":"Dune","key":"k"}`
	if p := d.place("place_hold", args); p.outcome != "unknown" {
		t.Fatalf("%+v", p)
	}
	out, _, code := d.mcpd("ledger", "list", "--unknown", "--json")
	var entries []struct{ ID, State, Tool, Key, Arguments string }
	decode(t, out, &entries)
	if code != 0 || len(entries) != 1 || entries[0].Key != "k" || entries[0].Tool != "place_hold" || entries[0].Arguments != `title="Dune"` {
		t.Fatalf("%d %s", code, out)
	}
	if out, _, _ := d.mcpd("status"); !strings.Contains(out, "1 of unknown outcome") {
		t.Errorf("status says %s", out)
	}
	for _, wrong := range [][]string{{entries[0].ID}, {entries[0].ID, "--done", "--not-done"}, {}} {
		if _, errOut, code := d.mcpd(append([]string{"ledger", "resolve"}, wrong...)...); code != 2 {
			t.Errorf("%v: %d %s", wrong, code, errOut)
		}
	}
	if _, errOut, code := d.mcpd("ledger", "resolve", "ffffffffffffffff", "--done"); code != 1 || !strings.Contains(errOut, "ledger list") {
		t.Errorf("%d %s", code, errOut)
	}
	if _, errOut, code := d.mcpd("ledger", "resolve", entries[0].ID[:6], "--not-done"); code != 0 {
		t.Fatalf("%d %s", code, errOut)
	}
	if p := d.place("place_hold", args); p.hold != 1 {
		t.Errorf("%+v", p)
	}
	if n := len(lines(t, dir, "holds")); n != 1 {
		t.Errorf("%d holds", n)
	}
	// The admin right is needed.
	token, _, _ := d.mcpd("token", "create", "plain")
	d.token = strings.TrimSpace(token)
	for _, r := range []struct{ method, path, body string }{{"GET", "/api/v1/ledger", ""}, {"POST", "/api/v1/ledger/resolve", `{"id":"x","done":true}`}} {
		if got := d.do(d.request(r.method, r.path, r.body)); got.status != 403 {
			t.Errorf("%s: %d %s", r.path, got.status, got.body)
		}
	}
}

func TestAChildKilledInTheMiddleOfAKeyedCallLeavesItsOutcomeUnknown(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil) + "[servers.s.tools.hang]\nidempotency_key = { inject = true }\n"}})
	call := d.post("s", toolCall("1", "hang", `{"idempotency_key":"k"}`, ""))
	answered := make(chan placed, 1)
	go func() {
		m, err := d.tryCall(call)
		if err != nil {
			t.Error(err)
		}
		p, err := readPlaced(m)
		if err != nil {
			t.Error(err)
		}
		answered <- p
	}()
	d.eventually("the call to arrive", func() bool { return d.stats("s").Methods["tools/call"] > 1 && d.status("s").InFlight > 0 })
	d.killChild("s")
	if p := <-answered; p.outcome != "unknown" {
		t.Errorf("%+v", p)
	}
	if p, err := readPlaced(d.call("s", toolCall("1", "hang", `{"idempotency_key":"k"}`, ""))); err != nil || p.outcome != "unknown" {
		t.Errorf("%+v %v", p, err)
	}
}

func TestALedgerThatCannotBeReadRefusesKeyedCallsAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	d := prepare(t, setup{servers: []string{library(dir, nil)}})
	if err := os.Mkdir(d.stateDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.stateDir(), "ledger.db"), []byte(strings.Repeat("no ledger", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	d.launch()
	d.awaitHealthy()
	d.token = d.showToken()
	got := d.do(d.post("library", toolCall("1", "place_hold", `{"title":"Dune","key":"k"}`, "")))
	if got.status != 503 || !strings.Contains(got.body, "ledger.db") || !strings.Contains(got.body, "not made") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if p := d.place("place_hold", `{"title":"Emma"}`); p.hold != 1 {
		t.Errorf("%+v", p)
	}
	if out, _, _ := d.mcpd("status"); !strings.Contains(out, "ledger: ") || !strings.Contains(out, "cannot be used") {
		t.Errorf("status says %s", out)
	}
}

func TestACallThatOutlivesItsClientIsGivenUpWhenMCPDHasToEnd(t *testing.T) {
	d := prepare(t, setup{
		daemon:  `drain_timeout = "300ms"`,
		servers: []string{server("s", nil) + "[servers.s.tools.hang]\nidempotency_key = { inject = true }\n"},
	})
	d.launch()
	d.awaitHealthy()
	d.token = d.showToken()
	ctx, leave := context.WithCancel(t.Context())
	call := d.post("s", toolCall("1", "hang", `{"idempotency_key":"k"}`, "")).WithContext(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = d.tryCall(call)
	}()
	d.tool("s", "await", `{"kind":"held","count":1}`)
	leave()
	<-left
	if s := d.status("s"); s.InFlight != 1 {
		t.Errorf("%+v", s)
	}
	began := time.Now()
	d.stop()
	if took := time.Since(began); took > 10*time.Second { // the server's own drain_timeout is 30 s
		t.Errorf("the end took %v", took)
	}
	<-d.log.done
	d.err = nil
	d.relaunch()
	d.awaitHealthy()
	if p, err := readPlaced(d.call("s", toolCall("1", "hang", `{"idempotency_key":"k"}`, ""))); err != nil || p.outcome != "unknown" || !strings.Contains(p.text, "being stopped") {
		t.Errorf("%+v %v", p, err)
	}
}
