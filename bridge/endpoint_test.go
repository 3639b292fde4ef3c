package bridge

import (
	"net/http"
	"strings"
	"testing"
)

// echo answers every request with its own line, so that a test sees what the
// server's stdin got.
func echo(p *process, r request, line string) {
	if r.ID != nil {
		p.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","got":%s}}`, r.ID, line)
	}
}

func TestBytesThatNeedNoChangeTravelUnchanged(t *testing.T) {
	r := newRig(t, Limits{}, modernServer(`{}`, echo))
	params := `{"zeta":1.50,"a":[1e2, 0.10],"name":"t","arguments":{"text":"é\u00e9 \"q\"","n":12345678901234567890},` + modernMeta + `}`
	resp := r.post(t.Context(), modernHeaders("vendor/x", ""), `{ "jsonrpc":"2.0","id":"a\u0062" ,"extra":[{}], "method":"vendor/x","params":`+params+`}`)
	got := body(t, resp)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", resp.StatusCode, got)
	}
	if !strings.Contains(got, `"id":"a\u0062"`) {
		t.Errorf("the id came back in another spelling: %s", got)
	}
	line := r.pool.process().waitFor("vendor/x")
	if want := `{ "jsonrpc":"2.0","id":2 ,"extra":[{}], "method":"vendor/x","params":` + params + `}`; line != want {
		t.Errorf("server's stdin:\n got %s\nwant %s", line, want)
	}
}
