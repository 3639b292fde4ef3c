package bridge

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestManyClientsAtOnceOverRealConnectionsWhileProcessesDie lets the scheduler
// choose the order of things, which a bubble does not.
func TestManyClientsAtOnceOverRealConnectionsWhileProcessesDie(t *testing.T) {
	var (
		lines  atomic.Int64
		r      *rig
		starts sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	// Like a supervisor, it starts the next process without being asked: a
	// listener may be the only one that still waits for it.
	restart := func() {
		starts.Go(func() {
			r.pool.mu.Lock()
			conn := r.pool.conn
			r.pool.mu.Unlock()
			if conn != nil {
				select {
				case <-conn.Done():
				case <-ctx.Done():
					return
				}
			}
			_, _ = r.pool.Acquire(ctx)
		})
	}
	defer stop()
	r = newRig(t, rigOptions{loopback: true, quiet: true, react: modernServer(`{}`, func(p *process, q request, _ string) bool {
		switch {
		case lines.Add(1)%101 == 0:
			p.die()
			restart()
		case q.Method == methodListen:
			p.ack(q.ID, string(q.Params.Notifications))
			p.tell(q.ID, notifyToolsChanged, "")
		case q.ID != nil:
			if token := q.token(); token != "" {
				p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"for":%s}}`, token, q.Params.Arguments)
			}
			p.answer(q.ID, fmt.Sprintf(`{"for":%s,"pad":%q}`, q.Params.Arguments, strings.Repeat("x", int(lines.Load()%5000))))
		}
		return true
	})})
	const clients, requests = 16, 60
	var (
		wg             sync.WaitGroup
		answered, lost atomic.Int64
	)
	for c := range clients {
		wg.Go(func() {
			for i := range requests {
				me := fmt.Sprintf(`"client %d, request %d"`, c, i)
				switch {
				case i%20 == 19:
					s := r.open(modernHeaders(methodListen, ""), modernBody("1", methodListen, `"notifications":`+toolsOnly))
					first := s.next()
					if first != "" && !strings.Contains(first, notifyAcknowledged) {
						t.Errorf("%s got %s first", me, first)
					}
					s.leave()
					continue
				case i%7 == 6:
					r.beginModern("1", "vendor/x", `"arguments":`+me).leave()
					continue
				}
				method := []string{"vendor/x", "tools/list"}[i%2]
				rep := r.do(r.request(t.Context(), modernHeaders(method, ""), modernBody("1", method, `"arguments":`+me+`,`+metaWith(`"progressToken":"t"`))))
				switch {
				case rep.err != nil:
					t.Errorf("%s got %v", me, rep.err)
				case strings.Contains(rep.body, `"error"`):
					lost.Add(1)
				default:
					answered.Add(1)
				}
				if n := strings.Count(rep.body, "client "); strings.Count(rep.body, me) != n {
					t.Errorf("%s got what belongs to another: %s", me, rep.body)
				}
				if strings.Count(rep.body, `"id":1,`) != 1 {
					t.Errorf("%s did not get exactly one answer: %s", me, rep.body)
				}
			}
		})
	}
	wg.Wait()
	r.active.Wait()
	stop()
	starts.Wait()
	if s := r.upstream.Stats(); s.InFlight != 0 || s.Listeners != 0 {
		t.Errorf("left behind: %+v", s)
	}
	if answered.Load() < clients*requests/2 || r.pool.starts < 3 {
		t.Errorf("%d answered, %d lost, %d processes: the test tests nothing", answered.Load(), lost.Load(), r.pool.starts)
	}
}
