package config

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an Environment whose variables and files are the test's own.
type world struct {
	variables map[string]string
	files     map[string]string
}

func (w world) environment() Environment {
	return Environment{
		Getenv: func(name string) (string, bool) {
			value, ok := w.variables[name]
			return value, ok
		},
		Home: "/home/ada",
		ReadFile: func(path string) ([]byte, error) {
			content, ok := w.files[filepath.ToSlash(path)]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(content), nil
		},
		OS: "linux",
	}
}

const testPath = "/etc/mcpd/mcpd.toml"

func parse(t *testing.T, text string) (*Config, error) {
	t.Helper()
	return Parse(testPath, []byte(text), world{}.environment())
}

func mustParse(t *testing.T, text string, w world) *Config {
	t.Helper()
	cfg, err := Parse(testPath, []byte(text), w.environment())
	if err != nil {
		t.Fatalf("Parse:\n%v", err)
	}
	return cfg
}

// problemsOf returns the lines of the error without the file's name.
func problemsOf(t *testing.T, err error) []string {
	t.Helper()
	problems, ok := err.(Errors)
	if !ok {
		t.Fatalf("the error is %T (%v), not Errors", err, err)
	}
	var lines []string
	for _, p := range problems {
		line := p.Error()
		rest, found := strings.CutPrefix(line, p.File+":")
		if !found || p.File == "" {
			t.Fatalf("the problem %q does not start with its file", line)
		}
		lines = append(lines, rest)
	}
	return lines
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func clone(cfg *Config) *Config {
	c := *cfg
	c.Servers = maps.Clone(cfg.Servers)
	return &c
}
