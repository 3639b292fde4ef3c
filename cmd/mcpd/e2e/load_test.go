package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestManyCallersAtOnceEachGetTheirOwnAnswer(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			d := start(t, setup{servers: []string{server("s", []string{"-era", era})}})
			var callers sync.WaitGroup
			for caller := range 32 {
				callers.Go(func() {
					for i := range 50 {
						mine := fmt.Sprintf(`{"caller":%d,"i":%d}`, caller, i)
						// All use the same id and the same progress token.
						m, err := d.tryCall(d.post("s", toolCall("1", "echo", mine, `"progressToken":1`)))
						if err != nil || m.Error != nil || string(m.ID) != "1" || !strings.Contains(string(m.Result), strings.ReplaceAll(mine, `"`, `\"`)) {
							t.Errorf("caller %d got %s %+v %v", caller, m.Result, m.Error, err)
							return
						}
					}
				})
			}
			callers.Wait()
		})
	}
}

func TestCallersUnderRandomKillsGetTheirOwnAnswerOrAClearError(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil, `restart_backoff_min = "1ms"`, `restart_backoff_max = "10ms"`)}})
	done := make(chan struct{})
	var killer, callers sync.WaitGroup
	kills := 0
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	killer.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(random.IntN(40)) * time.Millisecond):
			}
			if s := d.status("s"); s.State == "ready" && s.PID > 1 {
				if process, err := os.FindProcess(s.PID); err == nil && process.Kill() == nil { // it may just have ended
					kills++
				}
			}
		}
	})
	var mu sync.Mutex
	answered, lost := 0, 0
	for caller := range 16 {
		callers.Go(func() {
			for i := range 60 {
				mine := fmt.Sprintf(`{"caller":%d,"i":%d}`, caller, i)
				m, err := d.tryCall(d.post("s", toolCall(fmt.Sprint(i), "echo", mine, "")))
				if err != nil || string(m.ID) != fmt.Sprint(i) {
					t.Errorf("caller %d: id %s, %+v, %v", caller, m.ID, m.Error, err)
					return
				}
				mu.Lock()
				switch result := string(m.Result); {
				case strings.Contains(result, strings.ReplaceAll(mine, `"`, `\"`)):
					answered++
				case m.Error != nil || strings.Contains(result, `"isError":true`):
					lost++
				default:
					t.Errorf("caller %d got %s", caller, result)
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	close(done)
	killer.Wait()
	if kills == 0 || answered == 0 {
		t.Errorf("%d kills, %d answers: nothing was shown", kills, answered)
	}
	t.Logf("%d kills, %d answers, %d calls lost", kills, answered, lost)
}
