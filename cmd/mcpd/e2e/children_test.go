package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestNoiseOfAChildGoesToItsLogAndNeverToAClient(t *testing.T) {
	for kind, logged := range map[string]string{
		"text": "Server listening on stdio", "ansi": "ready", "json": "structured log line", "number": "42", "half": `"resu`,
		"array": `[{"jsonrpc"`, "binary": "", "blank": "", "crlf": "", "bom": "",
	} {
		for _, era := range []string{"modern", "legacy"} {
			t.Run(kind+" of a "+era+" child", func(t *testing.T) {
				t.Parallel()
				d := start(t, setup{servers: []string{server("s", []string{"-noise", kind, "-era", era})}})
				s := d.listen("s", "1", `"toolsListChanged":true`, `"toolsListChanged":true`)
				for i := range 3 {
					if text := d.tool("s", "echo", fmt.Sprintf(`{"n":%d}`, i)); text != fmt.Sprintf(`{"n":%d}`, i) {
						t.Errorf("echo answers %q", text)
					}
				}
				s.quiet(d, "s", "1")
				if status := d.status("s"); status.Restarts != 0 || status.State != "ready" {
					t.Errorf("status %+v", status)
				}
				out, errOut, code := d.mcpd("logs", "s")
				if code != 0 || !strings.Contains(out, logged) {
					t.Errorf("mcpd logs: %d, %q lacks %q; %s", code, out, logged, errOut)
				}
			})
		}
	}
}

func TestTheEraOfAChildIsFoundWhateverItDoesWithTheProbe(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		era  string
	}{
		{"it answers discover", nil, "modern"},
		{"it speaks both", []string{"-era", "dual"}, "modern"},
		{"it answers discover with an unsupported version", []string{"-discover", "unsupported"}, "modern"},
		{"it answers discover with an error", []string{"-era", "legacy"}, "legacy"},
		{"it dies of an unknown first request", []string{"-era", "legacy", "-first-unknown", "die"}, "legacy"},
		{"it says nothing to an unknown first request", []string{"-era", "legacy", "-first-unknown", "silent"}, "legacy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := start(t, setup{servers: []string{server("s", test.args)}})
			if text := d.tool("s", "echo", `{"a":1}`); text != `{"a":1}` {
				t.Errorf("echo answers %q", text)
			}
			if s := d.status("s"); s.Era != test.era || s.Restarts != 0 {
				t.Errorf("status %+v, want era %s and no restarts", s, test.era)
			}
		})
	}
}

func TestTheFindingIsRememberedForTheNextStart(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-era", "legacy", "-first-unknown", "die"})}})
	d.killChild("s")
	if methods := d.stats("s").Methods; methods["server/discover"] != 0 || methods["initialize"] != 1 {
		t.Errorf("the second process saw %v, want initialize alone", methods)
	}
}

func TestALegacyChildWorksBehindTheModernEndpoint(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-era", "legacy"})}})
	m := d.call("s", modern("1", "server/discover", "", ""))
	var discovered struct {
		ResultType        string         `json:"resultType"`
		SupportedVersions []string       `json:"supportedVersions"`
		Capabilities      map[string]any `json:"capabilities"`
		Instructions      string         `json:"instructions"`
		TTL               *int           `json:"ttlMs"`
		Scope             string         `json:"cacheScope"`
		Meta              struct {
			Info struct {
				Name string `json:"name"`
			} `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	decode(t, string(m.Result), &discovered)
	if discovered.ResultType != "complete" || !slices.Contains(discovered.SupportedVersions, modernVersion) || discovered.TTL == nil ||
		discovered.Scope == "" || discovered.Meta.Info.Name != "fixture" || discovered.Instructions != "misbehaves on request" {
		t.Errorf("discover: %s", m.Result)
	}
	for _, capability := range []string{"tools", "prompts", "resources", "completions"} {
		if discovered.Capabilities[capability] == nil {
			t.Errorf("the capability %s is missing: %s", capability, m.Result)
		}
	}
	for _, test := range []struct {
		name, method, params, want string
		cacheable                  bool
	}{
		{"tools are listed", "tools/list", "", `"name":"echo"`, true},
		{"resources are listed", "resources/list", "", `fixture:///a`, true},
		{"templates are listed", "resources/templates/list", "", `uriTemplate`, true},
		{"a resource is read", "resources/read", `"uri":"fixture:///a"`, `a version 0`, true},
		{"prompts are listed", "prompts/list", "", `greet`, true},
		{"a prompt is got", "prompts/get", `"name":"greet","arguments":{"who":"Ada"}`, `Greet Ada`, false},
		{"a value is completed", "completion/complete", `"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":""}`, `alpha`, false},
		{"a tool is called", "tools/call", `"name":"echo","arguments":{"x":1}`, `{\"x\":1}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := d.call("s", modern("1", test.method, test.params, ""))
			if m.Error != nil || !strings.Contains(string(m.Result), test.want) {
				t.Fatalf("%s %+v", m.Result, m.Error)
			}
			var result struct {
				ResultType string  `json:"resultType"`
				TTL        *int    `json:"ttlMs"`
				Scope      *string `json:"cacheScope"`
				Meta       struct {
					Info struct {
						Name string `json:"name"`
					} `json:"io.modelcontextprotocol/serverInfo"`
				} `json:"_meta"`
			}
			decode(t, string(m.Result), &result)
			if result.ResultType != "complete" || result.Meta.Info.Name != "fixture" {
				t.Errorf("result %s", m.Result)
			}
			if cacheable := result.TTL != nil && result.Scope != nil; cacheable != test.cacheable {
				t.Errorf("cacheable %v, want %v: %s", cacheable, test.cacheable, m.Result)
			}
		})
	}
	t.Run("a resource that is not there is -32602", func(t *testing.T) {
		m := d.call("s", modern("1", "resources/read", `"uri":"fixture:///missing"`, ""))
		if m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("%s %+v", m.Result, m.Error)
		}
	})
	t.Run("progress comes through", func(t *testing.T) {
		s := d.open(d.post("s", toolCall("1", "progress", `{"count":1}`, `"progressToken":"p"`)))
		s.expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":1}}`)
	})
	t.Run("no protocol key of _meta reaches the child", func(t *testing.T) {
		for _, line := range d.received("s") {
			if strings.Contains(line, "io.modelcontextprotocol/") && !strings.Contains(line, "server/discover") {
				t.Errorf("the child got %s", line)
			}
		}
	})
}

func TestAQuestionThatNobodyCanBeAskedIsAnsweredWithAClearErrorAndPingWithAResult(t *testing.T) {
	d := start(t, setup{servers: []string{
		server("s", []string{"-era", "legacy"}),
		server("off", []string{"-era", "legacy"}, `interactive = "off"`),
	}})
	for _, method := range []string{"elicitation/create", "sampling/createMessage", "roots/list"} {
		text := d.tool("off", "ask", `{"method":"`+method+`"}`)
		var m message
		decode(t, text, &m)
		if m.Error == nil || len(m.Error.Message) < 10 {
			t.Errorf("%s is answered with %s", method, text)
		}
		// A legacy client has no session in which it could be asked.
		old := d.call("s", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"method":"`+method+`"}}}`)
		if text, _ := toolText(t, old); !strings.Contains(text, "cannot be asked") {
			t.Errorf("%s is answered with %s", method, text)
		}
		// A modern one has to say that it can be.
		if m := d.call("s", toolCall("1", "ask", `{"method":"`+method+`"}`, "")); m.Error == nil || m.Error.Code != -32021 {
			t.Errorf("%s without the capability: %+v", method, m)
		}
	}
	if text := d.tool("s", "ask", `{"method":"ping"}`); !strings.Contains(text, `"result":{}`) {
		t.Errorf("ping is answered with %s", text)
	}
}

// descendants are the pids that a journal notes, with the kind of each.
func descendants(t *testing.T, journal string) map[int]string {
	t.Helper()
	data, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "start":
			pid, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			found[pid] = "the server itself"
		case "descendant":
			pid, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			found[pid] = fields[2]
		}
	}
	return found
}

// checkGone finds processes of a journal that are still there among those of the daemon.
func checkGone(t *testing.T, d *daemon, journal string) {
	t.Helper()
	noted := descendants(t, journal)
	for _, p := range marked(t, d.mark) {
		if kind, ours := noted[p.pid]; ours {
			t.Errorf("process %d lives on (%s)", p.pid, kind)
		}
	}
}

func TestStoppingAServerLeavesNoDescendantAlive(t *testing.T) {
	for name, args := range map[string][]string{
		"a child that ends with its input":  nil,
		"a child that ignores SIGTERM":      {"-ignore-term"},
		"a child that ignores its input":    {"-ignore-eof"},
		"a child that ignores both":         {"-ignore-term", "-ignore-eof"},
		"a plain grandchild":                {"-grandchild", "plain"},
		"a grandchild that holds stdout":    {"-grandchild", "stdout"},
		"a grandchild that ignores SIGTERM": {"-grandchild", "stubborn"},
		"a grandchild in its own session":   {"-grandchild", "setsid"},
		"all of them":                       {"-ignore-term", "-ignore-eof", "-grandchild", "plain,stdout,stubborn,setsid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			journal := filepath.Join(t.TempDir(), "journal")
			d := start(t, setup{servers: []string{server("s", append([]string{"-journal", journal}, args...), `stop_timeout = "300ms"`)}})
			d.tool("s", "echo", "{}")
			if _, errOut, code := d.mcpd("stop", "s"); code != 0 {
				t.Fatalf("mcpd stop: %d %s", code, errOut)
			}
			if s := d.status("s"); s.State != "stopped" || s.PID != 0 {
				t.Errorf("status %+v", s)
			}
			checkGone(t, d, journal)

			// Started again, the whole daemon is stopped; its harness looks for anything left.
			if _, errOut, code := d.mcpd("start", "s"); code != 0 {
				t.Fatalf("mcpd start: %d %s", code, errOut)
			}
			d.tool("s", "echo", "{}")
		})
	}
}

func TestAChildThatIsKilledTakesItsDescendantsAlong(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	d := start(t, setup{servers: []string{server("s", []string{"-journal", journal, "-grandchild", "plain,stdout,stubborn"}, `stop_timeout = "300ms"`)}})
	d.tool("s", "echo", "{}")
	old := descendants(t, journal)
	d.killChild("s") // the next process starts when nothing of the last is left
	for _, p := range marked(t, d.mark) {
		if kind, ours := old[p.pid]; ours {
			t.Errorf("process %d lives on (%s)", p.pid, kind)
		}
	}
}

func TestAChildThatClosesItsOutputIsReplaced(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-ignore-eof"}, `stop_timeout = "300ms"`)}})
	pid := d.stats("s").PID
	m := d.call("s", toolCall("1", "close_stdout", "{}", ""))
	if text, isError := toolText(t, m); !isError {
		t.Errorf("close_stdout answers %q", text)
	}
	if again := d.stats("s").PID; again == pid {
		t.Error("the same process answers")
	}
}

func TestAChildThatReadsNothingMoreBlocksNobodyElse(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil, `request_timeout = "500ms"`, `stop_timeout = "300ms"`), server("other", nil)}})
	d.tool("s", "stop_reading", "{}")
	big := strings.Repeat("x", 1<<20)
	for range 3 {
		got := d.do(d.post("s", toolCall("1", "echo", `{"text":"`+big+`"}`, "")))
		if strings.Contains(got.body, big) {
			t.Error("it answers")
		}
	}
	if text := d.tool("other", "echo", "{}"); text != "{}" {
		t.Errorf("the other server answers %q", text)
	}
}

func TestRequestsWaitForAChildThatStartsSlowly(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-start-delay", "700ms"})}})
	if text := d.tool("s", "echo", "{}"); text != "{}" {
		t.Errorf("echo answers %q", text)
	}
}

func TestRequestsWaitWhileAChildIsStartedAgain(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	d := start(t, setup{servers: []string{server("s", []string{"-journal", journal, "-fail-starts", "2"}, `restart_backoff_max = "300ms"`)}})
	if text := d.tool("s", "echo", "{}"); text != "{}" {
		t.Errorf("echo answers %q", text)
	}
}

func TestAChildThatNeverComesUpFailsWithItsReasonAndTheOthersGoOn(t *testing.T) {
	d := start(t, setup{servers: []string{
		server("broken", []string{"-exit-at-start", "7"}, `restart_backoff_min = "10ms"`, `restart_backoff_max = "20ms"`),
		table("missing", filepath.Join(t.TempDir(), "no-such-program"), nil, `restart_backoff_min = "10ms"`, `restart_backoff_max = "20ms"`),
		server("good", nil),
	}})
	if text := d.tool("good", "echo", "{}"); text != "{}" {
		t.Errorf("the good server answers %q", text)
	}
	for name, reasons := range map[string][]string{
		"broken":  {"7", "asked to exit with code 7"},
		"missing": {"no-such-program"},
	} {
		got := d.do(d.post(name, modern(`"x"`, "tools/list", "", "")))
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, `"id":"x"`) {
			t.Errorf("%s: %d, Retry-After %q: %s", name, got.status, got.header.Get("Retry-After"), got.body)
		}
		for _, reason := range reasons {
			if !strings.Contains(got.body, reason) {
				t.Errorf("%s: %q is not in %s", name, reason, got.body)
			}
		}
	}
	d.eventually("the end of the tries", func() bool { return d.status("broken").State == "failed" })
}

func TestAChildThatNeverAnswersFailsWithinItsStartTimeout(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-silent"}, `start_timeout = "1s"`, `first_start_timeout = "1s"`, `protocol = "modern"`)}})
	got := d.do(d.post("s", modern("1", "tools/list", "", "")))
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestALotOnStderrBlocksNothing(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-stderr-bytes", "3000000"})}})
	if text := d.tool("s", "echo", "{}"); text != "{}" {
		t.Errorf("echo answers %q", text)
	}
	d.tool("s", "stderr", `{"text":"a remarkable line"}`)
	// stderr is another pipe than stdout: the line may be a moment behind the answer.
	d.eventually("the line in the log", func() bool {
		out, errOut, code := d.mcpd("logs", "s", "-n", "5")
		if code != 0 {
			t.Fatalf("mcpd logs: %d %s", code, errOut)
		}
		return strings.Contains(out, "a remarkable line")
	})
}

func TestALazyChildStartsWithItsFirstRequest(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	d := start(t, setup{servers: []string{server("s", []string{"-journal", journal}, `start = "lazy"`)}})
	if _, err := os.Stat(journal); !os.IsNotExist(err) {
		t.Errorf("it has started: %v", err)
	}
	if s := d.status("s"); s.State != "stopped" {
		t.Errorf("status %+v", s)
	}
	if text := d.tool("s", "echo", "{}"); text != "{}" {
		t.Errorf("echo answers %q", text)
	}
}

func TestAnIdleChildIsStoppedAndStartedOnDemand(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil, `idle_stop = "1s"`)}})
	pid := d.stats("s").PID
	d.eventually("the idle stop", func() bool { return d.status("s").State == "stopped" })
	if again := d.stats("s").PID; again == pid {
		t.Error("the same process answers")
	}
}

func TestAChildGetsItsEnvironmentDirectoryAndArguments(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := table("s", self, []string{"-name", "with space and 'quotes'"}, fmt.Sprintf("cwd = %q", dir),
		fmt.Sprintf(`env = {%s = "1", PLAIN = "a b", FROM_ENV = "${env:E2E_OUTSIDE}", FROM_FILE = "${file:%s}"}`, asFixture, secret))
	d := start(t, setup{servers: []string{text}, env: []string{"E2E_OUTSIDE=outside"}})
	var got struct {
		Directory string            `json:"directory"`
		Arguments []string          `json:"arguments"`
		Variables map[string]string `json:"variables"`
	}
	d.structured("s", "environment", `{"names":["PLAIN","FROM_ENV","FROM_FILE"]}`, &got)
	if got.Directory != dir || !slices.Equal(got.Arguments, []string{"-name", "with space and 'quotes'"}) {
		t.Errorf("%+v", got)
	}
	for name, want := range map[string]string{"PLAIN": "a b", "FROM_ENV": "outside", "FROM_FILE": "from a file"} {
		if strings.TrimSuffix(got.Variables[name], "\n") != want {
			t.Errorf("%s is %q, want %q", name, got.Variables[name], want)
		}
	}
	if strings.Contains(d.log.text(), "from a file") {
		t.Error("the secret is in the log")
	}
}

func TestAProgramOnThePathOfTheLoginShellIsFound(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs a POSIX shell")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// As a version manager does it: a folder that only the shell's profile puts on the PATH.
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "managed-server")); err != nil {
		t.Fatal(err)
	}
	d := prepare(t, setup{
		login:   true,
		servers: []string{table("s", "managed-server", nil, fmt.Sprintf("env = {%s = \"1\"}", asFixture))},
		env:     []string{"SHELL=" + shell},
	})
	profile := fmt.Sprintf("echo a greeting that is no variable\nPATH=%q:$PATH\nexport PATH\nFROM_PROFILE='two\nlines'\nexport FROM_PROFILE\n", dir)
	if err := os.WriteFile(filepath.Join(d.dir, "home", ".profile"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	d.launch()
	d.awaitHealthy()
	d.token = d.showToken()
	var got struct {
		Variables map[string]string `json:"variables"`
	}
	d.structured("s", "environment", `{"names":["FROM_PROFILE"]}`, &got)
	if got.Variables["FROM_PROFILE"] != "two\nlines" {
		t.Errorf("variables %q", got.Variables)
	}
}
