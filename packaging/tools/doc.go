// Package tools pins the programs that packaging needs, apart from what mcpd
// itself is built from.
package tools
