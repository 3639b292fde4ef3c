package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"
)

// maxFile bounds a file, in bytes. Claude Code keeps much else in its file.
const maxFile = 64 << 20

// maxDepth bounds the nesting of a file.
const maxDepth = 1000

// ReadFile reads a file of settings. Anything but a regular file is refused.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// member is one name with its value of a JSON object, in the file's order.
type member struct {
	name  string
	value jsontext.Value
}

// object is a JSON object.
type object []member

func (o object) get(name string) (jsontext.Value, bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// sub is the object at a name; nil where there is none.
func (o object) sub(name string) object {
	value, ok := o.get(name)
	if !ok {
		return nil
	}
	sub, err := split(value)
	if err != nil {
		return nil
	}
	return sub
}

// parse reads JSON with comments and trailing commas.
func parse(data []byte) (object, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it is empty")
	}
	if !utf8.Valid(data) {
		return nil, errors.New("it has bytes that are not UTF-8; save it in that encoding")
	}
	if nestedDeeper(data, maxDepth) {
		return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	// A comment that ends with the file is one for the programs, not for hujson.
	standard, err := hujson.Standardize(append(slices.Clip(data), '\n'))
	if err != nil {
		return nil, fmt.Errorf("it is not valid JSON: %w", err)
	}
	root, err := split(standard)
	if err != nil {
		return nil, err
	}
	return root, nil
}

// nestedDeeper says whether objects and arrays are nested deeper than a limit.
// The parser calls itself for each, and would take the program down with it.
func nestedDeeper(data []byte, limit int) bool {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case c == '/' && i+1 < len(data) && (data[i+1] == '/' || data[i+1] == '*'):
			end := "\n"
			if data[i+1] == '*' {
				end = "*/"
			}
			i += 2
			at := bytes.Index(data[i:], []byte(end))
			if at < 0 {
				return false // all that is left is a comment
			}
			i += at + len(end) - 1
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// members takes an object apart in which a name that stands twice is an error:
// there is no telling which one was meant.
func members(value jsontext.Value) (object, error) {
	o, err := split(value)
	if err != nil {
		return nil, err
	}
	if name := o.repeated(); name != "" {
		return nil, fmt.Errorf("it has %q twice", printable(name))
	}
	return o, nil
}

// repeated is a name that stands twice, or "".
func (o object) repeated(names ...string) string {
	seen := make(map[string]bool, len(o))
	for _, m := range o {
		if seen[m.name] && (len(names) == 0 || slices.Contains(names, m.name)) {
			return m.name
		}
		seen[m.name] = true
	}
	return ""
}

// split takes an object apart. What is in its values is not looked at: most of
// a file is about other things.
func split(value jsontext.Value) (object, error) {
	d := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true))
	tok, err := d.ReadToken()
	if err != nil {
		return nil, plain(err)
	}
	if tok.Kind() != '{' {
		return nil, errors.New("it is not a JSON object")
	}
	o := object{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, plain(err)
		}
		m := member{name: name.String()}
		v, err := d.ReadValue()
		if err != nil {
			return nil, plain(err)
		}
		m.value = v.Clone()
		o = append(o, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, plain(err)
	}
	return o, nil
}

// plain says what is wrong without the text around it, which may be secret.
func plain(err error) error {
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return fmt.Errorf("it is not valid JSON, near byte %d", syntactic.ByteOffset)
	}
	return err
}

// text is a string; ok is false for anything else.
func text(value jsontext.Value) (string, bool) {
	if value.Kind() != '"' {
		return "", false
	}
	unquoted, err := jsontext.AppendUnquote(nil, value)
	return string(unquoted), err == nil
}

// scalar is a string, number or boolean as text.
func scalar(value jsontext.Value) (string, bool) {
	switch value.Kind() {
	case '"':
		return text(value)
	case '0', 't', 'f':
		return string(value), true
	}
	return "", false
}

// elements takes an array apart.
func elements(value jsontext.Value) ([]jsontext.Value, bool) {
	d := jsontext.NewDecoder(bytes.NewReader(value))
	tok, err := d.ReadToken()
	if err != nil || tok.Kind() != '[' {
		return nil, false
	}
	var list []jsontext.Value
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, false
		}
		list = append(list, v.Clone())
	}
	return list, true
}
