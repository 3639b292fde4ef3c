package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const secretConfig = `
[defaults]
env = { SHARED = "${env:ENV_SECRET}" }
[servers.a]
command = "/bin/${env:ENV_SECRET}"
args = ["--token=${file:/run/token}"]
env = { TOKEN = "${file:/run/token}", LITERAL = "L1TERAL" }
cwd = "/srv/${env:ENV_SECRET}"
`

func secretWorld() world {
	return world{
		variables: map[string]string{"ENV_SECRET": "ENVS3CRET"},
		files:     map[string]string{"/run/token": "F1LES3CRET\n"},
	}
}

func TestAConfigPrintsItselfWithoutExpandedValues(t *testing.T) {
	cfg := mustParse(t, secretConfig, secretWorld())
	a := cfg.Servers["a"]
	if a.Env["TOKEN"] != "F1LES3CRET" || a.Env["SHARED"] != "ENVS3CRET" || a.Cwd != "/srv/ENVS3CRET" {
		t.Fatalf("the references were not expanded: %q %q", a.Env, a.Cwd)
	}
	values := map[string]any{
		"*Config": cfg, "Config": *cfg, "Server": a, "*Server": &a, "Servers": cfg.Servers,
		"in a struct": struct{ C *Config }{cfg}, "in a slice": []Server{a},
	}
	for name, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			checkNoSecret(t, name+" "+verb, fmt.Sprintf(verb, value), true)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", value)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", value)
		checkNoSecret(t, name+" in a log", log.String(), name != "in a struct" && name != "Servers" && name != "in a slice")
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		checkNoSecret(t, name+" as JSON", string(data), false)
	}
	checkNoSecret(t, "TOML", string(cfg.TOML()), false)
	if !strings.Contains(string(cfg.TOML()), "L1TERAL") {
		t.Error("TOML hides what is written out in the file")
	}
	for _, want := range []string{
		`TOKEN = "${file:/run/token}"`, `LITERAL = "(hidden)"`, `SHARED = "${env:ENV_SECRET}"`, `args = ["--token=${file:/run/token}"]`,
	} {
		if !strings.Contains(cfg.String(), want) {
			t.Errorf("String lacks %s:\n%s", want, cfg)
		}
	}
}

func checkNoSecret(t *testing.T, what, text string, hidesLiterals bool) {
	t.Helper()
	for _, secret := range []string{"ENVS3CRET", "F1LES3CRET"} {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("%s shows %s:\n%s", what, secret, text)
		}
	}
	if hidesLiterals && strings.Contains(text, "L1TERAL") {
		t.Errorf("%s shows a literal value:\n%s", what, text)
	}
}

func TestProblemsNeverShowAValueThatAReferenceStandsFor(t *testing.T) {
	w := secretWorld()
	w.variables["RELATIVE"] = "ENVS3CRET/x"
	w.variables["SPACE"] = "ENVS3CRET x"
	w.variables["NUL"] = "ENVS3CRET\x00"
	w.variables["BRACE"] = "${env:ENVS3CRET}"
	w.variables["BLANK"] = "  "
	for _, text := range []string{
		"[servers.a]\ncommand = \"${env:RELATIVE}\"",
		"[servers.a]\ncommand = \"${env:SPACE}\"",
		"[servers.a]\ncommand = \"${env:NUL}\"",
		"[servers.a]\ncommand = \"${env:BLANK}\"",
		server(`cwd = "${env:RELATIVE}"`),
		server(`args = ["${file:${env:ENV_SECRET}}"]`),
		server(`args = ["${file:/denied/${env:ENV_SECRET}}"]`),
		server(`env = { A = "${env:NUL}" }`),
		server(`env = { A = "${env:ENV_SECRET} ${env:NOPE}" }`),
	} {
		env := w.environment()
		read := env.ReadFile
		env.ReadFile = func(path string) ([]byte, error) {
			if strings.HasPrefix(path, "/denied/") {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
			}
			return read(path)
		}
		_, err := Parse(testPath, []byte(text), env)
		if err == nil {
			t.Errorf("no problem in\n%s", text)
			continue
		}
		checkNoSecret(t, text, err.Error(), false)
	}
}

func TestAnExpandedValueIsNotExpandedAgain(t *testing.T) {
	w := world{variables: map[string]string{"A": "${env:B} $${x} ${home}"}}
	cfg := mustParse(t, server(`args = ["${env:A}"]`), w)
	if got := cfg.Servers["a"].Args[0]; got != w.variables["A"] {
		t.Errorf("got %q", got)
	}
}

func TestFileReferences(t *testing.T) {
	w := world{
		variables: map[string]string{"DIR": "/var/x"},
		files: map[string]string{
			"/etc/mcpd/a": "one\n", "/etc/b": "two\r\n", "/home/ada/c": "three\n\n", "/var/x/d": "", "/etc/mcpd/e": "a\nb",
		},
	}
	cfg := mustParse(t, server(
		`args = ["${file:a}", "${file:../b}", "${file:${home}/c}", "<${file:${env:DIR}/d}>", "${file:${config_dir}/e}", "${home}${home}"]`,
	), w)
	want := []string{"one", "two", "three\n", "<>", "a\nb", "/home/ada/home/ada"}
	if diff := cmp.Diff(want, cfg.Servers["a"].Args); diff != "" {
		t.Errorf("args (-want +got):\n%s", diff)
	}
}

func TestTextWithEscapedReferencesComesBackAsItWas(t *testing.T) {
	e := expander{env: world{}.environment(), configDir: "/etc/mcpd", lookups: true}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("a${}:\\\"\n😀"))).Draw(t, "text")
		// A "$" before "${" would itself be an escape, so escaping is only defined for texts without "$$".
		if strings.Contains(text, "$$") {
			t.Skip("needs no escape")
		}
		got, bad := e.expand(strings.ReplaceAll(text, "${", "$${"))
		if len(bad) > 0 || got != text {
			t.Fatalf("got %q, %v", got, bad)
		}
	})
}
