package security

import (
	"net/http"
	"slices"
	"strings"
)

const (
	// corsHeaders are the request headers that MCP clients send. The last two
	// come from clients of older revisions; they are let through, and ignored.
	corsHeaders = "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, Last-Event-ID"
	// corsPrefix is that of headers which mirror an argument of a tool
	// (x-mcp-header); their names are up to each server.
	corsPrefix = "mcp-param-"
	// corsMaxParams and corsMaxName bound what a preflight can make mcpd echo.
	corsMaxParams = 64
	corsMaxName   = 128
	// corsMaxAge is how long a browser may remember a preflight, in seconds.
	// What it remembers gives no access: every request is checked itself.
	corsMaxAge = "600"
)

// answerPreflight adds what a browser asks before it sends a request of a
// listed origin. Credentials are never allowed: mcpd knows no cookies, and
// Authorization set by a script is not a credential in that sense.
func answerPreflight(answer, request http.Header, methods string) {
	answer.Set("Access-Control-Allow-Methods", methods)
	answer.Set("Access-Control-Allow-Headers", allowedHeaders(request["Access-Control-Request-Headers"]))
	answer.Set("Access-Control-Max-Age", corsMaxAge)
	if request.Get("Access-Control-Request-Private-Network") == "true" {
		answer.Set("Access-Control-Allow-Private-Network", "true")
	}
}

// allowedHeaders is the fixed list, and those of the requested names that are
// Mcp-Param-*. There is no wildcard for a prefix, so they are echoed.
func allowedHeaders(requested []string) string {
	allowed := corsHeaders
	var seen []string
	for _, field := range requested {
		for name := range strings.SplitSeq(field, ",") {
			name, _ = lowerASCII(strings.Trim(name, " \t"))
			if len(seen) == corsMaxParams {
				return allowed
			}
			if !isParamHeader(name) || slices.Contains(seen, name) {
				continue
			}
			seen = append(seen, name)
			allowed += ", " + name
		}
	}
	return allowed
}

// isParamHeader reports whether the lower-case name is that of an Mcp-Param-*
// header, in the characters of a field name (RFC 9110 section 5.6.2).
func isParamHeader(name string) bool {
	rest, ok := strings.CutPrefix(name, corsPrefix)
	if !ok || rest == "" || len(name) > corsMaxName {
		return false
	}
	for i := range len(rest) {
		b := rest[i]
		if 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0 {
			continue
		}
		return false
	}
	return true
}
