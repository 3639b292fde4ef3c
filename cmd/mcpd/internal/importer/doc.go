// Package importer reads the MCP servers that other programs have in their
// files, and turns those that run over stdio into entries for mcpd's own.
//
// It only reads. What to write, and where, is decided by the command that asks.
// It says for every server what it could not take over and why, and never puts
// a value of an environment variable or an argument into such a sentence:
// these carry secrets.
package importer
