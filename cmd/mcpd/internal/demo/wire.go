package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
)

// The protocol revisions served, newest first.
const modernVersion = "2026-07-28"

var legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// Keys of _meta that the specification reserves.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// JSON-RPC and MCP error codes.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeUnsupportedVersion = -32022
	codeLegacyNotFound     = -32002 // resource not found, before 2026-07-28
)

// maxLine bounds one incoming message. It is far above anything the tools can use.
const maxLine = 16 << 20

type object = map[string]any

// message is one incoming JSON-RPC message. ID is nil for a notification.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// requestMeta is what the server reads from params._meta.
type requestMeta struct {
	Version       *string         `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities  json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
	LogLevel      *string         `json:"io.modelcontextprotocol/logLevel"`
	ProgressToken json.RawMessage `json:"progressToken"`
}

// rpcError is a protocol error: the request itself was wrong.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *rpcError) Error() string { return e.Message }

func invalidParams(text string) *rpcError { return &rpcError{Code: codeInvalidParams, Message: text} }

// validID reports whether raw is an id that MCP allows: a string or an integer, never null.
func validID(raw json.RawMessage) bool {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return false
	}
	switch v := value.(type) {
	case string:
		return true
	case float64:
		return v == math.Trunc(v)
	default:
		return false
	}
}

var errLineTooLong = errors.New("line too long")

// readLine returns the next line without its end. A line over limit bytes is skipped whole and reported as
// errLineTooLong, so that one bad message does not end the connection. The last line needs no newline.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			tooLong = true
			line = nil
		}
		if !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil, errors.Is(err, io.EOF) && (tooLong || len(line) > 0):
			if tooLong {
				return nil, errLineTooLong
			}
			return bytes.TrimSpace(line), nil
		default:
			return nil, err
		}
	}
}
