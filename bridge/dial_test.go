package bridge

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory is an EraMemory that tests look into.
type memory struct {
	mu   sync.Mutex
	eras map[string]Era
}

func (m *memory) Era(key string) (Era, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.eras[key]
	return e, ok
}

func (m *memory) Remember(key string, e Era) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.eras == nil {
		m.eras = map[string]Era{}
	}
	m.eras[key] = e
}

func (m *memory) Forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.eras, key)
}

const (
	discoverOK   = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"go"}`
	initializeOK = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"0.9"}}`
)

// greeted describes a server by what it does with each greeting: a result, an
// error that begins with "error ", "silence", or "death".
func greeted(discover, initialize string) reaction {
	return func(p *process, q request, _ string) bool {
		does := ""
		switch q.Method {
		case methodDiscover:
			does = discover
		case methodInitialize:
			does = initialize
		case notifyInitialized, notifyCancelled:
			return true
		default:
			return false
		}
		e, isError := strings.CutPrefix(does, "error ")
		switch {
		case does == "silence":
		case does == "death":
			p.die()
		case isError:
			p.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, q.ID, e)
		default:
			p.answer(q.ID, does)
		}
		return true
	}
}

// methods are the methods of what a process got.
func (p *process) methods() string {
	var all []string
	for _, line := range p.lines() {
		all = append(all, parse(p.t, line).Method)
	}
	return strings.Join(all, " ")
}

func TestTheEraOfAServerIsFoundOutByGreetingIt(t *testing.T) {
	const (
		unknown  = `error {"code":-32601,"message":"Method not found"}`
		probed   = "server/discover"
		fellBack = "server/discover initialize notifications/initialized"
	)
	for name, c := range map[string]struct {
		discover, initialize string
		era                  Era // EraUnknown: it is refused
		version              string
		got                  string // by the last process
		starts               int
		after                time.Duration
		says                 string
	}{
		"a discover result":             {discoverOK, "death", EraModern, "2026-07-28", probed, 1, 0, ""},
		"one with newer versions too":   {`{"supportedVersions":["2031-01-01","2026-07-28"]}`, "death", EraModern, "2026-07-28", probed, 1, 0, ""},
		"one with legacy versions only": {`{"supportedVersions":["2025-06-18"]}`, initializeOK, EraLegacy, "2025-06-18", fellBack, 1, 0, ""},
		"one with unknown versions":     {`{"supportedVersions":["2031-01-01"]}`, initializeOK, EraUnknown, "", probed, 1, 0, "2031-01-01"},
		"a result that is something":    {`{"ok":true}`, initializeOK, EraLegacy, "2025-06-18", fellBack, 1, 0, ""},
		"a result that is a string":     {`"hello"`, initializeOK, EraLegacy, "2025-06-18", fellBack, 1, 0, ""},
		"-32601":                        {unknown, initializeOK, EraLegacy, "2025-06-18", fellBack, 1, 0, ""},
		"-32602":                        {`error {"code":-32602,"message":"Invalid request parameters"}`, initializeOK, EraLegacy, "2025-06-18", fellBack, 1, 0, ""},
		"-32000":                        {`error {"code":-32000,"message":"not initialized"}`, initializeOK, EraLegacy, "2025-06-18", fellBack, 1, 0, ""},
		"0":                             {`error {"code":0,"message":""}`, initializeOK, EraLegacy, "2025-06-18", fellBack, 1, 0, ""},
		"-32020":                        {`error {"code":-32020,"message":"m"}`, "death", EraModern, "2026-07-28", probed, 1, 0, ""},
		"-32021":                        {`error {"code":-32021,"message":"m"}`, "death", EraModern, "2026-07-28", probed, 1, 0, ""},
		"-32022 with our version":       {`error {"code":-32022,"message":"m","data":{"supported":["2027-01-01","2026-07-28"]}}`, "death", EraModern, "2026-07-28", probed, 1, 0, ""},
		"-32022 with a legacy version":  {`error {"code":-32022,"message":"m","data":{"supported":["2025-06-18"]}}`, initializeOK, EraLegacy, "2025-06-18", fellBack, 1, 0, ""},
		"-32022 with others only":       {`error {"code":-32022,"message":"m","data":{"supported":["2027-01-01"]}}`, initializeOK, EraUnknown, "", probed, 1, 0, "2027-01-01"},
		"-32022 without a list":         {`error {"code":-32022,"message":"m"}`, initializeOK, EraUnknown, "", probed, 1, 0, "protocol"},
		"silence":                       {"silence", initializeOK, EraLegacy, "2025-06-18", fellBack + " notifications/cancelled", 1, probeTimeout, ""},
		"death":                         {"death", initializeOK, EraLegacy, "2025-06-18", "initialize notifications/initialized", 2, 0, ""},
		"death on either":               {"death", "death", EraUnknown, "", "initialize", 2, 0, "initialize"},
		"an error to both":              {unknown, `error {"code":1,"message":"no license"}`, EraUnknown, "", "server/discover initialize", 1, 0, "no license"},
		"a version nobody knows":        {unknown, `{"protocolVersion":"1999-01-01"}`, EraUnknown, "", "server/discover initialize", 1, 0, "1999-01-01"},
		"an initialize result in ruins": {unknown, `[]`, EraUnknown, "", "server/discover initialize", 1, 0, "initialize"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var last *process
				m := &memory{}
				r := newRig(t, rigOptions{eras: m, react: func(p *process, q request, line string) bool {
					last = p
					return greeted(c.discover, c.initialize)(p, q, line)
				}})
				begin := time.Now()
				conn, err := r.pool.Acquire(t.Context())
				if d := time.Since(begin); d != c.after {
					t.Errorf("it took %v, want %v", d, c.after)
				}
				settle()
				if got := last.methods(); got != c.got {
					t.Errorf("the process got %q, want %q", got, c.got)
				}
				if r.pool.starts != c.starts {
					t.Errorf("%d processes were started, want %d", r.pool.starts, c.starts)
				}
				if c.era == EraUnknown {
					if err == nil || !strings.Contains(err.Error(), c.says) {
						t.Errorf("it was not refused, or for another reason: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if conn.Era() != c.era || conn.server.version != c.version {
					t.Errorf("era %s, version %s", conn.Era(), conn.server.version)
				}
				if got, ok := m.Era("scripted"); !ok || got != c.era {
					t.Errorf("remembered: %q", got)
				}
				if s := r.upstream.Stats(); s.Era != c.era || s.ProtocolVersion != c.version {
					t.Errorf("stats: %+v", s)
				}
			})
		})
	}
}

func TestAfterSilenceTheFirstGreetingThatSucceedsDecides(t *testing.T) {
	for name, c := range map[string]struct {
		initialize string // what a slow modern server does with it
		delay      time.Duration
	}{
		"it refuses initialize":        {`error {"code":-32601,"message":"m"}`, 20 * time.Second},
		"it says nothing about it":     {"silence", 20 * time.Second},
		"it answers just in time":      {"death", 9 * time.Second},
		"it takes minutes to download": {`error {"code":-32601,"message":"m"}`, 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: func(p *process, q request, line string) bool {
					if q.Method == methodDiscover {
						go func() {
							<-time.After(c.delay)
							p.answer(q.ID, discoverOK)
						}()
						return true
					}
					return greeted("", c.initialize)(p, q, line)
				}})
				conn, err := r.pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if conn.Era() != EraModern {
					t.Errorf("era %s", conn.Era())
				}
				settle()
			})
		})
	}
}

func TestAHandshakeThatTakesLongerThanTheStartMayTakeFailsAndLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: greeted("silence", "silence")})
		ctx, cancel := contextWithTimeout(t, 30*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := r.pool.Acquire(ctx)
		if err == nil || !strings.Contains(err.Error(), "handshake") {
			t.Errorf("got %v", err)
		}
		if d := time.Since(begin); d != 30*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

func TestTheEraThatWasRememberedSavesTheProbeAndIsForgottenWhenItIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		remembered           Era
		discover, initialize string
		era, after           Era
		got                  string
		starts               int
	}{
		"legacy, rightly":         {EraLegacy, "death", initializeOK, EraLegacy, EraLegacy, "initialize notifications/initialized", 1},
		"legacy, now modern":      {EraLegacy, discoverOK, `error {"code":-32601,"message":"m"}`, EraModern, EraModern, "server/discover", 2},
		"legacy, dies of it":      {EraLegacy, discoverOK, "death", EraModern, EraModern, "server/discover", 2},
		"modern, rightly":         {EraModern, discoverOK, "death", EraModern, EraModern, "server/discover", 1},
		"modern, now legacy":      {EraModern, `error {"code":-32601,"message":"m"}`, initializeOK, EraLegacy, EraLegacy, "server/discover initialize notifications/initialized", 1},
		"modern, and broken":      {EraModern, `error {"code":-32601,"message":"m"}`, `error {"code":1,"message":"m"}`, EraUnknown, EraUnknown, "server/discover initialize", 1},
		"legacy, broken for good": {EraLegacy, `error {"code":1,"message":"m"}`, `error {"code":1,"message":"m"}`, EraUnknown, EraUnknown, "server/discover initialize", 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var last *process
				m := &memory{eras: map[string]Era{"scripted": c.remembered}}
				r := newRig(t, rigOptions{eras: m, react: func(p *process, q request, line string) bool {
					last = p
					return greeted(c.discover, c.initialize)(p, q, line)
				}})
				conn, err := r.pool.Acquire(t.Context())
				settle()
				switch {
				case c.era == EraUnknown && err == nil:
					t.Error("it was not refused")
				case c.era != EraUnknown && err != nil:
					t.Error(err)
				case err == nil && conn.Era() != c.era:
					t.Errorf("era %s", conn.Era())
				}
				if got, _ := m.Era("scripted"); got != c.after {
					t.Errorf("remembered: %q, want %q", got, c.after)
				}
				if got := last.methods(); got != c.got || r.pool.starts != c.starts {
					t.Errorf("process %d got %q, want %d with %q", r.pool.starts, got, c.starts, c.got)
				}
			})
		})
	}
}

func TestARememberedLegacyServerThatIsSilentIsProbedTheNextTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := &memory{eras: map[string]Era{"scripted": EraLegacy}}
		r := newRig(t, rigOptions{eras: m, react: greeted(discoverOK, "silence")})
		ctx, cancel := contextWithTimeout(t, 30*time.Second)
		defer cancel()
		if _, err := r.pool.Acquire(ctx); err == nil {
			t.Error("silence was taken for a handshake")
		}
		conn, err := r.pool.Acquire(t.Context())
		if err != nil || conn.Era() != EraModern {
			t.Errorf("got %v", err)
		}
	})
}

func TestAConfiguredProtocolIsNotProbedFor(t *testing.T) {
	for name, c := range map[string]struct {
		protocol             Era
		discover, initialize string
		got                  string
		says                 string
	}{
		"legacy":                   {EraLegacy, discoverOK, initializeOK, "initialize notifications/initialized", ""},
		"modern":                   {EraModern, discoverOK, initializeOK, "server/discover", ""},
		"modern, but it is not":    {EraModern, `error {"code":-32601,"message":"Method not found"}`, initializeOK, "server/discover", `protocol = "modern"`},
		"legacy, but it is not":    {EraLegacy, discoverOK, `error {"code":-32601,"message":"Method not found"}`, "initialize", "Method not found"},
		"modern, and it dies":      {EraModern, "death", initializeOK, "server/discover", "server/discover"},
		"modern, a legacy version": {EraModern, `{"supportedVersions":["2025-06-18"]}`, initializeOK, "server/discover", `protocol = "modern"`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var last *process
				m := &memory{eras: map[string]Era{"scripted": EraLegacy}}
				r := newRig(t, rigOptions{eras: m, protocol: c.protocol, react: func(p *process, q request, line string) bool {
					last = p
					return greeted(c.discover, c.initialize)(p, q, line)
				}})
				conn, err := r.pool.Acquire(t.Context())
				settle()
				if c.says == "" && (err != nil || conn.Era() != c.protocol) {
					t.Errorf("got %v", err)
				}
				var again *RestartError
				if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || errors.As(err, &again)) {
					t.Errorf("got %v", err)
				}
				if got := last.methods(); got != c.got || r.pool.starts != 1 {
					t.Errorf("process %d got %q", r.pool.starts, got)
				}
			})
		})
	}
}

func TestAnotherCommandLineIsProbedAnew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dies := true
		var last *process
		r := newRig(t, rigOptions{react: func(p *process, q request, line string) bool {
			last = p
			discover := discoverOK
			if dies {
				discover = "death"
			}
			return greeted(discover, initializeOK)(p, q, line)
		}})
		r.up()
		settle()
		if got := last.methods(); got != "initialize notifications/initialized" {
			t.Errorf("it got %q", got)
		}
		dies = false
		r.upstream.SetCommand("other", EraUnknown)
		if _, err := r.pool.replace(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := last.methods(); got != "server/discover" {
			t.Errorf("it got %q", got)
		}
	})
}

func TestTheGreetingSaysWhoMcpdIs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: greeted(`error {"code":-32601,"message":"m"}`, initializeOK)})
		p := r.up()
		settle()
		lines := p.lines()
		sameJSON(t, lines[0], `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"mcpd","version":"test"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
		sameJSON(t, lines[1], `{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"mcpd","version":"test"}}}`)
		sameJSON(t, lines[2], `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	})
}

func TestWhatAServerIsCalledIsInTheStats(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		if s := r.upstream.Stats(); s.Era != EraUnknown || s.ServerName != "" {
			t.Errorf("before its start: %+v", s)
		}
		r.up()
		if s := r.upstream.Stats(); s.Era != EraModern || s.ServerName != "scripted" || s.ServerVersion != "1" {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestADiscoverResultShowsOnlyVersionsThatCanBeUsedHere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: func(p *process, q request, _ string) bool {
			p.answer(q.ID, `{"resultType":"complete","supportedVersions":["2031-01-01","2026-07-28","2025-06-18"],"capabilities":{"x":1.0},"ttlMs":5,"cacheScope":"public"}`)
			return true
		}})
		rep := r.modern("7", methodDiscover, "")
		rep.wantJSON(t, `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","supportedVersions":["2026-07-28","2025-06-18"],"capabilities":{"x":1.0},"ttlMs":5,"cacheScope":"public"}}`)
		if !json.Valid([]byte(rep.body)) || !strings.Contains(rep.body, `"x":1.0`) {
			t.Errorf("got %s", rep.body)
		}
	})
}
