package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Runner runs a command of the system and returns its stdout. The error, a
// *CommandError where the command ran and failed, has its words.
type Runner func(ctx context.Context, name string, args ...string) (string, error)

// CommandError is a command that failed.
type CommandError struct {
	Command string
	Code    int    // its exit code
	Output  string // what it said, on either stream
}

func (e *CommandError) Error() string {
	text := e.Command + " failed"
	if e.Output == "" {
		return fmt.Sprintf("%s with exit code %d", text, e.Code)
	}
	return text + ": " + e.Output
}

// commandTimeout bounds one command. Stopping takes as long as the daemon's
// drain_timeout and its servers do.
const commandTimeout = 3 * time.Minute

func run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return stdout.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s did not end: %w", name, context.Cause(ctx))
	case errors.As(err, &exit):
		said := strings.TrimSpace(stderr.String())
		if said == "" {
			said = strings.TrimSpace(stdout.String())
		}
		return stdout.String(), &CommandError{strings.Join(append([]string{name}, args...), " "), exit.ExitCode(), said}
	}
	return "", fmt.Errorf("cannot run %s: %w", name, err)
}

// said is what a failed command said, or "".
func said(err error) string {
	var ce *CommandError
	if errors.As(err, &ce) {
		return ce.Output
	}
	return ""
}

func exitCode(err error) int {
	var ce *CommandError
	if errors.As(err, &ce) {
		return ce.Code
	}
	return -1
}
