package config

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PreferredPort is the port that mcpd takes where it is free.
const PreferredPort = 7317

//go:embed example.toml
var exampleText string

// Example is the commented file that `mcpd init` writes: it listens on port and has one working server, which is the
// program at the path executable itself. Lines that start with "#" and no space after it are settings to be switched on
// by removing the "#".
func Example(executable string, port int) []byte {
	command := strings.ReplaceAll(executable, "${", "$${")
	return []byte(strings.NewReplacer(
		`"127.0.0.1:7317"`, `"127.0.0.1:`+strconv.Itoa(port)+`"`,
		`"/path/to/mcpd"`, quoteTOML(command),
	).Replace(exampleText))
}

// WriteNew writes [Example] to path, readable by its owner only, and makes the folder (0700) if there is none. Whatever
// already stands at path stays: the error then wraps fs.ErrExist.
func WriteNew(path, executable string, port int) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of the configuration: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is already there and stays as it is; edit it, or move it away first: %w", path, fs.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("cannot write a new configuration: %w", err)
	}
	_, err = file.Write(Example(executable, port))
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		// Half a file would stop the next attempt and would not be valid.
		return errors.Join(fmt.Errorf("cannot write the new configuration %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// FreePort finds a port of 127.0.0.1 that nobody listens on: [PreferredPort] if possible, else one that the system
// picks. Another program may take it before it is used.
func FreePort(ctx context.Context) (int, error) { return freePort(ctx, PreferredPort) }

func freePort(ctx context.Context, preferred int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp4", "127.0.0.1:"+strconv.Itoa(preferred))
	if err != nil {
		listener, err = listen.Listen(ctx, "tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return 0, fmt.Errorf("cannot find a free port on 127.0.0.1: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return 0, fmt.Errorf("cannot release port %d: %w", port, err)
	}
	return port, nil
}
