package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// raw sends bytes on a fresh connection and returns the first answer; status 0 means that the connection was closed
// without one.
func (d *daemon) raw(text string) (status int, body string) {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		d.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		d.t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

func TestRequestsThatAreWrittenByHandGetNoFurther(t *testing.T) {
	d := start(t, setup{security: trusting, servers: []string{server("hidden-server", nil)}})
	body := modern("1", "prompts/list", "", "")
	request := func(line string, headers ...string) string {
		return line + "\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
	}
	post := "POST " + endpoint("hidden-server") + " HTTP/1.1"
	host := "Host: " + d.addr
	token := "Authorization: Bearer " + d.token
	rest := []string{
		"Content-Type: application/json", "Accept: application/json, text/event-stream", "MCP-Protocol-Version: " + modernVersion,
		"Mcp-Method: prompts/list", fmt.Sprintf("Content-Length: %d", len(body)),
	}
	with := func(headers ...string) []string { return append(headers, rest...) }
	for _, test := range []struct {
		name, text string
		want       []int // any of these; 0 is a closed connection
	}{
		{"all is well", request(post, with(host, token)...) + body, []int{200}},
		{"header names in other cases", request(post, with("hOsT: "+d.addr, "aUTHORIZATION: Bearer "+d.token)...) + body, []int{200}},
		{"the scheme of the token in another case", request(post, with(host, "Authorization: bearer "+d.token)...) + body, []int{200}},
		{"no Host", request(post, with(token)...) + body, []int{400, 403}},
		{"an empty Host", request(post, with("Host:", token)...) + body, []int{400, 403}},
		{"two Hosts", request(post, with(host, "Host: evil.example", token)...) + body, []int{400, 403}},
		{"HTTP/1.0 without a Host", request("POST "+endpoint("hidden-server")+" HTTP/1.0", with(token)...) + body, []int{403}},
		{"an absolute target of another host", request("POST http://evil.example"+endpoint("hidden-server")+" HTTP/1.1", with(host, token)...) + body, []int{400, 403}},
		{"two Origins, one trusted", request(post, with(host, token, "Origin: "+trustedOrigin, "Origin: https://evil.example")...) + body, []int{403}},
		{"two Origins in one", request(post, with(host, token, "Origin: "+trustedOrigin+", https://evil.example")...) + body, []int{403}},
		{"two tokens, one right", request(post, with(host, "Authorization: Bearer wrong", token)...) + body, []int{400, 401}},
		{"a space before the colon", request(post, with(host, "Authorization : Bearer "+d.token)...) + body, []int{400, 401}},
		{"a length and chunks, of which the chunks count", request(post, with(host, token, "Transfer-Encoding: chunked")...) + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body), []int{200, 400}},
		{"two lengths that differ", request(post, with(host, token, "Content-Length: 1")...) + body, []int{0, 400}},
		{"no length and no body", request(post, host, token, "Content-Type: application/json", "Mcp-Method: prompts/list", "MCP-Protocol-Version: "+modernVersion), []int{400}},
		{"a path that is encoded twice", request("POST /servers/hidden-server%252Fmcp HTTP/1.1", with(host, token)...) + body, []int{404}},
		{"an encoded slash", request("POST /servers%2Fhidden-server/mcp HTTP/1.1", with(host, token)...) + body, []int{404}},
		{"a null byte in the path", request("POST /servers/hidden-server/mcp%00 HTTP/1.1", with(host, token)...) + body, []int{400, 404}},
		{"the asterisk", request("OPTIONS * HTTP/1.1", host, token), []int{200, 400, 403, 404, 405}},
		{"CONNECT", request("CONNECT evil.example:443 HTTP/1.1", "Host: evil.example:443", token), []int{400, 403}},
		{"another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n", []int{0, 400}},
		{"headers without end", request(post, host, token, "X-Long: "+strings.Repeat("x", 2<<20)), []int{0, 431}},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := d.stats("hidden-server").Methods["prompts/list"]
			status, answer := d.raw(test.text)
			ok := false
			for _, want := range test.want {
				ok = ok || status == want
			}
			if !ok {
				t.Errorf("status %d, want one of %v: %s", status, test.want, answer)
			}
			ran := d.stats("hidden-server").Methods["prompts/list"] - before
			if status == 200 && test.want[0] == 200 {
				if ran != 1 {
					t.Errorf("the child saw %d requests", ran)
				}
				return
			}
			if ran != 0 {
				t.Error("the child saw the request")
			}
			if status != 404 && strings.Contains(answer, "hidden-server") {
				t.Errorf("the answer names a server: %s", answer)
			}
		})
	}
}

func TestABodyInChunksIsServed(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	r := d.post("s", toolCall("1", "echo", `{"a":1}`, ""))
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`  `), r.Body))
	r.ContentLength = -1
	if got := d.do(r); got.status != http.StatusOK || !strings.Contains(got.body, `{\"a\":1}`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestALimitHoldsForABodyInChunks(t *testing.T) {
	d := start(t, setup{security: `max_request_bytes = "64KiB"`, servers: []string{server("s", nil)}})
	r := d.post("s", toolCall("1", "echo", `{"a":"`+strings.Repeat("x", 200<<10)+`"}`, ""))
	r.ContentLength = -1
	if got := d.do(r); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestHalfARequestHoldsNobodyUp(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	for range 50 {
		conn, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", endpoint("s"), d.addr, d.token); err != nil {
			t.Fatal(err)
		}
	}
	if text := d.tool("s", "echo", "{}"); text != "{}" {
		t.Errorf("another caller got %q", text)
	}
	if n := d.stats("s").Methods["tools/call"]; n != 2 { // the echo and this one
		t.Errorf("the child saw %d calls", n)
	}
}
