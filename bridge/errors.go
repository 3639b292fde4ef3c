package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mcpd/bridge/jsonrpc"
)

// JSON-RPC error codes of the base protocol and of MCP 2026-07-28.
const (
	codeParse              = -32700
	codeInvalidRequest     = -32600
	codeMethodNotFound     = -32601
	codeInvalidParams      = -32602
	codeInternal           = -32603
	codeResourceNotFound   = -32002 // legacy revisions only
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// JSON-RPC error codes of mcpd itself. They lie outside -32768..-32000, the
// range that JSON-RPC and MCP keep for themselves, so that a client can tell
// mcpd's own errors from those of a server. The last three digits are the
// HTTP status that goes with them.
const (
	CodeUnknownServer  = -31404 // no server of that name is configured
	CodeUnknownSession = -31404 // the session has ended, or never was the caller's
	CodeNotAcceptable  = -31406 // the Accept header rules out what is needed
	CodeNotAsked       = -31409 // to a server: no client can be asked
	CodeTooLarge       = -31413 // the request body is over the limit
	CodeMediaType      = -31415 // the Content-Type is not application/json
	CodeCancelled      = -31499 // the client cancelled the request itself
	CodeServerFault    = -31502 // the server died or broke the protocol before it answered
	CodeUnavailable    = -31503 // the server is not up, or too busy
	CodeTimeout        = -31504 // the server did not answer in time
)

// Fault is an answer that mcpd gives itself: what the client is told, and how.
type Fault struct {
	Status     int           // HTTP status
	Code       int           // JSON-RPC error code
	Message    string        // a sentence for the person
	Data       []byte        // raw JSON of error.data, or nil
	RetryAfter time.Duration // for 503: when to try again, or 0
}

func (f *Fault) Error() string { return f.Message }

func faultf(status, code int, format string, args ...any) *Fault {
	return &Fault{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func unavailable(retryAfter time.Duration, format string, args ...any) *Fault {
	f := faultf(http.StatusServiceUnavailable, CodeUnavailable, format, args...)
	f.RetryAfter = max(retryAfter, time.Second)
	return f
}

// retryLater is what an error of the supervising side may offer.
type retryLater interface {
	error
	RetryDelay() time.Duration
}

// errClosed is why a Conn ends when mcpd ends it.
var errClosed = errors.New("the connection to the server was closed")

// errDraining says that a Conn takes no new requests; nothing was sent.
var errDraining = errors.New("the server's process is being replaced")

// lostError is delivered to a request whose process ended before it answered.
type lostError struct {
	cause error
	sent  bool // whether any of the request can have reached the process
}

func (e *lostError) Error() string {
	if errors.Is(e.cause, ErrStopping) {
		return fmt.Sprintf("%v, and the answer was not waited for any longer", e.cause)
	}
	return fmt.Sprintf("the server's process ended before it answered: %v", e.cause)
}

func (e *lostError) Unwrap() error { return e.cause }

// timeoutError is a request that got neither answer nor progress in time.
type timeoutError struct {
	after time.Duration
	total bool
}

func (e *timeoutError) Error() string {
	if e.total {
		return fmt.Sprintf("no answer within max_request_time (%v)", e.after)
	}
	return fmt.Sprintf("no answer and no progress within request_timeout (%v)", e.after)
}

// errSlowReader ends a stream whose client does not read what it asked for.
var errSlowReader = errors.New("the client reads too slowly: over stream_buffer_bytes")

// oversizeError is a server message over the limit.
type oversizeError struct{ limit int64 }

func (e *oversizeError) Error() string {
	return fmt.Sprintf("the server's answer is larger than max_message_bytes (%d bytes)", e.limit)
}

// brokenAnswerError is an answer of a server that is no valid JSON-RPC.
type brokenAnswerError struct{ cause error }

func (e *brokenAnswerError) Error() string {
	return fmt.Sprintf("the server's answer is not valid JSON-RPC: %v", e.cause)
}

// faultOf maps any error of the data path to what the client is told. This is
// the one place where errors become HTTP statuses.
func faultOf(server string, err error) *Fault {
	var (
		fault    *Fault
		later    retryLater
		lost     *lostError
		timeout  *timeoutError
		oversize *oversizeError
		broken   *brokenAnswerError
	)
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.As(err, &lost):
		if !lost.sent {
			return unavailable(time.Second, "server %q: its process ended before it got the request: %v", server, lost.cause)
		}
		return faultf(http.StatusBadGateway, CodeServerFault, "server %q: %v", server, lost)
	case errors.As(err, &later):
		return unavailable(later.RetryDelay(), "%s", later.Error()) // it names the server
	case errors.As(err, &oversize):
		return faultf(http.StatusBadGateway, CodeServerFault,
			"server %q: %v; raise max_message_bytes if such answers are expected", server, oversize)
	case errors.As(err, &broken):
		return faultf(http.StatusBadGateway, CodeServerFault, "server %q: %v", server, broken)
	case errors.As(err, &timeout):
		return faultf(http.StatusGatewayTimeout, CodeTimeout, "server %q: %v", server, timeout)
	case errors.Is(err, errSlowReader):
		return unavailable(time.Second, "server %q: %v", server, err)
	case errors.Is(err, errCancelled):
		// Only legacy clients cancel by a message, and to them a status other
		// than 200 speaks of the transport.
		return faultf(http.StatusOK, CodeCancelled, "the request was cancelled")
	case errors.Is(err, errDraining), errors.Is(err, errClosed):
		return unavailable(time.Second, "server %q is being stopped or replaced; try again", server)
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(time.Second, "server %q was not ready in time", server)
	default:
		return faultf(http.StatusInternalServerError, codeInternal, "server %q: %v", server, err)
	}
}

// faultOfScan maps what the scanner refused in a client's body.
func faultOfScan(err error) *Fault {
	var envelope *jsonrpc.EnvelopeError
	switch {
	case errors.Is(err, jsonrpc.ErrBatch):
		return faultf(http.StatusBadRequest, codeInvalidRequest,
			"a JSON-RPC batch is not accepted: send each message in a POST of its own")
	case errors.Is(err, jsonrpc.ErrNotObject):
		return faultf(http.StatusBadRequest, codeInvalidRequest, "the body must be one JSON-RPC object")
	case errors.As(err, &envelope):
		return faultf(http.StatusBadRequest, codeInvalidRequest, "not a JSON-RPC 2.0 message: %v", err)
	default:
		return faultf(http.StatusBadRequest, codeParse, "the body is not valid JSON: %v", err)
	}
}

// appendFault appends the JSON-RPC error response for f. id is the raw JSON of
// the request's own id; nil leaves the member out, as the schema demands.
func appendFault(dst []byte, id []byte, f *Fault) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != nil {
		dst = append(dst, `"id":`...)
		dst = append(dst, id...)
		dst = append(dst, ',')
	}
	dst = append(dst, `"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(f.Code), 10)
	dst = append(dst, `,"message":`...)
	dst = jsonrpc.AppendQuote(dst, f.Message)
	if f.Data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, f.Data...)
	}
	return append(dst, `}}`...)
}

// statusOfChildError gives the HTTP status of an error that the server itself
// returned (basic/transports/streamable-http, basic/index "Error Codes").
func statusOfChildError(code string) int {
	switch code {
	case "-32601":
		return http.StatusNotFound
	case "-32020", "-32021", "-32022":
		return http.StatusBadRequest
	}
	return http.StatusOK
}

func unsupportedVersion(requested string) *Fault {
	data := append([]byte(nil), `{"supported":[`...)
	for i, v := range modernVersions() {
		if i > 0 {
			data = append(data, ',')
		}
		data = jsonrpc.AppendQuote(data, v)
	}
	data = append(data, `],"requested":`...)
	data = jsonrpc.AppendQuote(data, requested)
	data = append(data, '}')
	f := faultf(http.StatusBadRequest, codeUnsupportedVersion, "protocol version %s is not supported here; supported: %s",
		clip(requested), strings.Join(modernVersions(), ", "))
	f.Data = data
	return f
}

// clip bounds a client's value before it goes into an error text.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.QuoteToGraphic(s)
}
