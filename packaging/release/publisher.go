package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// publisherFile says who publishes mcpd. A shell can read it too.
const publisherFile = "packaging/publisher.env"

// publisher is who publishes mcpd, and where.
type publisher struct {
	homepage, releases string // URLs
	vendor, email      string
}

func (p publisher) maintainer() string { return p.vendor + " <" + p.email + ">" }

// placeholders says whether it names nobody yet.
func (p publisher) placeholders() bool {
	return strings.Contains(p.homepage+p.releases+p.email, ".invalid")
}

func readPublisher(root string) (publisher, error) {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(publisherFile))) //nolint:gosec // our own
	if err != nil {
		return publisher{}, err
	}
	return parsePublisher(string(data))
}

// parsePublisher reads lines NAME="VALUE" whose values have no meaning for a
// shell.
func parsePublisher(text string) (publisher, error) {
	line := regexp.MustCompile("^(MCPD_[A-Z]+(?:_[A-Z]+)*)=\"([^\"$`\\\\]+)\"$")
	values := map[string]string{}
	for i, l := range strings.Split(text, "\n") {
		if l = strings.TrimSpace(l); l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			return publisher{}, fmt.Errorf("%s:%d: this is not NAME=\"VALUE\": %s", publisherFile, i+1, l)
		}
		values[m[1]] = m[2]
	}
	var p publisher
	for name, field := range map[string]*string{
		"MCPD_HOMEPAGE": &p.homepage, "MCPD_RELEASES": &p.releases, "MCPD_VENDOR": &p.vendor, "MCPD_EMAIL": &p.email,
	} {
		if *field = values[name]; *field == "" {
			return publisher{}, fmt.Errorf("%s does not say %s", publisherFile, name)
		}
	}
	return p, nil
}
