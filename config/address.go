package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// parseListen reads a loopback address with a port. "localhost" is 127.0.0.1 and is never looked up: a resolver must
// not decide where the daemon listens.
func parseListen(s string) (netip.AddrPort, *flaw) {
	host, portText, err := net.SplitHostPort(s)
	if err != nil {
		bad := flawf("%q is not an address with a port", s).withHint(`write it as "127.0.0.1:7317"`)
		if _, err := strconv.ParseUint(s, 10, 16); err == nil {
			bad = bad.withHint("did you mean %q?", "127.0.0.1:"+s)
		}
		return netip.AddrPort{}, bad
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return netip.AddrPort{}, flawf("%q in %q is not a port", portText, s).
			withHint("ports are numbers from 0 to 65535, 0 lets the system pick one")
	}
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	address, err := netip.ParseAddr(host)
	loopback := err == nil && ((address.Is4() && address.IsLoopback()) || address == netip.IPv6Loopback())
	if !loopback {
		return netip.AddrPort{}, flawf("%q is not a loopback address, and mcpd serves nothing else", s).
			withHint("did you mean %q?", "127.0.0.1:"+portText)
	}
	return netip.AddrPortFrom(address, uint16(port)), nil
}

// parseOrigin reads scheme://host[:port] and gives it the form that browsers send, because the comparison with the
// Origin header is exact: lower case, the default port of http (80) and https (443) left out.
func parseOrigin(s string) (string, *flaw) {
	switch {
	case s == "null":
		return "", flawf(`the origin "null" cannot be allowed`).
			withHint("every sandboxed page and local file has it, so it identifies nobody")
	case strings.Contains(s, "*"):
		return "", flawf("the origin %q has a wildcard", s).withHint("origins are exact: list each one")
	}
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		bad := flawf("%q is not an origin", s).withHint(`write it as "http://localhost:6274"`)
		if _, _, f := parseHostPort(s); f == nil {
			bad = bad.withHint("did you mean %q?", "http://"+s)
		}
		return "", bad
	}
	scheme = strings.ToLower(scheme)
	if !isScheme(scheme) {
		return "", flawf("the origin %q has no valid scheme", s).withHint(`write it as "http://localhost:6274"`)
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		bad := flawf("the origin %q has more than scheme, host and port", s)
		if _, _, f := parseHostPort(rest[:end]); f == nil {
			bad = bad.withHint("did you mean %q?", scheme+"://"+rest[:end])
		}
		return "", bad
	}
	host, port, f := parseHostPort(rest)
	if f != nil {
		return "", &flaw{message: "the origin " + strconv.Quote(s) + ": " + f.message, hint: f.hint}
	}
	if (scheme == "http" && port == "80") || (scheme == "https" && port == "443") {
		port = ""
	}
	if port != "" {
		host += ":" + port
	}
	return scheme + "://" + host, nil
}

// parseHost reads a value of the Host header: host[:port], compared exactly but for the case of the name.
func parseHost(s string) (string, *flaw) {
	if _, rest, found := strings.Cut(s, "://"); found {
		bad := flawf("%q is not a host", s).withHint("a host has no scheme")
		if host, _, _ := strings.Cut(rest, "/"); host != "" {
			if _, _, f := parseHostPort(host); f == nil {
				bad = bad.withHint("did you mean %q?", host)
			}
		}
		return "", bad
	}
	host, port, f := parseHostPort(s)
	if f != nil {
		return "", &flaw{message: "the host " + strconv.Quote(s) + ": " + f.message, hint: f.hint}
	}
	if port != "" {
		host += ":" + port
	}
	return host, nil
}

func isScheme(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789+-.", r)) {
			return false
		}
	}
	return s != ""
}

// parseHostPort splits host[:port] and checks both. The host comes back in lower case, an IPv6 address in brackets and
// in its shortest form, the port without leading zeros or empty.
func parseHostPort(s string) (host, port string, bad *flaw) {
	if s == "" {
		return "", "", flawf("the host is missing")
	}
	if strings.HasPrefix(s, "[") {
		inside, after, closed := strings.Cut(s[1:], "]")
		address, err := netip.ParseAddr(inside)
		if !closed || err != nil || !address.Is6() || address.Is4In6() || address.Zone() != "" {
			return "", "", flawf("the brackets do not hold a plain IPv6 address")
		}
		host = "[" + address.String() + "]"
		if after == "" {
			return host, "", nil
		}
		text, found := strings.CutPrefix(after, ":")
		if !found {
			return "", "", flawf("only a port may follow the brackets")
		}
		port, bad = parsePort(text)
		return host, port, bad
	}
	name, portText, hasPort := strings.Cut(s, ":")
	if hasPort {
		if strings.Contains(portText, ":") {
			bad := flawf("there is more than one colon")
			if address, err := netip.ParseAddr(s); err == nil {
				bad = bad.withHint("an IPv6 address needs brackets: [%s]", address)
			}
			return "", "", bad
		}
		if port, bad = parsePort(portText); bad != nil {
			return "", "", bad
		}
	}
	name = strings.ToLower(name)
	return name, port, checkName(name)
}

func parsePort(s string) (string, *flaw) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return "", flawf("%q is not a port", s).withHint("ports are numbers from 1 to 65535")
	}
	return strconv.FormatUint(n, 10), nil
}

// isNumber says whether browsers take a host that ends in this part for an IPv4 address.
func isNumber(label string) bool {
	if digits, hex := strings.CutPrefix(label, "0x"); hex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// checkName accepts DNS names and dotted IPv4 addresses. What ends in a number must be such an address: browsers
// rewrite 127.1 or 127.0x1 before they send it, so that these would never match.
func checkName(name string) *flaw {
	if name == "" {
		return flawf("the host is missing")
	}
	if len(name) > 253 {
		return flawf("the host is longer than 253 characters")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" {
			return flawf("the host has an empty part")
		}
		if len(label) > 63 {
			return flawf("a part of the host is longer than 63 characters")
		}
		for _, r := range label {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			case r == '*':
				return flawf("the host has a wildcard").withHint("hosts are exact: list each one")
			case r >= 0x80:
				return flawf("the host has characters outside ASCII").
					withHint("write the form that starts with xn--, as browsers send it")
			default:
				return flawf("the host has the character %q", r)
			}
		}
	}
	if isNumber(labels[len(labels)-1]) {
		if address, err := netip.ParseAddr(name); err != nil || !address.Is4() {
			return flawf("the host is neither a name nor an IPv4 address in four numbers")
		}
	}
	return nil
}
