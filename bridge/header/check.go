package header

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"mcpd/bridge/jsonrpc"
)

// maxSafeInteger is the largest integer that every JSON parser keeps exact,
// and with its negative the range in which integers may be mirrored.
const maxSafeInteger = 1<<53 - 1

// MismatchError is a header that does not say what the body says. It maps to
// HTTP status 400 and the JSON-RPC error -32020.
type MismatchError struct {
	Header string // canonical name
	Reason string // goes on after the name; holds no more than 100 bytes of any value
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("Header mismatch: %s %s", e.Header, e.Reason)
}

// Check compares the Mcp-Param-* headers of a tools/call with its arguments:
// the raw JSON of params.arguments, which must have been validated, or nil.
// The keys of h are in canonical form, as net/http makes them. A difference is
// a *MismatchError.
//
// Every parameter whose value is there and not null needs its header, exactly
// once; where there is no value, or null, or a step on the way is no object,
// the header must not be there. What the value is decides how the two are
// compared, not what the schema asks for: a string exactly, true and false as
// these words, an integer in value, so that 42, 42.0 and 4.2e1 are equal.
// Whether a value has the right type is for the server to say, which sees
// exactly what the header said. Fractions, integers beyond ±(2^53-1), objects
// and arrays have no header form: no header can match them.
//
// A name that params look for must not repeat in its object, or server and
// header could mean different values. Other names are not compared.
// Mcp-Param-* headers that no param knows are ignored.
func Check(h http.Header, arguments []byte, params []Param) error {
	if len(params) == 0 {
		return nil
	}
	c := checker{arguments: arguments, params: params, found: make([]jsonrpc.Span, len(params))}
	all := make([]int, len(params))
	for i := range all {
		all[i] = i
	}
	if err := c.collect(jsonrpc.Span{Start: 0, End: len(arguments)}, 0, all); err != nil {
		return err
	}
	for i, p := range params {
		if reason := mismatch(h[p.Header], c.found[i].Of(arguments), p.Path); reason != "" {
			return &MismatchError{Header: p.Header, Reason: reason}
		}
	}
	return nil
}

type checker struct {
	arguments []byte
	params    []Param
	found     []jsonrpc.Span // the value of each param, by its index
}

// collect finds the values of the params with the given indexes, whose paths
// led to the object at span obj in depth steps. It reads the object once for
// all of them.
func (c *checker) collect(obj jsonrpc.Span, depth int, indexes []int) error {
	wanted := make(map[string][]int, len(indexes))
	for _, i := range indexes {
		step := c.params[i].Path[depth]
		wanted[step] = append(wanted[step], i)
	}
	for name, m := range jsonrpc.Members(c.arguments, obj) {
		takers, ok := wanted[name]
		if !ok {
			continue
		}
		if takers == nil {
			i := slices.IndexFunc(indexes, func(i int) bool { return c.params[i].Path[depth] == name })
			p := c.params[indexes[i]]
			return &MismatchError{Header: p.Header, Reason: fmt.Sprintf(
				"has no single value to match: the arguments hold %s twice", pathText(p.Path[:depth+1]))}
		}
		wanted[name] = nil // taken
		var deeper []int
		for _, i := range takers {
			if depth+1 == len(c.params[i].Path) {
				c.found[i] = m.Value
			} else {
				deeper = append(deeper, i)
			}
		}
		if len(deeper) == 0 {
			continue
		}
		if err := c.collect(m.Value, depth+1, deeper); err != nil {
			return err
		}
	}
	return nil
}

// mismatch says what is wrong between the fields of one header and the value
// at path, raw JSON or nil. It returns "" when they agree.
func mismatch(fields []string, value []byte, path []string) string {
	absent := len(value) == 0 || value[0] == 'n'
	switch {
	case len(fields) == 0 && absent:
		return ""
	case len(fields) == 0:
		return fmt.Sprintf("is missing, but the argument %s has a value", pathText(path))
	case len(fields) > 1:
		return "occurs more than once"
	}
	got, err := DecodeValue(fields[0])
	switch {
	case err != nil:
		return err.Error()
	case absent:
		return fmt.Sprintf("must be left out, as the argument %s has no value", pathText(path))
	}

	equal := false
	switch value[0] {
	case '"':
		equal = jsonrpc.EqualString(value, jsonrpc.Span{Start: 0, End: len(value)}, got)
	case 't', 'f':
		equal = got == string(value)
	case '{':
		return fmt.Sprintf("cannot mirror the argument %s, which is an object", pathText(path))
	case '[':
		return fmt.Sprintf("cannot mirror the argument %s, which is an array", pathText(path))
	default:
		body, ok := safeInteger(value)
		if !ok {
			return fmt.Sprintf("cannot mirror the argument %s: the number is not an integer within ±(2^53-1)", pathText(path))
		}
		sent, ok := safeInteger([]byte(got))
		equal = ok && sent == body
	}
	if !equal {
		return fmt.Sprintf("value %s does not match the argument %s", clip(got), pathText(path))
	}
	return ""
}

// safeInteger reads a JSON number that is an integer in value.
func safeInteger(raw []byte) (int64, bool) {
	v, ok := jsonrpc.Integer(raw)
	return v, ok && -maxSafeInteger <= v && v <= maxSafeInteger
}

func pathText(path []string) string { return clip(strings.Join(path, ".")) }
