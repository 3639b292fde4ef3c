package bridge

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// typed is a tool with one mirrored argument of a type.
func typed(name, arg, typ string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object","properties":{%q:{"type":%q,"x-mcp-header":"%s"}}}}`, name, arg, typ, arg)
}

// toolServer is a modern server whose list of tools can change.
type toolServer struct {
	tools    atomic.Pointer[string]
	lists    atomic.Int32
	caps     string
	announce func(p *process, q request) // what it does about listening
}

func (s *toolServer) react() reaction {
	return modernServer(s.caps, func(p *process, q request, _ string) bool {
		switch q.Method {
		case methodToolsList:
			s.lists.Add(1)
			p.answer(q.ID, `{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[`+*s.tools.Load()+`]}`)
		case methodToolsCall:
			p.answer(q.ID, `{"resultType":"complete","content":[]}`)
		case methodListen:
			if s.announce != nil {
				s.announce(p, q)
			}
		case notifyCancelled:
		default:
			return false
		}
		return true
	})
}

func (s *toolServer) set(tools ...string) {
	text := strings.Join(tools, ",")
	s.tools.Store(&text)
}

func (r *rig) callTool(name, arguments string, extra headers) reply {
	r.t.Helper()
	h := modernHeaders(methodToolsCall, name)
	for k, v := range extra {
		h = h.with(k, v)
	}
	return r.post(h, modernBody("7", methodToolsCall, fmt.Sprintf(`"name":%q,"arguments":%s`, name, arguments)))
}

func TestArgumentsThatASchemaMirrorsAreComparedWithTheirHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		typ       string
		arguments string
		header    []string
		refuse    bool
	}{
		"a string":                         {"string", `{"v":"eu"}`, []string{"eu"}, false},
		"another string":                   {"string", `{"v":"eu"}`, []string{"us"}, true},
		"a string in capitals":             {"string", `{"v":"eu"}`, []string{"EU"}, true},
		"a string encoded":                 {"string", `{"v":"é"}`, []string{"=?base64?w6k=?="}, false},
		"another string encoded":           {"string", `{"v":"e"}`, []string{"=?base64?w6k=?="}, true},
		"no header":                        {"string", `{"v":"eu"}`, nil, true},
		"the header twice":                 {"string", `{"v":"eu"}`, []string{"eu", "eu"}, true},
		"no argument, no header":           {"string", `{}`, nil, false},
		"null, no header":                  {"string", `{"v":null}`, nil, false},
		"no argument, but a header":        {"string", `{}`, []string{"eu"}, true},
		"an integer":                       {"integer", `{"v":42}`, []string{"42"}, false},
		"42.0 in the body, 42 in front":    {"integer", `{"v":42.0}`, []string{"42"}, false},
		"42 in the body, 42.0 in front":    {"integer", `{"v":42}`, []string{"42.0"}, false},
		"another integer":                  {"integer", `{"v":42}`, []string{"43"}, true},
		"no integer in front":              {"integer", `{"v":42}`, []string{"x"}, true},
		"a boolean":                        {"boolean", `{"v":true}`, []string{"true"}, false},
		"a boolean in capitals":            {"boolean", `{"v":true}`, []string{"True"}, true},
		"the argument twice in the object": {"string", `{"v":"eu","v":"us"}`, []string{"eu"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := &toolServer{caps: `{"tools":{}}`}
				s.set(typed("t", "v", c.typ), typed("other", "w", "string"))
				r := newRig(t, rigOptions{react: s.react()})
				p := r.up()
				req := r.request(t.Context(), modernHeaders(methodToolsCall, "t"), modernBody("7", methodToolsCall, `"name":"t","arguments":`+c.arguments))
				for _, v := range c.header {
					req.Header.Add("Mcp-Param-v", v)
				}
				rep := r.do(req)
				settle()
				if c.refuse {
					if rep.wantErrorCode() == codeInvalidRequest {
						return // a name twice in the arguments is refused even earlier
					}
					rep.wantError(t, 400, codeHeaderMismatch, "7")
					if strings.Contains(p.methods(), methodToolsCall) {
						t.Error("the server saw it")
					}
				} else if rep.status != 200 {
					t.Errorf("status %d: %s", rep.status, rep.body)
				}
				r.atRest()
			})
		})
	}
}

// wantErrorCode is the code of an error, 0 for none.
func (rep reply) wantErrorCode() int {
	var code int
	if i := strings.Index(rep.body, `"code":`); i >= 0 {
		_, _ = fmt.Sscanf(rep.body[i+len(`"code":`):], "%d", &code)
	}
	return code
}

func TestALegacyClientNeedsNoMirrors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := &toolServer{caps: `{"tools":{}}`}
		s.set(typed("t", "v", "string"))
		r := newRig(t, rigOptions{react: s.react()})
		rep := r.legacy("1", methodToolsCall, `"name":"t","arguments":{"v":"x"}`).wait()
		if rep.status != 200 || s.lists.Load() != 0 {
			t.Errorf("status %d: %s", rep.status, rep.body)
		}
	})
}

func TestManyConcurrentCallsCauseOneReadingOfTheToolList(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{"tools":{}}`, nil)})
		p := r.up()
		var calls []*call
		for range 50 {
			calls = append(calls, r.beginModern("1", methodToolsCall, `"name":"t"`))
		}
		q := p.expect(methodToolsList)
		p.quiet() // nothing else until it is answered
		p.answer(q.ID, `{"tools":[`+typed("t", "v", "string")+`]}`)
		for range calls {
			p.answer(p.expect(methodToolsCall).ID, `{}`)
		}
		for _, c := range calls {
			c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}
		p.quiet()
		r.atRest()
	})
}

func TestAToolListInPagesIsReadToItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{"tools":{}}`, nil)})
		p := r.up()
		call := r.beginModern("7", methodToolsCall, `"name":"third","arguments":{"v":"x"}`)
		for i, page := range []string{
			`{"tools":[` + typed("first", "v", "string") + `],"nextCursor":"\u0061\"2"}`,
			`{"tools":[],"nextCursor":"3"}`,
			`{"tools":[` + typed("third", "v", "string") + `]}`,
		} {
			q := p.expect(methodToolsList)
			if want := []string{"", `a"2`, "3"}[i]; q.Params.Cursor != want {
				t.Errorf("page %d was asked for with cursor %q", i, q.Params.Cursor)
			}
			p.answer(q.ID, page)
		}
		call.wait().wantError(t, 400, codeHeaderMismatch, "7", "Mcp-Param-V")
		p.quiet()
	})
}

func TestAToolListWithoutAnEndIsReadOnlySoFar(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lists := 0
		r := newRig(t, rigOptions{react: modernServer(`{"tools":{}}`, func(p *process, q request, _ string) bool {
			if q.Method == methodToolsList {
				lists++
				p.answer(q.ID, fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, lists))
			} else {
				p.answer(q.ID, `{}`)
			}
			return true
		})})
		if rep := r.callTool("t", `{}`, nil); rep.status != 200 || lists != schemaMaxPages {
			t.Errorf("status %d after %d pages", rep.status, lists)
		}
	})
}

func TestWithoutAToolListCallsGoOnAndItIsAskedForAgainLater(t *testing.T) {
	for name, bad := range map[string]string{
		"an error":       `"error":{"code":-32603,"message":"m"}`,
		"a wrong result": `"result":{"tools":{}}`,
		"no object":      `"result":7`,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				lists := 0
				r := newRig(t, rigOptions{react: modernServer(`{"tools":{}}`, func(p *process, q request, _ string) bool {
					switch {
					case q.Method != methodToolsList:
						p.answer(q.ID, `{}`)
					default:
						if lists++; lists == 1 {
							p.say(`{"jsonrpc":"2.0","id":%s,%s}`, q.ID, bad)
						} else {
							p.answer(q.ID, `{"tools":[`+typed("t", "v", "string")+`]}`)
						}
					}
					return true
				})})
				for range 3 {
					if rep := r.callTool("t", `{"v":"x"}`, nil); rep.status != 200 {
						t.Errorf("status %d: %s", rep.status, rep.body)
					}
				}
				if lists != 1 {
					t.Errorf("the list was read %d times", lists)
				}
				<-time.After(schemaRetry + time.Second)
				r.callTool("t", `{"v":"x"}`, nil) // this one still goes on, and causes a reading
				settle()
				r.callTool("t", `{"v":"x"}`, nil).wantError(t, 400, codeHeaderMismatch, "7")
				r.atRest()
			})
		})
	}
}

func TestAToolListThatIsNeverAnsweredDelaysTheFirstCallOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{"tools":{}}`, func(p *process, q request, _ string) bool {
			if q.Method == methodToolsCall {
				p.answer(q.ID, `{}`)
			}
			return true
		})})
		begin := time.Now()
		if rep := r.callTool("t", `{}`, nil); rep.status != 200 || time.Since(begin) != controlTimeout {
			t.Errorf("status %d after %v", rep.status, time.Since(begin))
		}
		begin = time.Now()
		if rep := r.callTool("t", `{}`, nil); rep.status != 200 || time.Since(begin) != 0 {
			t.Errorf("status %d after %v", rep.status, time.Since(begin))
		}
	})
}

func TestInvalidAnnotationsSpoilOnlyTheirOwnTool(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := &toolServer{caps: `{"tools":{}}`}
		s.set(`{"name":"bad","inputSchema":{"type":"object","properties":{"v":{"type":"string","x-mcp-header":"a b:"}}}}`, typed("good", "v", "string"))
		r := newRig(t, rigOptions{react: s.react()})
		if rep := r.callTool("bad", `{"v":"x"}`, nil); rep.status != 200 {
			t.Errorf("status %d: %s", rep.status, rep.body)
		}
		r.callTool("good", `{"v":"x"}`, nil).wantError(t, 400, codeHeaderMismatch, "7")
	})
}

func TestAMismatchIsJudgedAgainByAFreshList(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := &toolServer{caps: `{"tools":{}}`} // which announces no changes
		s.set(typed("t", "v", "string"))
		r := newRig(t, rigOptions{react: s.react()})
		good := headers{"Mcp-Param-v": "x"}
		if rep := r.callTool("t", `{"v":"x"}`, good); rep.status != 200 {
			t.Errorf("status %d: %s", rep.status, rep.body)
		}
		<-time.After(2 * schemaMinAge)
		s.set(typed("t", "w", "string"))
		if rep := r.callTool("t", `{"v":"x"}`, nil); rep.status != 200 {
			t.Errorf("judged by the old list: status %d: %s", rep.status, rep.body)
		}
		if n := s.lists.Load(); n != 2 {
			t.Errorf("the list was read %d times", n)
		}
		// But nobody can make mcpd read it over and over.
		for range 20 {
			r.callTool("t", `{"w":"x"}`, nil).wantError(t, 400, codeHeaderMismatch, "7")
		}
		if n := s.lists.Load(); n != 2 {
			t.Errorf("the list was read %d times", n)
		}
		r.atRest()
	})
}

func TestAnAnnouncedChangeCountsFromTheNextCallOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var listen request
		s := &toolServer{caps: `{"tools":{"listChanged":true}}`, announce: func(p *process, q request) {
			listen = q
			p.ack(q.ID, toolsOnly)
		}}
		s.set(typed("t", "v", "string"))
		r := newRig(t, rigOptions{react: s.react()})
		p := r.up()
		settle()
		r.callTool("t", `{"v":"x"}`, nil).wantError(t, 400, codeHeaderMismatch, "7")
		if n := r.upstream.Stats().UpstreamSubscriptions; n != 1 {
			t.Errorf("%d subscriptions, want mcpd's own", n)
		}
		if n := r.pool.conn.Load().Subscriptions; n != 0 {
			t.Errorf("mcpd's own subscription counts as load: %d", n)
		}
		<-time.After(time.Hour) // nothing was announced, so it is believed
		r.callTool("t", `{"v":"x"}`, headers{"Mcp-Param-v": "x"})
		if n := s.lists.Load(); n != 1 {
			t.Errorf("the list was read %d times", n)
		}
		s.set(typed("t", "w", "string"))
		p.tell(listen.ID, notifyToolsChanged, "")
		settle()
		r.callTool("t", `{"w":"x"}`, nil).wantError(t, 400, codeHeaderMismatch, "7")
		if n := s.lists.Load(); n != 2 {
			t.Errorf("the list was read %d times", n)
		}
		r.atRest()
	})
}

func TestAServerThatRefusesToAnnounceIsAskedForItsListFromTimeToTime(t *testing.T) {
	for name, announce := range map[string]func(p *process, q request){
		"it refuses": func(p *process, q request) {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"m"}}`, q.ID)
		},
		"it grants nothing": func(p *process, q request) { p.ack(q.ID, `{}`) },
		"it ends it":        func(p *process, q request) { p.ack(q.ID, toolsOnly); p.answer(q.ID, `{}`) },
		"it says nothing":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := &toolServer{caps: `{"tools":{"listChanged":true}}`, announce: announce}
				s.set(typed("t", "v", "string"))
				r := newRig(t, rigOptions{react: s.react()})
				r.up()
				settle()
				r.callTool("t", `{"w":"x"}`, nil)
				s.set(typed("t", "w", "string"))
				<-time.After(schemaMaxAge + time.Second)
				r.callTool("t", `{"w":"x"}`, nil)
				settle()
				r.callTool("t", `{"w":"x"}`, nil).wantError(t, 400, codeHeaderMismatch, "7")
				r.atRest()
			})
		})
	}
}

func TestAServerThatAnnouncesAChangeWheneverItIsAskedIsNoLoop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lists := 0
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", `{"tools":{"listChanged":true}}`, func(p *process, q request, _ string) bool {
			if q.Method == methodToolsList {
				lists++
				p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				p.answer(q.ID, `{"tools":[]}`)
			} else {
				p.answer(q.ID, `{"content":[]}`)
			}
			return true
		})})
		if rep := r.callTool("t", `{}`, nil); rep.status != 200 || lists > 2 {
			t.Errorf("status %d after %d lists", rep.status, lists)
		}
		r.atRest()
	})
}

func TestALegacyServersToolListIsReadWithoutModernMetadata(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", `{"tools":{}}`, nil)})
		p := r.up()
		call := r.beginModern("7", methodToolsCall, `"name":"t"`)
		q, line := p.next()
		sameJSON(t, line, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
		p.answer(q.ID, `{"tools":[],"nextCursor":"2"}`)
		q, line = p.next()
		sameJSON(t, line, `{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{"cursor":"2"}}`)
		p.answer(q.ID, `{"tools":[]}`)
		p.answer(p.expect(methodToolsCall).ID, `{}`)
		call.wait()
	})
}

func TestAClientThatLeavesWhileTheToolListIsReadHarmsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{"tools":{}}`, nil)})
		p := r.up()
		gone := r.beginModern("1", methodToolsCall, `"name":"t"`)
		q := p.expect(methodToolsList)
		stays := r.beginModern("2", methodToolsCall, `"name":"t"`)
		settle()
		gone.leave()
		p.quiet() // the reading goes on for the other one
		p.answer(q.ID, `{"tools":[]}`)
		p.answer(p.expect(methodToolsCall).ID, `{}`)
		stays.wait().wantJSON(t, `{"jsonrpc":"2.0","id":2,"result":{}}`)
		p.quiet()
		r.atRest()
	})
}

func TestACallMovesOnWhenTheProcessEndsWhileItsToolListIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{"tools":{}}`, nil)})
		p := r.up()
		call := r.beginModern("1", methodToolsCall, `"name":"t"`)
		p.expect(methodToolsList)
		p.die()
		<-time.After(time.Second)
		next := r.pool.process()
		next.answer(next.expect(methodToolsList).ID, `{"tools":[]}`)
		next.answer(next.expect(methodToolsCall).ID, `{"v":1}`)
		call.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"v":1}}`)
		r.atRest()
	})
}
