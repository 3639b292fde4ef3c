package header

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParams(t *testing.T) {
	for _, c := range []struct {
		what, schema string
		want         []Param
	}{
		{"an empty schema", `{}`, nil},
		{"no annotation", `{"type":"object","properties":{"a":{"type":"string"}}}`, nil},
		{
			"all three types", `{"properties":{"a":{"type":"string","x-mcp-header":"Region"},` +
				`"b":{"x-mcp-header":"page-size","type":"integer"},"c":{"type":"boolean","x-mcp-header":"DRY_run"}}}`,
			[]Param{
				{"Mcp-Param-Region", []string{"a"}, String},
				{"Mcp-Param-Page-Size", []string{"b"}, Integer},
				{"Mcp-Param-Dry_run", []string{"c"}, Boolean},
			},
		},
		{
			"nested properties", `{"properties":{"a":{"type":"object","properties":{"b":{"properties":{"c":{"type":"string","x-mcp-header":"C"}}}}}}}`,
			[]Param{{"Mcp-Param-C", []string{"a", "b", "c"}, String}},
		},
		{
			"every character of a token", `{"properties":{"a":{"type":"string","x-mcp-header":"aZ09!#$%&'*+-.^_` + "`" + `|~"}}}`,
			[]Param{{"Mcp-Param-Az09!#$%&'*+-.^_`|~", []string{"a"}, String}},
		},
		{"a keyword spelled with escapes", `{"\u0070roperties":{"a":{"type":"string","x-mcp\u002dheader":"\u0041"}}}`, []Param{{"Mcp-Param-A", []string{"a"}, String}}},
		{"a parameter that is called like the annotation", `{"properties":{"x-mcp-header":{"type":"string"}}}`, nil},
		{
			"both", `{"properties":{"x-mcp-header":{"type":"string","x-mcp-header":"H"}}}`,
			[]Param{{"Mcp-Param-H", []string{"x-mcp-header"}, String}},
		},
		{"parameters that are called like keywords", `{"properties":{"items":{"type":"string","x-mcp-header":"I"},"oneOf":{"type":"string","x-mcp-header":"O"},"properties":{"type":"string","x-mcp-header":"P"}}}`, []Param{
			{"Mcp-Param-I", []string{"items"}, String}, {"Mcp-Param-O", []string{"oneOf"}, String}, {"Mcp-Param-P", []string{"properties"}, String},
		}},
		{"data that looks like an annotation", `{"enum":[{"x-mcp-header":""}],"const":{"x-mcp-header":1},"default":{"x-mcp-header":"a b"},"examples":[{"x-mcp-header":"R"}]}`, nil},
		{"an unknown keyword", `{"x-form":{"x-mcp-header":"R"}}`, nil},
		{"properties that are no object", `{"properties":[{"x-mcp-header":"R"}]}`, nil},
		{"schemas that are true or false", `{"properties":{"a":true,"b":false},"items":true,"additionalProperties":false,"$defs":{"a":true}}`, nil},
		{"repeated names where nothing is annotated", `{"title":"a","title":"b"}`, nil},
		{"white space around", " \n{\"properties\":{\"a\":{\"type\":\"string\",\"x-mcp-header\":\"R\"}}}\r\n", []Param{{"Mcp-Param-R", []string{"a"}, String}}},
	} {
		got, err := Params([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

func TestAnnotationsOffThePathMakeTheToolInvalid(t *testing.T) {
	const prop = `{"type":"string","x-mcp-header":"R"}`
	for where, schema := range map[string]string{
		"the root":                     prop,
		"items":                        `{"properties":{"a":{"type":"array","items":` + prop + `}}}`,
		"properties below items":       `{"properties":{"a":{"items":{"properties":{"b":` + prop + `}}}}}`,
		"a list of items":              `{"items":[` + prop + `]}`,
		"prefixItems":                  `{"prefixItems":[{}, ` + prop + `]}`,
		"additionalItems":              `{"additionalItems":` + prop + `}`,
		"unevaluatedItems":             `{"unevaluatedItems":` + prop + `}`,
		"contains":                     `{"contains":` + prop + `}`,
		"additionalProperties":         `{"additionalProperties":` + prop + `}`,
		"unevaluatedProperties":        `{"unevaluatedProperties":` + prop + `}`,
		"patternProperties":            `{"patternProperties":{"^a":` + prop + `}}`,
		"propertyNames":                `{"propertyNames":` + prop + `}`,
		"dependentSchemas":             `{"dependentSchemas":{"a":` + prop + `}}`,
		"dependencies":                 `{"dependencies":{"b":["c"],"a":` + prop + `}}`,
		"oneOf":                        `{"oneOf":[` + prop + `]}`,
		"anyOf":                        `{"properties":{"a":{"anyOf":[true,` + prop + `]}}}`,
		"allOf":                        `{"allOf":[{"properties":{"a":` + prop + `}}]}`,
		"not":                          `{"not":` + prop + `}`,
		"if":                           `{"if":` + prop + `}`,
		"then":                         `{"then":{"properties":{"a":` + prop + `}}}`,
		"else":                         `{"else":` + prop + `}`,
		"$defs":                        `{"$defs":{"a":` + prop + `},"properties":{"a":{"$ref":"#/$defs/a"}}}`,
		"definitions":                  `{"definitions":{"a":` + prop + `}}`,
		"contentSchema":                `{"contentSchema":` + prop + `}`,
		"items spelled with an escape": `{"\u0069tems":` + prop + `}`,
	} {
		got, err := Params([]byte(schema))
		if err == nil || got != nil || !strings.Contains(err.Error(), `through "properties" alone`) {
			t.Errorf("%s: %v, %v", where, got, err)
		}
	}
}

func TestAnnotationsThatBreakARule(t *testing.T) {
	one := func(s string) string { return `{"properties":{"outer":{"properties":{"a":{` + s + `}}}}}` }
	for _, c := range []struct{ schema, want string }{
		{one(`"type":"string","x-mcp-header":""`), `"outer.a": x-mcp-header must not be empty`},
		{one(`"type":"string","x-mcp-header":null`), "must be a string"},
		{one(`"type":"string","x-mcp-header":1`), "must be a string"},
		{one(`"type":"string","x-mcp-header":{}`), "must be a string"},
		{one(`"type":"string","x-mcp-header":"a b"`), "not an HTTP token"},
		{one(`"type":"string","x-mcp-header":"a:b"`), "not an HTTP token"},
		{one(`"type":"string","x-mcp-header":"a\r\nX: y"`), "not an HTTP token"},
		{one(`"type":"string","x-mcp-header":"Région"`), "not an HTTP token"},
		{one(`"type":"number","x-mcp-header":"R"`), `not "\"number\""`},
		{one(`"type":"object","x-mcp-header":"R"`), "string, integer or boolean"},
		{one(`"type":"array","x-mcp-header":"R"`), "string, integer or boolean"},
		{one(`"type":"null","x-mcp-header":"R"`), "string, integer or boolean"},
		{one(`"type":["string","null"],"x-mcp-header":"R"`), "string, integer or boolean"},
		{one(`"x-mcp-header":"R"`), "not none"},
		{one(`"$ref":"#/$defs/a","x-mcp-header":"R"`), "not none"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"R"},"b":{"type":"string","x-mcp-header":"R"}}}`, `"b": x-mcp-header "R" is used for "a" as well`},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"page-size"},"b":{"properties":{"c":{"type":"string","x-mcp-header":"PAGE-Size"}}}}}`, "as well"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"R","x-mcp-header":"S"}}}`, "repeats a name"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"R"},"\u0061":{}}}`, "repeats a name"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"R"}},"properties":{}}`, "repeats a name"},
		{`[]`, "must be an object"},
		{`true`, "must be an object"},
		{``, "not valid JSON"},
		{`{"properties":{"a":}}`, "not valid JSON"},
		{`{} {}`, "not valid JSON"},
		{strings.Repeat(`{"items":`, 300) + `{}` + strings.Repeat(`}`, 300), "deeper than 200 schemas"},
		{strings.Repeat(`{"default":`, 2000) + `{}` + strings.Repeat(`}`, 2000), "deeper than 1000 levels"},
	} {
		got, err := Params([]byte(c.schema))
		if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.200s: %v, %v, want %q", c.schema, got, err, c.want)
		}
	}
}

func TestSchemaErrorsAreBoundedAndClean(t *testing.T) {
	name := strings.Repeat(`\u001b[31mé`, 3000)
	_, err := Params([]byte(`{"properties":{"` + name + `":{"type":"` + name + `","x-mcp-header":"` + name + `"}}}`))
	if err == nil || len(err.Error()) > 1500 || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("got %v", err)
	}
}
