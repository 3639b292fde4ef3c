package supervisor

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the entry of the children: the test binary is executed again with a mode in its environment.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		childMain(mode)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
