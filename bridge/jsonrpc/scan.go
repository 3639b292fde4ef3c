package jsonrpc

import (
	"encoding/binary"
	"math/bits"
	"strconv"
)

// place is an object whose member names the scanner looks at.
type place uint8

const (
	elsewhere place = iota
	inMessage
	inParams
	inParamsMeta
	inArguments
	inResult
	inResultMeta
	inError
)

func (p place) String() string {
	switch p {
	case inMessage:
		return "the message"
	case inParams:
		return "params"
	case inParamsMeta:
		return "params._meta"
	case inArguments:
		return "params.arguments"
	case inResult:
		return "result"
	case inResultMeta:
		return "result._meta"
	case inError:
		return "error"
	default:
		return "an object"
	}
}

// scanner walks over one text. Its methods take the offset where something
// begins and return the offset behind it, or -1 after a fault was recorded.
type scanner struct {
	data []byte
	m    *Message // nil when only validating

	newline bool // a raw CR or LF was passed
	escaped bool // the string scanned last holds a backslash
	keyEnd  int  // where the name scanned last by key ends

	depth  int
	arrays [(MaxDepth + 63) / 64]uint64 // bit n: level n+1 is an array

	faultAt int
	fault   string

	repeated   Span // the first name found twice
	repeatedIn place
	repeatedID bool
}

func (s *scanner) fail(at int, what string) int {
	s.faultAt, s.fault = at, what
	return -1
}

func (s *scanner) syntaxError() error {
	return &SyntaxError{Offset: s.faultAt, Reason: s.fault}
}

// at is the byte at i, and 0 behind the end: no token begins with a NUL.
func (s *scanner) at(i int) byte {
	if uint(i) < uint(len(s.data)) {
		return s.data[i]
	}
	return 0
}

func (s *scanner) space(i int) int {
	if i < len(s.data) && s.data[i] > ' ' {
		return i
	}
	return s.spaces(i)
}

func (s *scanner) spaces(i int) int {
	for ; i < len(s.data); i++ {
		switch s.data[i] {
		case ' ', '\t':
		case '\n', '\r':
			s.newline = true
		default:
			return i
		}
	}
	return i
}

// finish checks that only white space follows, and returns end.
func (s *scanner) finish(end int) int {
	if i := s.space(end); i < len(s.data) {
		return s.fail(i, "unexpected text behind the JSON value")
	}
	return end
}

func (s *scanner) push(i int, array bool) bool {
	if s.depth == MaxDepth {
		s.fail(i, "nested deeper than "+strconv.Itoa(MaxDepth)+" levels")
		return false
	}
	word, bit := s.depth/64, uint64(1)<<(s.depth%64)
	if array {
		s.arrays[word] |= bit
	} else {
		s.arrays[word] &^= bit
	}
	s.depth++
	return true
}

func (s *scanner) innermostIsArray() bool {
	top := s.depth - 1
	return s.arrays[top/64]>>(top%64)&1 != 0
}

// object scans an object whose members have a meaning in p, or whose names
// must at least be unique.
func (s *scanner) object(i int, p place) int {
	if !s.push(i, false) {
		return -1
	}
	first := len(s.m.names)
	i = s.space(i + 1)
	if s.at(i) == '}' {
		s.depth--
		return i + 1
	}
	for {
		key := Span{Start: i}
		if i = s.key(i); i < 0 {
			return -1
		}
		key.End = s.keyEnd
		escaped := s.escaped
		slot, inner := s.slot(p, key, escaped)
		value := Span{Start: i}
		if inner != elsewhere && s.at(i) == '{' {
			i = s.object(i, inner)
		} else {
			i = s.value(i)
		}
		if i < 0 {
			return -1
		}
		value.End = i
		if slot != nil {
			if slot.Present() {
				s.repeatedID = s.repeatedID || slot == &s.m.ID
			} else {
				*slot = Member{key, value}
			}
		}
		s.m.names = append(s.m.names, name{key: key, escaped: escaped})

		i = s.space(i)
		switch s.at(i) {
		case ',':
			i = s.space(i + 1)
		case '}':
			s.depth--
			s.unique(first, p)
			s.m.names = s.m.names[:first]
			return i + 1
		default:
			return s.fail(i, "expected a comma or the end of the object")
		}
	}
}

// key scans a member name and the colon behind it, and returns where the
// value begins.
func (s *scanner) key(i int) int {
	if s.at(i) != '"' {
		return s.fail(i, "expected a member name in quotes")
	}
	if i = s.str(i); i < 0 {
		return -1
	}
	s.keyEnd = i
	i = s.space(i)
	if s.at(i) != ':' {
		return s.fail(i, "expected a colon behind a member name")
	}
	return s.space(i + 1)
}

// value scans any value. Objects in it may repeat names.
func (s *scanner) value(i int) int {
	if c := s.at(i); c != '{' && c != '[' {
		return s.scalar(i)
	}
	outside := s.depth
	for {
		// A value begins at i, inside the innermost open object or array.
		switch s.at(i) {
		case '{':
			if !s.push(i, false) {
				return -1
			}
			if i = s.space(i + 1); s.at(i) != '}' {
				if i = s.key(i); i < 0 {
					return -1
				}
				continue
			}
			s.depth--
			i++
		case '[':
			if !s.push(i, true) {
				return -1
			}
			if i = s.space(i + 1); s.at(i) != ']' {
				continue
			}
			s.depth--
			i++
		default:
			if i = s.scalar(i); i < 0 {
				return -1
			}
		}
		// A value ended before i.
		for {
			if s.depth == outside {
				return i
			}
			array := s.innermostIsArray()
			i = s.space(i)
			c := s.at(i)
			if c == ',' {
				if i = s.space(i + 1); !array {
					if i = s.key(i); i < 0 {
						return -1
					}
				}
				break
			}
			switch {
			case array && c == ']', !array && c == '}':
			case array:
				return s.fail(i, "expected a comma or the end of the array")
			default:
				return s.fail(i, "expected a comma or the end of the object")
			}
			s.depth--
			i++
		}
	}
}

func (s *scanner) scalar(i int) int {
	switch c := s.at(i); c {
	case '"':
		return s.str(i)
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			return s.number(i)
		}
		if i >= len(s.data) {
			return s.fail(i, "the text ends where a value is expected")
		}
		return s.fail(i, "expected a value")
	}
}

func (s *scanner) literal(i int, want string) int {
	if end := i + len(want); end <= len(s.data) && string(s.data[i:end]) == want {
		return end
	}
	return s.fail(i, "expected "+want)
}

func (s *scanner) number(i int) int {
	if s.at(i) == '-' {
		i++
	}
	if s.at(i) == '0' {
		i++
	} else if i = s.digits(i); i < 0 {
		return -1
	}
	if s.at(i) == '.' {
		if i = s.digits(i + 1); i < 0 {
			return -1
		}
	}
	if c := s.at(i); c == 'e' || c == 'E' {
		i++
		if c := s.at(i); c == '+' || c == '-' {
			i++
		}
		return s.digits(i)
	}
	return i
}

// digits scans one digit or more.
func (s *scanner) digits(i int) int {
	first := i
	for i < len(s.data) && s.data[i]-'0' <= 9 {
		i++
	}
	if i == first {
		return s.fail(i, "expected a digit")
	}
	return i
}

// str scans a string. It records in s.escaped whether a backslash occurred.
func (s *scanner) str(i int) int {
	s.escaped = false
	for i++; ; {
		i = plain(s.data, i)
		switch c := s.at(i); {
		case c == '"':
			return i + 1
		case c == '\\':
			s.escaped = true
			i = s.escape(i)
		case c >= 0x80:
			i = s.nonASCII(i)
		case i >= len(s.data):
			return s.fail(i, "the text ends inside a string")
		default:
			return s.fail(i, "raw control character in a string")
		}
		if i < 0 {
			return -1
		}
	}
}

// plain passes over the bytes of a string that stand for themselves: ASCII
// other than quote, backslash and control characters. It looks at eight bytes
// at a time, and in a long run at four times eight, which keeps the processor
// busy while one step waits for another.
func plain(b []byte, i int) int {
	for i+8 <= len(b) {
		if found := special(binary.LittleEndian.Uint64(b[i:])) & tops; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
		i += 8
		for i+32 <= len(b) {
			x := (*[32]byte)(b[i:])
			f0 := special(binary.LittleEndian.Uint64(x[0:8]))
			f1 := special(binary.LittleEndian.Uint64(x[8:16]))
			f2 := special(binary.LittleEndian.Uint64(x[16:24]))
			f3 := special(binary.LittleEndian.Uint64(x[24:32]))
			if (f0|f1|f2|f3)&tops == 0 {
				i += 32
				continue
			}
			switch {
			case f0&tops != 0:
				return i + bits.TrailingZeros64(f0&tops)/8
			case f1&tops != 0:
				return i + 8 + bits.TrailingZeros64(f1&tops)/8
			case f2&tops != 0:
				return i + 16 + bits.TrailingZeros64(f2&tops)/8
			default:
				return i + 24 + bits.TrailingZeros64(f3&tops)/8
			}
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] < 0x80 && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

const (
	ones = 0x0101010101010101
	tops = 0x80 * ones
)

// special sets the top bit of each byte of x that does not stand for itself in
// a string. A borrow can set that of a byte above such a one as well, which
// does no harm, as only the lowest counts. The other bits mean nothing.
func special(x uint64) uint64 {
	return x | (x - 0x20*ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)
}

// nonASCII scans a run of multi-byte UTF-8 sequences (RFC 3629, section 4).
func (s *scanner) nonASCII(i int) int {
	b := s.data
	for i < len(b) && b[i] >= 0x80 {
		lead, more := b[i], 0
		if lead >= 0xE1 && lead <= 0xEC && i+2 < len(b) && b[i+1]&0xC0 == 0x80 && b[i+2]&0xC0 == 0x80 {
			i += 3 // the common case of most scripts beyond Latin
			continue
		}
		low, high := byte(0x80), byte(0xBF) // of the second byte
		switch {
		case lead < 0xC2:
			// a continuation byte, or an overlong form
		case lead < 0xE0:
			more = 1
		case lead < 0xF0:
			more = 2
			if lead == 0xE0 {
				low = 0xA0
			} else if lead == 0xED {
				high = 0x9F // no surrogates
			}
		case lead < 0xF5:
			more = 3
			if lead == 0xF0 {
				low = 0x90
			} else if lead == 0xF4 {
				high = 0x8F
			}
		}
		rest := b[i+1:]
		ok := more > 0 && len(rest) >= more && low <= rest[0] && rest[0] <= high &&
			(more < 2 || rest[1]&0xC0 == 0x80) && (more < 3 || rest[2]&0xC0 == 0x80)
		if !ok {
			return s.fail(i, "invalid UTF-8")
		}
		i += 1 + more
	}
	return i
}

// escape scans one escape sequence, or the two of a surrogate pair.
func (s *scanner) escape(i int) int {
	switch s.at(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		unit, ok := hex4(s.data, i+2)
		if !ok {
			return s.fail(i, "\\u without four hexadecimal digits")
		}
		if unit < 0xD800 || unit > 0xDFFF {
			return i + 6
		}
		if unit < 0xDC00 && s.at(i+6) == '\\' && s.at(i+7) == 'u' {
			if second, ok := hex4(s.data, i+8); ok && second >= 0xDC00 && second <= 0xDFFF {
				return i + 12
			}
		}
		return s.fail(i, "half of a surrogate pair")
	default:
		return s.fail(i, "unknown escape sequence")
	}
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte, i int) (rune, bool) {
	if len(b)-i < 4 {
		return 0, false
	}
	var v rune
	for _, c := range b[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, true
}
