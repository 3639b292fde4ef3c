package bridge

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpd/bridge/jsonrpc"
)

func TestALostCallOfAReadOnlyToolIsRepeatedOnce(t *testing.T) {
	const annotated = `[{"name":"peek","annotations":{"readOnlyHint":true}},{"name":"poke","annotations":{"readOnlyHint":false}},` +
		`{"name":"twice","annotations":{"readOnlyHint":true,"readOnlyHint":true}}]`
	for name, c := range map[string]struct {
		tool     string
		trust    bool
		legacy   bool // client and server
		repeated bool
	}{
		"configured":                    {tool: "look", repeated: true},
		"configured, legacy":            {tool: "look", legacy: true, repeated: true},
		"annotated and trusted":         {tool: "peek", trust: true, repeated: true},
		"annotated and trusted, legacy": {tool: "peek", trust: true, legacy: true, repeated: true},
		"annotated and not trusted":     {tool: "peek"},
		"annotated otherwise":           {tool: "poke", trust: true},
		"annotated twice":               {tool: "twice", trust: true},
		"not annotated":                 {tool: "plain", trust: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := rigOptions{react: modernServer(`{"tools":{}}`, listTools(annotated, nil))}
				if c.legacy {
					o.react = legacyServer("2025-11-25", `{"tools":{}}`, listTools(annotated, nil))
				}
				o.retry.TrustAnnotations = c.trust
				r := keyed(t, "", o)
				p := r.up()
				var call *call
				params := `"name":"` + c.tool + `","arguments":{"q":"Dune","password":"hunter2"}`
				if c.legacy {
					call = r.begin(headers{}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+params+`}}`)
				} else {
					call = r.beginModern("1", "tools/call", params)
				}
				p.expect("tools/call")
				p.die()
				if c.repeated {
					synctest.Wait()
					p = r.up()
					p.expect("tools/call")
					p.die()
				}
				call.wait().wantOutcome(t, "unknown", c.tool, `q="Dune"`, "password=(not shown)")
				r.up().quiet()
				if s := r.upstream.Stats(); (s.Repeats == 1) != c.repeated || s.RepeatsRefused != 0 {
					t.Errorf("%+v", s)
				}
				r.atRest()
			})
		})
	}
}

func TestRepeatsAreBoundedPerMinute(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := keyed(t, "", rigOptions{retry: RetryPolicy{RepeatsPerMinute: 2}})
		lose := func(repeated bool) {
			t.Helper()
			p := r.up()
			c := r.beginModern("1", "tools/call", `"name":"look"`)
			p.expect("tools/call")
			p.die()
			synctest.Wait()
			if p = r.up(); repeated {
				p.answer(p.expect("tools/call").ID, `{"n":1}`)
				c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
				return
			}
			c.wait().wantOutcome(t, "unknown")
			p.quiet()
		}
		lose(true)
		<-time.After(30 * time.Second)
		lose(true)
		lose(false)
		<-time.After(30 * time.Second)
		lose(true)
		lose(false)
		if s := r.upstream.Stats(); s.Repeats != 3 || s.RepeatsRefused != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestALostCallOfAToolThatCouldHaveAKeySaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := keyed(t, "", rigOptions{})
		p := r.up()
		c := r.beginModern("1", "tools/call", `"name":"hold","arguments":{"title":"Dune"}`)
		p.expect("tools/call")
		p.die()
		c.wait().wantOutcome(t, "unknown", `argument "key"`, "has not repeated", "Check the state")
	})
}

func TestTheSummaryOfArgumentsShowsNoSecret(t *testing.T) {
	for arguments, want := range map[string]string{
		``:                                    "",
		`{}`:                                  "",
		`{"title":"Dune","n":2,"now":true}`:   `title="Dune", n=2, now=true`,
		`{"a":{"b":"c"},"l":["x"],"z":null}`:  `a={…}, l=[…], z=null`,
		`{"password":"x","api_key":"x"}`:      "password=(not shown), api_key=(not shown)",
		`{"Authorization":"x","userPIN":1}`:   "Authorization=(not shown), userPIN=(not shown)",
		`{"q":"ghp_abc"}`:                     "q=(not shown)",
		`{"q":"say: Bearer abc"}`:             "q=(not shown)",
		`{"q":"https://u:p@host/"}`:           "q=(not shown)",
		`{"q":"https://host/path"}`:           `q="https://host/path"`,
		`{"q":"0123456789abcdef0123456789"}`:  "q=(not shown)",
		`{"id":"a1b2c3d4-0000-1111-2222-33"}`: `id="a1b2c3d4-0000-1111-2222-33"`,
		`{"skip":"k","q":"the task-manager"}`: `q="the task-manager"`,
		`{"q":"line\nbreak\u202e"}`:           `q="line\nbreak\u202e"`,
		`{"a b":1,"c=":2}`:                    `"a b"=1, "c="=2`,
	} {
		m := jsonrpc.Span{End: len(arguments)}
		if got := summary([]byte(arguments), m, "skip"); got != want {
			t.Errorf("%s: %s, want %s", arguments, got, want)
		}
	}
	long := `{"q":"` + strings.Repeat("a word ", 100) + `"`
	for range 100 {
		long += `,"` + strings.Repeat("n", 100) + `":` + strings.Repeat("1", 100)
	}
	if got := summary([]byte(long+"}"), jsonrpc.Span{End: len(long) + 1}, ""); len(got) > 600 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
