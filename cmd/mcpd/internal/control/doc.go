// Package control is the daemon's own interface for its owner: the JSON
// shapes, the HTTP routes below /api/v1/, and the client that mcpd's commands
// use to reach a running daemon.
//
// Every route needs a token with the admin right, except the one by which the
// daemon proves that it is the one; package security's gate sees to that before
// a handler here runs. The package never touches a child, the
// config or a token file by itself: it asks a [Daemon]. It never sends a token
// to an address before it knows that the daemon of this state folder listens
// there.
package control
