package service

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func addresses(list ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range list {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

func ada() Definition {
	return Definition{
		Executable: "/usr/bin/mcpd", ConfigPath: "/home/ada/.config/mcpd/mcpd.toml", StateDir: "/home/ada/.local/state/mcpd",
		Home: "/home/ada", Listen: addresses("127.0.0.1:7317", "[::1]:7317"),
	}
}

// awkward has in its paths what has a meaning in units.
func awkward() Definition {
	return Definition{
		Executable: `/opt/my "tools" 100%/$HOME/mcpd`, ConfigPath: `/home/a b/%h\n.toml`, StateDir: "/home/a b/état", Home: "/home/a b",
	}
}

func adaOnMac() Definition {
	return Definition{
		Executable: "/opt/homebrew/bin/mcpd", ConfigPath: "/Users/ada/Library/Application Support/mcpd/mcpd.toml",
		StateDir: "/Users/ada/Library/Application Support/mcpd/state", Home: "/Users/ada",
		Listen: addresses("127.0.0.1:7317", "[::1]:7317"),
	}
}

func adaOnWindows() Definition {
	return Definition{
		Executable: `C:\Program Files\mcpd\mcpd.exe`, ConfigPath: `C:\Users\Ada & Co\AppData\Roaming\mcpd\mcpd.toml`,
		StateDir: `C:\Users\Ada & Co\AppData\Local\mcpd`, Home: `C:\Users\Ada & Co`,
	}
}

func with(d Definition, change func(*Definition)) Definition {
	change(&d)
	return d
}

func TestRenderedFilesAreAsReviewed(t *testing.T) {
	asAda := func(d *Definition) { d.User = "ada" }
	for name, got := range map[string][]byte{
		"user.service":    renderUnit(ada()),
		"user.socket":     renderSocket(ada()),
		"system.service":  renderUnit(with(ada(), asAda)),
		"awkward.service": renderUnit(awkward()),
		"setuid.service":  renderUnit(with(ada(), func(d *Definition) { d.AllowSetuid = true })),
		"package.service": PackagedUnit("/usr/bin/mcpd"),
		"agent.plist":     renderPlist(adaOnMac()),
		"daemon.plist":    renderPlist(with(adaOnMac(), asAda)),
		"task.xml":        renderTask(adaOnWindows(), `BOX\Ada & Co`),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, got) })
	}
}

func TestWithoutAFixedPortThereIsNoSocketUnit(t *testing.T) {
	d := with(ada(), func(d *Definition) { d.Listen = nil })
	if got := renderSocket(d); got != nil {
		t.Errorf("rendered %q", got)
	}
	if got := string(renderUnit(d)); strings.Contains(got, "mcpd.socket") {
		t.Errorf("the unit wants a socket that is not there:\n%s", got)
	}
	if got := string(renderPlist(d)); strings.Contains(got, "Sock") {
		t.Errorf("the plist has a socket without an address:\n%s", got)
	}
}

func TestQuotingKeepsWhatHasAMeaningInUnits(t *testing.T) {
	if got, want := quoted(`a "b" \ 100%`), `"a \"b\" \\ 100%%"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPlistsAreWhatLaunchdReads lets a program that is not ours parse them.
func TestPlistsAreWhatLaunchdReads(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3, which reads plists, is not installed")
	}
	const check = `
import plistlib, sys
p = plistlib.loads(sys.stdin.buffer.read())
assert p["Label"] == "dev.mcpd.mcpd", p["Label"]
assert p["ProgramArguments"] == ["/Users/ada/A & B <mcpd>", "service", "run", "--log-file", "/Users/ada/state/logs/mcpd.log"], p["ProgramArguments"]
assert p["RunAtLoad"] is True and p["KeepAlive"] == {"SuccessfulExit": False}
assert 0 < p["ThrottleInterval"] <= 10
assert p["StandardErrorPath"] == p["StandardOutPath"] == "/Users/ada/state/logs/mcpd.start.log"
assert p["EnvironmentVariables"] == {"MCPD_CONFIG": "/Users/ada/mcpd.toml", "MCPD_STATE_DIR": "/Users/ada/state"}
assert p["WorkingDirectory"] == "/Users/ada"
assert p["Sockets"] == {"Listeners": [
    {"SockNodeName": "127.0.0.1", "SockServiceName": "7317", "SockFamily": "IPv4", "SockType": "stream"},
    {"SockNodeName": "::1", "SockServiceName": "7317", "SockFamily": "IPv6", "SockType": "stream"},
]}, p["Sockets"]
assert p.get("UserName") is None and p["LimitLoadToSessionType"] == ["Aqua", "Background"]
`
	cmd := exec.CommandContext(t.Context(), python, "-c", check)
	cmd.Stdin = strings.NewReader(string(renderPlist(Definition{
		Executable: "/Users/ada/A & B <mcpd>", ConfigPath: "/Users/ada/mcpd.toml", StateDir: "/Users/ada/state", Home: "/Users/ada",
		Listen: addresses("127.0.0.1:7317", "[::1]:7317"),
	})))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTasksAreXMLInUTF16(t *testing.T) {
	text := renderTask(adaOnWindows(), `BOX\Ada & Co`)
	dec := xml.NewDecoder(strings.NewReader(string(text)))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	wide := utf16File(text)
	if string(wide[:4]) != "\xff\xfe<\x00" {
		t.Errorf("it begins with %x", wide[:4])
	}
	if len(wide) < 2*len(text)-10 {
		t.Errorf("%d bytes became %d", len(text), len(wide))
	}
}

func TestWindowsArgumentsAreReadBack(t *testing.T) {
	for in, want := range map[string]string{
		`plain`: `plain`, ``: `""`, `two words`: `"two words"`, `a"b`: `"a\"b"`, `C:\My Dir\`: `"C:\My Dir\\"`, `a\" b`: `"a\\\" b"`,
	} {
		if got := windowsQuoted(in); got != want {
			t.Errorf("%q became %s, want %s", in, got, want)
		}
	}
}

func TestADefinitionThatNoServiceManagerCanBeGivenIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Definition){
		"a relative program":       func(d *Definition) { d.Executable = "mcpd" },
		"no config":                func(d *Definition) { d.ConfigPath = "" },
		"no state folder":          func(d *Definition) { d.StateDir = "" },
		"a line break":             func(d *Definition) { d.StateDir = "/a\nExecStartPre=/bin/evil" },
		"braces of a template":     func(d *Definition) { d.ConfigPath = "/a/{{Name}}" },
		"an address for all":       func(d *Definition) { d.Listen = addresses("0.0.0.0:7317") },
		"a port that is any":       func(d *Definition) { d.Listen = addresses("127.0.0.1:0") },
		"a user with a line break": func(d *Definition) { d.User = "ada\nUser=root" },
	} {
		t.Run(name, func(t *testing.T) {
			if err := with(ada(), change).Check(); err == nil {
				t.Error("no error")
			}
		})
	}
	for _, d := range []Definition{ada(), awkward(), adaOnMac(), adaOnWindows()} {
		if err := d.Check(); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
}
