package jsonrpc

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// name is a member name seen in an object that is still open.
type name struct {
	key     Span
	sum     uint64 // hash of the unescaped name, once it is needed
	escaped bool
}

const (
	// fewNames is up to how many names are compared each with each.
	fewNames = 16
	// keptNames bounds the scratch space that a Message keeps for reuse.
	keptNames = 256
)

func (s *scanner) release() {
	if cap(s.m.names) > keptNames {
		s.m.names = nil
	}
	s.m.names = s.m.names[:0]
}

// unique looks for a repetition among the names from first on, which are those
// of the object that ends here.
func (s *scanner) unique(first int, p place) {
	names := s.m.names[first:]
	if len(names) > fewNames {
		s.uniqueOfMany(names, p)
		return
	}
	for i := range names {
		for j := range i {
			if s.sameName(names[i], names[j]) {
				s.repeats(names[i], p)
				return
			}
		}
	}
}

// uniqueOfMany sorts the names by hash, so that only names with the same hash
// are compared. The seed is fresh: nobody can prepare names that collide.
func (s *scanner) uniqueOfMany(names []name, p place) {
	seed := maphash.MakeSeed()
	var scratch []byte
	for i := range names {
		text := inner(names[i].key.Of(s.data))
		if names[i].escaped {
			scratch = appendUnescaped(scratch[:0], text)
			text = scratch
		}
		names[i].sum = maphash.Bytes(seed, text)
	}
	slices.SortFunc(names, func(a, b name) int {
		return cmp.Or(cmp.Compare(a.sum, b.sum), cmp.Compare(a.key.Start, b.key.Start))
	})
	found := -1
	for i := 1; i < len(names); i++ {
		for j := i - 1; j >= 0 && names[j].sum == names[i].sum; j-- {
			if s.sameName(names[i], names[j]) {
				if found < 0 || names[i].key.Start < names[found].key.Start {
					found = i
				}
				break
			}
		}
	}
	if found >= 0 {
		s.repeats(names[found], p)
	}
}

func (s *scanner) repeats(n name, p place) {
	if !s.repeated.Present() {
		s.repeated, s.repeatedIn = n.key, p
	}
}

func (s *scanner) sameName(a, b name) bool {
	if !a.escaped && !b.escaped {
		return string(a.key.Of(s.data)) == string(b.key.Of(s.data))
	}
	return equalUnescaped(inner(a.key.Of(s.data)), inner(b.key.Of(s.data)))
}

// longestKnown is the length of the longest name that slot knows.
const longestKnown = len("io.modelcontextprotocol/clientCapabilities")

// slot finds where a member of p is recorded, and what its value is as a
// place if it is an object.
func (s *scanner) slot(p place, key Span, escaped bool) (*Member, place) {
	text := inner(key.Of(s.data))
	var buf [longestKnown]byte
	if escaped {
		// A longer spelling than all-escaped cannot be a known name.
		if len(text) > 6*longestKnown {
			return nil, elsewhere
		}
		n, ok := copyUnescaped(buf[:], text)
		if !ok {
			return nil, elsewhere
		}
		text = buf[:n]
	}
	m := s.m
	switch p {
	case inMessage:
		return m.topLevel(text)
	case inParams:
		return m.param(text)
	case inParamsMeta:
		return m.paramMeta(text), elsewhere
	case inResult:
		return m.result(text)
	case inResultMeta:
		return m.resultMeta(text), elsewhere
	case inError:
		return m.failure(text), elsewhere
	default:
		return nil, elsewhere
	}
}

func (m *Message) topLevel(text []byte) (*Member, place) {
	switch string(text) {
	case "jsonrpc":
		return &m.Version, elsewhere
	case "id":
		return &m.ID, elsewhere
	case "method":
		return &m.Method, elsewhere
	case "params":
		return &m.Params, inParams
	case "result":
		return &m.Result, inResult
	case "error":
		return &m.Error, inError
	default:
		return nil, elsewhere
	}
}

func (m *Message) param(text []byte) (*Member, place) {
	p := &m.Param
	switch string(text) {
	case "_meta":
		return &p.Meta, inParamsMeta
	case "arguments":
		return &p.Arguments, inArguments
	case "name":
		return &p.Name, elsewhere
	case "uri":
		return &p.URI, elsewhere
	case "notifications":
		return &p.Notifications, elsewhere
	case "progressToken":
		return &p.ProgressToken, elsewhere
	case "requestId":
		return &p.RequestID, elsewhere
	case "level":
		return &p.Level, elsewhere
	case "protocolVersion":
		return &p.ProtocolVersion, elsewhere
	case "cursor":
		return &p.Cursor, elsewhere
	case "ref":
		return &p.Ref, elsewhere
	case "capabilities":
		return &p.Capabilities, elsewhere
	case "clientInfo":
		return &p.ClientInfo, elsewhere
	case "inputResponses":
		return &p.InputResponses, elsewhere
	case "requestState":
		return &p.RequestState, elsewhere
	default:
		return nil, elsewhere
	}
}

func (m *Message) paramMeta(text []byte) *Member {
	switch string(text) {
	case "progressToken":
		return &m.Meta.ProgressToken
	case "io.modelcontextprotocol/protocolVersion":
		return &m.Meta.ProtocolVersion
	case "io.modelcontextprotocol/clientCapabilities":
		return &m.Meta.ClientCapabilities
	case "io.modelcontextprotocol/clientInfo":
		return &m.Meta.ClientInfo
	case "io.modelcontextprotocol/logLevel":
		return &m.Meta.LogLevel
	case "io.modelcontextprotocol/subscriptionId":
		return &m.Meta.SubscriptionID
	default:
		return nil
	}
}

func (m *Message) result(text []byte) (*Member, place) {
	switch string(text) {
	case "_meta":
		return &m.Res.Meta, inResultMeta
	case "resultType":
		return &m.Res.ResultType, elsewhere
	case "ttlMs":
		return &m.Res.TTL, elsewhere
	case "cacheScope":
		return &m.Res.CacheScope, elsewhere
	default:
		return nil, elsewhere
	}
}

func (m *Message) resultMeta(text []byte) *Member {
	switch string(text) {
	case "io.modelcontextprotocol/serverInfo":
		return &m.ResMeta.ServerInfo
	case "io.modelcontextprotocol/subscriptionId":
		return &m.ResMeta.SubscriptionID
	default:
		return nil
	}
}

func (m *Message) failure(text []byte) *Member {
	switch string(text) {
	case "code":
		return &m.Err.Code
	case "message":
		return &m.Err.Message
	case "data":
		return &m.Err.Data
	default:
		return nil
	}
}
