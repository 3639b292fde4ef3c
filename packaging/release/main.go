// Command release makes the packages of mcpd that can be made on this machine:
// programs for each system, archives, deb, rpm, MSI, manifests for Homebrew and
// Scoop, lists of what is inside (SBOM), and checksums.
//
// What is made twice from one commit is the same, byte for byte. It publishes
// nothing and signs nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

// kinds are what can be made, in the order in which it is.
func kinds() []string {
	return []string{"archive", "deb", "rpm", "msi", "homebrew", "scoop", "sbom"}
}

// target is a system that mcpd is built for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

func targets() []target {
	return []target{
		{"linux", "amd64"},
		{"linux", "arm64"},
		{"darwin", "amd64"},
		{"darwin", "arm64"},
		{"windows", "amd64"},
		{"windows", "arm64"},
	}
}

// build is one making of the packages.
type build struct {
	root      string // of the repository
	out       string
	work      string // thrown away afterwards
	tools     string // where the tools of packaging/tools are
	version   string
	publisher publisher
	epoch     time.Time
	targets   []target
	kinds     []string
	skipped   []string // what could not be made here, and why
	archives  string   // where the archives of a release are; "" where they are made
}

func run(ctx context.Context, args []string) error {
	var b build
	var only, systems string
	fs := flag.NewFlagSet("packaging/build", flag.ContinueOnError)
	fs.StringVar(&b.out, "out", "dist", "`DIR` for the packages; what is in it is removed")
	fs.StringVar(&b.version, "version", "", "`VERSION` (default: from the newest tag v1.2.3)")
	fs.StringVar(&only, "only", strings.Join(kinds(), ","), "what to make, by `KINDS`")
	fs.StringVar(&systems, "targets", "", "for which systems, as `OS/ARCH,…` (default: all)")
	fs.StringVar(&b.tools, "tools", "", "`DIR` with the built tools of packaging/tools (default: they are built)")
	fs.StringVar(&b.archives, "archives", "", "make --only homebrew,scoop for the archives in `DIR`, which were made otherwise")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := b.choose(only, systems); err != nil {
		return err
	}
	var err error
	if b.archives != "" {
		if b.archives, err = filepath.Abs(b.archives); err != nil {
			return err
		}
	}
	if b.root, err = b.output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "mcpd"); err != nil {
		return err
	}
	if b.publisher, err = readPublisher(b.root); err != nil {
		return err
	}
	if err := b.identify(ctx); err != nil {
		return err
	}
	if b.out, err = filepath.Abs(b.out); err != nil {
		return err
	}
	if b.archives == b.out || strings.HasPrefix(b.archives, b.out+string(filepath.Separator)) {
		return fmt.Errorf("--out %s would take the archives away; name another folder", b.out)
	}
	if err := os.RemoveAll(b.out); err != nil {
		return err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp("", "mcpd-packaging-*"); err != nil {
		return err
	}
	err = b.all(ctx)
	return errors.Join(err, os.RemoveAll(b.work))
}

func (b *build) choose(only, systems string) error {
	for _, k := range strings.Split(only, ",") {
		if !slices.Contains(kinds(), k) {
			return fmt.Errorf("nothing is called %q; there are %s", k, strings.Join(kinds(), ", "))
		}
		if b.archives != "" && k != "homebrew" && k != "scoop" {
			return fmt.Errorf("with --archives, %s is not made; say --only homebrew,scoop", k)
		}
		b.kinds = append(b.kinds, k)
	}
	if systems == "" {
		b.targets = targets()
		return nil
	}
	for _, s := range strings.Split(systems, ",") {
		goos, arch, _ := strings.Cut(s, "/")
		if !slices.Contains(targets(), target{goos, arch}) {
			return fmt.Errorf("mcpd is not built for %q", s)
		}
		b.targets = append(b.targets, target{goos, arch})
	}
	return nil
}

// identify finds out the version and the time of what is packaged.
func (b *build) identify(ctx context.Context) error {
	if b.version == "" {
		described, err := b.output(ctx, "git", "describe", "--tags", "--match=v[0-9]*", "--long", "--always")
		if err != nil {
			return err
		}
		b.version = versionOf(described)
	}
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`).MatchString(b.version) {
		return fmt.Errorf("%q is not a version such as 1.2.3 or 1.2.3-rc.1", b.version)
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		var err error
		if seconds, err = b.output(ctx, "git", "log", "-1", "--format=%ct"); err != nil {
			return err
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH is not a number of seconds: %q", seconds)
	}
	b.epoch = time.Unix(n, 0).UTC()
	return nil
}

// versionOf makes a version of what git describes: v1.2.3-0-gABC is 1.2.3,
// v1.2.3-4-gABC is on the way to something after it, and without a tag it is on
// the way to the first.
func versionOf(described string) string {
	m := regexp.MustCompile(`^v([0-9]+)\.([0-9]+)\.([0-9]+)-([0-9]+)-g([0-9a-f]+)$`).FindStringSubmatch(described)
	switch {
	case m == nil:
		return "0.0.0-dev." + described
	case m[4] == "0":
		return m[1] + "." + m[2] + "." + m[3]
	}
	patch, err := strconv.Atoi(m[3])
	if err != nil {
		patch = 0
	}
	return fmt.Sprintf("%s.%s.%d-dev.%s.%s", m[1], m[2], patch+1, m[4], m[5])
}

func (b *build) makes(kind string) bool { return slices.Contains(b.kinds, kind) }

func (b *build) all(ctx context.Context) error {
	if b.tools == "" && (b.makes("deb") || b.makes("rpm") || b.makes("sbom")) {
		b.tools = filepath.Join(b.work, "tools")
		if err := os.Mkdir(b.tools, 0o755); err != nil {
			return err
		}
		b.say("building the tools")
		if _, err := b.command(ctx, filepath.Join(b.root, "packaging", "tools"), nil, "go", "build", "-o", b.tools+"/", "tool"); err != nil {
			return err
		}
	}
	if b.archives == "" {
		if err := b.programs(ctx); err != nil {
			return err
		}
	}
	if err := b.manifests(); err != nil {
		return err
	}
	if err := b.checksums(); err != nil {
		return err
	}
	for _, s := range b.skipped {
		b.say("not made: %s", s)
	}
	if b.publisher.placeholders() {
		b.say("not to be published: %s does not name who publishes it yet, and where", publisherFile)
	}
	return nil
}

// programs makes mcpd and all that it is in.
func (b *build) programs(ctx context.Context) error {
	for _, t := range b.targets {
		b.say("building mcpd for %s", t)
		if err := b.program(ctx, t); err != nil {
			return err
		}
	}
	if err := b.generate(ctx); err != nil {
		return err
	}
	for _, t := range b.targets {
		if err := b.packages(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return nil
}

// packages makes what is made for one system.
func (b *build) packages(ctx context.Context, t target) error {
	if b.makes("archive") || b.makes("homebrew") || b.makes("scoop") {
		if err := b.archive(t); err != nil {
			return err
		}
	}
	if t.os == "linux" {
		for _, kind := range []string{"deb", "rpm"} {
			if b.makes(kind) {
				if err := b.linuxPackage(ctx, t, kind); err != nil {
					return err
				}
			}
		}
	}
	if t.os == "windows" && b.makes("msi") {
		if err := b.msi(ctx, t); err != nil {
			return err
		}
	}
	if b.makes("sbom") {
		return b.sbom(ctx, t)
	}
	return nil
}

func (b *build) binary(t target) string {
	name := "mcpd"
	if t.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(b.work, t.os+"_"+t.arch, name)
}

func (b *build) program(ctx context.Context, t target) error {
	env := []string{"GOOS=" + t.os, "GOARCH=" + t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0"}
	_, err := b.command(ctx, b.root, env, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X main.release="+b.version, "-o", b.binary(t), "./cmd/mcpd")
	return err
}

// share is where completions, manual pages and the unit are.
func (b *build) share() string { return filepath.Join(b.work, "share") }

// generate has mcpd write what goes beside it. It runs on this machine, and
// writes the same on every other.
func (b *build) generate(ctx context.Context) error {
	own := filepath.Join(b.work, "own")
	if _, err := b.command(ctx, b.root, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-X main.release="+b.version, "-o", own, "./cmd/mcpd"); err != nil {
		return err
	}
	_, err := b.command(ctx, b.root, nil, own, "generate", b.share())
	return err
}

func (b *build) sbom(ctx context.Context, t target) error {
	out := filepath.Join(b.out, fmt.Sprintf("mcpd_%s_%s_%s.cdx.json", b.version, t.os, t.arch))
	_, err := b.command(ctx, b.root, nil, filepath.Join(b.tools, "cyclonedx-gomod"), "bin", "-json", "-noserial", "-notimestamp",
		"-version", "v"+b.version, "-output", out, b.binary(t))
	return err
}

func (b *build) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (b *build) output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := b.command(ctx, b.root, nil, name, args...)
	return strings.TrimSpace(out), err
}

// command runs a tool; what it says is shown where it fails.
func (b *build) command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the tools are ours
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(b.epoch.Unix(), 10))
	cmd.Env = append(cmd.Env, env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), nil
}
