package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

const byteOrderMark = "\ufeff"

// document is a file that is good TOML, as a tree of keys that know their places.
type document struct {
	file string
	text string // without byte order mark
	root *node
	// sections say where everything stands. They are only whole for a text without problems.
	sections []section
}

// parseDocument reads the TOML. Repeated keys are reported without giving up on the rest of the file, so the document
// may come together with problems; it is nil when the rest cannot be understood.
func parseDocument(file string, data []byte) (*document, Errors) {
	d := &document{file: file, text: strings.TrimPrefix(string(data), byteOrderMark)}
	x := indexKeys(d.text)
	if x.tooDeep >= 0 {
		return nil, Errors{d.problem(x.tooDeep, flawf("arrays, tables or dotted keys are nested more than %d deep", maxNesting))}
	}
	values, fault := decodeTOML(d.text)
	var problems Errors
	if fault != nil && fault.repeats && len(x.repeats) > 0 {
		// The parser stops at the first repeated key. Blank them all out (in a copy of the same length, so that every
		// offset stays right) to see what else there is.
		rest := []byte(d.text)
		for _, r := range x.repeats {
			problems = append(problems, d.problem(r.key.start, d.repeatFlaw(r)))
			for i := r.statement.start; i < r.statement.end; i++ {
				if rest[i] != '\n' && rest[i] != '\r' {
					rest[i] = ' '
				}
			}
		}
		values, fault = decodeTOML(string(rest))
	}
	if fault != nil {
		return nil, append(problems, d.problem(d.skipSpace(fault.offset), &fault.flaw))
	}
	d.root, d.sections = x.root, x.sections
	attach(d.root, values)
	return d, problems
}

func (d *document) repeatFlaw(r repetition) *flaw {
	line, _ := d.position(r.first.start)
	if r.header {
		return flawf("the table [%s] is defined twice, first in line %d", keyPath(r.path...), line).
			withHint("put all its keys under one header")
	}
	return flawf("the key %s is set twice, first in line %d", keyPath(r.path...), line)
}

// problem places a flaw at a byte offset.
func (d *document) problem(offset int, f *flaw) Problem {
	line, column := d.position(offset)
	return Problem{File: d.file, Line: line, Column: column, Message: f.message, Hint: f.hint}
}

// position counts lines and characters from 1.
func (d *document) position(offset int) (line, column int) {
	before := d.text[:min(max(offset, 0), len(d.text))]
	lineStart := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[lineStart:]) + 1
}

// skipSpace moves an offset off the spaces before what it means: the parser's errors start where the last token ended.
func (d *document) skipSpace(offset int) int {
	offset = min(max(offset, 0), len(d.text))
	rest := d.text[offset:]
	if moved := strings.TrimLeft(rest, " \t"); moved != "" && moved[0] != '\n' && moved[0] != '\r' {
		return offset + len(rest) - len(moved)
	}
	return offset
}

// syntaxFault is why a text is not TOML.
type syntaxFault struct {
	flaw
	offset  int
	repeats bool // it is a key that was set before
}

// decodeTOML runs the TOML parser. A panic of the parser counts as a syntax error: no text may bring the daemon down.
func decodeTOML(text string) (values map[string]any, fault *syntaxFault) {
	defer func() {
		if recover() != nil {
			values, fault = nil, &syntaxFault{flaw: flaw{message: "the file is not valid TOML"}}
		}
	}()
	if at := firstInvalid(text); at >= 0 {
		return nil, &syntaxFault{
			flaw:   flaw{message: "the file has bytes that are not UTF-8", hint: "save it in the encoding UTF-8"},
			offset: at,
		}
	}
	_, err := toml.Decode(text, &values)
	if err == nil {
		return values, nil
	}
	fault = &syntaxFault{flaw: flaw{message: "the file is not valid TOML: " + err.Error()}}
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		fault = explain(parse, text)
	}
	return nil, fault
}

// explain puts an error of the parser in our words where they help more, and where the parser's own repeat a value of the
// file: that may be a secret.
func explain(parse toml.ParseError, text string) *syntaxFault {
	message := parse.Message
	fault := &syntaxFault{
		flaw:    flaw{message: message},
		offset:  parse.Position.Start,
		repeats: strings.Contains(message, "already been defined") || strings.Contains(message, "was already created"),
	}
	switch {
	case strings.HasPrefix(message, "Key '") && strings.HasSuffix(message, "' has already been defined."):
		fault.message = "the key " + strings.TrimSuffix(message[len("Key '"):], "' has already been defined.") + " is set twice"
	case strings.HasPrefix(message, `expected value but found "`):
		fault.message, fault.hint = "this is not a value", "text must be in quotes"
	case strings.HasPrefix(message, "expected a top-level item to end"):
		fault.message, fault.hint = "nothing but a comment may follow on this line", "text must be in quotes"
	case strings.HasPrefix(message, "Invalid integer"), strings.HasPrefix(message, "Invalid float"):
		_, reason, _ := strings.Cut(message, `": `)
		fault.message = "this is not a number: " + reason
	case strings.HasPrefix(message, "invalid datetime"):
		fault.message, fault.hint = "this is not a date or time", "text must be in quotes"
	case strings.Contains(message, "is out of range for"):
		fault.message = "the number is too large"
	case strings.Contains(message, "escape"), strings.Contains(message, "hexadecimal"):
		fault.message, _, _ = strings.Cut(message, ", but got ")
		fault.hint = `write "\\" for a backslash, or put the text in single quotes`
		// The parser's range goes from the start of the string to the bad escape.
		start := min(parse.Position.Start, len(text))
		end := min(start+parse.Position.Len, len(text))
		if at := strings.LastIndexByte(text[start:end], '\\'); at >= 0 {
			fault.offset = start + at
		}
	}
	return fault
}

func firstInvalid(text string) int {
	if utf8.ValidString(text) {
		return -1
	}
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			return i
		}
	}
	return -1
}

// attach gives each key its value, and makes the tree agree with the parser: what was blanked out leaves it, and a key
// that the index should have missed is complained about at its parent's place.
func attach(n *node, value any) {
	n.data = value
	switch value := value.(type) {
	case map[string]any:
		n.children = slices.DeleteFunc(n.children, func(c *node) bool {
			_, ok := value[c.name]
			return !ok
		})
		n.byName = make(map[string]*node, len(value))
		for _, c := range n.children {
			n.byName[c.name] = c
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if n.byName[name] == nil {
				n.add(name, n.at())
			}
			attach(n.byName[name], value[name])
		}
	case []any:
		for i, item := range value {
			attach(n.item(i), item)
		}
	case []map[string]any:
		for i, item := range value {
			attach(n.item(i), item)
		}
	}
}

func (n *node) item(i int) *node {
	for len(n.items) <= i {
		n.items = append(n.items, &node{key: n.at()})
	}
	return n.items[i]
}

// typeName is the TOML name of a value's type, with its article.
func typeName(value any) string {
	switch value.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return "an array"
	default:
		return "a date or time"
	}
}

// keyPath writes a key as TOML would, quoting the parts that need it.
func keyPath(parts ...string) string {
	quoted := make([]string, len(parts))
	for i, p := range parts {
		quoted[i] = keyText(p)
	}
	return strings.Join(quoted, ".")
}

func keyText(name string) string {
	for i := range len(name) {
		if !isBare(name[i]) {
			return quoteTOML(name)
		}
	}
	if name == "" {
		return `""`
	}
	return name
}

// quoteTOML writes a string on one line.
func quoteTOML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
