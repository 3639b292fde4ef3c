// Package daemon puts the parts together: the config file, one supervised
// child with its MCP bridge for each configured server, the security gate, the
// HTTP server, and the control interface.
//
// One goroutine, the reload loop, is the only writer of the current config and
// of the set of servers; everyone else reads snapshots. Each server has a
// goroutine of its own that puts new configs of that server in place one after
// the other, so that a slow one holds up no other.
//
// The package speaks no MCP and starts no process itself.
package daemon
