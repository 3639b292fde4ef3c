// Package e2e runs the real mcpd program as a user would, with real children and real clients, and looks at what can be
// seen from outside: HTTP answers, processes, files, exit codes.
//
// It never calls into the packages of the program. Tests that need the network fetch what they need by themselves, are
// left out by -short, skip with the reason where it cannot be had, and fail instead where MCPD_TEST_REQUIRE_ALL=1.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpd/cmd/mcpd/internal/fixture"
)

// The test binary is the fixture server when this variable is set.
const asFixture = "MCPD_E2E_FIXTURE"

// mcpd is the path of the program under test, built once by TestMain.
var mcpd string

func TestMain(m *testing.M) {
	if os.Getenv(asFixture) != "" {
		fixture.Main()
	}
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "mcpd-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	mcpd = filepath.Join(dir, "mcpd")
	if runtime.GOOS == "windows" {
		mcpd += ".exe"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := goBuild(ctx, mcpd, "mcpd/cmd/mcpd"); err != nil {
		return 0, err
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			return 0, fmt.Errorf("goroutines left by the tests: %w", err)
		}
	}
	return code, nil
}

// goBuild builds a package as the module of these tests sees it.
func goBuild(ctx context.Context, out, pkg string) error {
	args := []string{"build", "-o", out}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, text)
	}
	return nil
}
