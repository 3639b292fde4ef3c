package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// server wraps lines as the table of a server; they start at line 3.
func server(lines ...string) string {
	return "[servers.a]\ncommand = \"x\"\n" + strings.Join(lines, "\n")
}

func TestProblemsNamePlaceCauseAndCure(t *testing.T) {
	const rule = "names have 1 to 64 of the characters A-Z a-z 0-9 . _ - and start with a letter or digit"
	const duration = `durations are written as "200ms", "30s", "5m" or "1h30m"`
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		// Keys.
		{"unknown table", "[deamon]", []string{`1:2: unknown key deamon (did you mean "daemon"?)`}},
		{"unknown key without a table", "x = 1", []string{
			`1:1: unknown key x (there are [daemon], [security], [ledger], [defaults] and [servers.NAME])`,
		}},
		{"misspelt key", "[daemon]\n  lisen = \"x\"", []string{`2:3: unknown key lisen in [daemon] (did you mean "listen"?)`}},
		{"misspelt key of a server", server("requst_timeout = 1"), []string{
			`3:1: unknown key requst_timeout in [servers.a] (did you mean "request_timeout"?)`,
		}},
		{"key in camel case", server("requestTimeout = 1"), []string{
			`3:1: unknown key requestTimeout in [servers.a] (did you mean "request_timeout"?)`,
		}},
		{"key that is like nothing", server("frobnicate = 1"), []string{`3:1: unknown key frobnicate in [servers.a]`}},
		{"key of another table", "[daemon]\nallowed_origins = []", []string{
			`2:1: unknown key allowed_origins in [daemon] (it belongs in [security])`,
		}},
		{"key that is one server's own in the defaults", "[defaults]\ncommand = \"x\"\nargs = []\ncwd = \"/\"\ndisabled = true", []string{
			`2:1: unknown key command in [defaults] (it belongs in [servers.NAME])`,
			`3:1: unknown key args in [defaults] (it belongs in [servers.NAME])`,
			`4:1: unknown key cwd in [defaults] (it belongs in [servers.NAME])`,
			`5:1: unknown key disabled in [defaults] (it belongs in [servers.NAME])`,
		}},
		{"unknown key in an inline table", `daemon = { log_level = "info", foo = 1 }`, []string{`1:32: unknown key foo in [daemon]`}},
		{"unknown dotted key", `daemon.log_levl = "info"`, []string{
			`1:8: unknown key log_levl in [daemon] (did you mean "log_level"?)`,
		}},
		{"unknown quoted key", "[daemon]\n\"é\" = 1 ", []string{`2:1: unknown key "é" in [daemon]`}},
		{"server name with a dot and no quotes", "[servers.a.b]\ncommand = \"x\"", []string{
			`1:10: the server "a" has no command (add command = "…", the program to start)`,
			`1:12: unknown key b in [servers.a] (if the dot belongs to the server's name, put the name in quotes)`,
		}},

		// Repetitions.
		{"repeated key", "[daemon]\nlog_level = \"info\"\n log_level = \"warn\"", []string{
			`3:2: the key log_level is set twice, first in line 2`,
		}},
		{"repeated key in another case", server(`Command = "x"`), []string{
			`3:1: Command repeats command of line 2 in another case in [servers.a] (keys are written in lower case)`,
		}},
		{"key in another case alone", "[servers.a]\nCommand = \"x\"", []string{
			`2:1: unknown key Command in [servers.a] (did you mean "command"?)`,
		}},
		{"repeated table", "[daemon]\n[security]\n[daemon]\nfoo = 1", []string{
			`3:2: the table [daemon] is defined twice, first in line 1 (put all its keys under one header)`,
		}},
		{"repeated key beside other problems", "[daemon]\nlisten = 1\nlisten = 2\nfoo = 3", []string{
			`2:10: daemon.listen: must be a string, not an integer`,
			`3:1: the key listen is set twice, first in line 2`,
			`4:1: unknown key foo in [daemon]`,
		}},
		{"repeated key in an inline table", server(`env = { A = "1", A = "2" }`), []string{
			"3:18: the key servers.a.env.A is set twice",
		}},
		{"repeated dotted key", "a.b = 1\na.b = 2\n[daemon]\ndaemon = 1", []string{
			`1:1: unknown key a (there are [daemon], [security], [ledger], [defaults] and [servers.NAME])`,
			`2:3: the key a.b is set twice, first in line 1`,
			`4:1: unknown key daemon in [daemon]`,
		}},
		{"servers that differ in case only", "[servers.Ab]\ncommand = \"x\"\n[servers.aB]\ncommand = \"x\"", []string{
			`3:10: the server "aB" differs from "Ab" of line 1 only in upper and lower case (give it another name)`,
		}},

		// Types.
		{"value for a table", "daemon = 1\nsecurity = []\ndefaults = \"x\"\nservers = true", []string{
			`1:1: daemon: must be a table, not an integer`,
			`2:1: security: must be a table, not an array`,
			`3:1: defaults: must be a table, not a string`,
			`4:1: servers: must be a table, not a boolean`,
		}},
		{"value for a server", "[servers]\na = 1979-05-27", []string{`2:1: servers.a: must be a table, not a date or time`}},
		{"array of tables for a server", "[[servers.a]]\ncommand = \"x\"", []string{
			`1:11: servers.a: must be a table, not an array (write its header as [servers.a])`,
		}},
		{"table for a string", "[daemon.listen]\nx = 1", []string{`1:9: daemon.listen: must be a string, not a table`}},
		{"wrong types", server("start = 1", "disabled = \"no\"", "max_in_flight = 1.5", "max_listeners = \"7\"", "protocol = []"), []string{
			`3:9: servers.a.start: must be a string, not an integer`,
			`4:12: servers.a.disabled: must be true or false, not a string`,
			`5:17: servers.a.max_in_flight: must be an integer, not a float`,
			`6:17: servers.a.max_listeners: must be an integer, not a string`,
			`7:12: servers.a.protocol: must be a string, not an array`,
		}},
		{"command and args of the wrong type", "[servers.a]\ncommand = [\"npx\", \"-y\"]\nargs = \"-y\"", []string{
			`2:11: servers.a.command: must be a string, not an array`,
			`3:8: servers.a.args: must be an array of strings, not a string (put it in brackets: ["…"])`,
		}},
		{"elements of the wrong type", server("args = [", "  \"ok\",", "  8080,", "  true,", "]"), []string{
			`5:3: servers.a.args: every element must be a string, not an integer (put it in quotes)`,
			`6:3: servers.a.args: every element must be a string, not a boolean (put it in quotes)`,
		}},
		{"variables of the wrong type", server(`env = { PORT = 8080, "a b" = true }`), []string{
			`3:16: servers.a.env.PORT: must be a string, not an integer (put the value in quotes)`,
			`3:30: servers.a.env."a b": must be a string, not a boolean (put the value in quotes)`,
		}},
		{"variables that are no table", server(`env = ["A=b"]`), []string{
			`3:7: servers.a.env: must be a table of strings, not an array (write it as { NAME = "value" })`,
		}},
		{"bad names of variables", server("[servers.a.env]", `"" = "x"`, `"A=B" = "x"`), []string{
			`4:1: servers.a.env."": a variable's name is not empty and holds no "=" or NUL`,
			`5:1: servers.a.env."A=B": a variable's name is not empty and holds no "=" or NUL`,
		}},

		{"variables that mcpd itself sets", server("[servers.a.env]", `MCPD_DAEMON = "x"`, `mcpd_child = "x"`, `MCPD_CONFIG = "x"`), []string{
			`4:1: servers.a.env.MCPD_DAEMON: is a name that mcpd itself sets, to find a server's processes again (give the variable another name)`,
			`5:1: servers.a.env.mcpd_child: is a name that mcpd itself sets, to find a server's processes again (give the variable another name)`,
		}},

		// Durations, sizes, numbers, words.
		{"integer for a duration", server("request_timeout = 30"), []string{
			`3:19: servers.a.request_timeout: must be a duration such as "30s", not an integer (did you mean "30s"?)`,
		}},
		{"bad durations", server(`request_timeout = "5"`, `start_timeout = "soon"`, `idle_stop = "2d"`, `stop_timeout = ""`), []string{
			`3:19: servers.a.request_timeout: the duration "5" has no unit (did you mean "5s"?)`,
			`4:17: servers.a.start_timeout: "soon" is not a duration (` + duration + `)`,
			`5:13: servers.a.idle_stop: the duration "2d" has a unit that does not exist (did you mean "48h"?)`,
			`6:16: servers.a.stop_timeout: "" is not a duration (` + duration + `)`,
		}},
		{"durations out of range", server(`request_timeout = "-5s"`, `start_timeout = "0s"`, `probe_interval = "1ms"`), []string{
			`3:19: servers.a.request_timeout: -5s is out of range (it may be from 100ms to 168h)`,
			`4:17: servers.a.start_timeout: 0s is out of range (it may be from 100ms to 1h)`,
			`5:18: servers.a.probe_interval: 1ms is out of range (it may be from 100ms to 24h, or 0s for never)`,
		}},
		{"integer for a size", "[security]\nmax_request_bytes = 16777216", []string{
			`2:21: security.max_request_bytes: must be a size such as "16MiB", not an integer (did you mean "16MiB"?)`,
		}},
		{"bad sizes", server(`max_message_bytes = "16"`, `stream_buffer_bytes = "4 mib"`), []string{
			`3:21: servers.a.max_message_bytes: the size "16" has no unit (did you mean "16B"?)`,
			`4:23: servers.a.stream_buffer_bytes: the size "4 mib" has an unknown unit (did you mean "4MiB"?)`,
		}},
		{"sizes that are none", server(`max_message_bytes = "big"`, `stream_buffer_bytes = "99999999999GiB"`), []string{
			`3:21: servers.a.max_message_bytes: "big" is not a size (sizes are written as "64KiB", "16MiB" or "1GB")`,
			`4:23: servers.a.stream_buffer_bytes: the size "99999999999GiB" is too large to count`,
		}},
		{"size out of range", server(`max_message_bytes = "2GiB"`), []string{
			`3:21: servers.a.max_message_bytes: 2GiB is out of range (it may be from 1KiB to 1GiB)`,
		}},
		{"number out of range", server("max_in_flight = 0"), []string{
			`3:17: servers.a.max_in_flight: 0 is out of range (it may be from 1 to 65536)`,
		}},
		{"unknown words", server(`start = "egaer"`, `replace = "x"`, `protocol = "Legacy"`), []string{
			`3:9: servers.a.start: "egaer" is not one of "eager", "lazy" (did you mean "eager"?)`,
			`4:11: servers.a.replace: "x" is not one of "make-before-break", "stop-first"`,
			`5:12: servers.a.protocol: "Legacy" is not one of "auto", "modern", "legacy" (did you mean "legacy"?)`,
		}},
		{"unknown log level", "[daemon]\nlog_level = \"verbose\"", []string{
			`2:13: daemon.log_level: "verbose" is not one of "debug", "info", "warn", "error"`,
		}},

		// Contradictions.
		{"contradiction in a server", server(`restart_backoff_min = "10s"`, `restart_backoff_max = "1s"`), []string{
			`3:23: servers.a.restart_backoff_min: 10s is more than servers.a.restart_backoff_max, which is 1s in line 4`,
		}},
		{"contradiction in the defaults, once for all servers", "[defaults]\nmax_in_flight = 1\nmax_in_flight_per_principal = 2\n" + server() +
			"[servers.b]\ncommand = \"x\"", []string{
			`3:31: defaults.max_in_flight_per_principal: 2 is more than defaults.max_in_flight, which is 1 in line 2`,
		}},
		{"server against the defaults", "[defaults]\nrequest_timeout = \"30m\"\n" + server(`max_request_time = "1m"`), []string{
			`5:20: servers.a.max_request_time: 1m is less than defaults.request_timeout, which is 30m in line 2`,
		}},

		// Addresses.
		{"addresses that are not loopback", "[daemon]\nlisten = \"0.0.0.0:7317\"", []string{
			`2:10: daemon.listen: "0.0.0.0:7317" is not a loopback address, and mcpd serves nothing else (did you mean "127.0.0.1:7317"?)`,
		}},
		{"address without a port", "[daemon]\nlisten = \"127.0.0.1\"", []string{
			`2:10: daemon.listen: "127.0.0.1" is not an address with a port (write it as "127.0.0.1:7317")`,
		}},
		{"port alone", "[daemon]\nlisten = \"7317\"", []string{
			`2:10: daemon.listen: "7317" is not an address with a port (did you mean "127.0.0.1:7317"?)`,
		}},
		{"origins", `security.allowed_origins = ["null", "http://*.x", "http://a/b", "localhost:1", 1, "http://b", "http://b:80"]`, []string{
			`1:29: security.allowed_origins: the origin "null" cannot be allowed (every sandboxed page and local file has it, so it identifies nobody)`,
			`1:37: security.allowed_origins: the origin "http://*.x" has a wildcard (origins are exact: list each one)`,
			`1:51: security.allowed_origins: the origin "http://a/b" has more than scheme, host and port (did you mean "http://a"?)`,
			`1:65: security.allowed_origins: "localhost:1" is not an origin (did you mean "http://localhost:1"?)`,
			`1:80: security.allowed_origins: every element must be a string, not an integer (put it in quotes)`,
			`1:95: security.allowed_origins: "http://b:80" is in the list twice`,
		}},
		{"hosts", `security.allowed_hosts = ["http://a:1/", "a*", ""]`, []string{
			`1:27: security.allowed_hosts: "http://a:1/" is not a host (did you mean "a:1"?)`,
			`1:42: security.allowed_hosts: the host "a*": the host has a wildcard (hosts are exact: list each one)`,
			`1:48: security.allowed_hosts: the host "": the host is missing`,
		}},

		// Commands, folders, names.
		{"no command", "[servers.a]\n", []string{`1:10: the server "a" has no command (add command = "…", the program to start)`}},
		{"misspelt command is reported once", "[servers.a]\ncomand = \"x\"", []string{
			`2:1: unknown key comand in [servers.a] (did you mean "command"?)`,
		}},
		{"empty command", "[servers.a]\ncommand = \" \"", []string{
			`2:11: servers.a.command: the command is empty (it is the program to start)`,
		}},
		{"command line for a command", "[servers.a]\ncommand = \"npx -y server\"", []string{
			`2:11: servers.a.command: "npx -y server" is more than a program (no shell reads it: put the arguments in args)`,
		}},
		{"relative command", "[servers.a]\ncommand = \"./server\"", []string{
			`2:11: servers.a.command: "./server" is a relative path (write an absolute one, ${config_dir}/…, or the bare name of a program in PATH)`,
		}},
		{"tilde", "[servers.a]\ncommand = \"~/x\"\ncwd = \"~\"", []string{
			`2:11: servers.a.command: "~" is not expanded (write ${home}/…)`,
			`3:7: servers.a.cwd: the folder is not absolute (start it with / or ${home} or ${config_dir})`,
		}},
		{"server names", "[servers.\"a b\"]\n[servers._a]\n[servers.\"\"]\n[servers.nul]\n[servers.\"com1.x\"]", []string{
			`1:10: the server name "a b" is not allowed (` + rule + `)`,
			`2:10: the server name "_a" is not allowed (` + rule + `)`,
			`3:10: the server name "" is empty or too long (` + rule + `)`,
			`4:10: the server name "nul" is the name of a device on Windows (give it another name)`,
			`5:10: the server name "com1.x" is the name of a device on Windows (give it another name)`,
		}},

		// References.
		{"references", server(
			`args = ["x", "${env:NOPE} ${secret:a}", "${envv:A}"]`,
			`env = { A = "${file:none}", B = "${HOME}", C = "${x:}" }`,
			`cwd = "${home:x}"`,
		), []string{
			`3:15: servers.a.args: ${env:NOPE}: the variable NOPE is not set (set it for the daemon; an empty value is allowed)`,
			`3:27: servers.a.args: ${secret:a}: secrets are not available in this version (use ${env:NAME} or ${file:PATH})`,
			`3:42: servers.a.args: ${envv:A}: unknown kind of reference (did you mean "env"?)`,
			`4:14: servers.a.env.A: ${file:none}: the file does not exist (a relative path starts at the folder of the configuration)`,
			`4:34: servers.a.env.B: ${HOME}: unknown kind of reference (did you mean "${env:HOME}"?)`,
			`4:49: servers.a.env.C: ${x:}: unknown kind of reference (there are ${env:NAME}, ${file:PATH}, ${home} and ${config_dir}; write "$${" for a literal "${")`,
			`5:8: servers.a.cwd: ${home:x} takes nothing after its name (did you mean "${home}"?)`,
		}},
		{"reference to a variable without its kind", server(`args = ["${API_KEY}"]`), []string{
			`3:10: servers.a.args: ${API_KEY}: unknown kind of reference (did you mean "${env:API_KEY}"?)`,
		}},
		{"reference that does not end", server(`args = ["a ${home"]`), []string{
			`3:12: servers.a.args: "${" has no closing "}" (write "$${" for a literal "${")`,
		}},
		{"reference after an escaped one", server(`args = ["$${env:A} ${env:A}"]`), []string{
			`3:20: servers.a.args: ${env:A}: the variable A is not set (set it for the daemon; an empty value is allowed)`,
		}},
		{"reference in a string of several lines", server("args = ['''", "one", "  ${env:A}''']"), []string{
			`5:3: servers.a.args: ${env:A}: the variable A is not set (set it for the daemon; an empty value is allowed)`,
		}},
		{"reference that is written with escapes", server(`args = ["x", "$\u007benv:A}"]`), []string{
			`3:14: servers.a.args: ${env:A}: the variable A is not set (set it for the daemon; an empty value is allowed)`,
		}},
		{"names that shells do not know", server(`args = ["${env:A:-b}", "${env:}", "${file:}"]`), []string{
			`3:10: servers.a.args: ${env:A:-b}: "A:-b" is not the name of a variable`,
			`3:25: servers.a.args: ${env:}: "" is not the name of a variable`,
			`3:36: servers.a.args: ${file:}: the path is missing`,
		}},
		{"bad reference in the path of a file", server(`args = ["${file:${env:A}/b}"]`), []string{
			`3:10: servers.a.args: ${file:${env:A}/b}: in its path: ${env:A}: the variable A is not set (set it for the daemon; an empty value is allowed)`,
		}},
		{"bad reference of a disabled server", server(`disabled = true`, `args = ["${env:UNSET}", "${nope}"]`), []string{
			`4:26: servers.a.args: ${nope}: unknown kind of reference (did you mean "${env:nope}"?)`,
		}},
		{"NUL", server(`args = ["a\u0000b"]`), []string{
			`3:9: servers.a.args: the value has a NUL character, which no program can be given`,
		}},

		// Not TOML.
		{"no value", "[daemon]\nlisten =\nfoo = 1", []string{`2:9: expected value but found '\n' instead`}},
		{"two things on a line", "[daemon]\nlisten = \"x\" foo", []string{
			`2:14: nothing but a comment may follow on this line (text must be in quotes)`,
		}},
		{"string without an end", "a = \"x\nb = 1", []string{`1:7: strings cannot contain newlines`}},
		{"string without an end in the last line", "a = \"x", []string{`1:6: unexpected EOF; expected '"'`}},
		{"Windows path in double quotes", "a = 1\nb = \"C:\\dir\"", []string{
			`2:8: invalid escape in string '\d' (write "\\" for a backslash, or put the text in single quotes)`,
		}},
		{"secret in a string with a bad escape", `a = "s3cr3t\xzz"`, []string{
			`1:12: expected two hexadecimal digits after '\x' (write "\\" for a backslash, or put the text in single quotes)`,
		}},
		{"text without quotes", "[daemon]\nlog_level = warn", []string{`2:13: this is not a value (text must be in quotes)`}},
		{"duration without quotes", server("stop_timeout = 5s"), []string{
			`3:17: nothing but a comment may follow on this line (text must be in quotes)`,
		}},
		{"numbers that are none", "a = 0123", []string{`1:5: this is not a number: cannot have leading zeroes`}},
		{"number beyond counting", "a = 99999999999999999999", []string{`1:5: the number is too large`}},
		{"date that is none", "a = 12-34", []string{`1:5: this is not a date or time (text must be in quotes)`}},
		{"not UTF-8", "a = 1\nb = \"ä\xff\"", []string{`2:7: the file has bytes that are not UTF-8 (save it in the encoding UTF-8)`}},
		{"nested too deeply", "a = " + strings.Repeat("[", 1000), []string{
			`1:37: arrays, tables or dotted keys are nested more than 32 deep`,
		}},
		{"not TOML behind a byte order mark", "\ufeffa = ?", []string{`1:5: expected value but found '?' instead`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(t, test.text)
			if err == nil {
				t.Fatal("no problem was found")
			}
			if diff := cmp.Diff(test.want, problemsOf(t, err)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
