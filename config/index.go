package config

import (
	"strings"
	"unicode/utf8"
)

// maxNesting bounds arrays and inline tables within each other and the parts of one dotted key. The file needs four;
// the bound keeps recursive code (here and in the TOML parser) from exhausting the stack on hostile input.
const maxNesting = 32

// span is a range of byte offsets in the file.
type span struct{ start, end int }

// node is one key of the file, or one element of an array, with the place where it was written. The TOML parser decides
// what a file means and gives the values; it does not tell where each key and value stands, so the index does.
type node struct {
	name string
	// key is where this part of the key was first written; for an element of an array it equals value.
	key span
	// value is empty for a table that was made by headers or dotted keys.
	value span
	// children of a table, in order of first mention.
	children []*node
	// items of an array.
	items []*node

	byName   map[string]*node
	explicit bool // has a [header] or a value of its own

	// data is the value according to the TOML parser.
	data any
}

func (n *node) child(name string) *node { return n.byName[name] }

// at is the best place to complain about the value.
func (n *node) at() span {
	if n.value == (span{}) {
		return n.key
	}
	return n.value
}

func (n *node) add(name string, key span) *node {
	c := &node{name: name, key: key}
	if n.byName == nil {
		n.byName = make(map[string]*node)
	}
	n.byName[name] = c
	n.children = append(n.children, c)
	return c
}

// repetition is a key or a [header] that repeats an earlier one.
type repetition struct {
	path      []string
	key       span
	first     span
	header    bool
	statement span // what to blank out to go on without it
}

// section is one [header] with the statements below it, up to the next header. The first section of a text has no header.
type section struct {
	path       []string // of the table
	header     span     // brackets included
	statements []statement
}

// statement is one key = value on lines of its own.
type statement struct {
	path []string // below the section's table
	at   span
}

// indexer reads the keys of a TOML text. It is faithful for every text that the TOML parser accepts, and for the part
// before the first error of any other text; there it stops.
type indexer struct {
	text     string
	pos      int
	root     *node
	sections []section
	latest   []string // the key of the assignment that was read last
	repeats  []repetition
	tooDeep  int // offset of what exceeds maxNesting, or -1
	depth    int
}

func indexKeys(text string) *indexer {
	x := &indexer{text: text, root: &node{}, sections: []section{{}}, tooDeep: -1}
	x.run()
	return x
}

func (x *indexer) run() {
	table := x.root
	repeated := -1 // index in repeats of the [header] whose section this is
	for x.skipBlank() {
		start := x.pos
		if x.text[x.pos] != '[' {
			if !x.assignment(table, start, repeated < 0) {
				break
			}
			current := &x.sections[len(x.sections)-1]
			current.statements = append(current.statements, statement{x.latest, span{start, x.pos}})
			if !x.skipLineEnd() {
				break
			}
			continue
		}
		if repeated >= 0 {
			x.repeats[repeated].statement.end = start
			repeated = -1
		}
		before := len(x.repeats)
		next, ok := x.header(start)
		if len(x.repeats) > before {
			repeated = before
		}
		if !ok || !x.skipLineEnd() {
			break
		}
		table = next
	}
	if repeated >= 0 {
		x.repeats[repeated].statement.end = len(x.text)
	}
}

// part is one part of a dotted key.
type part struct {
	name string
	at   span
}

func names(parts []part) []string {
	list := make([]string, len(parts))
	for i, p := range parts {
		list[i] = p.name
	}
	return list
}

// header reads [a.b] or [[a.b]] and returns the table that follows it.
func (x *indexer) header(start int) (*node, bool) {
	list := strings.HasPrefix(x.text[x.pos:], "[[")
	x.pos++
	if list {
		x.pos++
	}
	parts, ok := x.dottedKey()
	if !ok || !x.accept(']') || (list && !x.accept(']')) {
		return nil, false
	}
	x.sections = append(x.sections, section{path: names(parts), header: span{start, x.pos}})
	table := x.root
	for _, p := range parts[:len(parts)-1] {
		table = table.enter(p)
	}
	last := parts[len(parts)-1]
	n := table.child(last.name)
	if n == nil {
		n = table.add(last.name, last.at)
	} else if (n.explicit && !list) || n.value != (span{}) || (list && len(n.items) == 0) {
		x.repeats = append(x.repeats, repetition{
			path: names(parts), key: last.at, first: n.key, header: true, statement: span{start, x.pos},
		})
	}
	n.explicit = true
	if list {
		n.items = append(n.items, &node{key: last.at})
		return n.items[len(n.items)-1], true
	}
	return n, true
}

// enter is the table below n that a part of a key (not the last one) leads to: the newest element where that is an
// array of tables.
func (n *node) enter(p part) *node {
	c := n.child(p.name)
	if c == nil {
		c = n.add(p.name, p.at)
	}
	if len(c.items) > 0 {
		return c.items[len(c.items)-1]
	}
	return c
}

// assignment reads key = value into table. A repeated key is recorded only where its table is not itself repeated.
func (x *indexer) assignment(table *node, start int, record bool) bool {
	parts, ok := x.dottedKey()
	if !ok || !x.accept('=') {
		return false
	}
	x.skipSpace()
	path, inline := parts, table
	var clash *node // an earlier plain value that this key treats as a table
	for _, p := range path[:len(path)-1] {
		inline = inline.enter(p)
		if clash == nil && inline.value != (span{}) && inline.byName == nil {
			clash = inline
		}
	}
	last := path[len(path)-1]
	n := inline.child(last.name)
	first := n == nil
	if first {
		n = inline.add(last.name, last.at)
	} else if clash == nil {
		clash = n
	}
	target := n
	if !first {
		target = &node{} // keep the places of the first one
	}
	target.explicit = true
	if !x.value(target) {
		return false
	}
	if clash != nil && record {
		x.repeats = append(x.repeats, repetition{
			path: names(parts), key: last.at, first: clash.key, statement: span{start, x.pos},
		})
	}
	x.latest = names(parts)
	return true
}

func (x *indexer) dottedKey() ([]part, bool) {
	var parts []part
	for {
		x.skipSpace()
		start := x.pos
		name, ok := x.keyPart()
		if !ok {
			return nil, false
		}
		parts = append(parts, part{name, span{start, x.pos}})
		if len(parts) > maxNesting {
			x.tooDeep = start
			return nil, false
		}
		if !x.accept('.') {
			return parts, true
		}
	}
}

func (x *indexer) keyPart() (string, bool) {
	if x.pos >= len(x.text) {
		return "", false
	}
	start := x.pos
	switch c := x.text[x.pos]; c {
	case '"', '\'':
		if !x.line(c) {
			return "", false
		}
		inside := x.text[start+1 : x.pos-1]
		if c == '\'' {
			return inside, true
		}
		return unescape(inside)
	}
	for x.pos < len(x.text) && isBare(x.text[x.pos]) {
		x.pos++
	}
	return x.text[start:x.pos], x.pos > start
}

func isBare(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// value reads one value and notes where it stands.
func (x *indexer) value(n *node) bool {
	if x.pos >= len(x.text) {
		return false
	}
	start := x.pos
	ok := false
	switch c := x.text[x.pos]; c {
	case '"', '\'':
		if strings.HasPrefix(x.text[x.pos:], strings.Repeat(string(c), 3)) {
			ok = x.block(c)
		} else {
			ok = x.line(c)
		}
	case '[', '{':
		if x.depth++; x.depth > maxNesting {
			x.tooDeep = start
			return false
		}
		x.pos++
		if c == '[' {
			ok = x.array(n)
		} else {
			ok = x.inlineTable(n)
		}
		x.depth--
	default:
		ok = x.scalar()
	}
	n.value = span{start, x.pos}
	return ok
}

func (x *indexer) array(n *node) bool {
	for x.skipBlank() {
		if x.accept(']') {
			return true
		}
		item := &node{}
		if !x.value(item) {
			return false
		}
		item.key = item.value
		n.items = append(n.items, item)
		if !x.skipBlank() {
			return false
		}
		if !x.accept(',') && x.text[x.pos] != ']' {
			return false
		}
	}
	return false
}

func (x *indexer) inlineTable(n *node) bool {
	for x.skipBlank() {
		if x.accept('}') {
			return true
		}
		if !x.assignment(n, x.pos, false) || !x.skipBlank() {
			return false
		}
		if !x.accept(',') && x.text[x.pos] != '}' {
			return false
		}
	}
	return false
}

// line reads a string on one line, from its quote on.
func (x *indexer) line(quote byte) bool {
	for x.pos++; x.pos < len(x.text); x.pos++ {
		switch x.text[x.pos] {
		case '\n':
			return false
		case '\\':
			if quote == '"' {
				x.pos++
			}
		case quote:
			x.pos++
			return true
		}
	}
	x.pos = len(x.text)
	return false
}

// block reads a string in three quotes, from the first quote on. It may end in up to two quotes of its own.
func (x *indexer) block(quote byte) bool {
	for x.pos += 3; x.pos < len(x.text); x.pos++ {
		switch x.text[x.pos] {
		case '\\':
			if quote == '"' {
				x.pos++
			}
		case quote:
			rest := x.text[x.pos:]
			run := len(rest) - len(strings.TrimLeft(rest, string(quote)))
			if run >= 3 {
				x.pos += min(run, 5)
				return true
			}
		}
	}
	x.pos = len(x.text)
	return false
}

// scalar reads a number, a boolean or a date: up to what can follow a value.
func (x *indexer) scalar() bool {
	start := x.pos
	end := strings.IndexAny(x.text[start:], ",]}#\n")
	if end < 0 {
		end = len(x.text) - start
	}
	x.pos = start + len(strings.TrimRight(x.text[start:start+end], " \t\r"))
	return x.pos > start
}

// accept skips spaces and the given byte.
func (x *indexer) accept(c byte) bool {
	x.skipSpace()
	if x.pos < len(x.text) && x.text[x.pos] == c {
		x.pos++
		return true
	}
	return false
}

func (x *indexer) skipSpace() {
	for x.pos < len(x.text) && (x.text[x.pos] == ' ' || x.text[x.pos] == '\t') {
		x.pos++
	}
}

// skipBlank skips white space, line ends and comments, and says whether anything follows.
func (x *indexer) skipBlank() bool {
	for x.pos < len(x.text) {
		switch x.text[x.pos] {
		case ' ', '\t', '\r', '\n':
			x.pos++
		case '#':
			x.skipComment()
		default:
			return true
		}
	}
	return false
}

func (x *indexer) skipComment() {
	if end := strings.IndexByte(x.text[x.pos:], '\n'); end >= 0 {
		x.pos += end
	} else {
		x.pos = len(x.text)
	}
}

// skipLineEnd demands that nothing but a comment follows on the line.
func (x *indexer) skipLineEnd() bool {
	x.skipSpace()
	if x.pos < len(x.text) && x.text[x.pos] == '#' {
		x.skipComment()
	}
	if x.pos < len(x.text) && x.text[x.pos] == '\r' {
		x.pos++
	}
	return x.pos >= len(x.text) || x.text[x.pos] == '\n'
}

// unescape decodes the inside of a "quoted" key.
func unescape(s string) (string, bool) {
	if !strings.Contains(s, `\`) {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i >= len(s) {
			return "", false
		}
		digits := 0
		switch s[i] {
		case 'b':
			b.WriteByte('\b')
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'f':
			b.WriteByte('\f')
		case 'r':
			b.WriteByte('\r')
		case 'e':
			b.WriteByte(0x1b)
		case '"', '\\':
			b.WriteByte(s[i])
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		default:
			return "", false
		}
		if digits > 0 {
			r, ok := hexRune(s[i+1:], digits)
			if !ok {
				return "", false
			}
			b.WriteRune(r)
			i += digits
		}
	}
	return b.String(), true
}

func hexRune(s string, digits int) (rune, bool) {
	if len(s) < digits {
		return 0, false
	}
	var r uint32
	for _, c := range []byte(s[:digits]) {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | uint32(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | uint32(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	if r > utf8.MaxRune || !utf8.ValidRune(rune(r)) {
		return 0, false
	}
	return rune(r), true
}
