package e2e

import (
	"slices"
	"strings"
	"testing"
)

// awaitServer returns when name is configured in the daemon, or no longer.
func (d *daemon) awaitServer(name string, present bool) {
	d.t.Helper()
	d.eventually("the change of "+name, func() bool {
		return slices.ContainsFunc(d.servers(), func(s serverStatus) bool { return s.Name == name }) == present
	})
}

func TestOnlyWhatAChangedFileChangesIsTouched(t *testing.T) {
	kept, old := server("kept", nil), server("removed", nil)
	d := start(t, setup{servers: []string{kept, old}})
	pid := d.stats("kept").PID
	gone := d.listen("removed", `"r"`, `"toolsListChanged":true`, `"toolsListChanged":true`)
	stays := d.listen("kept", "1", `"toolsListChanged":true`, `"toolsListChanged":true`)

	d.writeConfig(setup{servers: []string{kept, server("added", nil)}})
	d.awaitServer("added", true)
	if text := d.tool("added", "echo", "{}"); text != "{}" {
		t.Errorf("the added server answers %q", text)
	}
	gone.expectResult(`"r"`)
	gone.end()
	d.awaitServer("removed", false)
	if got := d.do(d.post("removed", modern("1", "tools/list", "", ""))); got.status != 404 {
		t.Errorf("the removed server: %d %s", got.status, got.body)
	}
	if again := d.stats("kept").PID; again != pid {
		t.Error("the unchanged server was restarted")
	}
	stays.quiet(d, "kept", "1")
}

func TestAFileWithErrorsChangesNothingAndIsReported(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	pid := d.stats("s").PID
	for name, text := range map[string]string{
		"it does not parse":          "[servers.s\n",
		"it has an unknown key":      "[servers.s]\ncomand = \"x\"\n",
		"it would listen everywhere": "[daemon]\nlisten = \"0.0.0.0:7317\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			before := len(d.log.text())
			d.replaceConfig(text)
			d.eventually("a report of the error", func() bool { return strings.Contains(d.log.text()[before:], "mcpd.toml:") })
			if again := d.stats("s").PID; again != pid {
				t.Error("the server was restarted")
			}
			if r := d.do(d.request("GET", "/api/v1/status", "")); !strings.Contains(r.body, "mcpd.toml:") {
				t.Errorf("the status does not report it: %s", r.body)
			}
		})
	}
}

func TestAReplacedServerFinishesItsCallsWhileTheNewOneServes(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-name", "first"})}})
	pid := d.stats("s").PID
	s := d.listen("s", "1", `"toolsListChanged":true`, `"toolsListChanged":true`)
	held := d.open(d.post("s", toolCall("1", "progress", `{"count":1,"name":"x"}`, `"progressToken":1`)))
	held.next()
	d.writeConfig(setup{servers: []string{server("s", []string{"-name", "second"})}})
	s.expect(changed("1", "tools")) // the new process may have other tools
	if again := d.stats("s").PID; again == pid {
		t.Error("the old process still gets new requests")
	}
	d.tool("s", "change", `{"kind":"tools"}`)
	s.expect(changed("1", "tools"))
	held.close()
}

func TestAReplacementThatDoesNotComeUpLeavesTheOldOneServing(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	pid := d.stats("s").PID
	d.writeConfig(setup{servers: []string{server("s", []string{"-exit-at-start", "9"})}})
	d.eventually("a report of the failure", func() bool { return strings.Contains(d.status("s").ReloadError, "9") })
	if again := d.stats("s").PID; again != pid {
		t.Error("another process serves")
	}
}
