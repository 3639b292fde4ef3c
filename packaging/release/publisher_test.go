package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestThePublishersFileSaysTheSameToAShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh here")
	}
	p, err := readPublisher("../..")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), sh, "-c",
		`. ../publisher.env && printf '%s\n' "$MCPD_HOMEPAGE" "$MCPD_RELEASES" "$MCPD_VENDOR <$MCPD_EMAIL>"`).Output()
	if want := p.homepage + "\n" + p.releases + "\n" + p.maintainer() + "\n"; err != nil || string(out) != want {
		t.Errorf("a shell reads %q, %v; want %q", out, err, want)
	}
}

func TestAPublishersFileWithAMistakeIsRefused(t *testing.T) {
	const good = `MCPD_HOMEPAGE="https://a"` + "\n" + `MCPD_RELEASES="https://a/r"` + "\n" + `MCPD_VENDOR="A & B"` + "\n" + `MCPD_EMAIL="a@b"` + "\n"
	if p, err := parsePublisher("# comment\n\n" + good); err != nil || p.maintainer() != "A & B <a@b>" || p.placeholders() {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := parsePublisher(strings.ReplaceAll(good, "a@b", "a@b.invalid")); err != nil || !p.placeholders() {
		t.Errorf("%+v, %v", p, err)
	}
	for name, tc := range map[string][2]string{
		"a value is missing":    {strings.ReplaceAll(good, "MCPD_EMAIL", "MCPD_OTHER"), "does not say MCPD_EMAIL"},
		"no quotes":             {good + "MCPD_X=y", "publisher.env:5"},
		"a command for a shell": {good + `MCPD_X="$(id)"`, "publisher.env:5"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parsePublisher(tc[0]); err == nil || !strings.Contains(err.Error(), tc[1]) {
				t.Errorf("it says %v", err)
			}
		})
	}
}
