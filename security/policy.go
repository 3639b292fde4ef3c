package security

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Policy lists the Host and Origin values that are let through. Both are
// compared whole: no prefix, no suffix, no wildcard, no "any port".
type Policy struct {
	// Hosts are "name:port", or "name" where clients send no port (port 80, or
	// behind a proxy). Names are compared without regard to case.
	Hosts []string
	// Origins are "scheme://host:port", as browsers write them. They include
	// mcpd's own address; see [LoopbackPolicy].
	Origins []string
}

// LoopbackPolicy returns the policy of a daemon that listens on addr: the
// names by which the loopback interface is reached at addr's port, and the
// same as http origins. Append what the configuration adds.
func LoopbackPolicy(addr netip.AddrPort) Policy {
	port := strconv.Itoa(int(addr.Port()))
	var p Policy
	for _, host := range []string{
		addr.String(),
		"127.0.0.1:" + port,
		"localhost:" + port,
		"[::1]:" + port,
	} {
		if slices.Contains(p.Hosts, host) {
			continue
		}
		p.Hosts = append(p.Hosts, host)
		p.Origins = append(p.Origins, "http://"+host)
	}
	return p
}

// Validate returns an error that names every entry that is not a Host or
// Origin value, and so could never match, with what to write instead.
func (p Policy) Validate() error {
	_, err := compilePolicy(p)
	return err
}

// compiledPolicy is a Policy made ready for look-ups. It does not change.
type compiledPolicy struct {
	hosts   map[string]struct{}
	origins map[string]struct{}
}

// compilePolicy leaves out the entries that are not valid: an entry that does
// not mean anything must not let anything in.
func compilePolicy(p Policy) (*compiledPolicy, error) {
	c := &compiledPolicy{
		hosts:   make(map[string]struct{}, len(p.Hosts)),
		origins: make(map[string]struct{}, len(p.Origins)),
	}
	var problems []error
	for _, entry := range p.Hosts {
		host, err := canonicalHost(entry)
		if err != nil {
			problems = append(problems, fmt.Errorf("allowed_hosts: %q: %w", entry, err))
			continue
		}
		c.hosts[host] = struct{}{}
		// Port 80 is the one that clients leave out of the header.
		if bare, ok := strings.CutSuffix(host, ":80"); ok {
			c.hosts[bare] = struct{}{}
		}
	}
	for _, entry := range p.Origins {
		origin, err := canonicalOrigin(entry)
		if err != nil {
			problems = append(problems, fmt.Errorf("allowed_origins: %q: %w", entry, err))
			continue
		}
		c.origins[origin] = struct{}{}
	}
	return c, errors.Join(problems...)
}

// allowsHost compares a request's Host with the list. A trailing dot, another
// spelling of an address, or a missing port make another Host.
func (c *compiledPolicy) allowsHost(host string) bool {
	if _, ok := c.hosts[host]; ok {
		return true
	}
	lower, changed := lowerASCII(host)
	if !changed {
		return false
	}
	_, ok := c.hosts[lower]
	return ok
}

// allowsOrigin compares a request's Origin with the list, byte for byte.
// Browsers serialise an origin in one way only (lower case, no default port,
// no slash), so anything else was not written by a browser.
func (c *compiledPolicy) allowsOrigin(origin string) bool {
	_, ok := c.origins[origin]
	return ok
}

// canonicalHost checks a Host value and brings it into the form in which
// clients send it: lower case, an IPv6 address in its shortest form.
func canonicalHost(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("is empty")
	case strings.Contains(s, "://"):
		return "", errors.New("is an origin or a URL: write only the name and the port, such as localhost:7317")
	case strings.Contains(s, "*"):
		return "", errors.New("wildcards are not supported: list every host in full")
	case strings.Contains(s, "/"):
		return "", errors.New("must not hold a slash: write only the name and the port")
	}
	s, _ = lowerASCII(s)

	var (
		name, port string
		hasPort    bool
	)
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", errors.New("lacks the closing bracket of an IPv6 address")
		}
		addr, err := netip.ParseAddr(s[1:end])
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", errors.New("does not hold an IPv6 address between the brackets")
		}
		name = "[" + addr.String() + "]"
		switch rest := s[end+1:]; {
		case rest == "":
		case rest[0] == ':':
			port, hasPort = rest[1:], true
		default:
			return "", errors.New("has text after the closing bracket")
		}
	} else {
		name, port, hasPort = strings.Cut(s, ":")
		if strings.Contains(port, ":") {
			return "", errors.New("has more than one colon: an IPv6 address goes in brackets, such as [::1]:7317")
		}
		if name == "" {
			return "", errors.New("has no name before the port")
		}
		for i := range len(name) {
			if !isHostByte(name[i]) {
				return "", errors.New("holds a character that no host name has (write an international name in its xn-- form)")
			}
		}
	}
	if !hasPort {
		return name, nil
	}
	// ParseUint also takes leading zeros, which no client sends.
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '0' {
		return "", errors.New("has a port that is not a number from 1 to 65535")
	}
	return name + ":" + port, nil
}

// canonicalOrigin checks an Origin value and brings it into the form in which
// browsers send it.
func canonicalOrigin(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("is empty")
	case strings.EqualFold(s, "null"):
		return "", errors.New("is what every sandboxed page sends, so it cannot be allowed")
	case strings.Contains(s, "*"):
		return "", errors.New("wildcards are not supported: list every origin in full")
	}
	scheme, host, ok := strings.Cut(s, "://")
	if !ok {
		return "", errors.New("has no scheme: write it in full, such as http://localhost:6274")
	}
	scheme, _ = lowerASCII(scheme)
	if !isScheme(scheme) {
		return "", errors.New("has a scheme that is not one")
	}
	if bare, isURL := strings.CutSuffix(host, "/"); isURL && !strings.Contains(bare, "/") {
		return "", errors.New("must not end in a slash: an origin has no path")
	}
	if strings.Contains(host, "/") {
		return "", errors.New("must not have a path: write only scheme, host and port")
	}
	host, err := canonicalHost(host)
	if err != nil {
		return "", err
	}
	switch scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return scheme + "://" + host, nil
}

func isHostByte(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '-' || b == '.' || b == '_'
}

func isScheme(s string) bool {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		b := s[i]
		if !('a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '+' || b == '-' || b == '.') {
			return false
		}
	}
	return true
}

// lowerASCII is strings.ToLower for ASCII alone: Unicode's rules map some
// foreign letters (the Kelvin sign) to ASCII ones, and would make two
// different names equal.
func lowerASCII(s string) (lower string, changed bool) {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if 'A' <= b[j] && b[j] <= 'Z' {
					b[j] += 'a' - 'A'
				}
			}
			return string(b), true
		}
	}
	return s, false
}
