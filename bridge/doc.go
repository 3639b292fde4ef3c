// Package bridge carries the Model Context Protocol between HTTP clients and
// MCP servers that speak over two pipes.
//
// It owns the wire: the JSON-RPC envelope, request ids and progress tokens,
// response streams, subscriptions, and the translation between the two eras
// of the protocol (per-request metadata from 2026-07-28 on, the initialize
// handshake before). An Endpoint is the HTTP side. An Upstream stands for one
// configured server for as long as its name is configured. A Conn is the
// conversation with one process of that server.
//
// Payloads are not decoded: a message is scanned once, the few values that
// have to change (the id, the progress token, protocol metadata for the other
// era) are spliced in, and everything else travels byte for byte.
//
// The package never starts, signals or waits for a process, and never decides
// who may call: it is handed pipes by its owner and a Principal by the gate.
package bridge
