package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// FuzzParse: no text makes Parse panic; every problem has a place within the text; and a Config, written out and parsed
// again, is the same Config.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "x", "\ufeff[daemon]\nlisten = \"localhost:0\"\n", string(Example("/usr/bin/mcpd", 7317)),
		uncomment(string(Example("/usr/bin/mcpd", 7317))), secretConfig,
		"[servers.a]\ncommand = \"x\"\ncommand = 'y'\n[servers.a]\nargs = [1, '${env:A}', \"$${\"]\nenv.A = \"${file:f}\"",
		"servers.a = { command = '${home}/x', env = { \"\\u0041\" = '' }, disabled = true, cwd = \"${config_dir}\" }",
		"[defaults]\nrequest_timeout = \"1h30m\"\nmax_in_flight = 3\n[servers.\"a.b\"]\ncommand = '''\nx'''\nmax_message_bytes = \"3KB\"",
		"security.allowed_origins = [\"http://[::1]:80\", \"null\"]\nsecurity.allowed_hosts = [\"A:1\"]", "a = \"\\x", "[[servers]]\n[servers.x]",
	} {
		f.Add(text)
	}
	env := world{variables: map[string]string{"A": "${home}"}, files: map[string]string{"/etc/mcpd/f": "x\n"}}.environment()
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			t.Skip("long texts only cost time")
		}
		cfg, err := Parse(testPath, []byte(text), env)
		if err != nil {
			problems, ok := errors.AsType[Errors](err)
			if !ok || len(problems) == 0 || cfg != nil {
				t.Fatalf("%T: %v, with %v", err, err, cfg)
			}
			lines := strings.Split(strings.TrimPrefix(text, byteOrderMark), "\n")
			for _, p := range problems {
				if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > len(lines[p.Line-1])+1 || p.Message == "" {
					t.Errorf("the place is not in the text: %+v", p)
				}
			}
			if again := slices.Clone(problems).sorted(); !slices.Equal(problems, again) {
				t.Errorf("not sorted, or repeated:\n%v", err)
			}
			return
		}
		written := cfg.TOML()
		again, err := Parse(testPath, written, env)
		if err != nil {
			t.Fatalf("what was written is not valid:\n%v\n%s", err, written)
		}
		if change := Diff(cfg, again); !change.Empty() {
			t.Errorf("it is not the same: %+v\n%s", change, written)
		}
		if string(again.TOML()) != string(written) {
			t.Errorf("it is not written the same:\n%s\n%s", written, again.TOML())
		}
	})
}
