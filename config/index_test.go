package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listing has a line for each key: its path, where it stands, and where its value stands if it has one of its own.
func listing(t *testing.T, text string) []string {
	t.Helper()
	doc, problems := parseDocument("f", []byte(text))
	if doc == nil || len(problems) > 0 {
		t.Fatalf("not good TOML: %v", problems)
	}
	var lines []string
	var walk func(n *node, path []string)
	place := func(s span) string {
		line, column := doc.position(s.start)
		return fmt.Sprintf("%d:%d", line, column)
	}
	walk = func(n *node, path []string) {
		for _, c := range n.children {
			p := append(slices.Clone(path), c.name)
			line := keyPath(p...) + " " + place(c.key)
			if c.value != (span{}) {
				line += " = " + place(c.value)
			}
			lines = append(lines, line)
			walk(c, p)
		}
		for i, item := range n.items {
			p := append(slices.Clone(path), fmt.Sprint(i))
			lines = append(lines, keyPath(p...)+" "+place(item.at()))
			walk(item, p)
		}
	}
	walk(doc.root, nil)
	return lines
}

func TestEveryKeyAndValueHasItsLineAndColumn(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"bare key", "a = 1", []string{"a 1:1 = 1:5"}},
		{"no spaces", "a=1", []string{"a 1:1 = 1:3"}},
		{"indented key", "\t  a  =\t 1", []string{"a 1:4 = 1:10"}},
		{"after comments and blank lines", "# one = 1\n\n   # two\na = 1 # three = 3\nb = 2", []string{"a 4:1 = 4:5", "b 5:1 = 5:5"}},
		{"basic quoted key", `"a b" = 1`, []string{`"a b" 1:1 = 1:9`}},
		{"literal quoted key", `'a"b' = 1`, []string{`"a\"b" 1:1 = 1:9`}},
		{"quoted key with escapes", `"\u0061\x62\t\U00000063" = 1`, []string{`"ab\tc" 1:1 = 1:28`}},
		{"quoted key with an escaped quote and an equals sign", `"a\"=" = 1`, []string{`"a\"=" 1:1 = 1:10`}},
		{"empty key", `"" = 1`, []string{`"" 1:1 = 1:6`}},
		{"dotted key", "a.b . c = 1", []string{"a 1:1", "a.b 1:3", "a.b.c 1:7 = 1:11"}},
		{"dotted key with quotes", `a."b.c".'d' = 1`, []string{"a 1:1", `a."b.c" 1:3`, `a."b.c".d 1:9 = 1:15`}},
		{"dotted keys share their table", "a.b = 1\na.c = 2", []string{"a 1:1", "a.b 1:3 = 1:7", "a.c 2:3 = 2:7"}},
		{"table", "[a]\nb = 1", []string{"a 1:2", "a.b 2:1 = 2:5"}},
		{"table header with spaces", "  [ a . b ]\nc = 1", []string{"a 1:5", "a.b 1:9", "a.b.c 2:1 = 2:5"}},
		{"table header with quotes", `["a]".'b#']` + "\nc = 1", []string{`"a]" 1:2`, `"a]"."b#" 1:7`, `"a]"."b#".c 2:1 = 2:5`}},
		{"parent table after its child", "[a.b]\nc = 1\n[a]\nd = 2", []string{"a 1:2", "a.b 1:4", "a.b.c 2:1 = 2:5", "a.d 4:1 = 4:5"}},
		{"table with a comment behind it", "[a] # [b]\nc = 1", []string{"a 1:2", "a.c 2:1 = 2:5"}},
		{"array of tables", "[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd = 3", []string{
			"a 1:3", "a.0 1:3", "a.0.b 2:1 = 2:5", "a.1 3:3", "a.1.b 4:1 = 4:5", "a.1.c 5:4", "a.1.c.d 6:1 = 6:5",
		}},
		{"inline table", "a = { b = 1, c.d = 2 }", []string{
			"a 1:1 = 1:5", "a.b 1:7 = 1:11", "a.c 1:14", "a.c.d 1:16 = 1:20",
		}},
		{"inline table over several lines", "a = {\n  b = 1, # x = 2\n  c = 3,\n}\nd = 4", []string{
			"a 1:1 = 1:5", "a.b 2:3 = 2:7", "a.c 3:3 = 3:7", "d 5:1 = 5:5",
		}},
		{"empty inline table", "a = {}\nb = 1", []string{"a 1:1 = 1:5", "b 2:1 = 2:5"}},
		{"array", `a = [1, "b,]", 'c#']`, []string{"a 1:1 = 1:5", "a.0 1:6", "a.1 1:9", "a.2 1:16"}},
		{"array over several lines", "a = [\n  1, # no ]\n\n  2,\n]\nb = 3", []string{
			"a 1:1 = 1:5", "a.0 2:3", "a.1 4:3", "b 6:1 = 6:5",
		}},
		{"array in an array", "a = [[1], [2, 3]]", []string{
			"a 1:1 = 1:5", "a.0 1:6", "a.0.0 1:7", "a.1 1:11", "a.1.0 1:12", "a.1.1 1:15",
		}},
		{"inline table in an array", "a = [{b = 1}, {c = 2}]", []string{
			"a 1:1 = 1:5", "a.0 1:6", "a.0.b 1:7 = 1:11", "a.1 1:15", "a.1.c 1:16 = 1:20",
		}},
		{"string with escapes and signs", `a = "x\\\" = [#" # "` + "\nb = 1", []string{"a 1:1 = 1:5", "b 2:1 = 2:5"}},
		{"literal string", `a = 'x\' # '` + "\nb = 1", []string{"a 1:1 = 1:5", "b 2:1 = 2:5"}},
		{"empty strings", `a = ""` + "\nb = ''\nc = 1", []string{"a 1:1 = 1:5", "b 2:1 = 2:5", "c 3:1 = 3:5"}},
		{"multi-line string", "a = \"\"\"\n[b]\nc = 1 \\\"\"\" \"\" x\n\\\n  y\"\"\"\nd = 2", []string{"a 1:1 = 1:5", "d 6:1 = 6:5"}},
		{"multi-line string that ends in quotes", "a = \"\"\"x\"\"\"\"\"\nb = 1", []string{"a 1:1 = 1:5", "b 2:1 = 2:5"}},
		{"multi-line literal string", "a = '''\nb = \\''\n''' # c\nd = 1", []string{"a 1:1 = 1:5", "d 4:1 = 4:5"}},
		{"multi-line literal string that ends in quotes", "a = '''x''''\nb = 1", []string{"a 1:1 = 1:5", "b 2:1 = 2:5"}},
		{"numbers, booleans and dates", "a = -1_0.5e3\nb = true\nc = 1979-05-27 07:32:00Z # x\nd = [07:32:00, inf]", []string{
			"a 1:1 = 1:5", "b 2:1 = 2:5", "c 3:1 = 3:5", "d 4:1 = 4:5", "d.0 4:6", "d.1 4:16",
		}},
		{"Windows line ends", "a = 1\r\n[b]\r\nc = [\r\n 2,\r\n]\r\n", []string{"a 1:1 = 1:5", "b 2:2", "b.c 3:1 = 3:5", "b.c.0 4:2"}},
		{"byte order mark", "\ufeffa = 1", []string{"a 1:1 = 1:5"}},
		{"characters of several bytes", `a = ["äöü€😀", 1]`, []string{"a 1:1 = 1:5", "a.0 1:6", "a.1 1:15"}},
		{"quoted key of several bytes", `"ключ" = 1`, []string{`"ключ" 1:1 = 1:10`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, listing(t, test.text)); diff != "" {
				t.Errorf("places (-want +got):\n%s", diff)
			}
		})
	}
}

// sameKeys says where the index and the values of the parser disagree about which keys there are.
func sameKeys(n *node, value any, path string) error {
	switch value := value.(type) {
	case map[string]any:
		var indexed []string
		for _, c := range n.children {
			indexed = append(indexed, c.name)
		}
		slices.Sort(indexed)
		if parsed := slices.Sorted(maps.Keys(value)); !slices.Equal(indexed, parsed) {
			return fmt.Errorf("%s: the index has %q, the parser %q", path, indexed, parsed)
		}
		for name, v := range value {
			if err := sameKeys(n.child(name), v, path+"."+keyText(name)); err != nil {
				return err
			}
		}
	case []any:
		if len(n.items) != len(value) {
			return fmt.Errorf("%s: the index has %d elements, the parser %d", path, len(n.items), len(value))
		}
		for i, v := range value {
			if err := sameKeys(n.items[i], v, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case []map[string]any:
		list := make([]any, len(value))
		for i, v := range value {
			list[i] = v
		}
		return sameKeys(n, list, path)
	}
	return nil
}

// FuzzIndex holds the index against the TOML parser: for every text that the parser accepts they see the same keys.
func FuzzIndex(f *testing.F) {
	for _, text := range []string{
		"", "a=1", "[a]\n[[b.c]]\nd=[{e='f'}]", "a.b.\"c\\u0041\" = '''x'''", "a = \"\"\"\"\"\"\nb=[[],[1,],{}]",
		"[a]\nb=1\n[a.c]\n[d]\n[a.e]", string(Example("/usr/bin/mcpd", 7317)), "a = {b=1,\n c={},\n}\n", "a=1979-05-27 07:32:00",
		"\ufeff# c\r\n'' = ''", "a = \"\\\"\"\nb = \"\"\"\\\"\"\"\" ", "[a]\nx.y=1\n[a.x.z]\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.TrimPrefix(text, byteOrderMark)
		if len(text) > 4096 {
			t.Skip("long texts only cost time")
		}
		x := indexKeys(text)
		if x.tooDeep >= 0 {
			return
		}
		values, fault := decodeTOML(text)
		if fault != nil {
			return
		}
		if err := sameKeys(x.root, values, ""); err != nil {
			t.Errorf("%v\nin %q", err, text)
		}
	})
}
