package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// goroutines ends a daemon with SIGQUIT and counts the goroutines in the dump that Go prints then. A daemon that ends like
// this cannot stop its children, so that is done here.
func (d *daemon) goroutines() int {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.exited:
	case <-time.After(patience):
		d.t.Fatal("the daemon survives SIGQUIT")
	}
	<-d.log.done
	d.err = nil // this end was asked for
	for _, p := range marked(d.t, d.mark) {
		if process, err := os.FindProcess(p.pid); err == nil {
			_ = process.Kill()
		}
	}
	n := strings.Count(d.log.text(), "\ngoroutine ")
	if n == 0 {
		d.t.Fatalf("no goroutines in the dump:\n%s", d.log.text())
	}
	return n
}

// killRepeatedly kills the child n times, each time during a call and two subscriptions, and waits for the next to serve.
func (d *daemon) killRepeatedly(n int) {
	d.t.Helper()
	own := d.stats("s").Listeners
	const filter = `"toolsListChanged":true,"resourceSubscriptions":["fixture:///a"]`
	one := d.listen("s", "1", filter, filter)
	two := d.listen("s", "2", `"toolsListChanged":true`, `"toolsListChanged":true`)
	pid := d.stats("s").PID
	for i := range n {
		held := d.background("s", toolCall(fmt.Sprint(i), "hold", `{"name":"x"}`, ""))
		d.tool("s", "await", `{"kind":"held","count":1}`)
		kill(d.t, pid)
		if text, isError := toolText(d.t, await(d.t, held)); !isError {
			d.t.Fatalf("the call that was lost answers %q", text)
		}
		// Both listeners are told to read again before anything else.
		got := map[string]bool{normal(d.t, one.nextText()): true, normal(d.t, one.nextText()): true}
		if !got[normal(d.t, changed("1", "tools"))] || !got[normal(d.t, updated("1", "fixture:///a"))] {
			d.t.Fatalf("after kill %d the first listener got %v", i+1, got)
		}
		two.expect(changed("2", "tools"))
		again := d.stats("s").PID
		if again == pid {
			d.t.Fatal("the pid is the same")
		}
		pid = again
	}
	if status := d.status("s"); status.Restarts < n || status.InFlight != 0 {
		d.t.Errorf("after %d kills the status is %+v", n, status)
	}
	one.close()
	two.close()
	d.tool("s", "await", fmt.Sprintf(`{"kind":"listeners","count":%d}`, own))
	if status := d.status("s"); status.Subscriptions != own || status.Listeners != 0 {
		d.t.Errorf("after the listeners have gone the status is %+v", status)
	}
	d.client.CloseIdleConnections()
}

func TestTwoHundredRestartsLeaveNoProcessDescriptorGoroutineOrSubscription(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	restarts := 200
	if testing.Short() {
		restarts = 40
	}
	journal := filepath.Join(t.TempDir(), "journal")
	config := setup{servers: []string{server("s", []string{"-journal", journal, "-grandchild", "plain"},
		`restart_backoff_min = "1ms"`, `restart_backoff_max = "5ms"`, `stop_timeout = "300ms"`)}}

	few := start(t, config)
	few.killRepeatedly(2)
	fewFiles := openFiles(t, few.cmd.Process.Pid)
	fewProcesses := len(marked(t, few.mark))
	fewGoroutines := few.goroutines()

	many := start(t, config)
	many.killRepeatedly(restarts)
	manyFiles := openFiles(t, many.cmd.Process.Pid)
	if n := len(marked(t, many.mark)); n != fewProcesses {
		t.Errorf("%d processes after %d restarts, %d after 2", n, restarts, fewProcesses)
	}
	// A connection or two may still be on its way to being closed; a leak would be a hundred times as large.
	if manyFiles > fewFiles+3 {
		t.Errorf("%d open descriptors after %d restarts, %d after 2", manyFiles, restarts, fewFiles)
	}
	if n := many.goroutines(); n > fewGoroutines+3 {
		t.Errorf("%d goroutines after %d restarts, %d after 2", n, restarts, fewGoroutines)
	}
}
