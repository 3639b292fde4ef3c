package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestManifestsForPublishedArchivesHaveTheirSums(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	dir := t.TempDir()
	archives, out := filepath.Join(dir, "dist"), filepath.Join(dir, "manifests")
	if err := os.Mkdir(archives, 0o700); err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for _, tg := range targets() {
		path := filepath.Join(archives, (&build{version: "1.2.3"}).archiveName(tg))
		if err := os.WriteFile(path, []byte(tg.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if sums[tg.String()], err = sha256File(path); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--version", "1.2.3", "--archives", archives, "--out", out, "--only", "homebrew,scoop"}
	if err := run(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	formula, err := os.ReadFile(filepath.Join(out, "mcpd.rb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tg := range targets() {
		if tg.os != "windows" && !strings.Contains(string(formula), "sha256 \""+sums[tg.String()]+"\"") {
			t.Errorf("the formula lacks the sum for %s", tg)
		}
	}
	data, err := os.ReadFile(filepath.Join(out, "mcpd.json"))
	if err != nil {
		t.Fatal(err)
	}
	var scoop struct {
		Architecture map[string]struct{ Hash string }
	}
	if err := json.Unmarshal(data, &scoop); err != nil || scoop.Architecture["64bit"].Hash != sums["windows/amd64"] || scoop.Architecture["arm64"].Hash != sums["windows/arm64"] {
		t.Errorf("%+v, %v", scoop, err)
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 3 { // and SHA256SUMS
		t.Errorf("made was %v, %v", entries, err)
	}

	for name, args := range map[string][]string{
		"packages":                {"--archives", archives, "--out", out, "--version", "1.2.3", "--only", "deb"},
		"the archives' own place": {"--archives", archives, "--out", dir, "--version", "1.2.3", "--only", "scoop"},
	} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%s: it was done", name)
		}
	}
	if entries, err := os.ReadDir(archives); err != nil || len(entries) != len(targets()) {
		t.Errorf("the archives are %v, %v", entries, err)
	}
}

// TestGoreleasersFileNamesWhatThereIs stands for a run of goreleaser, which takes
// too long to build for every change.
func TestGoreleasersFileNamesWhatThereIs(t *testing.T) {
	data, err := os.ReadFile("../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// What comments name is for the reader.
	text := regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(string(data), "")

	env, err := os.ReadFile("../publisher.env")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\.Env\.(\w+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(env), "\n"+m[1]+"=") {
			t.Errorf("publisher.env does not say %s", m[1])
		}
	}

	b := build{root: filepath.Join("..", ".."), work: t.TempDir(), version: "1.2.3"}
	if err := b.generate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)(?:src|main|postinstall|preremove|postremove): +"?([^\s",}]+)`).FindAllStringSubmatch(text, -1) {
		path := filepath.Join(b.root, m[1])
		if inside, ok := strings.CutPrefix(m[1], "share/"); ok {
			path = filepath.Join(b.share(), inside)
		}
		if found, err := filepath.Glob(path); err != nil || len(found) == 0 {
			t.Errorf("there is no %s", m[1])
		}
	}

	// Its packages hold what those of packaging/build do.
	destinations := regexp.MustCompile(`dst: ([^\s,}]+)`).FindAllStringSubmatch(text, -1)
	for _, kind := range []string{"deb", "rpm"} {
		list, err := b.linuxContents(target{"linux", "amd64"}, kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			named := c.Dst == "/usr/bin/mcpd" // which goreleaser adds
			for _, d := range destinations {
				named = named || d[1] == c.Dst || strings.HasSuffix(d[1], "/") && strings.HasPrefix(c.Dst, d[1])
			}
			if !named {
				t.Errorf("the %s lacks %s", kind, c.Dst)
			}
		}
	}
}
