package security

import (
	"bytes"
	"encoding/gob"
	stdjson "encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode"

	"github.com/go-json-experiment/json"
)

const hidden = "s3cr3t-v4lu3"

// TestSecretNeverPrintsItself puts a Secret into everything that a value is
// commonly found in, and prints that in every way.
func TestSecretNeverPrintsItself(t *testing.T) {
	secret := NewSecret(hidden)
	type inner struct{ private Secret }
	type outer struct {
		Public  Secret
		Pointer *Secret
		Any     any
		inner   inner
		List    []Secret
		Map     map[string]Secret
	}
	whole := outer{
		Public: secret, Pointer: &secret, Any: secret, inner: inner{secret},
		List: []Secret{secret}, Map: map[string]Secret{"k": secret},
	}
	values := map[string]any{
		"itself": secret, "pointer": &secret, "struct": whole, "pointer to struct": &whole,
		"unexported field": inner{secret}, "slice": []Secret{secret}, "array": [1]Secret{secret},
		"map": map[string]Secret{"k": secret}, "map of any": map[string]any{"k": secret},
		"slice of any": []any{secret, &secret, inner{secret}},
	}
	for name, value := range values {
		var out []string
		// Every verb there is, and some that are not, with every flag.
		for verb := 'A'; verb <= 'z'; verb++ {
			for _, flags := range []string{"", "+", "#", "-", " ", "0", "+#", "40", ".3", "# "} {
				out = append(out, fmt.Sprintf("%"+flags+string(verb), value))
			}
		}
		out = append(out, fmt.Sprint(value), fmt.Sprintln(value), fmt.Errorf("failed: %v", value).Error())
		out = append(out, errors.Join(fmt.Errorf("%+v", value)).Error())
		for _, marshal := range []func(any) ([]byte, error){
			func(v any) ([]byte, error) { return stdjson.Marshal(v) },
			func(v any) ([]byte, error) { return json.Marshal(v) },
			xml.Marshal,
			func(v any) ([]byte, error) {
				var b bytes.Buffer
				err := gob.NewEncoder(&b).Encode(v)
				return b.Bytes(), err
			},
		} {
			data, err := marshal(value) // some cannot encode some of the values
			out = append(out, string(data), fmt.Sprint(err))
		}
		for _, handler := range []func(*bytes.Buffer) slog.Handler{
			func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var b bytes.Buffer
			slog.New(handler(&b)).With("with", value).Info("message", "value", value, slog.Group("g", "value", value))
			out = append(out, b.String())
		}
		for _, text := range out {
			for _, form := range []string{hidden, fmt.Sprintf("%x", hidden), fmt.Sprintf("%X", hidden), fmt.Sprintf("% x", hidden), fmt.Sprint([]byte(hidden))} {
				if strings.Contains(text, form) {
					t.Errorf("%s: printed as %q", name, text)
				}
			}
		}
	}
	// On its own it shows the placeholder, so that a reader knows why.
	for verb := 'A'; verb <= 'z'; verb++ {
		if got := fmt.Sprintf("%"+string(verb), secret); unicode.IsLetter(verb) && !strings.ContainsRune("Tpw", verb) && got != "[redacted]" {
			t.Errorf("%%%c: printed as %q", verb, got)
		}
	}
	if got := secret.String() + secret.GoString() + secret.LogValue().String(); got != "[redacted][redacted][redacted]" {
		t.Errorf("methods give %q", got)
	}
	for name, marshal := range map[string]func(any) ([]byte, error){
		"encoding/json": stdjson.Marshal,
		"json v2":       func(v any) ([]byte, error) { return json.Marshal(v) },
	} {
		data, err := marshal(map[string]any{"k": secret})
		if err != nil || string(data) != `{"k":"[redacted]"}` {
			t.Errorf("%s gives %s, %v", name, data, err)
		}
	}
	if secret.Reveal() != hidden || secret.IsZero() {
		t.Error("Reveal does not give the string")
	}
	if got := fmt.Sprint(secret); got != "[redacted]" {
		t.Errorf("printed as %q", got)
	}
}

func TestTheZeroSecretIsEmpty(t *testing.T) {
	var zero Secret
	if zero.Reveal() != "" || !zero.IsZero() || fmt.Sprint(zero) != "[redacted]" {
		t.Errorf("%q %v %v", zero.Reveal(), zero.IsZero(), zero)
	}
}
