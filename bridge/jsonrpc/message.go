package jsonrpc

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

const (
	// MaxDepth is how many objects and arrays may be nested in each other.
	// Common parsers stop between 128 and 10000 levels; a text above this
	// limit would only reach a server that cannot read it.
	MaxDepth = 1000

	// MaxIDLength bounds an id, in bytes as it is spelled (quotes included).
	MaxIDLength = 1024
)

// Span is a half-open range of bytes of a text. The zero value stands for
// something that does not occur.
type Span struct{ Start, End int }

// Present reports whether the span holds any byte.
func (s Span) Present() bool { return s.End > s.Start }

// Len is the number of bytes in the span.
func (s Span) Len() int { return s.End - s.Start }

// Of returns the bytes of the span in b, the text that was scanned. It is nil
// for an absent span.
func (s Span) Of(b []byte) []byte {
	if !s.Present() {
		return nil
	}
	return b[s.Start:s.End:s.End]
}

// Member is one name/value pair of an object. Key includes its quotes.
type Member struct{ Key, Value Span }

// Present reports whether the member occurs.
func (m Member) Present() bool { return m.Value.Present() }

// Of returns the bytes of the member's value in b, nil when it is absent.
func (m Member) Of(b []byte) []byte { return m.Value.Of(b) }

// Kind says what a message is.
type Kind uint8

// The kinds of messages. Result and Error are the two kinds of responses.
const (
	Invalid Kind = iota
	Request
	Notification
	Result
	Error
)

func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Result:
		return "result"
	case Error:
		return "error"
	default:
		return "invalid"
	}
}

// Message holds the spans of one scanned message. All spans are offsets into
// the text given to Scan. A Message may be reused for any number of scans, by
// one goroutine at a time; reuse saves the allocation of its scratch space.
type Message struct {
	Kind   Kind
	Object Span // the top-level object, without surrounding white space

	Version Member // "jsonrpc"
	ID      Member
	Method  Member
	Params  Member
	Result  Member
	Error   Member

	// Param holds members of params.
	Param struct {
		Meta            Member // "_meta"
		Name            Member
		URI             Member
		Arguments       Member
		Notifications   Member
		ProgressToken   Member
		RequestID       Member // "requestId"
		Level           Member
		ProtocolVersion Member
		Cursor          Member
		Ref             Member
		Capabilities    Member
		ClientInfo      Member
		InputResponses  Member
		RequestState    Member
	}

	// Meta holds members of params._meta. All but ProgressToken carry the
	// prefix "io.modelcontextprotocol/" on the wire.
	Meta struct {
		ProgressToken      Member
		ProtocolVersion    Member
		ClientCapabilities Member
		ClientInfo         Member
		LogLevel           Member
		SubscriptionID     Member
	}

	// Res holds members of a result that is an object.
	Res struct {
		Meta       Member // "_meta"
		ResultType Member
		TTL        Member // "ttlMs"
		CacheScope Member
	}

	// ResMeta holds members of result._meta, which carry the prefix
	// "io.modelcontextprotocol/" on the wire.
	ResMeta struct {
		ServerInfo     Member
		SubscriptionID Member
	}

	// Err holds members of error.
	Err struct {
		Code    Member
		Message Member
		Data    Member
	}

	// HasNewline is true when a raw CR or LF occurs anywhere in the text. In
	// valid JSON it can only be white space between tokens.
	HasNewline bool

	names []name // scratch: the member names of the objects that are open
}

// Reset empties m, but for its scratch space.
func (m *Message) Reset() { *m = Message{names: m.names[:0]} }

// What a text can be that is JSON but not one object.
var (
	ErrBatch     = errors.New("a JSON-RPC batch (array) is not accepted")
	ErrNotObject = errors.New("not a JSON object")
)

// SyntaxError is a text that is not JSON, or not JSON as strict as demanded
// here. It maps to the JSON-RPC error -32700.
type SyntaxError struct {
	Offset int    // in bytes, from the start of the text
	Reason string // what is wrong there
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset)
}

// EnvelopeError is a JSON object that is not a JSON-RPC 2.0 message as MCP
// knows it. It maps to the JSON-RPC error -32600.
type EnvelopeError struct{ Reason string }

func (e *EnvelopeError) Error() string { return e.Reason }

// Scan validates the whole of data and fills m. A byte order mark is refused.
//
// The error is a *SyntaxError, ErrBatch, ErrNotObject or an *EnvelopeError.
// After an EnvelopeError m.Kind is Invalid, and m.ID is present only when the
// id itself is in order, so that the sender can be answered; the presence of
// Method, Result and Error then still tells which of them occurred. After any
// other error m is empty.
//
// A result may be any value, as in JSON-RPC; Res is filled when it is an
// object. An error response may be without an id.
func Scan(data []byte, m *Message) error { return scan(data, 0, m) }

// ScanLine is Scan for a line of a stream: one byte order mark in front of
// the text is passed over.
func ScanLine(data []byte, m *Message) error {
	if len(data) >= 3 && string(data[:3]) == "\xEF\xBB\xBF" {
		return scan(data, 3, m)
	}
	return scan(data, 0, m)
}

// Validate checks that data is one JSON value, under the same rules as Scan
// except that names may repeat, and returns its span without surrounding white
// space. The error is a *SyntaxError.
func Validate(data []byte) (Span, error) {
	s := scanner{data: data}
	start := s.space(0)
	end := s.value(start)
	if end >= 0 {
		end = s.finish(end)
	}
	if end < 0 {
		return Span{}, s.syntaxError()
	}
	return Span{start, end}, nil
}

func scan(data []byte, from int, m *Message) error {
	m.Reset()
	s := scanner{data: data, m: m}
	start := s.space(from)
	isObject := s.at(start) == '{'
	var end int
	if isObject {
		end = s.object(start, inMessage)
	} else {
		end = s.value(start)
	}
	if end >= 0 {
		end = s.finish(end)
	}
	s.release()

	switch {
	case end < 0:
		*m = Message{names: m.names}
		return s.syntaxError()
	case !isObject && data[start] == '[':
		return ErrBatch
	case !isObject:
		return ErrNotObject
	}
	m.Object = Span{start, end}
	m.HasNewline = s.newline

	kind, reason := s.envelope()
	if reason != "" {
		return &EnvelopeError{Reason: reason}
	}
	m.Kind = kind
	return nil
}

// envelope judges an object that was scanned completely. A reason means that
// it is not a message; m.ID is then kept only if it can be echoed.
func (s *scanner) envelope() (Kind, string) {
	m, data := s.m, s.data
	badID := ""
	if m.ID.Present() {
		badID = idFault(m.ID.Of(data))
	}
	if badID != "" || s.repeatedID {
		m.ID = Member{}
	}
	switch {
	case s.repeated.Present():
		return Invalid, s.repetition()
	case !m.Version.Present():
		return Invalid, `the member "jsonrpc" is missing`
	case !EqualString(data, m.Version.Value, "2.0"):
		return Invalid, `"jsonrpc" must be "2.0"`
	case badID != "":
		return Invalid, badID
	case m.Method.Present():
		return s.call()
	case m.Result.Present() && m.Error.Present():
		return Invalid, `a response has "result" or "error", not both`
	case m.Result.Present():
		if !m.ID.Present() {
			return Invalid, `a result must carry the "id" of its request`
		}
		return Result, ""
	case m.Error.Present():
		return s.failure()
	default:
		return Invalid, `one of "method", "result" and "error" must be there`
	}
}

func (s *scanner) call() (Kind, string) {
	m, data := s.m, s.data
	switch {
	case m.Result.Present() || m.Error.Present():
		return Invalid, `"method" and "result" or "error" cannot be in one message`
	case data[m.Method.Value.Start] != '"':
		return Invalid, `"method" must be a string`
	case m.Params.Present() && data[m.Params.Value.Start] != '{':
		return Invalid, `"params" must be an object`
	case m.ID.Present():
		return Request, ""
	default:
		return Notification, ""
	}
}

func (s *scanner) failure() (Kind, string) {
	m, data := s.m, s.data
	switch {
	case data[m.Error.Value.Start] != '{':
		return Invalid, `"error" must be an object`
	case !m.Err.Code.Present() || !ValidIDNumber(m.Err.Code.Of(data)):
		return Invalid, `"error" must have an integer "code"`
	case !m.Err.Message.Present() || data[m.Err.Message.Value.Start] != '"':
		return Invalid, `"error" must have a string "message"`
	default:
		return Error, ""
	}
}

// ValidID reports whether raw, a valid JSON value, may be the id of a request.
func ValidID(raw []byte) bool { return len(raw) > 0 && idFault(raw) == "" }

func idFault(raw []byte) string {
	switch c := raw[0]; {
	case len(raw) > MaxIDLength:
		return `"id" is longer than ` + strconv.Itoa(MaxIDLength) + ` bytes`
	case c == '"':
		return ""
	case c == '-' || '0' <= c && c <= '9':
		if !ValidIDNumber(raw) {
			return `"id" must be a string or an integer, not a fraction`
		}
		return ""
	default:
		return `"id" must be a string or an integer`
	}
}

// repetition says which name occurs twice, and where. The name comes from the
// sender: it is clipped and quoted.
func (s *scanner) repetition() string {
	const most = 64
	text, err := Unquote(s.data, s.repeated)
	if err != nil {
		text = string(s.repeated.Of(s.data))
	}
	if len(text) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return "the member " + strconv.QuoteToGraphic(text) + " occurs twice in " + s.repeatedIn.String()
}
