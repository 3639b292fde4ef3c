package config

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawServer makes servers that often are equal in most fields.
func drawServer(t *rapid.T) Server {
	words := rapid.SampledFrom([]string{"", "a", "b"})
	s := withDefaults(serverOptions())
	s.Command = words.Draw(t, "command")
	s.Args = rapid.SliceOfN(words, 0, 2).Draw(t, "args")
	s.Env = rapid.MapOfN(words, words, 0, 2).Draw(t, "env")
	s.Cwd = words.Draw(t, "cwd")
	s.Raw.Command = words.Draw(t, "raw command")
	s.Disabled = rapid.IntRange(0, 3).Draw(t, "disabled") == 0
	s.Start = rapid.SampledFrom([]StartMode{StartEager, StartLazy}).Draw(t, "start")
	s.Protocol = rapid.SampledFrom([]Protocol{ProtocolAuto, ProtocolAuto, ProtocolLegacy}).Draw(t, "protocol")
	s.Interactive = rapid.SampledFrom([]Interactive{InteractiveAuto, InteractiveAuto, InteractiveOff}).Draw(t, "interactive")
	s.RequestTimeout = time.Duration(rapid.IntRange(1, 2).Draw(t, "request_timeout")) * time.Minute
	s.MaxInFlight = rapid.IntRange(1, 2).Draw(t, "max_in_flight")
	return s
}

func drawConfig(t *rapid.T) *Config {
	cfg := &Config{Daemon: withDefaults(daemonOptions()), Security: withDefaults(securityOptions()), Servers: map[string]Server{}}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"w", "x", "y", "z"}), 0, 4, rapid.ID).Draw(t, "names") {
		s := drawServer(t)
		s.Name = name
		cfg.Servers[name] = s
	}
	cfg.Daemon.LoginEnv = rapid.Bool().Draw(t, "login_shell_env")
	cfg.Daemon.LogLevel = slog.Level(rapid.IntRange(0, 1).Draw(t, "log_level"))
	cfg.Daemon.Listen = netip.AddrPortFrom(cfg.Daemon.Listen.Addr(), uint16(rapid.IntRange(0, 1).Draw(t, "port")))
	cfg.Security.AllowedHosts = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 1).Draw(t, "allowed_hosts")
	return cfg
}

func TestAConfigDoesNotDifferFromItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		if change := Diff(cfg, clone(cfg)); !change.Empty() || len(change.RestartNeeded) > 0 {
			t.Fatalf("differs: %+v", change)
		}
	})
}

// effective is what of a server a running daemon can notice.
func effective(s Server) Server {
	s.Raw = Raw{}
	if len(s.Args) == 0 {
		s.Args = nil
	}
	if len(s.Env) == 0 {
		s.Env = nil
	}
	return s
}

func TestToApplyAChangeLeadsToTheNewConfig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawConfig(t), drawConfig(t)
		change := Diff(before, after)

		enabled := func(cfg *Config) map[string]Server {
			running := make(map[string]Server)
			for name, s := range cfg.Servers {
				if !s.Disabled {
					running[name] = effective(s)
				}
			}
			return running
		}
		running, want := enabled(before), enabled(after)
		seen := map[string]int{}
		for _, name := range change.Removed {
			if _, ok := running[name]; !ok {
				t.Fatalf("removed %q, which did not run", name)
			}
			delete(running, name)
			seen[name]++
		}
		for _, name := range change.Added {
			if _, ok := running[name]; ok {
				t.Fatalf("added %q, which ran already", name)
			}
			running[name] = want[name]
			seen[name]++
		}
		for _, name := range change.Replaced {
			if sameProcess(running[name], want[name]) {
				t.Fatalf("replaced %q for nothing", name)
			}
			running[name] = want[name]
			seen[name]++
		}
		for _, name := range change.Retuned {
			kept := running[name]
			if cmp.Equal(kept, want[name]) {
				t.Fatalf("retuned %q for nothing", name)
			}
			// A retuned server keeps its process: put the old command line back to see that nothing of it was lost.
			tuned := want[name]
			tuned.Command, tuned.Args, tuned.Env, tuned.Cwd = kept.Command, kept.Args, kept.Env, kept.Cwd
			tuned.Protocol, tuned.Interactive = kept.Protocol, kept.Interactive
			running[name] = tuned
			seen[name]++
		}
		if diff := cmp.Diff(want, running); diff != "" {
			t.Fatalf("the change %+v does not lead to the new configuration (-want +got):\n%s", change, diff)
		}
		for name, n := range seen {
			if n != 1 {
				t.Fatalf("%q is in %d lists of %+v", name, n, change)
			}
		}
		for _, list := range [][]string{change.Added, change.Removed, change.Replaced, change.Retuned} {
			if !slices.IsSorted(list) {
				t.Fatalf("%v is not sorted", list)
			}
		}
		if change.SecurityChanged == slices.Equal(before.Security.AllowedHosts, after.Security.AllowedHosts) {
			t.Fatalf("SecurityChanged is %v", change.SecurityChanged)
		}
		if change.DaemonChanged != (before.Daemon != after.Daemon) {
			t.Fatalf("DaemonChanged is %v", change.DaemonChanged)
		}
		var restart []string
		if before.Daemon.Listen != after.Daemon.Listen {
			restart = append(restart, "daemon.listen")
		}
		if before.Daemon.LoginEnv != after.Daemon.LoginEnv {
			restart = append(restart, "daemon.login_shell_env")
		}
		if !slices.Equal(restart, change.RestartNeeded) {
			t.Fatalf("RestartNeeded is %v, want %v", change.RestartNeeded, restart)
		}
	})
}

func TestEachKeyOfAServerLeadsToItsKindOfChange(t *testing.T) {
	other := map[string]string{
		"command": `"y"`, "args": `["y"]`, "env": `{ Y = "y" }`, "cwd": `"/y"`, "disabled": "true", "start": `"lazy"`,
		"replace": `"stop-first"`, "protocol": `"legacy"`, "interactive": `"serialize"`, "max_in_flight": "200", "max_in_flight_per_principal": "100",
		"max_listeners": "7", "legacy_sessions": "true", "max_legacy_sessions": "7", "legacy_session_idle": `"7m"`, "max_message_bytes": `"1MiB"`, "stream_buffer_bytes": `"1MiB"`,
		"trust_annotations": "true", "max_repeats_per_minute": "5", "tools": "{ t = { read_only = true } }",
	}
	replaced := []string{"command", "args", "env", "cwd", "protocol", "interactive"}
	before := mustParse(t, "[servers.a]\ncommand = \"x\"", world{})
	for _, o := range serverOptions() {
		value, ok := other[o.name]
		if !ok {
			value = `"7s"` // every other key is a duration
		}
		text := "[servers.a]\n" + o.name + " = " + value
		if o.name != "command" {
			text += "\ncommand = \"x\""
		}
		var want Change
		switch {
		case o.name == "disabled":
			want.Removed = []string{"a"}
		case slices.Contains(replaced, o.name):
			want.Replaced = []string{"a"}
		default:
			want.Retuned = []string{"a"}
		}
		if diff := cmp.Diff(want, Diff(before, mustParse(t, text, world{}))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", o.name, diff)
		}
	}
}

func TestAReferenceThatStandsForSomethingElseIsAChange(t *testing.T) {
	text := server(`env = { TOKEN = "${env:TOKEN}" }`)
	before := mustParse(t, text, world{variables: map[string]string{"TOKEN": "1"}})
	after := mustParse(t, text, world{variables: map[string]string{"TOKEN": "2"}})
	if change := Diff(before, after); !slices.Equal(change.Replaced, []string{"a"}) {
		t.Errorf("got %+v", change)
	}
	// The other way round: written differently, with the same meaning.
	literal := mustParse(t, server(`env = { TOKEN = "1" }`, `request_timeout = "300s"`), world{})
	if change := Diff(before, literal); !change.Empty() {
		t.Errorf("got %+v", change)
	}
}

func TestAMissingConfigCountsAsAnEmptyOne(t *testing.T) {
	cfg := mustParse(t, server(), world{})
	if change := Diff(nil, cfg); !slices.Equal(change.Added, []string{"a"}) || change.DaemonChanged || change.SecurityChanged {
		t.Errorf("from nothing: %+v", change)
	}
	if change := Diff(cfg, nil); !slices.Equal(change.Removed, []string{"a"}) {
		t.Errorf("to nothing: %+v", change)
	}
	if change := Diff(nil, nil); !change.Empty() {
		t.Errorf("nothing at all: %+v", change)
	}
}

func TestDiffLeavesItsArgumentsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawConfig(t), drawConfig(t)
		text := before.String() + after.String()
		names := slices.Sorted(maps.Keys(before.Servers))
		Diff(before, after)
		if before.String()+after.String() != text || !slices.Equal(names, slices.Sorted(maps.Keys(before.Servers))) {
			t.Fatal("Diff changed a configuration")
		}
	})
}
