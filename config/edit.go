package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Entry is one server as a command writes it into the file.
type Entry struct {
	Name string
	// Raw is written as it is: ${…} stays a reference.
	Raw Raw
	// The keys below are left out of the file where they have their zero value.
	Disabled       bool
	Start          StartMode
	IdleStop       time.Duration
	Replace        ReplaceMode
	Protocol       Protocol
	StartTimeout   time.Duration
	RequestTimeout time.Duration
	// Comment is written above the table, a line of the file for each line of it. Empty writes none.
	Comment string
}

// ExistsError says that a server of that name, with other keys or values, is in the file.
type ExistsError struct {
	Name string // as the file has it
	Line int    // from 1
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("there is already a server %q, in line %d, and it is another one", e.Name, e.Line)
}

// EntryError says why a server cannot stand in the file. Nothing was changed.
type EntryError struct {
	Name string
	// Problems are those that the file would have. Their places are in a text that was never written.
	Problems Errors
}

func (e *EntryError) Error() string {
	list := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		list[i] = p.Message
		if p.Hint != "" {
			list[i] += " (" + p.Hint + ")"
		}
	}
	return fmt.Sprintf("the server %q would not be valid: %s", e.Name, strings.Join(list, "; "))
}

// ShapeError says that a part of the file is written in a form that is not edited by program.
type ShapeError struct {
	Line int // from 1
	What string
	Hint string
}

func (e *ShapeError) Error() string { return fmt.Sprintf("line %d: %s (%s)", e.Line, e.What, e.Hint) }

var errEdit = errors.New("the change would have touched more than the server, so nothing was changed; edit the file by hand")

// Editor changes the servers of a configuration file's text and leaves every other byte of it as it is.
//
// Every change is checked twice: the new text must be a valid configuration, and, apart from the one server, must mean
// exactly what the text before it meant. Otherwise there is an error and no change.
//
// An Editor takes references for granted whose variable is not set, or whose file does not exist, in the environment
// at hand: the daemon's may be another one.
type Editor struct {
	path string
	env  Environment
	bom  string
	text string
	doc  *document
	cfg  *Config
}

// NewEditor reads the text of the file at path. The error is [Errors] where the text has problems: only a valid file is
// edited.
func NewEditor(path string, data []byte, env Environment) (*Editor, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cannot make the configuration's path absolute: %w", err)
	}
	e := &Editor{path: absolute, env: takenForGranted(env)}
	text := string(data)
	if rest, found := strings.CutPrefix(text, byteOrderMark); found {
		e.bom, text = byteOrderMark, rest
	}
	if err := e.set(text); err != nil {
		return nil, err
	}
	return e, nil
}

// takenForGranted is an environment in which every reference can be looked up. What stands for a missing value is an
// absolute path, which every key accepts.
func takenForGranted(env Environment) Environment {
	stand := "/unknown"
	if env.os() == "windows" {
		stand = `C:\unknown`
	}
	granted := env
	granted.Getenv = func(name string) (string, bool) {
		if value, ok := env.lookup(name); ok {
			return value, true
		}
		return stand, true
	}
	granted.ReadFile = func(path string) ([]byte, error) {
		if env.ReadFile != nil {
			if data, err := env.ReadFile(path); err == nil {
				return data, nil
			}
		}
		return []byte(stand), nil
	}
	if granted.Home == "" {
		granted.Home = stand
	}
	return granted
}

// set takes a text over where it is a valid configuration.
func (e *Editor) set(text string) error {
	cfg, err := Parse(e.path, []byte(text), e.env)
	if err != nil {
		return err
	}
	doc, problems := parseDocument(e.path, []byte(text))
	if len(problems) > 0 { // Parse has found none
		return problems
	}
	e.text, e.doc, e.cfg = text, doc, cfg
	return nil
}

// Bytes is the text as it is now.
func (e *Editor) Bytes() []byte { return []byte(e.bom + e.text) }

// Names are the servers in the file, sorted.
func (e *Editor) Names() []string { return slices.Sorted(maps.Keys(e.cfg.Servers)) }

// Find is the server whose name is the given one in any case, and the line of its first mention.
func (e *Editor) Find(name string) (found string, line int, ok bool) {
	servers := e.doc.root.child(tableServers)
	if servers == nil {
		return "", 0, false
	}
	for _, n := range servers.children {
		if strings.EqualFold(n.name, name) {
			line, _ = e.doc.position(n.key.start)
			return n.name, line, true
		}
	}
	return "", 0, false
}

// Nearest is the hint that names the server whose name is nearest to the given one, or "".
func (e *Editor) Nearest(name string) string { return didYouMean(name, e.Names()) }

// Add appends the server's table to the file. Where exactly that server is there already, nothing changes. Where
// another one has its name, the error is an *[ExistsError], or with replace the other one's table gives way: the new one
// takes its place in the file and keeps the comment above it. The error is an *[EntryError] where the server is not
// valid, and a *[ShapeError] where the file is written in a way that has no place for it.
func (e *Editor) Add(entry Entry, replace bool) (changed bool, err error) {
	if err := entry.check(); err != nil {
		return false, err
	}
	old, line, exists := e.Find(entry.Name)
	if exists && reflect.DeepEqual(e.values(old), entry.values()) && old == entry.Name {
		return false, nil
	}
	if exists && !replace {
		return false, &ExistsError{old, line}
	}
	if n := e.doc.root.child(tableServers); n != nil && n.value != (span{}) {
		return false, e.inlineServers(n)
	}
	var text string
	if exists {
		text, err = e.replaced(old, entry)
	} else {
		text = appended(e.text, entry.text())
	}
	if err != nil {
		return false, err
	}
	if err := e.accept(text, entry.Name, old, entry.values()); err != nil {
		return false, err
	}
	return true, nil
}

// Remove takes out the server's table with its sub-tables, and with the block of comment lines directly above each
// (unless that block begins the file) and directly below it (unless it is directly above the next table). Comments with
// a blank line around them stay. A server that is not there is no error and no change.
func (e *Editor) Remove(name string) (changed bool, err error) {
	old, _, exists := e.Find(name)
	if !exists || old != name {
		return false, nil
	}
	parts, err := e.parts(name)
	if err != nil {
		return false, err
	}
	if err := e.accept(without(e.text, e.tidy(parts)), name, name, nil); err != nil {
		return false, err
	}
	return true, nil
}

// accept takes over a text in which one server was changed and nothing else.
func (e *Editor) accept(text, name, old string, want map[string]any) error {
	next := &Editor{path: e.path, env: e.env, bom: e.bom}
	if err := next.set(text); err != nil {
		if problems, ok := errors.AsType[Errors](err); ok && want != nil {
			return &EntryError{name, problems}
		}
		return errEdit
	}
	if !reflect.DeepEqual(next.values(name), want) || !reflect.DeepEqual(rest(e.doc, name, old), rest(next.doc, name, old)) {
		return errEdit
	}
	*e = *next
	return nil
}

// values are the keys of a server's table, nil where there is none.
func (e *Editor) values(name string) map[string]any {
	servers := e.doc.root.child(tableServers)
	if servers == nil || servers.child(name) == nil {
		return nil
	}
	values, _ := servers.child(name).data.(map[string]any)
	return values
}

// rest is all that a document says but for some servers.
func rest(d *document, except ...string) map[string]any {
	values, _ := d.root.data.(map[string]any)
	values = maps.Clone(values)
	servers, ok := values[tableServers].(map[string]any)
	if !ok {
		return values
	}
	servers = maps.Clone(servers)
	for _, name := range except {
		delete(servers, name)
	}
	delete(values, tableServers)
	if len(servers) > 0 { // an empty table means nothing
		values[tableServers] = servers
	}
	return values
}

func (e *Editor) inlineServers(n *node) error {
	line, _ := e.doc.position(n.key.start)
	return &ShapeError{
		Line: line,
		What: "all servers are written in one { … }, which is not edited by program",
		Hint: "write each as a table of its own: [servers.NAME]",
	}
}

// cut is what is taken out of the text, in whole lines, and what comes in its place.
type cut struct {
	span
	instead string
}

// parts are the lines of everything that belongs to a server, with its comments.
func (e *Editor) parts(name string) ([]span, error) {
	prefix := []string{tableServers, name}
	var parts []span
	floor := 0 // no line before it is a comment between tables
	for i, s := range e.doc.sections {
		if hasPrefix(s.path, prefix) {
			parts = append(parts, e.withComments(e.lines(s.extent()), floor, e.end(i)))
		}
		floor = e.lines(s.header).end
		for _, st := range s.statements {
			full := slices.Concat(s.path, st.path)
			lines := e.lines(st.at)
			switch {
			case hasPrefix(s.path, prefix):
			case hasPrefix(full, prefix):
				parts = append(parts, e.withComments(lines, floor, lines.end))
			case len(full) == 1 && full[0] == tableServers:
				return nil, e.inlineServers(e.doc.root.child(tableServers))
			}
			floor = lines.end
		}
	}
	if len(parts) == 0 { // the index has missed it
		return nil, errEdit
	}
	return parts, nil
}

// replaced is the text with the server's main table exchanged, and everything else of it taken out.
func (e *Editor) replaced(name string, entry Entry) (string, error) {
	parts, err := e.parts(name)
	if err != nil {
		return "", err
	}
	for _, s := range e.doc.sections {
		if !slices.Equal(s.path, []string{tableServers, name}) {
			continue
		}
		entry.Comment = "" // the one above the table stays
		own := e.lines(s.extent())
		table := withLineEnds(entry.text(), lineEnd(e.text))
		if !strings.HasSuffix(e.text[own.start:own.end], "\n") {
			table = strings.TrimRight(table, "\r\n")
		}
		parts = slices.DeleteFunc(parts, func(p span) bool { return p.start <= own.start && own.end <= p.end })
		return without(e.text, append(e.tidy(parts), cut{own, table})), nil
	}
	return appended(without(e.text, e.tidy(parts)), entry.text()), nil
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

// extent goes from the header to the last key.
func (s section) extent() span {
	if len(s.statements) == 0 {
		return s.header
	}
	return span{s.header.start, s.statements[len(s.statements)-1].at.end}
}

// end is where the section after the i-th has its header's line.
func (e *Editor) end(i int) int {
	if i+1 < len(e.doc.sections) {
		return e.lines(e.doc.sections[i+1].header).start
	}
	return len(e.text)
}

// lines widens a span to whole lines, with their line ends.
func (e *Editor) lines(at span) span {
	at.start = strings.LastIndexByte(e.text[:at.start], '\n') + 1
	if end := strings.IndexByte(e.text[at.end:], '\n'); end >= 0 {
		at.end += end + 1
	} else {
		at.end = len(e.text)
	}
	return at
}

// withComments adds the comments that belong to the lines at, none of them before floor or behind ceiling.
func (e *Editor) withComments(at span, floor, ceiling int) span {
	for end := at.end; end < ceiling; {
		next := e.lines(span{end, end})
		line := e.text[next.start:next.end]
		if isComment(line) {
			end = next.end
			if end == len(e.text) {
				at.end = end
			}
			continue
		}
		if isBlank(line) {
			at.end = end // the block ends here and not at the next table
		}
		break
	}
	start := at.start
	for start > floor && isComment(e.lineBefore(start)) {
		start -= len(e.lineBefore(start))
	}
	if start > 0 || at.start == 0 { // what begins the file is about the file
		at.start = start
	}
	return at
}

// tidy makes cuts of lines, with the blank lines that would be too many without them.
func (e *Editor) tidy(parts []span) []cut {
	var cuts []cut
	for _, at := range parts {
		if n := len(cuts); n > 0 && isBlank(e.text[cuts[n-1].end:at.start]) {
			cuts[n-1].end = at.end
		} else {
			cuts = append(cuts, cut{span: at})
		}
	}
	for i := range cuts {
		cuts[i].span = e.withBlankLines(cuts[i].span)
	}
	return cuts
}

func (e *Editor) withBlankLines(at span) span {
	below := at.end
	for below < len(e.text) {
		next := e.lines(span{below, below})
		if !isBlank(e.text[next.start:next.end]) {
			break
		}
		below = next.end
	}
	if below == at.end && below < len(e.text) {
		return at
	}
	start := at.start
	for start > 0 && isBlank(e.lineBefore(start)) {
		start -= len(e.lineBefore(start))
	}
	switch {
	case start > 0:
		at.start = start
	case below < len(e.text): // nothing stands above, so that the blank lines below have no use
		at.end = below
	}
	return at
}

// lineBefore is the line that ends where another starts.
func (e *Editor) lineBefore(start int) string {
	before := e.text[:start]
	return before[strings.LastIndexByte(strings.TrimSuffix(before, "\n"), '\n')+1:]
}

func isBlank(line string) bool { return strings.Trim(line, " \t\r\n") == "" }

func isComment(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") }

// without applies cuts.
func without(text string, cuts []cut) string {
	slices.SortFunc(cuts, func(a, b cut) int { return a.start - b.start })
	var b strings.Builder
	done := 0
	for _, c := range cuts {
		if c.start > done {
			b.WriteString(text[done:c.start])
		}
		b.WriteString(c.instead)
		done = max(done, c.end)
	}
	if done < len(text) {
		b.WriteString(text[done:])
		return b.String()
	}
	if last := cuts[len(cuts)-1]; strings.HasSuffix(text, "\n") || last.instead != "" {
		return b.String()
	}
	// The file had no line end at its end, and keeps to that.
	return strings.TrimSuffix(strings.TrimSuffix(b.String(), "\n"), "\r")
}

// appended is text with a table after its last line that is not blank.
func appended(text, table string) string {
	end := lineEnd(text)
	table = withLineEnds(table, end)
	filled := len(strings.TrimRight(text, " \t\r\n"))
	if filled == 0 {
		return table + text
	}
	line := strings.IndexByte(text[filled:], '\n')
	if line < 0 {
		return text + end + end + strings.TrimSuffix(table, end)
	}
	at := filled + line + 1
	return text[:at] + end + table + text[at:]
}

// lineEnd is what ends the first line.
func lineEnd(text string) string {
	if at := strings.IndexByte(text, '\n'); at > 0 && text[at-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

func withLineEnds(text, end string) string { return strings.ReplaceAll(text, "\n", end) }

// check looks at what a TOML text cannot hold.
func (n Entry) check() error {
	texts := append([]string{n.Name, n.Raw.Command, n.Raw.Cwd}, n.Raw.Args...)
	for name, value := range n.Raw.Env {
		texts = append(texts, name, value)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return &EntryError{n.Name, Errors{{Message: "a value has bytes that are not UTF-8"}}}
		}
	}
	if f := checkServerName(n.Name); f != nil {
		return &EntryError{n.Name, Errors{{Message: f.message, Hint: f.hint}}}
	}
	return nil
}

// entryKey is one key of an entry: its value as TOML, and as the parser gives it.
type entryKey struct {
	name string
	text string
	data any
}

func (n Entry) keys() []entryKey {
	var keys []entryKey
	add := func(name, text string, data any) { keys = append(keys, entryKey{name, text, data}) }
	addString := func(name, value string) {
		if value != "" {
			add(name, literal(value), value)
		}
	}
	addDuration := func(name string, d time.Duration) {
		if d != 0 {
			addString(name, formatDuration(d))
		}
	}
	add("command", literal(n.Raw.Command), n.Raw.Command)
	if len(n.Raw.Args) > 0 {
		list := make([]any, len(n.Raw.Args))
		texts := make([]string, len(n.Raw.Args))
		for i, arg := range n.Raw.Args {
			list[i], texts[i] = arg, literal(arg)
		}
		add("args", oneLineOrMany("[", texts, "]"), list)
	}
	addString("cwd", n.Raw.Cwd)
	if n.Disabled {
		add("disabled", "true", true)
	}
	addString("start", string(n.Start))
	addDuration("idle_stop", n.IdleStop)
	addString("replace", string(n.Replace))
	addString("protocol", string(n.Protocol))
	addDuration("start_timeout", n.StartTimeout)
	addDuration("request_timeout", n.RequestTimeout)
	if len(n.Raw.Env) > 0 {
		variables := make(map[string]any, len(n.Raw.Env))
		for name, value := range n.Raw.Env {
			variables[name] = value
		}
		add("env", "", variables)
	}
	return keys
}

func (n Entry) values() map[string]any {
	values := make(map[string]any)
	for _, k := range n.keys() {
		values[k.name] = k.data
	}
	return values
}

// wide is where a list goes on to many lines, in characters.
const wide = 100

func oneLineOrMany(open string, texts []string, closing string) string {
	line := open + strings.Join(texts, ", ") + closing
	if utf8.RuneCountInString(line) <= wide {
		return line
	}
	return open + "\n  " + strings.Join(texts, ",\n  ") + ",\n" + closing
}

// text is the entry as a table, with "\n" as line end.
func (n Entry) text() string {
	var b strings.Builder
	for line := range strings.Lines(n.Comment) {
		b.WriteString(strings.TrimRight("# "+printableComment(line), " ") + "\n")
	}
	header := keyPath(tableServers, n.Name)
	b.WriteString("[" + header + "]\n")
	for _, k := range n.keys() {
		if k.name != "env" {
			b.WriteString(k.name + " = " + k.text + "\n")
			continue
		}
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(n.Raw.Env)) {
			pairs = append(pairs, keyText(name)+" = "+literal(n.Raw.Env[name]))
		}
		if line := "env = { " + strings.Join(pairs, ", ") + " }"; utf8.RuneCountInString(line) <= wide {
			b.WriteString(line + "\n")
		} else {
			b.WriteString("\n[" + header + ".env]\n" + strings.Join(pairs, "\n") + "\n")
		}
	}
	return b.String()
}

// printableComment is a line without what TOML forbids in comments.
func printableComment(line string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' || r == 0x7f || r == utf8.RuneError {
			return -1
		}
		return r
	}, line)
}

// literal quotes a string: in single quotes where that spares backslashes, as in paths of Windows.
func literal(s string) string {
	plain := strings.Contains(s, `\`) && !strings.Contains(s, "'")
	for _, r := range s {
		plain = plain && r >= 0x20 && r != 0x7f
	}
	if plain {
		return "'" + s + "'"
	}
	return quoteTOML(s)
}

// sameBytes says whether nothing was changed.
func (e *Editor) sameBytes(data []byte) bool { return bytes.Equal(e.Bytes(), data) }

// Clone is an Editor of its own for the text as it is now.
func (e *Editor) Clone() *Editor {
	clone := *e // what it points to is never changed
	return &clone
}

// ProblemsOf are the problems that one server has in an environment, with no reference taken for granted. They have
// places in the text as it is now.
func (e *Editor) ProblemsOf(name string, env Environment) Errors {
	_, err := Parse(e.path, []byte(e.text), env)
	problems, _ := errors.AsType[Errors](err)
	prefix := keyPath(tableServers, name) + "."
	return slices.DeleteFunc(problems, func(p Problem) bool { return !strings.HasPrefix(p.Message, prefix) })
}
