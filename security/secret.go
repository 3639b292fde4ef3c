package security

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is all that a Secret ever shows of itself.
const redacted = "[redacted]"

// Secret holds a string that must not be printed by accident. Whatever formats
// or encodes a Secret, or a value that contains one, gets a placeholder; only
// [Secret.Reveal] gives the string. The zero Secret is empty.
//
// The string sits behind a function, not in a field: packages that print by
// reflection (fmt on an unexported field, on %p, debug dumpers) reach past
// every method of a type, but can show of a function nothing but its address.
// It also makes Secrets not comparable with ==, which would not be constant
// in time.
type Secret struct {
	reveal func() string
}

// NewSecret returns a Secret that holds value.
func NewSecret(value string) Secret {
	return Secret{reveal: func() string { return value }}
}

// Reveal returns the string itself. Do not log it, and do not put it in an
// error.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsZero reports whether s holds no string or an empty one.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// String returns a placeholder.
func (Secret) String() string { return redacted }

// GoString returns a placeholder.
func (Secret) GoString() string { return redacted }

// Format writes a placeholder for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns a placeholder.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns a placeholder.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON returns a placeholder as a JSON string.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
