package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAToolSaysHowItsCallsMayBeRepeated(t *testing.T) {
	text := server(`trust_annotations = true`, `max_repeats_per_minute = 0`) + `
[servers.a.tools.place_hold]
idempotency_key = "request_id"
[servers.a.tools."send notice"]
idempotency_key = { inject = true }
[servers.a.tools.search]
read_only = true
[servers.a.tools.nothing]
[ledger]
keep = "48h"
max_bytes = "1MiB"
`
	cfg := mustParse(t, text, world{})
	want := map[string]Tool{
		"place_hold":  {IdempotencyKey: "request_id"},
		"send notice": {IdempotencyKey: InjectedKey, InjectKey: true},
		"search":      {ReadOnly: true},
		"nothing":     {},
	}
	s := cfg.Servers["a"]
	if diff := cmp.Diff(want, s.Tools); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if !s.TrustAnnotations || s.MaxRepeatsPerMinute != 0 {
		t.Errorf("trust %v, repeats %d", s.TrustAnnotations, s.MaxRepeatsPerMinute)
	}
	if (cfg.Ledger != Ledger{Keep: 48 * time.Hour, MaxBytes: 1 << 20}) {
		t.Errorf("ledger %+v", cfg.Ledger)
	}
	// What is shown can be read again, and means the same.
	again := mustParse(t, string(cfg.TOML()), world{})
	if diff := cmp.Diff(s.Tools, again.Servers["a"].Tools); diff != "" {
		t.Errorf("shown and read again (-want +got):\n%s", diff)
	}
	if change := Diff(cfg, again); !change.Empty() {
		t.Errorf("shown and read again is a change: %+v", change)
	}
	json, err := cfg.MarshalJSON()
	if err != nil || !strings.Contains(string(json), `"send notice":{"idempotency_key":{"inject":true}}`) {
		t.Errorf("%v in %s", err, json)
	}
}

func TestAToolThatSaysNonsenseIsAnError(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no table":            {`tools = 1`, "tools: must be a table"},
		"a tool is no table":  {`tools = { x = 1 }`, "tools.x: must be a table"},
		"an unknown key":      {`tools = { x = { readonly = true } }`, "unknown key readonly"},
		"a key of no use":     {`tools = { x = { idempotency_key = {} } }`, "says nothing"},
		"inject off":          {`tools = { x = { idempotency_key = { inject = false } } }`, "says nothing"},
		"inject is no switch": {`tools = { x = { idempotency_key = { inject = 1 } } }`, "must be true or false"},
		"an empty name":       {`tools = { x = { idempotency_key = " " } }`, "the name is empty"},
		"a number as name":    {`tools = { x = { idempotency_key = 7 } }`, "must be a string or { inject = true }"},
		"another way":         {`tools = { x = { idempotency_key = { injekt = true } } }`, "unknown key injekt"},
		"both":                {`tools = { x = { idempotency_key = "k", read_only = true } }`, "needs no idempotency_key"},
		"no switch":           {`tools = { x = { read_only = "yes" } }`, "must be true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("/etc/mcpd/mcpd.toml", []byte(server(c.text)), Environment{Home: "/home/u", OS: "linux"})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
