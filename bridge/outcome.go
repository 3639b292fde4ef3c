package bridge

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"mcpd/bridge/jsonrpc"
	"mcpd/bridge/ledger"
)

// What mcpd tells a model when a tool's effect is uncertain, or when it refuses
// to make a call for that reason. It is a tool result, because a client shows
// that to its model; an error of the protocol it might answer by calling again.

// metaOutcome says for programs what the text of such a result says.
const metaOutcome = "mcpd/outcome"

// Values of metaOutcome.
const (
	outcomeUnknown  = "unknown"  // the tool may or may not have taken effect
	outcomeConflict = "conflict" // the key belongs to another call; nothing was done now
	outcomeDone     = "done"     // it took effect earlier; the answer is not there any more
)

// told answers with a tool result of mcpd's own.
func (u *Upstream) told(rs *response, in *incoming, outcome, text string) error {
	u.failures.Add(1)
	b := append([]byte(`{"jsonrpc":"2.0","id":`), in.id...)
	b = append(b, `,"result":{`...)
	if in.era == EraModern {
		b = append(b, `"resultType":"complete",`...)
	}
	b = append(b, `"_meta":{"`+metaOutcome+`":"`+outcome+`"},"content":[{"type":"text","text":`...)
	b = jsonrpc.AppendQuote(b, text)
	b = append(b, `}],"isError":true}}`...)
	return rs.message(http.StatusOK, b, false, nil)
}

// lostText is about a call that was sent and got no answer. record is of a
// keyed call, else nil.
func (u *Upstream) lostText(in *incoming, why error, record *ledger.Record) string {
	var b strings.Builder
	b.WriteString("It is uncertain whether the tool " + u.toolName(in) + " took effect: " + whatHappened(why) + ". ")
	key := ""
	tool := u.retry.Load().Tools[in.name]
	if record != nil {
		key = tool.Key
	}
	if s := summary(in.data(), in.msg.Param.Arguments.Value, key); s != "" {
		b.WriteString("It was called with " + s + ". ")
	}
	b.WriteString("It may or may not have run, in part or in full. mcpd has not repeated the call. " + checkFirst)
	switch {
	case record != nil:
		b.WriteString(settleText(record))
	case tool.Key != "":
		b.WriteString(" Had the call had a unique value in the argument " + clip(tool.Key) + ", then repeating it with the same value would be safe.")
	}
	return b.String()
}

// checkFirst is what to do before a repeat.
const checkFirst = "Check the state that the tool changes before calling it again, for example with a tool of the same server " +
	"that lists or reads it; if you cannot, ask the user."

// settleText says how to go on after an unknown outcome of a keyed call.
func settleText(r *ledger.Record) string {
	return " mcpd does not run it again with this idempotency key until the user has settled what became of it with " +
		"mcpd ledger resolve " + r.ID + " --done or --not-done. Once you know that it did not take effect, you may also call it with a new key."
}

func (u *Upstream) stillUnknown(in *incoming, r *ledger.Record) string {
	text := "The tool " + u.toolName(in) + " was called with this idempotency key before, at " + at(r.Begun) +
		", and it is uncertain whether that call took effect"
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text + ". It was not called again. " + checkFirst + settleText(r)
}

func (u *Upstream) resultGone(in *incoming, r *ledger.Record) string {
	text := "The tool " + u.toolName(in) + " was called with this idempotency key before, at " + at(r.Begun) +
		", and that call ended. Its result is not there any more"
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text + ". It was not called again. To see its effect, use a tool of the same server that lists or reads it."
}

func conflictText(in *incoming, tool ToolPolicy, r *ledger.Record) string {
	text := "The tool " + clip(in.name) + " was not called: its argument " + clip(tool.Key) +
		" has a value that was used at " + at(r.Begun) + " for a call with other arguments"
	if r.Arguments != "" {
		text += " (" + r.Arguments + ")"
	}
	return text + ". Repeat that call with exactly its arguments to get its result, or use a new, unique value for a new call."
}

func (u *Upstream) toolName(in *incoming) string {
	return clip(in.name) + " of server " + strconv.Quote(u.name)
}

func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// Bounds of the summary of a call's arguments.
const (
	mostSummary  = 300 // bytes
	mostArgument = 60  // bytes of one value
	mostNamed    = 12  // arguments
)

// summary tells arguments apart for a person or a model, and shows no secret:
// the value of a short scalar whose name and form are not those of a secret, of
// anything else only that it is there. skip is left out.
func summary(data []byte, arguments jsonrpc.Span, skip string) string {
	var b strings.Builder
	count := 0
	for name, m := range jsonrpc.Members(data, arguments) {
		if name == skip && skip != "" {
			continue
		}
		if count++; count > mostNamed || b.Len() > mostSummary {
			b.WriteString(", …")
			break
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(shortName(name) + "=" + shown(data, name, m.Value))
	}
	return b.String()
}

func shortName(name string) string {
	const most = 40
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	if q := strconv.QuoteToGraphic(name); q != `"`+name+`"` || strings.ContainsAny(name, " =,") {
		return q
	}
	return name
}

func shown(data []byte, name string, value jsonrpc.Span) string {
	raw := value.Of(data)
	switch {
	case raw[0] == '{':
		return "{…}"
	case raw[0] == '[':
		return "[…]"
	case secretName(name):
		return "(not shown)"
	case raw[0] != '"':
		return string(raw[:min(len(raw), mostArgument)])
	}
	text, err := jsonrpc.Unquote(data, value)
	switch {
	case err != nil || secretForm(text):
		return "(not shown)"
	case len(text) > mostArgument:
		return strconv.QuoteToGraphic(strings.ToValidUTF8(text[:mostArgument], "") + "…")
	}
	return strconv.QuoteToGraphic(text)
}

// secretName reports whether an argument is called like a secret.
func secretName(name string) bool {
	plain := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	for _, part := range []string{
		"pass", "secret", "token", "key", "auth", "cred", "cookie", "session", "bearer", "jwt", "signature",
		"private", "pin", "otp", "cvv", "cvc", "iban", "card", "ssn", "dsn", "connectionstring", "webhook",
	} {
		if strings.Contains(plain, part) {
			return true
		}
	}
	return false
}

// secretForm reports whether a text looks like a secret wherever it stands: it
// holds a long run of characters without a break, or begins like a known token,
// or is a URL with a password or a query.
func secretForm(text string) bool {
	return strings.Contains(text, "://") && strings.ContainsAny(text, "@?#") ||
		knownToken(text) || longRun(text)
}

func knownToken(text string) bool {
	for _, mark := range []string{
		"ghp_", "gho_", "ghs_", "ghu_", "github_pat_", "sk-", "sk_", "pk_", "rk_", "xoxb-", "xoxp-", "xapp-", "AKIA", "ASIA", "eyJ",
		"glpat-", "npm_", "AIza", "ya29.", "-----BEGIN", "bearer ", "Bearer ", "basic ", "Basic ",
	} {
		at := strings.Index(text, mark)
		if at == 0 || at > 0 && !isLetter(text[at-1]) {
			return true
		}
	}
	return false
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// longRun finds 24 or more letters and digits in a row, as no word has them;
// a UUID has dashes in between and is shown.
func longRun(text string) bool {
	const most = 24
	run, digits := 0, false
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= '0' && c <= '9':
			digits = true
			run++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '+', c == '/', c == '_':
			run++
		default:
			run, digits = 0, false
		}
		if run >= most && digits {
			return true
		}
	}
	return false
}
