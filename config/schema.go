package config

import (
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// option is one key of a table T: everything that checking, showing and documenting it needs.
type option[T any] struct {
	name string
	// field is a pointer to where the value goes; its type is the type of the key.
	field func(*T) any
	// initial is the value without the key, as TOML; empty where that is the empty value or the key is needed.
	initial string
	// least and most bound durations (in nanoseconds), sizes and integers.
	least, most int64
	// orZero allows 0 below least, where it switches something off.
	orZero bool
	// choices are the words that a string may be.
	choices []string
	// element checks and normalises each string of a list.
	element func(string) (string, *flaw)
	// own keys belong to one server and have no place in [defaults].
	own bool
}

func daemonOptions() []option[Daemon] {
	return []option[Daemon]{
		{name: "listen", field: func(d *Daemon) any { return &d.Listen }, initial: `"127.0.0.1:7317"`},
		{
			name: "log_level", field: func(d *Daemon) any { return &d.LogLevel }, initial: `"info"`,
			choices: []string{"debug", "info", "warn", "error"},
		},
		{
			name: "drain_timeout", field: func(d *Daemon) any { return &d.DrainTimeout }, initial: `"30s"`,
			most: int64(time.Hour),
		},
		{name: "login_shell_env", field: func(d *Daemon) any { return &d.LoginEnv }, initial: "true"},
	}
}

func securityOptions() []option[Security] {
	return []option[Security]{
		{name: "allowed_origins", field: func(s *Security) any { return &s.AllowedOrigins }, element: parseOrigin},
		{name: "allowed_hosts", field: func(s *Security) any { return &s.AllowedHosts }, element: parseHost},
		{
			name: "max_request_bytes", field: func(s *Security) any { return &s.MaxRequestBytes }, initial: `"16MiB"`,
			least: 1 << 10, most: 1 << 30,
		},
	}
}

func ledgerOptions() []option[Ledger] {
	return []option[Ledger]{
		{
			name: "keep", field: func(l *Ledger) any { return &l.Keep }, initial: `"24h"`,
			least: int64(time.Minute), most: 8760 * int64(time.Hour),
		},
		{
			name: "max_bytes", field: func(l *Ledger) any { return &l.MaxBytes }, initial: `"64MiB"`,
			least: 64 << 10, most: 16 << 30,
		},
	}
}

func serverOptions() []option[Server] {
	const tenth = int64(100 * time.Millisecond)
	const hour = int64(time.Hour)
	return []option[Server]{
		{name: "command", field: func(s *Server) any { return &s.Raw.Command }, own: true},
		{name: "args", field: func(s *Server) any { return &s.Raw.Args }, own: true},
		{name: "env", field: func(s *Server) any { return &s.Raw.Env }},
		{name: "cwd", field: func(s *Server) any { return &s.Raw.Cwd }, initial: `"${home}"`, own: true},
		{name: "disabled", field: func(s *Server) any { return &s.Disabled }, initial: "false", own: true},
		{
			name: "start", field: func(s *Server) any { return &s.Start }, initial: `"eager"`,
			choices: []string{string(StartEager), string(StartLazy)},
		},
		{
			name: "idle_stop", field: func(s *Server) any { return &s.IdleStop }, initial: `"0s"`,
			least: tenth, most: 720 * hour, orZero: true,
		},
		{
			name: "replace", field: func(s *Server) any { return &s.Replace }, initial: `"make-before-break"`,
			choices: []string{string(ReplaceMakeBeforeBreak), string(ReplaceStopFirst)},
		},
		{
			name: "protocol", field: func(s *Server) any { return &s.Protocol }, initial: `"auto"`,
			choices: []string{string(ProtocolAuto), string(ProtocolModern), string(ProtocolLegacy)},
		},
		{
			name: "start_timeout", field: func(s *Server) any { return &s.StartTimeout }, initial: `"30s"`,
			least: tenth, most: hour,
		},
		{
			name: "first_start_timeout", field: func(s *Server) any { return &s.FirstStartTimeout }, initial: `"2m"`,
			least: tenth, most: hour,
		},
		{
			name: "request_timeout", field: func(s *Server) any { return &s.RequestTimeout }, initial: `"5m"`,
			least: tenth, most: 168 * hour,
		},
		{
			name: "max_request_time", field: func(s *Server) any { return &s.MaxRequestTime }, initial: `"1h"`,
			least: tenth, most: 168 * hour,
		},
		{
			name: "interactive", field: func(s *Server) any { return &s.Interactive }, initial: `"auto"`,
			choices: []string{string(InteractiveAuto), string(InteractiveSerialize), string(InteractiveOff)},
		},
		{
			name: "question_timeout", field: func(s *Server) any { return &s.QuestionTimeout }, initial: `"10m"`,
			least: tenth, most: 24 * hour,
		},
		{
			name: "drain_timeout", field: func(s *Server) any { return &s.DrainTimeout }, initial: `"30s"`,
			most: hour,
		},
		{
			name: "stop_timeout", field: func(s *Server) any { return &s.StopTimeout }, initial: `"5s"`,
			least: int64(10 * time.Millisecond), most: int64(5 * time.Minute),
		},
		{
			name: "probe_interval", field: func(s *Server) any { return &s.ProbeInterval }, initial: `"30s"`,
			least: tenth, most: 24 * hour, orZero: true,
		},
		{
			name: "max_message_bytes", field: func(s *Server) any { return &s.MaxMessageBytes }, initial: `"64MiB"`,
			least: 1 << 10, most: 1 << 30,
		},
		{
			name: "max_in_flight", field: func(s *Server) any { return &s.MaxInFlight }, initial: "256",
			least: 1, most: 65536,
		},
		{
			name: "max_in_flight_per_principal", field: func(s *Server) any { return &s.MaxInFlightPerPrincipal },
			initial: "128", least: 1, most: 65536,
		},
		{
			name: "max_listeners", field: func(s *Server) any { return &s.MaxListeners }, initial: "12000",
			least: 1, most: 1000000,
		},
		{
			name: "stream_buffer_bytes", field: func(s *Server) any { return &s.StreamBufferBytes }, initial: `"4MiB"`,
			least: 4 << 10, most: 1 << 30,
		},
		{name: "legacy_sessions", field: func(s *Server) any { return &s.LegacySessions }, initial: "false"},
		{
			name: "max_legacy_sessions", field: func(s *Server) any { return &s.MaxLegacySessions }, initial: "64",
			least: 1, most: 100000,
		},
		{
			name: "legacy_session_idle", field: func(s *Server) any { return &s.LegacySessionIdle }, initial: `"30m"`,
			least: int64(time.Second), most: 720 * hour,
		},
		{name: "trust_annotations", field: func(s *Server) any { return &s.TrustAnnotations }, initial: "false"},
		{
			name: "max_repeats_per_minute", field: func(s *Server) any { return &s.MaxRepeatsPerMinute }, initial: "60",
			most: 6000,
		},
		{name: "tools", field: func(s *Server) any { return &s.Tools }, own: true},
		{
			name: "restart_backoff_min", field: func(s *Server) any { return &s.Backoff.Min }, initial: `"200ms"`,
			least: int64(time.Millisecond), most: hour,
		},
		{
			name: "restart_backoff_max", field: func(s *Server) any { return &s.Backoff.Max }, initial: `"30s"`,
			least: int64(time.Millisecond), most: 24 * hour,
		},
	}
}

// order says that one key may not exceed another. Where only one of the two is set, the other one's default gives way.
type order struct{ low, high string }

func serverOrders() []order {
	return []order{
		{"start_timeout", "first_start_timeout"},
		{"request_timeout", "max_request_time"},
		{"max_in_flight_per_principal", "max_in_flight"},
		{"restart_backoff_min", "restart_backoff_max"},
	}
}

func optionNames[T any](options []option[T]) []string {
	list := make([]string, len(options))
	for i, o := range options {
		list[i] = o.name
	}
	return list
}

func findOption[T any](options []option[T], name string) *option[T] {
	for i := range options {
		if options[i].name == name {
			return &options[i]
		}
	}
	return nil
}

// withDefaults fills every field that has an initial value. An initial value that its own checks refuse is a mistake in
// the tables above, which the tests would show.
func withDefaults[T any](options []option[T]) T {
	var table T
	for _, o := range options {
		if o.initial == "" {
			continue
		}
		var value any
		switch initial := o.initial; {
		case initial[0] == '"':
			value = strings.Trim(initial, `"`)
		case initial == "true" || initial == "false":
			value = initial == "true"
		default:
			value, _ = strconv.ParseInt(initial, 10, 64)
		}
		_ = o.set(&table, value)
	}
	return table
}

// set stores a scalar value, or says what is wrong with it. A flaw in a string may quote it: only env, args, command and
// cwd can hold secrets, and of these none has a form that could be wrong here.
func (o option[T]) set(table *T, value any) *flaw {
	switch field := o.field(table).(type) {
	case *bool:
		b, ok := value.(bool)
		if !ok {
			return wrongType("true or false", value)
		}
		*field = b
		return nil
	case *int:
		n, ok := value.(int64)
		if !ok {
			return wrongType("an integer", value)
		}
		if f := o.check(n, func(n int64) string { return strconv.FormatInt(n, 10) }); f != nil {
			return f
		}
		*field = int(n)
		return nil
	case *time.Duration:
		s, ok := value.(string)
		if !ok {
			f := wrongType(`a duration such as "30s"`, value)
			if n, isInteger := value.(int64); isInteger {
				f = f.withHint("did you mean %q?", strconv.FormatInt(n, 10)+"s")
			}
			return f
		}
		d, f := parseDuration(s)
		if f == nil {
			f = o.check(int64(d), func(n int64) string { return formatDuration(time.Duration(n)) })
		}
		if f != nil {
			return f
		}
		*field = d
		return nil
	case *int64:
		s, ok := value.(string)
		if !ok {
			f := wrongType(`a size such as "16MiB"`, value)
			if n, isInteger := value.(int64); isInteger && n >= 0 {
				f = f.withHint("did you mean %q?", formatSize(n))
			}
			return f
		}
		n, f := parseSize(s)
		if f == nil {
			f = o.check(n, formatSize)
		}
		if f != nil {
			return f
		}
		*field = n
		return nil
	default:
		s, ok := value.(string)
		if !ok {
			return wrongType("a string", value)
		}
		return o.setString(field, s)
	}
}

func (o option[T]) setString(field any, s string) *flaw {
	if len(o.choices) > 0 && !slices.Contains(o.choices, s) {
		f := flawf("%q is not one of %s", s, quotedList(o.choices))
		f.hint = didYouMean(s, o.choices)
		return f
	}
	switch field := field.(type) {
	case *string:
		*field = s
	case *StartMode:
		*field = StartMode(s)
	case *ReplaceMode:
		*field = ReplaceMode(s)
	case *Interactive:
		*field = Interactive(s)
	case *Protocol:
		*field = Protocol(s)
	case *slog.Level:
		if err := field.UnmarshalText([]byte(s)); err != nil {
			return flawf("%q is not a level", s)
		}
	case *netip.AddrPort:
		address, f := parseListen(s)
		if f != nil {
			return f
		}
		*field = address
	}
	return nil
}

func wrongType(want string, got any) *flaw {
	return flawf("must be %s, not %s", want, typeName(got))
}

// check holds a number against the range.
func (o option[T]) check(n int64, format func(int64) string) *flaw {
	if (n >= o.least && n <= o.most) || (n == 0 && o.orZero) {
		return nil
	}
	f := flawf("%s is out of range", format(n))
	zero := ""
	if o.orZero {
		zero = ", or " + format(0) + " for never"
	}
	return f.withHint("it may be from %s to %s%s", format(o.least), format(o.most), zero)
}

func quotedList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.Quote(s)
	}
	return strings.Join(quoted, ", ")
}
