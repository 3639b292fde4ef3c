package e2e

//lint:file-ignore SA1019 Sampling is deprecated for new servers; this is about those that have it.

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestServerEverythingAsksTheUserOfAModernClient(t *testing.T) {
	x := npm(t)
	d := start(t, setup{servers: []string{
		table("everything", x.node, []string{x.script("server-everything", "dist", "index.js"), "stdio"}),
	}})
	typescript(t, d, x, "everything", "modern", []step{
		negotiated("modern", "mcp-servers/everything"),
		{"listTools", nil, []string{`"trigger-elicitation-request"`, `"trigger-sampling-request"`}},
		call("trigger-elicitation-request", nil, `Paul`),
		{"asked", nil, []string{`"method":"elicitation/create"`, `"requestedSchema"`}},
		call("trigger-sampling-request", map[string]any{"prompt": "Say it.", "maxTokens": 20}, "the spice must flow", "e2e-model"),
		{"asked", nil, []string{`"method":"sampling/createMessage"`, `Say it.`}},
		call("echo", map[string]any{"message": "hello"}, "Echo: hello"),
		{"asked", nil, []string{`{"ok":[]}`}},
	})
	if s := d.status("everything"); s.InFlight != 0 {
		t.Errorf("%d requests are left in flight", s.InFlight)
	}
}

func TestTheGoSDKClientAnswersALegacyChild(t *testing.T) {
	d := start(t, setup{servers: []string{server("old", []string{"-era", "legacy"}, `interactive = "serialize"`)}})
	options := func(name string) *mcp.ClientOptions {
		return &mcp.ClientOptions{
			ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": name, "asked": r.Params.Message}}, nil
			},
			CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
				return &mcp.CreateMessageResult{Role: "assistant", Content: &mcp.TextContent{Text: "by " + name}, Model: "m"}, nil
			},
		}
	}
	var wg sync.WaitGroup
	for i := range 4 {
		name := fmt.Sprintf("user%d", i)
		session := goClient(t, d, "old", options(name))
		wg.Go(func() {
			for range 5 {
				for args, want := range map[string]string{
					`{"method":"elicitation/create","params":{"message":"for ` + name + `","requestedSchema":{"type":"object","properties":{}}}}`: `"asked":"for ` + name + `","name":"` + name + `"`,
					`{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`:                                                  `by ` + name,
				} {
					result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask", Arguments: json.RawMessage(args)})
					if err != nil {
						t.Error(err)
						return
					}
					if text, ok := result.Content[0].(*mcp.TextContent); !ok || !strings.Contains(text.Text, want) {
						t.Errorf("%s asked %s and got %+v, want %s", name, args, result.Content[0], want)
					}
				}
			}
		})
	}
	wg.Wait()
}

// ask makes the fixture ask for input, and returns the requestState.
func (d *daemon) ask(name, id string) (state string) {
	d.t.Helper()
	m := d.call(name, asking(id, ""))
	var result struct {
		ResultType   string `json:"resultType"`
		RequestState string `json:"requestState"`
	}
	if json.Unmarshal(m.Result, &result) != nil || result.ResultType != "input_required" || result.RequestState == "" {
		d.t.Fatalf("no question: %+v %s", m.Error, m.Result)
	}
	return result.RequestState
}

// asking is a call of a client that can be asked for input; state is what it answers.
func asking(id, state string) string {
	params := `"name":"ask","arguments":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{}}}`
	if state != "" {
		params += `,"inputResponses":{"q1":{"action":"decline"}},"requestState":"` + state + `"`
	}
	return strings.Replace(modern(id, "tools/call", params, ""), `Capabilities":{}`, `Capabilities":{"elicitation":{}}`, 1)
}

func TestAnAnswerIsTakenFromTheRightUserAloneAndALostQuestionIsTold(t *testing.T) {
	d := start(t, setup{servers: []string{server("old", []string{"-era", "legacy"})}})
	state := d.ask("old", "1")

	stdout, stderr, code := d.mcpd("token", "create", "other", "--server", "old")
	if code != 0 {
		t.Fatalf("token create: %s%s", stdout, stderr)
	}
	mine := d.token
	d.token = strings.TrimSpace(stdout)
	if m := d.call("old", asking("2", state)); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("another user answers: %+v %s", m.Error, m.Result)
	}
	d.token = mine
	if text, _ := toolText(t, d.call("old", asking("3", state))); !strings.Contains(text, `"action":"decline"`) {
		t.Errorf("the child got %s", text)
	}
	if m := d.call("old", asking("4", state)); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("the same answer twice: %+v %s", m.Error, m.Result)
	}

	t.Run("the child dies", func(t *testing.T) {
		state := d.ask("old", "5")
		d.killChild("old")
		if text, isError := toolText(t, d.call("old", asking("6", state))); !isError || !strings.Contains(text, "uncertain") {
			t.Errorf("got %s", text)
		}
	})
	t.Run("mcpd is killed", func(t *testing.T) {
		state := d.ask("old", "7")
		d.kill()
		d.relaunch()
		d.awaitHealthy()
		if text, isError := toolText(t, d.call("old", asking("8", state))); !isError || !strings.Contains(text, "uncertain") {
			t.Errorf("got %s", text)
		}
	})
}

func TestALegacyChildIsToldWhenTheUserDoesNotAnswer(t *testing.T) {
	d := start(t, setup{servers: []string{server("old", []string{"-era", "legacy"}, `question_timeout = "200ms"`)}})
	d.ask("old", "1")
	d.tool("old", "await", `{"kind":"cancelled","count":1}`)
	told := false
	for _, line := range d.received("old") {
		told = told || strings.Contains(line, `"result":{"action":"cancel"}`)
	}
	if !told {
		t.Errorf("the child got %q", d.received("old"))
	}
}
