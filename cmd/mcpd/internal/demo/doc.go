// Package demo is a small but real MCP server on a pair of streams.
//
// It exists so that a fresh installation has something to talk to that needs nothing but mcpd itself: tools (one of
// them slow, with progress and cancellation), resources that change, prompts, completion, log messages and change
// subscriptions. It speaks the stdio transport in both eras: revision 2026-07-28, where every request carries its
// version in _meta, and the revisions 2024-11-05 to 2025-11-25, which begin with initialize.
//
// All state is in memory and ends with Run. The package never touches files, the network or other processes, and never
// writes anything but MCP messages to its output.
package demo
