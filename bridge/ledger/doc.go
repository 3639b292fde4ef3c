// Package ledger remembers calls that carry an idempotency key, so that none
// of them takes effect twice: not when the client repeats it, not when the
// server's process dies, not when mcpd itself is killed.
//
// It owns one bbolt file and the table of calls that run in this process. A
// call goes through at most three states: running, from before anything of it
// is sent (on disk and synced by then); done, once its answer is on disk; and
// unknown, where it was sent and no answer can be expected any more. What an
// earlier process left running is unknown from the next opening on. A call that
// was never sent leaves no trace.
//
// The package never talks to servers or clients, never decides what a client is
// told, and holds no lock while it waits for the disk or for a call.
package ledger
