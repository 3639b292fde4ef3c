package security

import (
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// JSON-RPC error codes of the gate's refusals. They lie outside
// -32768..-32000, the range that JSON-RPC and MCP keep for themselves; the last
// three digits are the HTTP status that goes with them.
const (
	CodeUnauthorized     = -31401 // the token is missing, unknown, revoked or expired
	CodeForbiddenRight   = -31403 // the token has no right to this server, or to control the daemon
	CodeMethodNotAllowed = -31405 // the path does not take this HTTP method
	CodeForbiddenHost    = -33403 // the Host is not in the list
	CodeForbiddenOrigin  = -34403 // the Origin is not in the list
)

// reason is why a request was refused. Its order is the order of the checks.
type reason int

const (
	reasonHost reason = iota
	reasonOrigin
	reasonWellKnown
	reasonUnknownPath
	reasonMethod
	reasonNoToken
	reasonUnknownToken
	reasonRevoked
	reasonExpired
	reasonAuthFailure
	reasonRight
	reasonCount
)

// RefusalCounts says how many requests the gate refused since it was made, by
// reason.
type RefusalCounts struct {
	Host         uint64 `json:"host"`          // Host not in the list
	Origin       uint64 `json:"origin"`        // Origin not in the list
	WellKnown    uint64 `json:"well_known"`    // asked for metadata that does not exist
	UnknownPath  uint64 `json:"unknown_path"`  // nothing is served at the path
	Method       uint64 `json:"method"`        // method that the path does not take
	NoToken      uint64 `json:"no_token"`      // no token, or an unreadable Authorization header
	UnknownToken uint64 `json:"unknown_token"` // no such token
	RevokedToken uint64 `json:"revoked_token"` // token was revoked
	ExpiredToken uint64 `json:"expired_token"` // token is past its time
	AuthFailure  uint64 `json:"auth_failure"`  // the token could not be checked
	Right        uint64 `json:"right"`         // token without the right
}

type refusalCounters [reasonCount]atomic.Uint64

func (c *refusalCounters) snapshot() RefusalCounts {
	return RefusalCounts{
		Host:         c[reasonHost].Load(),
		Origin:       c[reasonOrigin].Load(),
		WellKnown:    c[reasonWellKnown].Load(),
		UnknownPath:  c[reasonUnknownPath].Load(),
		Method:       c[reasonMethod].Load(),
		NoToken:      c[reasonNoToken].Load(),
		UnknownToken: c[reasonUnknownToken].Load(),
		RevokedToken: c[reasonRevoked].Load(),
		ExpiredToken: c[reasonExpired].Load(),
		AuthFailure:  c[reasonAuthFailure].Load(),
		Right:        c[reasonRight].Load(),
	}
}

// The bodies are the same for every request with the same fault, so that they
// tell nothing about what exists behind the gate, and quote nothing of the
// request: what was refused is in the log, for the person who owns it. None
// has an id, because the body that would hold it was not read.
const (
	bodyHost = `{"jsonrpc":"2.0","error":{"code":-33403,"message":"refused: the Host of this request is not one that mcpd answers to. ` +
		`Use the address that 'mcpd status' shows, or add the host, with its port, to allowed_hosts under [security] in mcpd.toml. ` +
		`mcpd's log names the value that was refused."}}` + "\n"
	bodyOrigin = `{"jsonrpc":"2.0","error":{"code":-34403,"message":"refused: the Origin of this request is not in the list. ` +
		`To let that page in, add its exact origin (scheme, host and port) to allowed_origins under [security] in mcpd.toml. ` +
		`mcpd's log names the value that was refused."}}` + "\n"
	bodyMethod = `{"jsonrpc":"2.0","error":{"code":-31405,"message":"refused: this path does not take this HTTP method. ` +
		`The Allow header names those that it takes."}}` + "\n"
	bodyToken = `{"jsonrpc":"2.0","error":{"code":-31401,"message":"refused: a valid token is needed, in one header 'Authorization: Bearer TOKEN'. ` +
		`'mcpd token show' prints the token."}}` + "\n"
	bodyRight = `{"jsonrpc":"2.0","error":{"code":-31403,"message":"refused: the token is valid, but has no right to what was asked for. ` +
		`'mcpd token list' shows the rights of each token, 'mcpd token create' makes one with other rights."}}` + "\n"
)

const (
	refusalWindow   = time.Minute
	refusalKinds    = 256 // different reason+value pairs remembered at a time
	refusalClip     = 200 // bytes of a refused value that are kept and shown
	refusalSweep    = time.Second
	refusalOverflow = "(many different values)"
)

// refusalLog writes each refusal at most once a minute for the same reason and
// value, so that a page that keeps trying can neither fill the disk nor hide
// another entry, and remembers a bounded number of values.
type refusalLog struct {
	logger *slog.Logger

	mu        sync.Mutex // guards what follows
	seen      map[refusalKey]*refusalEntry
	nextSweep time.Time
}

type refusalKey struct {
	why   reason
	value string
}

type refusalEntry struct {
	until    time.Time // no further line before
	repeated uint64    // refusals since the last line
}

func newRefusalLog(logger *slog.Logger) *refusalLog {
	return &refusalLog{logger: logger, seen: make(map[refusalKey]*refusalEntry)}
}

// admit reports whether a line may be written now, under which value, and how
// many were left out since the last one.
func (l *refusalLog) admit(why reason, value string) (shown string, repeated uint64, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()

	key := refusalKey{why, value}
	entry := l.seen[key]
	if entry == nil {
		if len(l.seen) >= refusalKinds && !now.Before(l.nextSweep) {
			l.nextSweep = now.Add(refusalSweep)
			for k, e := range l.seen {
				if !now.Before(e.until) {
					delete(l.seen, k)
				}
			}
		}
		if len(l.seen) >= refusalKinds {
			// One more key for each reason is the most that this can add.
			key.value = refusalOverflow
			entry = l.seen[key]
		}
		if entry == nil {
			entry = &refusalEntry{}
			l.seen[key] = entry
		}
	}
	if now.Before(entry.until) {
		entry.repeated++
		return "", 0, false
	}
	repeated, entry.repeated = entry.repeated, 0
	entry.until = now.Add(refusalWindow)
	return key.value, repeated, true
}

// printable makes a client's value fit for a log line: bounded, quoted, and
// without anything that looks like one of mcpd's tokens, should a client have
// put one into the wrong header.
func printable(value string) string {
	clipped := len(value) > refusalClip
	if clipped {
		value = value[:refusalClip]
	}
	value = strconv.QuoteToASCII(redactTokens(value))
	if clipped {
		value += "..."
	}
	return value
}

// redactTokens replaces what follows each token prefix in s.
func redactTokens(s string) string {
	if !strings.Contains(s, tokenPrefix) {
		return s
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, tokenPrefix)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(tokenPrefix + redacted)
		end := 0
		for end < len(rest) && isTokenByte(rest[end]) {
			end++
		}
		s = rest[end:]
	}
}

func isTokenByte(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_'
}
