//go:build linux

package systemtest

import (
	"debug/macho"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestTheProgramForMacOSAsksLaunchdForItsPort is what can be seen of it without
// a Mac: the call is bound, and to the system's library.
func TestTheProgramForMacOSAsksLaunchdForItsPort(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds for another system")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		program := filepath.Join(t.TempDir(), "mcpd")
		if _, err := command(t.Context(), []string{"GOOS=darwin", "GOARCH=" + arch, "CGO_ENABLED=0"},
			"go", "build", "-o", program, "../../cmd/mcpd"); err != nil {
			t.Fatal(err)
		}
		f, err := macho.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.ImportedSymbols()
		if !slices.Contains(symbols, "_launch_activate_socket") {
			t.Errorf("on %s it imports no such call: %v", arch, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPackagesMadeTwiceAreTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds all packages of two systems twice")
	}
	need(t, runtime.GOOS == "linux", "packages are made on Linux")
	needTools(t, map[string]string{"wixl": "wixl", "msibuild": "msitools", "sha256sum": "coreutils"})
	const kinds, systems = "archive,deb,rpm,msi,homebrew,scoop,sbom", "linux/amd64,windows/amd64"
	one, two := packages(t, first, kinds, systems), packages(t, first, kinds, systems)
	sums := func(dir string) string {
		data, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if sums(one) != sums(two) {
		t.Errorf("first:\n%s\nand then:\n%s", sums(one), sums(two))
	}
	for _, name := range []string{
		"mcpd_1.0.0_linux_amd64.tar.gz", "mcpd_1.0.0_windows_amd64.zip", "mcpd_1.0.0-1_amd64.deb", "mcpd-1.0.0-1.x86_64.rpm",
		"mcpd_1.0.0_windows_amd64.msi", "mcpd.rb", "mcpd.json", "mcpd_1.0.0_linux_amd64.cdx.json", "mcpd_1.0.0_windows_amd64.cdx.json",
	} {
		if !strings.Contains(sums(one), "  "+name+"\n") {
			t.Errorf("%s was not made", name)
		}
	}
	if _, err := command(t.Context(), nil, "sh", "-c", "cd "+one+" && sha256sum --quiet -c SHA256SUMS"); err != nil {
		t.Error(err)
	}

	t.Run("the manifests name the archives and their sums", func(t *testing.T) {
		var scoop struct {
			Architecture map[string]struct{ URL, Hash string } `json:"architecture"`
		}
		data, err := os.ReadFile(filepath.Join(one, "mcpd.json"))
		if err != nil || json.Unmarshal(data, &scoop) != nil {
			t.Fatalf("%s, %v", data, err)
		}
		x64 := scoop.Architecture["64bit"]
		if !strings.HasSuffix(x64.URL, "/v1.0.0/mcpd_1.0.0_windows_amd64.zip") || !strings.Contains(sums(one), x64.Hash+"  mcpd_1.0.0_windows_amd64.zip") {
			t.Errorf("Scoop gets %+v", x64)
		}
		formula, err := os.ReadFile(filepath.Join(one, "mcpd.rb"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(formula), `mcpd_1.0.0_linux_amd64.tar.gz"`)
		_, rest, _ = strings.Cut(rest, `sha256 "`)
		sum, _, _ := strings.Cut(rest, `"`)
		if !strings.Contains(sums(one), sum+"  mcpd_1.0.0_linux_amd64.tar.gz") || len(sum) != 64 {
			t.Errorf("Homebrew gets %q", sum)
		}
	})

	t.Run("the list of what is inside names the libraries", func(t *testing.T) {
		data, err := os.ReadFile(filepath.Join(one, "mcpd_1.0.0_linux_amd64.cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, library := range []string{"github.com/BurntSushi/toml", "github.com/kardianos/service"} {
			if !strings.Contains(string(data), library) {
				t.Errorf("%s is not in it", library)
			}
		}
	})

	t.Run("the rpm installs and removes its files", func(t *testing.T) {
		needTools(t, map[string]string{"rpm": "rpm"})
		need(t, os.Getuid() == 0, "rpm --root needs root")
		root := t.TempDir()
		// No scripts: there is no system to run them in.
		args := []string{"--root", root, "--nodeps", "--ignoreos", "--noscripts"}
		if _, err := command(t.Context(), nil, "rpm", append(args, "-i", filepath.Join(one, "mcpd-1.0.0-1.x86_64.rpm"))...); err != nil {
			t.Fatal(err)
		}
		out, err := command(t.Context(), nil, filepath.Join(root, "usr/bin/mcpd"), "version")
		if runtime.GOARCH == "amd64" && (err != nil || !strings.Contains(out, "mcpd 1.0.0")) {
			t.Errorf("it calls itself %q, %v", out, err)
		}
		for _, file := range []string{"usr/lib/systemd/user/mcpd.service", "usr/share/zsh/site-functions/_mcpd", "usr/share/man/man1/mcpd.1.gz"} {
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Error(err)
			}
		}
		if _, err := command(t.Context(), nil, "rpm", "--root", root, "--noscripts", "-e", "mcpd"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, "usr/bin/mcpd")); err == nil {
			t.Error("the program is still there")
		}
	})

	t.Run("manual pages are without faults", func(t *testing.T) {
		needTools(t, map[string]string{"man": "man-db"})
		dir := t.TempDir()
		if _, err := command(t.Context(), nil, "tar", "-xzf", filepath.Join(one, "mcpd_1.0.0_linux_amd64.tar.gz"), "-C", dir, "--strip-components=1"); err != nil {
			t.Fatal(err)
		}
		pages, err := filepath.Glob(filepath.Join(dir, "man", "*.1"))
		if err != nil || len(pages) < 20 {
			t.Fatalf("%d pages, %v", len(pages), err)
		}
		for _, page := range pages {
			text, err := command(t.Context(), []string{"MANWIDTH=100", "LC_ALL=C.UTF-8"}, "sh", "-c",
				`man --warnings=w --local-file "$1" 2>"$2" && cat "$2"`, "sh", page, filepath.Join(dir, "warnings"))
			if err != nil || !strings.Contains(text, "SYNOPSIS") || strings.Contains(text, "warning:") {
				t.Errorf("%s: %v\n%s", page, err, text)
			}
		}
	})
}
