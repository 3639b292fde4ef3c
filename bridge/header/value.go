package header

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The markers around an encoded value. They are case-sensitive.
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

var (
	errBase64 = errors.New("is marked as Base64 but is not valid Base64 with padding")
	errUTF8   = errors.New("is Base64 of something that is not UTF-8")
)

// DecodeValue returns what an Mcp-Name or Mcp-Param-* header stands for. v is
// the value of one header field; white space around it is not part of it.
//
// Between the markers =?base64? and ?= only standard Base64 is accepted, with
// its padding, without stray bits, and of valid UTF-8: an encoder that
// conforms writes nothing else, and no two decoders then disagree. Without
// both markers a value is literal, whatever it looks like. The error is for
// the person; it does not repeat the value.
func DecodeValue(v string) (string, error) {
	v = strings.Trim(v, " \t")
	for i := range len(v) {
		if !plainByte(v[i]) {
			return "", fmt.Errorf("contains the byte 0x%02X, which no header value may hold: encode it as %s…%s", v[i], encodedPrefix, encodedSuffix)
		}
	}
	inner, marked := strings.CutPrefix(v, encodedPrefix)
	if marked {
		inner, marked = strings.CutSuffix(inner, encodedSuffix)
	}
	if !marked {
		return v, nil
	}
	text, err := base64.StdEncoding.Strict().DecodeString(inner)
	switch {
	case err != nil:
		return "", errBase64
	case !utf8.Valid(text):
		return "", errUTF8
	}
	return string(text), nil
}

// EncodeValue returns the header value for s, which must be UTF-8 for anyone
// to accept it. It is s itself where a header can carry that unchanged. The
// empty string is encoded as well: intermediaries tend to drop empty headers.
func EncodeValue(s string) string {
	plain := s != "" && s == strings.Trim(s, " \t")
	for i := 0; plain && i < len(s); i++ {
		plain = plainByte(s[i])
	}
	if plain && !(strings.HasPrefix(s, encodedPrefix) && strings.HasSuffix(s, encodedSuffix)) {
		return s
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + encodedSuffix
}

// plainByte reports whether c may be in a field value (RFC 9110, section 5.5,
// without obs-text).
func plainByte(c byte) bool { return ' ' <= c && c <= '~' || c == '\t' }

// clip makes a foreign value fit for an error text: bounded, quoted, without
// control characters.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return strconv.QuoteToGraphic(s)
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.QuoteToGraphic(s[:cut]) + "…"
}
