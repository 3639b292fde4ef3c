package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// npmLock names every package that the tests need, with its hash.
//
//go:embed testdata/npm
var npmLock embed.FS

// unavailable skips the test, or fails it where everything is required.
func unavailable(t *testing.T, format string, args ...any) {
	t.Helper()
	reason := fmt.Sprintf(format, args...)
	if os.Getenv("MCPD_TEST_REQUIRE_ALL") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// tools are the programs fetched for the tests.
type tools struct {
	modules string // the node_modules folder
	node    string // a Node that runs all of them
}

func (x tools) script(parts ...string) string {
	return filepath.Join(append([]string{x.modules, "@modelcontextprotocol"}, parts...)...)
}

// fetched is done once for all tests.
var fetched = sync.OnceValues(func() (tools, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	return fetch(ctx)
})

// npm returns the programs from npm, fetching them where the cache does not have them.
func npm(t *testing.T) tools {
	t.Helper()
	if testing.Short() {
		t.Skip("needs packages from npm")
	}
	x, err := fetched()
	if err != nil {
		unavailable(t, "packages from npm: %v", err)
	}
	return x
}

func cacheDir() (string, error) {
	if dir := os.Getenv("MCPD_TEST_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "mcpd-test"), nil
}

// fetch installs the locked packages into a folder named after the lock file's digest, so that a changed lock is a new
// folder and a complete one is used without asking the network. Test binaries that run at the same time take turns.
func fetch(ctx context.Context) (tools, error) {
	cache, err := cacheDir()
	if err != nil {
		return tools{}, err
	}
	lock, err := npmLock.ReadFile("testdata/npm/package-lock.json")
	if err != nil {
		return tools{}, err
	}
	digest := sha256.Sum256(lock)
	dir := filepath.Join(cache, "npm-"+hex.EncodeToString(digest[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return tools{}, err
	}
	guard := flock.New(dir + ".lock")
	if _, err := guard.TryLockContext(ctx, 200*time.Millisecond); err != nil {
		return tools{}, err
	}
	defer guard.Unlock() //nolint:errcheck // the lock ends with the process at the latest
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err != nil {
		if err := install(ctx, dir); err != nil {
			return tools{}, err
		}
		if err := os.WriteFile(complete, nil, 0o600); err != nil {
			return tools{}, err
		}
	}
	x := tools{modules: filepath.Join(dir, "node_modules")}
	x.node, err = findNode(ctx, x.modules)
	return x, err
}

func install(ctx context.Context, dir string) error {
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := npmLock.ReadFile("testdata/npm/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	// Nothing here needs an install script, so none may run. The stricter "npm ci" cannot be used: it refuses the lock
	// for an optional package for Windows that the registry does not have.
	cmd := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install: %w\n%s", err, out)
	}
	return nil
}

// findNode finds a Node 22: the one that was fetched, or one on the PATH.
func findNode(ctx context.Context, modules string) (string, error) {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	candidates := []string{filepath.Join(modules, "node-"+runtime.GOOS+"-"+arch, "bin", "node")}
	if path, err := exec.LookPath("node"); err == nil {
		candidates = append(candidates, path)
	}
	for _, node := range candidates {
		out, err := exec.CommandContext(ctx, node, "--version").Output()
		var major int
		if err != nil {
			continue
		}
		if _, err := fmt.Fscanf(bytes.NewReader(out), "v%d", &major); err == nil && major >= 22 {
			return node, nil
		}
	}
	return "", fmt.Errorf("no Node 22 or newer among %q", candidates)
}

// everythingServer builds the test server of the Go SDK once.
var everythingServer = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	path := filepath.Join(filepath.Dir(mcpd), "everything-server")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	return path, goBuild(ctx, path, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
})

// sdkServer returns the test server of the Go SDK. It comes from the module cache, as all dependencies do.
func sdkServer(t *testing.T) string {
	t.Helper()
	path, err := everythingServer()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
