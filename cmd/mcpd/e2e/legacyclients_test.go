package e2e

import (
	"fmt"
	"strings"
	"testing"
)

func TestALegacyClientIsServedWithoutASession(t *testing.T) {
	d := start(t, setup{servers: []string{server("modern", nil), server("legacy", []string{"-era", "legacy"})}})
	for _, name := range []string{"modern", "legacy"} {
		for asked, want := range map[string]string{
			"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25", "2030-01-01": "2025-11-25",
		} {
			t.Run(asked+" with a child that is "+name, func(t *testing.T) {
				got := d.do(d.post(name, fmt.Sprintf(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`, asked)))
				if got.status != 200 || got.header.Get("Mcp-Session-Id") != "" {
					t.Fatalf("%d %v %s", got.status, got.header, got.body)
				}
				var answer struct {
					ID     string `json:"id"`
					Result struct {
						Version      string                    `json:"protocolVersion"`
						Capabilities map[string]map[string]any `json:"capabilities"`
						Info         struct {
							Name string `json:"name"`
						} `json:"serverInfo"`
					} `json:"result"`
				}
				decode(t, got.body, &answer)
				if answer.ID != "i" || answer.Result.Version != want || answer.Result.Info.Name != "fixture" {
					t.Errorf("%s", got.body)
				}
				for capability, options := range answer.Result.Capabilities {
					if options["listChanged"] == true || options["subscribe"] == true {
						t.Errorf("%s promises changes, which cannot be delivered: %s", capability, got.body)
					}
				}
				send := func(body string) response {
					r := d.post(name, body)
					r.Header.Set("MCP-Protocol-Version", want)
					return d.do(r)
				}
				if got := send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != 202 || got.body != "" {
					t.Errorf("initialized: %d %q", got.status, got.body)
				}
				if got := send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); got.status != 200 {
					t.Errorf("ping: %d %s", got.status, got.body)
				} else {
					equalJSON(t, got.body, `{"jsonrpc":"2.0","id":2,"result":{}}`)
				}
				if got := send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}`); !strings.Contains(got.body, `{\"a\":1}`) {
					t.Errorf("tools/call: %d %s", got.status, got.body)
				}
				if got := send(`{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"fixture:///missing"}}`); !strings.Contains(got.body, "-32002") && !strings.Contains(got.body, "-32602") {
					t.Errorf("a resource that is not there: %d %s", got.status, got.body)
				}
				if got := send(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"fixture:///a"}}`); !strings.Contains(got.body, `"error"`) {
					t.Errorf("subscribe: %d %s", got.status, got.body)
				}
				got = send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"progress","arguments":{"count":2},"_meta":{"progressToken":"p"}}}`)
				if events := dataOf(got.body); len(events) != 3 || !strings.Contains(events[0], `"progressToken":"p"`) {
					t.Errorf("progress: %d %s", got.status, got.body)
				}
			})
		}
	}
}
