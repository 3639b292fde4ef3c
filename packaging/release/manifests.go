package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const summary = "One daemon for all local MCP servers"

// manifests makes what Homebrew and Scoop install mcpd by.
func (b *build) manifests() error {
	if b.makes("homebrew") {
		text, err := b.formula()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.out, "mcpd.rb"), []byte(text), 0o644); err != nil { //nolint:gosec // to be published
			return err
		}
	}
	if b.makes("scoop") {
		data, err := b.scoop()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(b.out, "mcpd.json"), data, 0o644) //nolint:gosec // to be published
	}
	return nil
}

func (b *build) url(t target) string {
	return fmt.Sprintf("%s/v%s/%s", b.publisher.releases, b.version, b.archiveName(t))
}

// sum is the SHA-256 of an archive, or "" where it is not asked for this time.
func (b *build) sum(t target) (string, error) {
	if !slices.Contains(b.targets, t) {
		return "", nil
	}
	dir := b.out
	if b.archives != "" {
		dir = b.archives
	}
	return sha256File(filepath.Join(dir, b.archiveName(t)))
}

func sha256File(path string) (string, error) {
	data, err := os.ReadFile(path) //nolint:gosec // our own
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

func (b *build) formula() (string, error) {
	var s strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	p("class Mcpd < Formula")
	p("  desc %q", summary)
	p("  homepage %q", b.publisher.homepage)
	p("  version %q", b.version)
	p("  license \"Apache-2.0\"")
	for _, system := range []struct{ block, goos string }{{"on_macos", "darwin"}, {"on_linux", "linux"}} {
		p("")
		p("  %s do", system.block)
		for _, cpu := range []struct{ block, arch string }{{"on_arm", "arm64"}, {"on_intel", "amd64"}} {
			t := target{system.goos, cpu.arch}
			sum, err := b.sum(t)
			if err != nil {
				return "", err
			}
			if sum == "" {
				continue
			}
			p("    %s do", cpu.block)
			p("      url %q", b.url(t))
			p("      sha256 %q", sum)
			p("    end")
		}
		p("  end")
	}
	p(`
  def install
    bin.install "mcpd"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/mcpd.bash" => "mcpd"
    zsh_completion.install "completions/_mcpd"
    fish_completion.install "completions/mcpd.fish"
  end

  def caveats
    <<~EOS
      To have mcpd run from login on:
        mcpd service install
      Before uninstalling the formula:
        mcpd service uninstall
    EOS
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mcpd version")
  end
end`)
	return s.String(), nil
}

func (b *build) scoop() ([]byte, error) {
	type download struct {
		URL        string `json:"url"`
		Hash       string `json:"hash"`
		ExtractDir string `json:"extract_dir"`
	}
	arches := map[string]download{}
	for name, arch := range map[string]string{"64bit": "amd64", "arm64": "arm64"} {
		t := target{"windows", arch}
		sum, err := b.sum(t)
		if err != nil {
			return nil, err
		}
		if sum != "" {
			arches[name] = download{b.url(t), sum, strings.TrimSuffix(b.archiveName(t), ".zip")}
		}
	}
	data, err := json.MarshalIndent(struct {
		Version      string              `json:"version"`
		Description  string              `json:"description"`
		Homepage     string              `json:"homepage"`
		License      string              `json:"license"`
		Architecture map[string]download `json:"architecture"`
		Bin          string              `json:"bin"`
		Notes        []string            `json:"notes"`
		PreUninstall []string            `json:"pre_uninstall"`
	}{
		b.version, summary, b.publisher.homepage, "Apache-2.0", arches, "mcpd.exe",
		[]string{"To have mcpd run from logon on: mcpd service install"},
		[]string{`if ($cmd -eq 'uninstall') { & "$dir\mcpd.exe" service uninstall }`},
	}, "", "    ")
	return append(data, '\n'), err
}

// checksums lists every file, as sha256sum -c reads it.
func (b *build) checksums() error {
	var lines []string
	err := filepath.WalkDir(b.out, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		sum, err := sha256File(path)
		lines = append(lines, sum+"  "+e.Name())
		return err
	})
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	text := strings.Join(lines, "\n") + "\n"
	return errors.Join(err, os.WriteFile(filepath.Join(b.out, "SHA256SUMS"), []byte(text), 0o644)) //nolint:gosec // to be published
}
