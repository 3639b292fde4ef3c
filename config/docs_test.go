package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheReferencePageHasEveryKeyAsTheCodeHasIt holds docs/configuration.md against the tables of keys: name, type,
// default and range of every key, under the heading of its table, and nothing else.
func TestTheReferencePageHasEveryKeyAsTheCodeHasIt(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for section := range strings.SplitSeq(string(page), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = body
	}
	checkSection(t, sections["`[daemon]`"], daemonOptions())
	checkSection(t, sections["`[security]`"], securityOptions())
	checkSection(t, sections["`[ledger]`"], ledgerOptions())
	checkSection(t, sections["`[servers.NAME]`"], serverOptions())
	for _, o := range serverOptions() {
		if o.own && !strings.Contains(sections["`[defaults]`"], "`"+o.name+"`") {
			t.Errorf("the section on [defaults] does not say that %s has no place there", o.name)
		}
	}
	for _, o := range serverOrders() {
		if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), fmt.Sprintf("`%s` and `%s`", o.low, o.high)) {
			t.Errorf("the page does not say that %s may not exceed %s", o.low, o.high)
		}
	}
}

func checkSection[T any](t *testing.T, section string, options []option[T]) {
	t.Helper()
	var table T
	want := map[string]bool{}
	for _, o := range options {
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", o.name, o.typeText(&table), o.defaultText(&table), o.rangeText(&table))
		row = strings.ReplaceAll(row, "|  |", "| |")
		want[o.name] = true
		_, line, found := strings.Cut(section, "\n| `"+o.name+"` |")
		if !found {
			t.Errorf("the key %s is missing from the page", o.name)
			continue
		}
		line, _, _ = strings.Cut(line, "\n")
		line = "| `" + o.name + "` |" + line
		meaning, found := strings.CutPrefix(line, row)
		if !found {
			t.Errorf("the row of %s is\n%s\nand should begin with\n%s", o.name, line, row)
		} else if len(strings.Trim(meaning, " |")) < 10 {
			t.Errorf("the row of %s does not explain it", o.name)
		}
	}
	for line := range strings.SplitSeq(section, "\n") {
		if rest, isKey := strings.CutPrefix(line, "| `"); isKey {
			if name, _, _ := strings.Cut(rest, "`"); !want[name] {
				t.Errorf("the page has a key %s that there is not", name)
			}
		}
	}
}

func (o option[T]) typeText(table *T) string {
	switch text := fmt.Sprintf("%T", o.field(table)); text {
	case "*bool":
		return "boolean"
	case "*int":
		return "integer"
	case "*int64":
		return "size"
	case "*time.Duration":
		return "duration"
	case "*netip.AddrPort":
		return "address"
	case "*[]string":
		return "array of strings"
	case "*map[string]string":
		return "table of strings"
	case "*map[string]config.Tool":
		return "table of tables"
	default:
		return "string"
	}
}

func (o option[T]) defaultText(table *T) string {
	switch {
	case o.initial != "":
		return "`" + o.initial + "`"
	case o.typeText(table) == "string":
		return "needed"
	default:
		return "`" + showField(o.field(table)) + "`"
	}
}

func (o option[T]) rangeText(table *T) string {
	switch {
	case len(o.choices) > 0:
		return "`" + strings.Join(strings.Split(quotedList(o.choices), ", "), "`, `") + "`"
	case o.name == "listen":
		return "loopback only"
	case o.name == "cwd":
		return "absolute"
	case o.most == 0:
		return ""
	}
	bound := func(n int64) string {
		copyNumber(o.field(table), &n)
		return plainText(o.field(table))
	}
	text := bound(o.least) + " to " + bound(o.most)
	if o.orZero {
		text = bound(0) + ", or " + text
	}
	return text
}
