package header

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"mcpd/bridge/jsonrpc"
)

// annotation is the schema keyword that asks for a header.
const annotation = "x-mcp-header"

// namePrefix is what the name of every such header begins with.
const namePrefix = "Mcp-Param-"

// maxSchemaDepth bounds how many schemas may be nested in each other.
const maxSchemaDepth = 200

// Type is the JSON Schema type of an annotated parameter.
type Type uint8

// The types that may be annotated.
const (
	String Type = iota + 1
	Integer
	Boolean
)

func (t Type) String() string {
	switch t {
	case String:
		return "string"
	case Integer:
		return "integer"
	case Boolean:
		return "boolean"
	default:
		return "unknown"
	}
}

// Param is a tool parameter that clients mirror into a header.
type Param struct {
	Header string   // in the canonical form of net/http: "Mcp-Param-Region"
	Path   []string // names from the arguments down to the value, never empty
	Type   Type
}

// Params reads the x-mcp-header annotations of a tool's input schema, raw
// JSON. Without any annotation the result is empty, whatever else the schema
// holds.
//
// An annotation that breaks a rule of the specification makes the definition
// of the tool invalid: the error says which rule and where. The rules: the
// value is a non-empty HTTP token and unique without regard to case; the
// annotated schema has exactly one "type", which is string, integer or
// boolean; and the way from the root leads through nothing but "properties".
// Values of keywords that hold data, such as "enum" and "default", and of
// unknown keywords are not schemas, and are not looked at. In a schema with
// annotations, names must not repeat in any object.
func Params(inputSchema []byte) ([]Param, error) {
	root, err := jsonrpc.Validate(inputSchema)
	if err != nil {
		return nil, fmt.Errorf("the input schema is not valid JSON: %w", err)
	}
	schema := root.Of(inputSchema)
	if schema[0] != '{' {
		return nil, errors.New("the input schema must be an object")
	}
	s := schemaReader{
		dec:   jsontext.NewDecoder(bytes.NewReader(schema), jsontext.AllowDuplicateNames(true)),
		owner: map[string][]string{},
	}
	if err := s.schema(true); err != nil {
		return nil, err
	}
	switch {
	case s.fault != nil:
		return nil, s.fault
	case len(s.params) > 0 && !jsontext.Value(schema).IsValid():
		return nil, errors.New("the input schema repeats a name in one object")
	}
	return s.params, nil
}

type schemaReader struct {
	dec    *jsontext.Decoder
	path   []string // property names, and <keyword> for other steps
	params []Param
	owner  map[string][]string // path by header
	fault  error               // the first rule that was broken
}

// invalid records a broken rule.
func (s *schemaReader) invalid(format string, args ...any) {
	if s.fault == nil {
		where := "the root"
		if len(s.path) > 0 {
			where = pathText(s.path)
		}
		s.fault = fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
	}
}

// schema reads one schema, at the end of s.path. reachable says that the path
// is one of properties only. The error is one of syntax or depth.
func (s *schemaReader) schema(reachable bool) error {
	if s.dec.PeekKind() != '{' {
		return s.skip() // true and false are schemas that hold nothing
	}
	if len(s.path) > maxSchemaDepth {
		return fmt.Errorf("the input schema is nested deeper than %d schemas", maxSchemaDepth)
	}
	if err := s.token(); err != nil {
		return err
	}
	var name, kind jsontext.Value
	for s.dec.PeekKind() != '}' {
		key, err := s.name()
		if err != nil {
			return err
		}
		switch key {
		case annotation:
			name, err = s.value()
		case "type":
			kind, err = s.value()
		case "properties":
			err = s.schemas(key, reachable)
		case "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions":
			err = s.schemas(key, false)
		case "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains",
			"additionalProperties", "unevaluatedProperties", "propertyNames",
			"oneOf", "anyOf", "allOf", "not", "if", "then", "else", "contentSchema":
			err = s.within("<"+key+">", s.schemaOrList)
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	if name != nil {
		s.annotate(name, kind, reachable)
	}
	return s.token()
}

// schemas reads an object of schemas by name.
func (s *schemaReader) schemas(keyword string, reachable bool) error {
	if s.dec.PeekKind() != '{' {
		return s.skip()
	}
	if err := s.token(); err != nil {
		return err
	}
	for s.dec.PeekKind() != '}' {
		step, err := s.name()
		if err != nil {
			return err
		}
		if keyword != "properties" {
			step = "<" + keyword + ">." + step // what a property cannot be mistaken for
		}
		if err := s.within(step, func() error { return s.schema(reachable) }); err != nil {
			return err
		}
	}
	return s.token()
}

// schemaOrList reads what a keyword off the path holds.
func (s *schemaReader) schemaOrList() error {
	if s.dec.PeekKind() != '[' {
		return s.schema(false)
	}
	if err := s.token(); err != nil {
		return err
	}
	for s.dec.PeekKind() != ']' {
		if err := s.schema(false); err != nil {
			return err
		}
	}
	return s.token()
}

func (s *schemaReader) within(step string, read func() error) error {
	s.path = append(s.path, step)
	err := read()
	s.path = s.path[:len(s.path)-1]
	return err
}

// annotate holds an annotation against the rules.
func (s *schemaReader) annotate(name, kind jsontext.Value, reachable bool) {
	if !reachable || len(s.path) == 0 {
		s.invalid(`%s is allowed only on properties that are reached from the root through "properties" alone`, annotation)
		return
	}
	text, ok := unquote(name)
	switch {
	case !ok:
		s.invalid("%s must be a string", annotation)
		return
	case text == "":
		s.invalid("%s must not be empty", annotation)
		return
	case !isToken(text):
		s.invalid("%s %s is not an HTTP token (RFC 9110, section 5.6.2)", annotation, clip(text))
		return
	}
	p := Param{Header: http.CanonicalHeaderKey(namePrefix + text), Path: slices.Clone(s.path)}
	switch word, _ := unquote(kind); word {
	case "string":
		p.Type = String
	case "integer":
		p.Type = Integer
	case "boolean":
		p.Type = Boolean
	default:
		s.invalid(`%s needs the "type" string, integer or boolean on the same property, not %s`, annotation, typeText(kind))
		return
	}
	if other, taken := s.owner[p.Header]; taken {
		s.invalid("%s %s is used for %s as well", annotation, clip(text), pathText(other))
		return
	}
	s.owner[p.Header] = p.Path
	s.params = append(s.params, p)
}

func typeText(kind jsontext.Value) string {
	if kind == nil {
		return "none"
	}
	return clip(string(kind))
}

func (s *schemaReader) token() error { return s.syntax(second(s.dec.ReadToken())) }

func (s *schemaReader) skip() error { return s.syntax(s.dec.SkipValue()) }

// value reads a value that stays valid.
func (s *schemaReader) value() (jsontext.Value, error) {
	v, err := s.dec.ReadValue()
	return v.Clone(), s.syntax(err)
}

func (s *schemaReader) name() (string, error) {
	t, err := s.dec.ReadToken()
	if err != nil {
		return "", s.syntax(err)
	}
	return t.String(), nil
}

func (s *schemaReader) syntax(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the input schema is not valid JSON (at byte %d)", s.dec.InputOffset())
}

func second[T any](_ T, err error) error { return err }

func unquote(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	text, err := jsontext.AppendUnquote(nil, v)
	return string(text), err == nil
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alphanumeric := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alphanumeric && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
