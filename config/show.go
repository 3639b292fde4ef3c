package config

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// hidden stands for a variable's value that is written out in the file, where the value is printed unasked.
const hidden = "(hidden)"

// TOML is the configuration as a file that has every key with its effective value: what `mcpd config show` prints.
// References are not expanded; what is written out in the file is written out here too. Parsing it again (from the same
// place) gives an equal Config.
func (c Config) TOML() []byte { return c.document(false) }

// String is like [Config.TOML], with values of variables hidden unless they are references: the form for logs.
func (c Config) String() string { return string(c.document(true)) }

// GoString is [Config.String].
func (c Config) GoString() string { return c.String() }

// Format prints [Config.String] for every verb, so that %+v and %#v show no expanded value either.
func (c Config) Format(f fmt.State, _ rune) { writeState(f, c.String()) }

// LogValue names the file and the servers.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("path", c.Path),
		slog.Any("servers", slices.Sorted(maps.Keys(c.Servers))),
	)
}

// MarshalJSON is [Config.TOML] as JSON, with the path.
func (c Config) MarshalJSON() ([]byte, error) {
	servers := make(map[string]any, len(c.Servers))
	for name, s := range c.Servers {
		servers[name] = tableValues(&s, serverOptions())
	}
	return json.Marshal(map[string]any{
		"path":        c.Path,
		tableDaemon:   tableValues(&c.Daemon, daemonOptions()),
		tableSecurity: tableValues(&c.Security, securityOptions()),
		tableLedger:   tableValues(&c.Ledger, ledgerOptions()),
		tableServers:  servers,
	})
}

// String is the server's table as a file has it, with values of variables hidden unless they are references.
func (s Server) String() string {
	var b strings.Builder
	s.write(&b, true)
	return b.String()
}

// GoString is [Server.String].
func (s Server) GoString() string { return s.String() }

// Format prints [Server.String] for every verb.
func (s Server) Format(f fmt.State, _ rune) { writeState(f, s.String()) }

// LogValue names the server and what it runs, unexpanded and without arguments.
func (s Server) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", s.Name), slog.String("command", s.Raw.Command))
}

// MarshalJSON shows the keys of the server's table, unexpanded.
func (s Server) MarshalJSON() ([]byte, error) { return json.Marshal(tableValues(&s, serverOptions())) }

func writeState(f fmt.State, s string) {
	// A fmt.State keeps the first error of its writer to itself; there is nobody to return this one to.
	_, _ = io.WriteString(f, s)
}

func (c Config) document(hide bool) []byte {
	var b strings.Builder
	b.WriteString("[" + tableDaemon + "]\n")
	writeTable(&b, &c.Daemon, daemonOptions(), hide)
	b.WriteString("\n[" + tableSecurity + "]\n")
	writeTable(&b, &c.Security, securityOptions(), hide)
	b.WriteString("\n[" + tableLedger + "]\n")
	writeTable(&b, &c.Ledger, ledgerOptions(), hide)
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		b.WriteString("\n")
		c.Servers[name].write(&b, hide)
	}
	return []byte(b.String())
}

func (s Server) write(b *strings.Builder, hide bool) {
	b.WriteString("[" + keyPath(tableServers, s.Name) + "]\n")
	writeTable(b, &s, serverOptions(), hide)
}

func writeTable[T any](b *strings.Builder, table *T, options []option[T], hide bool) {
	for _, o := range options {
		field := o.field(table)
		switch field := field.(type) {
		case *string:
			if *field == "" {
				continue // command and cwd: an empty one is the same as none
			}
		case *map[string]string:
			if hide {
				shown := make(map[string]string, len(*field))
				for name, value := range *field {
					shown[name] = hideLiteral(value)
				}
				b.WriteString(o.name + " = " + showField(&shown) + "\n")
				continue
			}
		}
		b.WriteString(o.name + " = " + showField(field) + "\n")
	}
}

// hideLiteral keeps a value that is one reference, which says where a secret is but not what it is.
func hideLiteral(value string) string {
	if strings.HasPrefix(value, "${") && referenceEnd(value) == len(value) {
		return value
	}
	return hidden
}

// showField writes the value of a key as TOML.
func showField(field any) string {
	switch field := field.(type) {
	case *bool:
		return strconv.FormatBool(*field)
	case *int:
		return strconv.Itoa(*field)
	case *[]string:
		quoted := make([]string, len(*field))
		for i, s := range *field {
			quoted[i] = quoteTOML(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case *map[string]string:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(*field)) {
			pairs = append(pairs, keyText(name)+" = "+quoteTOML((*field)[name]))
		}
		if len(pairs) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(pairs, ", ") + " }"
	case *map[string]Tool:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(*field)) {
			pairs = append(pairs, keyText(name)+" = "+(*field)[name].text())
		}
		if len(pairs) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(pairs, ", ") + " }"
	default:
		return quoteTOML(fieldText(field))
	}
}

// fieldText is the inside of the keys that are strings in the file.
func fieldText(field any) string {
	switch field := field.(type) {
	case *time.Duration:
		return formatDuration(*field)
	case *int64:
		return formatSize(*field)
	case *netip.AddrPort:
		return field.String()
	case *slog.Level:
		return strings.ToLower(field.String())
	case *StartMode:
		return string(*field)
	case *ReplaceMode:
		return string(*field)
	case *Interactive:
		return string(*field)
	case *Protocol:
		return string(*field)
	case *string:
		return *field
	}
	return ""
}

// tableValues has the values of a table's keys in the types that the file has.
func tableValues[T any](table *T, options []option[T]) map[string]any {
	values := make(map[string]any, len(options))
	for _, o := range options {
		switch field := o.field(table).(type) {
		case *bool:
			values[o.name] = *field
		case *int:
			values[o.name] = *field
		case *[]string:
			values[o.name] = append([]string{}, *field...)
		case *map[string]string:
			variables := make(map[string]string, len(*field))
			maps.Copy(variables, *field)
			values[o.name] = variables
		case *map[string]Tool:
			tools := make(map[string]any, len(*field))
			for name, t := range *field {
				tools[name] = t.values()
			}
			values[o.name] = tools
		default:
			values[o.name] = fieldText(field)
		}
	}
	return values
}
