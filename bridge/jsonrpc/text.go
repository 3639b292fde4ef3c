package jsonrpc

import (
	"bytes"
	"errors"
	"math"
	"unicode/utf8"
)

// errNotString is what Unquote says about a span that is no string.
var errNotString = errors.New("not a JSON string")

// Unquote returns the text of the string at span s of data, which must have
// been validated. It fails when there is no string.
func Unquote(data []byte, s Span) (string, error) {
	raw := s.Of(data)
	if !isString(raw) {
		return "", errNotString
	}
	text := inner(raw)
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text), nil
	}
	return string(appendUnescaped(make([]byte, 0, len(text)), text)), nil
}

// EqualString reports whether the value at span s of data, which must have
// been validated, is a string with exactly the text want. It allocates nothing.
func EqualString(data []byte, s Span, want string) bool {
	raw := s.Of(data)
	if !isString(raw) {
		return false
	}
	text := inner(raw)
	if len(text) == len(want) && string(text) == want {
		return bytes.IndexByte(text, '\\') < 0
	}
	if len(text) <= len(want) || bytes.IndexByte(text, '\\') < 0 {
		return false // an escaped spelling is never shorter than its text
	}
	for len(text) > 0 && len(want) > 0 {
		r, n := nextRune(text)
		w, size := utf8.DecodeRuneInString(want)
		if r != w || size == 1 && w == utf8.RuneError {
			return false
		}
		text, want = text[n:], want[size:]
	}
	return len(text) == 0 && len(want) == 0
}

// Quote returns s as a JSON string.
func Quote(s string) string { return string(AppendQuote(make([]byte, 0, len(s)+2), s)) }

// AppendQuote appends s as a JSON string without raw control characters.
// Bytes that are not UTF-8 become U+FFFD.
func AppendQuote(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[done:i]...), "\uFFFD"...)
				done = i + 1
			}
			i += n
			continue
		}
		i++
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7F {
			continue
		}
		dst = append(dst, s[done:i-1]...)
		done = i
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"')
}

// ValidIDNumber reports whether raw is a JSON number that is an integer in
// value: 1, 1.0, 1e2 and 100e-2 are, 1.5 and 1e-2 are not.
func ValidIDNumber(raw []byte) bool {
	if !isNumber(raw) {
		return false
	}
	d := parseDecimal(raw)
	return d.zero || d.exponent >= 0
}

// Integer returns the value of raw, a JSON number. It reports false for
// anything that is not an integer in value, or does not fit into 64 bits.
func Integer(raw []byte) (int64, bool) {
	if !isNumber(raw) {
		return 0, false
	}
	d := parseDecimal(raw)
	switch {
	case d.zero:
		return 0, true
	case d.exponent < 0 || d.exponent > 18 || len(d.digits) > 40:
		// The digits begin with a non-zero one, so a large exponent or many
		// digits (less one for a point) cannot fit.
		return 0, false
	}
	limit := uint64(math.MaxInt64)
	if d.negative {
		limit++
	}
	var v uint64
	add := func(digit byte) bool {
		if v > (limit-uint64(digit))/10 {
			return false
		}
		v = v*10 + uint64(digit)
		return true
	}
	for _, c := range d.digits {
		if c != '.' && !add(c-'0') {
			return 0, false
		}
	}
	for range d.exponent {
		if !add(0) {
			return 0, false
		}
	}
	if d.negative {
		return -int64(v), true //nolint:gosec // v is at most 2^63, whose negation is itself
	}
	return int64(v), true //nolint:gosec // bounded above
}

// decimal is a number as digits times a power of ten, in lowest terms.
type decimal struct {
	negative, zero bool
	digits         []byte // first and last digit are not zero; may hold a point
	exponent       int    // of the last digit; saturated far from any limit
}

// parseDecimal takes a valid JSON number apart.
func parseDecimal(raw []byte) decimal {
	const far = 1 << 30
	var d decimal
	if raw[0] == '-' {
		d.negative = true
		raw = raw[1:]
	}
	mantissa, exp := raw, 0
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		mantissa = raw[:i]
		negative := raw[i+1] == '-'
		for _, c := range raw[i+1:] {
			if c >= '0' && exp < far {
				exp = exp*10 + int(c-'0')
			}
		}
		if negative {
			exp = -exp
		}
	}
	if i := bytes.IndexByte(mantissa, '.'); i >= 0 {
		exp -= len(mantissa) - i - 1
	}
	digits := bytes.TrimLeft(mantissa, "0.")
	for len(digits) > 0 {
		switch digits[len(digits)-1] {
		case '0':
			exp++
		case '.':
		default:
			d.digits, d.exponent = digits, exp
			return d
		}
		digits = digits[:len(digits)-1]
	}
	d.zero = true
	return d
}

func isString(raw []byte) bool {
	return len(raw) >= 2 && raw[0] == '"' && raw[len(raw)-1] == '"'
}

// isNumber holds raw against the grammar, so that the functions on numbers
// are safe on any bytes.
func isNumber(raw []byte) bool {
	if len(raw) == 0 || raw[0] != '-' && raw[0]-'0' > 9 {
		return false
	}
	s := scanner{data: raw}
	return s.number(0) == len(raw)
}

// inner is a string without its quotes.
func inner(raw []byte) []byte { return raw[1 : len(raw)-1] }

// nextRune reads the first character of the inside of a string that is not
// empty, and returns how many bytes of its spelling it takes. On a text that
// was not validated it returns U+FFFD where it finds none.
func nextRune(text []byte) (rune, int) {
	if text[0] != '\\' {
		return utf8.DecodeRune(text)
	}
	if len(text) < 2 {
		return utf8.RuneError, 1
	}
	switch c := text[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		unit, ok := hex4(text, 2)
		if !ok {
			return utf8.RuneError, 2
		}
		if unit < 0xD800 || unit > 0xDFFF {
			return unit, 6
		}
		if len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
			if second, ok := hex4(text, 8); ok && unit < 0xDC00 && second >= 0xDC00 && second <= 0xDFFF {
				return (unit-0xD800)<<10 + (second - 0xDC00) + 0x10000, 12
			}
		}
		return utf8.RuneError, 6
	default:
		return rune(c), 2
	}
}

// appendUnescaped appends the inside of a string without its escapes.
func appendUnescaped(dst, text []byte) []byte {
	for len(text) > 0 {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		r, n := nextRune(text[i:])
		dst = utf8.AppendRune(dst, r)
		text = text[i+n:]
	}
	return dst
}

// copyUnescaped is appendUnescaped into a fixed space. It reports false when
// the text does not fit.
func copyUnescaped(dst, text []byte) (int, bool) {
	n := 0
	for len(text) > 0 {
		r, size := nextRune(text)
		if n+utf8.RuneLen(r) > len(dst) {
			return 0, false
		}
		n += utf8.EncodeRune(dst[n:], r)
		text = text[size:]
	}
	return n, true
}

// equalUnescaped compares the insides of two strings.
func equalUnescaped(a, b []byte) bool {
	for len(a) > 0 && len(b) > 0 {
		r, n := nextRune(a)
		q, k := nextRune(b)
		if r != q {
			return false
		}
		a, b = a[n:], b[k:]
	}
	return len(a) == 0 && len(b) == 0
}
