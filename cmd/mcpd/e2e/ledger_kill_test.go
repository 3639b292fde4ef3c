package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// history is what the clients of a library have learnt so far, the model that the library's own files are held against.
type history struct {
	mu   sync.Mutex
	keys []string // in order of their first use
	// firsts counts the results of a key that are not marked as replayed.
	firsts  map[string]int
	got     map[string]int  // the number of the hold that a key got a result with
	settled map[string]bool // that the user has said to be done
	open    []string        // keys whose last call brought no result
	seen    struct{ results, replays, unknown, cut int }
}

// next chooses what a client does: repeat a call that has no result yet, or one that has, or make a new one.
func (h *history) next(r *rand.Rand) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch n := r.IntN(10); {
	case n < 4 && len(h.open) > 0:
		return h.open[r.IntN(len(h.open))]
	case n < 5 && len(h.keys) > 0:
		return h.keys[r.IntN(len(h.keys))]
	}
	key := fmt.Sprintf("key-%d", len(h.keys))
	h.keys = append(h.keys, key)
	h.open = append(h.open, key)
	return key
}

// learn takes what a call brought, and says what is wrong with it.
func (h *history) learn(key string, p placed) (fault string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, had := h.got[key]
	switch {
	case p.hold > 0:
		h.seen.results++
		if p.replayed {
			h.seen.replays++
		}
		if had && before != p.hold {
			return fmt.Sprintf("%s is hold %d, and was hold %d", key, p.hold, before)
		}
		if !p.replayed {
			h.firsts[key]++ // it may be read after a replay of it
		}
		if h.firsts[key] > 1 {
			return fmt.Sprintf("%s has two results that are no replay", key)
		}
		h.got[key] = p.hold
		h.closed(key)
	case p.outcome == "unknown":
		h.seen.unknown++
		if had {
			return fmt.Sprintf("%s had a result, and is unknown now: %s", key, p.text)
		}
	case p.outcome == "done":
		if !h.settled[key] {
			return fmt.Sprintf("%s counts as done, and nobody has said so: %s", key, p.text)
		}
	default:
		return fmt.Sprintf("%s: %+v", key, p)
	}
	return ""
}

// closed takes a key out of the open ones. mu is held.
func (h *history) closed(key string) {
	for i, k := range h.open {
		if k == key {
			h.open = append(h.open[:i], h.open[i+1:]...)
			return
		}
	}
}

// relaunch starts another daemon in the place of d, which was killed.
func (d *daemon) relaunch() {
	d.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		d.t.Fatal(err)
	}
	cmd := exec.Command(d.cmd.Path, d.cmd.Args[1:]...)
	cmd.Env, cmd.Dir = d.cmd.Env, d.cmd.Dir
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	w.Close()
	d.cmd, d.log, d.exited = cmd, newLogBuffer(r), make(chan struct{})
	go func(exited chan struct{}) {
		d.err = cmd.Wait()
		close(exited)
	}(d.exited)
}

// kill ends the daemon as a power cut does.
func (d *daemon) kill() {
	d.t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	<-d.exited
	d.err = nil // it was killed on purpose
	<-d.log.done
	d.client.CloseIdleConnections()
}

// use has clients place holds until ctx ends, and returns what was wrong.
func (d *daemon) use(ctx context.Context, h *history, seed uint64) (faults []string) {
	const clients = 4
	var (
		group sync.WaitGroup
		mu    sync.Mutex
	)
	for i := range clients {
		group.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				key := h.next(r)
				body := toolCall("1", "place_hold", fmt.Sprintf(`{"title":"T","key":%q}`, key), "")
				m, err := d.tryCall(d.post("library", body).WithContext(ctx))
				if err != nil { // it was killed
					h.mu.Lock()
					h.seen.cut++
					h.mu.Unlock()
					return
				}
				p, err := readPlaced(m)
				if err != nil {
					if m.Error.Code == -31503 { // not begun: the daemon starts or ends
						continue
					}
					mu.Lock()
					faults = append(faults, fmt.Sprintf("%s: %v", key, err))
					mu.Unlock()
					return
				}
				if fault := h.learn(key, p); fault != "" {
					mu.Lock()
					faults = append(faults, fault)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return faults
}

// settle does what a user does about some unknown outcomes: look at the holds, and tell mcpd.
func (d *daemon) settle(h *history, dir string, r *rand.Rand) {
	d.t.Helper()
	var entries []struct{ ID, Key string }
	decode(d.t, d.do(d.request(http.MethodGet, "/api/v1/ledger?state=unknown", "")).body, &entries)
	placed := count(lines(d.t, dir, "holds"))
	for _, e := range entries {
		if r.IntN(2) == 0 {
			continue
		}
		done := placed["T\t"+e.Key] > 0
		got := d.do(d.request(http.MethodPost, "/api/v1/ledger/resolve", fmt.Sprintf(`{"id":%q,"done":%v}`, e.ID, done)))
		if got.status != http.StatusOK {
			d.t.Errorf("settling %s: %d %s", e.Key, got.status, got.body)
		}
		if done {
			h.mu.Lock()
			h.closed(e.Key)
			h.settled[e.Key] = true
			h.mu.Unlock()
		}
	}
}

func count(lines []string) map[string]int {
	n := make(map[string]int)
	for _, l := range lines {
		n[l]++
	}
	return n
}

func TestWhereverMCPDIsKilledNoKeyTakesEffectTwiceAndNoRecordedResultIsLost(t *testing.T) {
	kills := 200
	switch {
	case testing.Short():
		kills = 25
	case raceDetector:
		kills = 60
	}
	dir := t.TempDir()
	d := prepare(t, setup{servers: []string{library(dir, nil, `stop_timeout = "200ms"`)}})
	d.launch()
	d.awaitHealthy()
	d.token = d.showToken()
	h := &history{got: map[string]int{}, firsts: map[string]int{}, settled: map[string]bool{}}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	began := time.Now()
	for n := range kills {
		if r.IntN(4) > 0 { // else it is killed while the library starts, too
			d.tool("library", "list_holds", "{}")
		}
		ctx, cancel := context.WithCancel(t.Context())
		faults := make(chan []string, 1)
		round := r.Uint64()
		go func() { faults <- d.use(ctx, h, round) }()
		// From before the first call is answered to when dozens have been.
		<-time.After(time.Duration(r.IntN(60_000)) * time.Microsecond)
		d.kill()
		cancel()
		for _, fault := range <-faults {
			t.Errorf("kill %d: %s", n+1, fault)
		}
		if t.Failed() {
			break
		}
		d.relaunch()
		if r.IntN(5) == 0 { // once more, while it starts
			<-time.After(time.Duration(r.IntN(30_000)) * time.Microsecond)
			d.kill()
			d.relaunch()
		}
		d.awaitHealthy()
		if r.IntN(4) == 0 {
			d.settle(h, dir, r)
		}
	}
	t.Logf("%d kills in %v: %d keys, %d of them without a result; %+v", kills, time.Since(began).Round(time.Second), len(h.keys), len(h.open), h.seen)

	// What was recorded is still there, and nothing more is done for it.
	for key, hold := range h.got {
		p := d.place("place_hold", fmt.Sprintf(`{"title":"T","key":%q}`, key))
		if p.hold != hold || !p.replayed {
			t.Errorf("%s was hold %d, and is %+v", key, hold, p)
		}
	}
	for what, n := range count(lines(t, dir, "holds")) {
		if n != 1 {
			t.Errorf("%q was placed %d times", what, n)
		}
	}
	holds := lines(t, dir, "holds")
	for key, hold := range h.got {
		if hold > len(holds) || holds[hold-1] != "T\t"+key {
			t.Errorf("%s got hold %d, which is not in the file", key, hold)
		}
	}
	// Of a few kills it may be that none comes at an interesting moment.
	if h.seen.cut < kills/2 || kills >= 200 && (h.seen.unknown == 0 || h.seen.replays == 0) {
		t.Errorf("the kills came at no interesting moments: %+v", h.seen)
	}
}
