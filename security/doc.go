// Package security decides who may call mcpd, and keeps what that decision
// rests on.
//
// It owns the [Gate], which puts every HTTP request through a fixed order of
// checks (Host, Origin, path, method, token, right) before any handler sees
// it; the [Policy] of exact Host and Origin values; the [TokenStore] with the
// hashes of the bearer tokens that are accepted; the [Secret] type, which does
// not print what it holds; and the files and folders that only their owner can
// read.
//
// The package denies by default: what no list names is refused. It never reads
// a request's body, never looks at a query string, never redirects, never
// names a server in a refusal, and never writes a token to a log, an error or
// a response.
package security
