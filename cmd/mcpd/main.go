// Command mcpd runs the MCP servers of one person as one local daemon, and
// controls that daemon.
//
// Each command is in a file of its own. They talk to a running daemon over its
// control interface and never change its files beneath it.
package main

import (
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
