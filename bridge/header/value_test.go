package header

import (
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestDecodeValue(t *testing.T) {
	for in, want := range map[string]string{
		"us-west1":                              "us-west1",
		"":                                      "",
		"a b\tc":                                "a b\tc",
		"  padded \t":                           "padded", // white space around a field value is not part of it
		"=?base64?SGVsbG8sIOS4lueVjA==?=":       "Hello, 世界",
		"=?base64?IHBhZGRlZCA=?=":               " padded ",
		"=?base64?bGluZTEKbGluZTI=?=":           "line1\nline2",
		"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=":   "=?base64?literal?=",
		" =?base64?QQ==?= ":                     "A",
		"=?base64??=":                           "",
		"=?base64?=":                            "=?base64?=", // the markers do not share a byte
		"=?base64?QQ==":                         "=?base64?QQ==",
		"QQ==?=":                                "QQ==?=",
		"=?BASE64?QQ==?=":                       "=?BASE64?QQ==?=",
		"=?Base64?QQ==?=":                       "=?Base64?QQ==?=",
		"x=?base64?QQ==?=":                      "x=?base64?QQ==?=",
		"=?base64?" + "Pz8/" + "?=":             "???",
		"=?utf-8?B?QQ==?=":                      "=?utf-8?B?QQ==?=",
		"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~":    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
		"=?base64?" + "8J+YgA==" + "?=":         "😀",
		"=?base64?" + "AAECAw==" + "?=":         "\x00\x01\x02\x03",
		"=?base64?" + "PT9iYXNlNjQ/QQ==" + "?=": "=?base64?A",
	} {
		if got, err := DecodeValue(in); err != nil || got != want {
			t.Errorf("DecodeValue(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestDecodeValueRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb":                 "0x0A",
		"a\rb":                 "0x0D",
		"a\x00b":               "0x00",
		"a\x7fb":               "0x7F",
		"\v":                   "0x0B",
		"世界":                   "0xE4",
		"\xff":                 "0xFF",
		"=?base64?SGVsbG8?=":   "not valid Base64", // no padding
		"=?base64?SGVs!bG8=?=": "not valid Base64",
		"=?base64?SGVs bG8=?=": "not valid Base64",
		"=?base64?_-8=?=":      "not valid Base64", // the alphabet of URLs
		"=?base64?QR==?=":      "not valid Base64", // stray bits: "A" is QQ==
		"=?base64?QQ==QQ==?=":  "not valid Base64",
		"=?base64?QQ===?=":     "not valid Base64",
		"=?base64?/w==?=":      "not UTF-8",
		"=?base64?7aCA?=":      "not UTF-8", // half of a surrogate pair
	} {
		if got, err := DecodeValue(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("DecodeValue(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestEncodeValueKeepsWhatAHeaderCanCarry(t *testing.T) {
	for in, want := range map[string]string{
		"us-west1":           "us-west1",
		"us west 1":          "us west 1",
		"a\tb":               "a\tb",
		"":                   "=?base64??=",
		" a":                 "=?base64?IGE=?=",
		"a ":                 "=?base64?YSA=?=",
		"\ta":                "=?base64?CWE=?=",
		"a\r\nb":             "=?base64?YQ0KYg==?=",
		"=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"=?base64?literal":   "=?base64?literal",
		"Hello, 世界":          "=?base64?SGVsbG8sIOS4lueVjA==?=",
	} {
		if got := EncodeValue(in); got != want {
			t.Errorf("EncodeValue(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEveryTextSurvivesTheHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`[ -~\t]*`),
			rapid.StringMatching(`=\?base64\?[A-Za-z0-9+/=?]*(\?=)?`),
		).Draw(t, "text")
		value := EncodeValue(text)
		for i := range len(value) {
			if c := value[i]; c < ' ' && c != '\t' || c > '~' {
				t.Fatalf("EncodeValue(%q) = %q", text, value)
			}
		}
		if strings.Trim(value, " \t") != value || value == "" {
			t.Fatalf("EncodeValue(%q) = %q loses its ends on the way", text, value)
		}
		if got, err := DecodeValue(value); err != nil || got != text {
			t.Fatalf("%q went as %q and came as %q, %v", text, value, got, err)
		}
	})
}

func FuzzDecodeValue(f *testing.F) {
	for _, s := range []string{
		"", "us-west1", " a ", "=?base64?SGVsbG8=?=", "=?base64?SGVsbG8?=", "=?base64?=", "=?base64??=",
		"=?base64?QR==?=", "=?base64?/w==?=", "a\r\nb", "世", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		got, err := DecodeValue(v)
		if err != nil {
			if len(err.Error()) > 200 {
				t.Fatalf("a long error: %v", err)
			}
			return
		}
		if !utf8.ValidString(got) {
			t.Fatalf("DecodeValue(%q) = %q is not UTF-8", v, got)
		}
		// Every accepted value means one text, and the text has one encoded
		// spelling: the one that was sent, or itself.
		trimmed := strings.Trim(v, " \t")
		encoded := encodedPrefix + base64.StdEncoding.EncodeToString([]byte(got)) + encodedSuffix
		if got != trimmed && encoded != trimmed {
			t.Fatalf("DecodeValue(%q) = %q, whose spelling is %q", v, got, encoded)
		}
		if again, err := DecodeValue(EncodeValue(got)); err != nil || again != got {
			t.Fatalf("%q came back as %q, %v", got, again, err)
		}
	})
}

func TestForeignValuesAreClippedInErrors(t *testing.T) {
	for _, s := range []string{strings.Repeat("x", 5000), strings.Repeat("世", 5000), strings.Repeat("\xff", 5000), strings.Repeat("\x1b[31m", 50)} {
		got := clip(s)
		if len(got) > 4*100+5 || !utf8.ValidString(got) || strings.ContainsRune(got, '\x1b') {
			t.Errorf("clip gives %d bytes: %q", len(got), got)
		}
	}
	if got := clip("plain"); got != `"plain"` {
		t.Errorf("clip gives %s", got)
	}
}
