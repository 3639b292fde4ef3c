// Package loginenv finds out the environment that the user's login shell sets
// up. A service is started with a poor PATH; what npx, uvx, nvm and Homebrew
// need is in files that only a shell reads.
//
// It runs the shell once and has it run this program, which prints its own
// environment. It changes nothing, keeps nothing, and writes no value anywhere.
package loginenv

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// PrintCommand is the hidden command of mcpd that calls [Print].
const PrintCommand = "print-environment"

// Mark tells the files of the shell, should they want to know, and is no part
// of the result.
const Mark = "MCPD_RESOLVING_ENVIRONMENT"

// fence surrounds the environment in the output of the shell, whose files may
// print what they like.
const fence = "\x1emcpd-environment\x1e"

// Print writes this process's environment so that Resolve can find it.
func Print(w io.Writer) error {
	data, err := json.Marshal(os.Environ())
	if err != nil {
		return fmt.Errorf("loginenv: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s%s%s\n", fence, data, fence)
	return err
}
