package security

import "errors"

// What an [Authenticator] finds wrong with a token. Outside they all look the
// same; they are told apart only in the log and the counters.
var (
	ErrNoToken      = errors.New("no bearer token in the request")
	ErrUnknownToken = errors.New("the token is not known")
	ErrRevoked      = errors.New("the token was revoked")
	ErrExpired      = errors.New("the token has expired")
)

// bearerToken returns the token of a request's Authorization fields (RFC 6750
// section 2.1; the scheme's case does not matter, RFC 9110 section 11.1).
// Two fields are refused, because the gate and whatever stands before or
// behind it could each believe a different one.
func bearerToken(fields []string) (string, bool) {
	const scheme = "bearer"
	if len(fields) != 1 {
		return "", false
	}
	field := fields[0]
	if len(field) <= len(scheme) || field[len(scheme)] != ' ' {
		return "", false
	}
	for i := range len(scheme) {
		if field[i]|0x20 != scheme[i] {
			return "", false
		}
	}
	token := field[len(scheme):]
	for token != "" && token[0] == ' ' {
		token = token[1:]
	}
	return token, isToken68(token)
}

// isToken68 reports whether s has the form of RFC 9110 section 11.2: letters,
// digits and a few marks, then any number of '='.
func isToken68(s string) bool {
	i := 0
	for i < len(s) {
		b := s[i]
		if 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' ||
			b == '-' || b == '.' || b == '_' || b == '~' || b == '+' || b == '/' {
			i++
			continue
		}
		break
	}
	if i == 0 {
		return false
	}
	for i < len(s) && s[i] == '=' {
		i++
	}
	return i == len(s)
}
