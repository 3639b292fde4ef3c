package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func editor(t *testing.T, text string) *Editor {
	t.Helper()
	e, err := NewEditor(testPath, []byte(text), world{}.environment())
	if err != nil {
		t.Fatalf("NewEditor: %v", err)
	}
	return e
}

func plainEntry(name string) Entry { return Entry{Name: name, Raw: Raw{Command: "prog"}} }

func TestAddAppendsATableInTheStyleOfTheFile(t *testing.T) {
	full := Entry{
		Name: "files.home",
		Raw: Raw{
			Command: `C:\Program Files\x.exe`, Args: []string{"-y", "a \"b\"", "${home}/notes"}, Cwd: `C:\data`,
			Env: map[string]string{"TOKEN": "${env:API_TOKEN}", "A.B": ""},
		},
		Start: StartLazy, IdleStop: 10 * time.Minute, Replace: ReplaceStopFirst, Protocol: ProtocolLegacy,
		StartTimeout: time.Minute, RequestTimeout: 90 * time.Second, Comment: "two\nlines",
	}
	long := Entry{Name: "long", Raw: Raw{
		Command: "prog", Args: []string{strings.Repeat("a", 60), strings.Repeat("b", 60)},
		Env: map[string]string{"FIRST": strings.Repeat("c", 60), "SECOND": strings.Repeat("d", 60)},
	}}
	for _, c := range []struct {
		name, before, after string
		entry               Entry
	}{
		{"an empty file", "", "[servers.a]\ncommand = \"prog\"\n", plainEntry("a")},
		{"after what is there", "[daemon]\n", "[daemon]\n\n[servers.a]\ncommand = \"prog\"\n", plainEntry("a")},
		{"before blank lines at the end", "[daemon]\n\n \n", "[daemon]\n\n[servers.a]\ncommand = \"prog\"\n\n \n", plainEntry("a")},
		{"after a comment at the end", "# end\n", "# end\n\n[servers.a]\ncommand = \"prog\"\n", plainEntry("a")},
		{"without a line end at the end", "[daemon]", "[daemon]\n\n[servers.a]\ncommand = \"prog\"", plainEntry("a")},
		{"with the line ends of Windows", "[daemon]\r\n", "[daemon]\r\n\r\n[servers.a]\r\ncommand = \"prog\"\r\n", plainEntry("a")},
		{"behind a byte order mark", "\ufeff[daemon]\n", "\ufeff[daemon]\n\n[servers.a]\ncommand = \"prog\"\n", plainEntry("a")},
		{"beside inline tables", "[servers]\nb = { command = \"x\" }\n", "[servers]\nb = { command = \"x\" }\n\n[servers.a]\ncommand = \"prog\"\n", plainEntry("a")},
		{"with every key", "", `# two
# lines
[servers."files.home"]
command = 'C:\Program Files\x.exe'
args = ["-y", "a \"b\"", "${home}/notes"]
cwd = 'C:\data'
start = "lazy"
idle_stop = "10m"
replace = "stop-first"
protocol = "legacy"
start_timeout = "1m"
request_timeout = "1m30s"
env = { "A.B" = "", TOKEN = "${env:API_TOKEN}" }
`, full},
		{"with long lists", "", "[servers.long]\ncommand = \"prog\"\nargs = [\n  \"" + strings.Repeat("a", 60) + "\",\n  \"" + strings.Repeat("b", 60) + "\",\n]\n" +
			"\n[servers.long.env]\nFIRST = \"" + strings.Repeat("c", 60) + "\"\nSECOND = \"" + strings.Repeat("d", 60) + "\"\n", long},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := world{}.environment()
			if strings.HasPrefix(c.entry.Raw.Command, "C:") {
				env.OS = "windows"
			}
			e, err := NewEditor(testPath, []byte(c.before), env)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := e.Add(c.entry, false)
			if err != nil || !changed {
				t.Fatalf("Add: %v, %v", changed, err)
			}
			if diff := cmp.Diff(c.after, string(e.Bytes())); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if changed, err := e.Add(c.entry, false); changed || err != nil {
				t.Errorf("the same again: %v, %v", changed, err)
			}
		})
	}
}

const commentedFile = `# mcpd on this machine
# (see the wiki)

[daemon] # first
log_level = "info"

# Files of one folder.
# Slow!
[servers.files] # the old one
command = "npx" # from nvm
# how
args = [
  "-y", # yes
]
# that was files

# Free-standing.

[servers.files.env]
TOKEN = "t"
# About other.
[servers.other]
command = "x"

# An example:
#[servers.third]
#command = "y"
`

func TestRemoveTakesTheTableAndWhatBelongsToIt(t *testing.T) {
	for _, c := range []struct{ name, text, server, want string }{
		{"with sub-tables, and comments that touch it", commentedFile, "files", `# mcpd on this machine
# (see the wiki)

[daemon] # first
log_level = "info"

# Free-standing.

# About other.
[servers.other]
command = "x"

# An example:
#[servers.third]
#command = "y"
`},
		{"and leaves free-standing comments below", commentedFile, "other", strings.Replace(commentedFile, "# About other.\n[servers.other]\ncommand = \"x\"\n", "", 1)},
		{"a sub-table far away", "[servers.a]\ncommand = \"x\"\n\n[servers.b]\ncommand = \"y\"\n\n[servers.a.env]\nK = \"v\"\n", "a", "[servers.b]\ncommand = \"y\"\n"},
		{"a sub-table before it", "[servers.a.env]\nK = \"v\"\n[daemon]\n[servers.a]\ncommand = \"x\"\n", "a", "[daemon]\n"},
		{"at the top", "[servers.a]\ncommand = \"x\"\n\n\n[daemon]\n", "a", "[daemon]\n"},
		{"but not the head of the file", "# head\n[servers.a]\ncommand = \"x\"\n\n[daemon]\n", "a", "# head\n\n[daemon]\n"},
		{"between tables without blank lines", "[daemon]\n\n[servers.a]\ncommand = \"x\"\n[security]\n", "a", "[daemon]\n\n[security]\n"},
		{"an inline table", "[servers]\n# a\na = { command = \"x\", env = { K = \"v\" } } # a\n# b\nb = { command = \"y\" }\n", "a", "[servers]\n# b\nb = { command = \"y\" }\n"},
		{"dotted keys", "[servers]\na.command = \"x\"\nb.command = \"y\"\na.env.K = \"v\"\n", "a", "[servers]\nb.command = \"y\"\n"},
		{"dotted keys at the top", "servers.a.command = \"x\"\nservers.a.args = [\n]\n\n[daemon]\n", "a", "[daemon]\n"},
		{"a quoted name", "[ 'servers' . \"a.b\" ]\ncommand = \"x\"\n\n[servers.\"a.b\".env]\n\n[servers.a]\ncommand = \"y\"\n", "a.b", "[servers.a]\ncommand = \"y\"\n"},
		{"without a line end at the end", "[daemon]\n\n[servers.a]\ncommand = \"x\"\n\n[servers.a.env]\nK = \"v\"", "a", "[daemon]"},
		{"with the line ends of Windows", "\ufeff[daemon]\r\n\r\n# a\r\n[servers.a]\r\ncommand = \"x\"\r\n", "a", "\ufeff[daemon]\r\n"},
		{"below a string that ends like a comment", "[daemon]\nlog_level = '''\ninfo'''\n[servers.b]\ncommand = '''x\n# y'''\n[servers.a]\ncommand = \"x\"\n", "a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want == "" { // a text that is not a valid configuration in that form; see the next line
				c.text = strings.Replace(c.text, "'''\ninfo'''", `"info"`, 1)
				c.text = strings.Replace(c.text, "command = '''x\n# y'''", "command = \"x\"\nargs = ['''\n# y''']", 1)
				c.want = strings.Replace(c.text, "[servers.a]\ncommand = \"x\"\n", "", 1)
			}
			e := editor(t, c.text)
			changed, err := e.Remove(c.server)
			if err != nil || !changed {
				t.Fatalf("Remove: %v, %v", changed, err)
			}
			if diff := cmp.Diff(c.want, string(e.Bytes())); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if changed, err := e.Remove(c.server); changed || err != nil {
				t.Errorf("again: %v, %v", changed, err)
			}
		})
	}
}

func TestAddReplacesInPlaceOnlyWhenAsked(t *testing.T) {
	e := editor(t, commentedFile)
	_, err := e.Add(plainEntry("files"), false)
	exists, ok := errors.AsType[*ExistsError](err)
	if !ok || exists.Line != 9 || string(e.Bytes()) != commentedFile {
		t.Fatalf("without being asked: %v", err)
	}
	if changed, err := e.Add(plainEntry("Files"), true); err != nil || !changed {
		t.Fatalf("Add: %v, %v", changed, err)
	}
	want := `# mcpd on this machine
# (see the wiki)

[daemon] # first
log_level = "info"

# Files of one folder.
# Slow!
[servers.Files]
command = "prog"
# that was files

# Free-standing.

# About other.
[servers.other]
command = "x"

# An example:
#[servers.third]
#command = "y"
`
	if diff := cmp.Diff(want, string(e.Bytes())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	e = editor(t, "[servers]\na = { command = \"x\" }\nb = { command = \"y\" }\n")
	if changed, err := e.Add(plainEntry("a"), true); err != nil || !changed {
		t.Fatalf("Add: %v, %v", changed, err)
	}
	if diff := cmp.Diff("[servers]\nb = { command = \"y\" }\n\n[servers.a]\ncommand = \"prog\"\n", string(e.Bytes())); diff != "" {
		t.Errorf("an inline table (-want +got)\n%s", diff)
	}
}

func TestWhatCannotBeEditedIsRefusedAndUnchanged(t *testing.T) {
	inline := "servers = { a = { command = \"x\" } }\n"
	for _, c := range []struct {
		name, text string
		edit       func(*Editor) (bool, error)
		want       string
	}{
		{"adding to one table for all", inline, func(e *Editor) (bool, error) { return e.Add(plainEntry("b"), false) }, "line 1: all servers"},
		{"removing from one table for all", inline, func(e *Editor) (bool, error) { return e.Remove("a") }, "line 1: all servers"},
		{"a bad name", "", func(e *Editor) (bool, error) { return e.Add(plainEntry("a b"), false) }, `"a b" is not allowed`},
		{"no command", "", func(e *Editor) (bool, error) { return e.Add(Entry{Name: "a"}, false) }, "the command is empty"},
		{
			"a shell variable", "", func(e *Editor) (bool, error) {
				return e.Add(Entry{Name: "a", Raw: Raw{Command: "x", Args: []string{"${HOME}"}}}, false)
			}, `did you mean "${env:HOME}"?`,
		},
		{
			"bytes that are not UTF-8", "", func(e *Editor) (bool, error) {
				return e.Add(Entry{Name: "a", Raw: Raw{Command: "x", Args: []string{"\xff"}}}, false)
			}, "not UTF-8",
		},
		{
			"a relative folder", "", func(e *Editor) (bool, error) {
				return e.Add(Entry{Name: "a", Raw: Raw{Command: "x", Cwd: "here"}}, false)
			}, "not absolute",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := editor(t, c.text)
			changed, err := c.edit(e)
			if changed || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v; want %q", changed, err, c.want)
			}
			if string(e.Bytes()) != c.text {
				t.Errorf("the text has changed:\n%s", e.Bytes())
			}
		})
	}
	if _, err := NewEditor(testPath, []byte("[servers.a]\n"), world{}.environment()); err == nil || !strings.Contains(err.Error(), "has no command") {
		t.Errorf("a file with problems: %v", err)
	}
	// The daemon may have what this process has not.
	editor(t, "[servers.a]\ncommand = \"${env:TOOL}\"\nargs = [\"${file:missing}\"]\ncwd = \"${env:SOMEWHERE}\"\n")
}

// configText draws valid configurations in many styles.
func configText(t *rapid.T) string {
	end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "line end")
	blank := rapid.SampledFrom([]string{"", "", "\n", "\n\n", "# note\n", "\n# note\n\n", "  \n", "\t# x\n"})
	var b strings.Builder
	gap := func() { b.WriteString(blank.Draw(t, "gap")) }
	gap()
	if rapid.Bool().Draw(t, "dotted") {
		b.WriteString("servers.dotted.command = \"x\"\n")
		gap()
		b.WriteString("servers.dotted.args = [ # y\n\n  'a', # [servers.z]\n]\n")
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "tables") {
		gap()
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			fmt.Fprintf(&b, "[servers.s%d]\ncommand = \"x\" # y\n", i)
			gap()
			fmt.Fprintf(&b, "args = ['''\n# z\n[servers.q]''']\n")
		case 1:
			fmt.Fprintf(&b, "[servers.\"s.%d\".env]\nK = \"v\"\n", i)
			gap()
			fmt.Fprintf(&b, "[ servers . 's.%d' ] # t\ncommand='x'\n", i)
		case 2:
			fmt.Fprintf(&b, "[servers.s%d]\nenv.K = \"\"\"\nv\"\"\"\ncommand = 'x'\n", i)
		case 3:
			if !strings.Contains(b.String(), "[daemon]") {
				b.WriteString("[daemon]\n")
			}
		case 4:
			if !strings.Contains(b.String(), "[servers]") && !strings.Contains(b.String(), "servers.") {
				fmt.Fprintf(&b, "[servers]\ns%d = { command = 'x' }\ni.command = 'y'\n", i)
			}
		}
	}
	gap()
	text := strings.ReplaceAll(b.String(), "\n", end)
	if rapid.Bool().Draw(t, "cut") {
		text = strings.TrimSuffix(text, end)
	}
	return rapid.SampledFrom([]string{"", byteOrderMark}).Draw(t, "mark") + text
}

func anyEntry(t *rapid.T, name string) Entry {
	text := rapid.StringN(0, 12, 40).Filter(func(s string) bool { return !strings.Contains(s, "${") && !strings.Contains(s, "\x00") })
	entry := plainEntry(name)
	entry.Raw.Args = rapid.SliceOfN(text, 0, 4).Draw(t, "args")
	entry.Raw.Env = rapid.MapOfN(rapid.StringMatching(`[A-Z_.é]{1,60}`), text, 0, 4).Draw(t, "env")
	entry.Disabled = rapid.Bool().Draw(t, "disabled")
	entry.IdleStop = time.Duration(rapid.IntRange(1, 1000).Draw(t, "idle")) * time.Second
	return entry
}

// TestRemoveUndoesAdd: whatever the file looks like, adding a server and removing it gives the same bytes; and the others
// stay as they were.
func TestRemoveUndoesAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := configText(t)
		e, err := NewEditor(testPath, []byte(text), world{}.environment())
		if err != nil {
			t.Skip("not a valid configuration") // the drawn parts may not fit together
		}
		before := e.Names()
		entry := anyEntry(t, "new")
		if changed, err := e.Add(entry, false); err != nil || !changed {
			t.Fatalf("Add to %q: %v, %v", text, changed, err)
		}
		got := e.cfg.Servers["new"].Raw
		if got.Command != "prog" || len(got.Args) != len(entry.Raw.Args) || len(got.Env) != len(entry.Raw.Env) {
			t.Fatalf("it came out as %v", got)
		}
		if changed, err := e.Remove("new"); err != nil || !changed {
			t.Fatalf("Remove from %q: %v, %v", e.Bytes(), changed, err)
		}
		if string(e.Bytes()) != text {
			t.Fatalf("\nbefore %q\nafter  %q", text, e.Bytes())
		}
		for _, name := range before {
			r, err := NewEditor(testPath, []byte(text), world{}.environment())
			if err != nil {
				t.Fatal(err)
			}
			if changed, err := r.Remove(name); err != nil || !changed {
				t.Fatalf("Remove %s from %q: %v, %v", name, text, changed, err)
			}
			if len(r.Names()) != len(before)-1 {
				t.Fatalf("%v are left of %v", r.Names(), before)
			}
			if changed, err := r.Add(anyEntry(t, name), false); err != nil || !changed {
				t.Fatalf("Add %s to %q: %v, %v", name, r.Bytes(), changed, err)
			}
			r, err = NewEditor(testPath, []byte(text), world{}.environment())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Add(anyEntry(t, name), true); err != nil {
				t.Fatalf("Replace %s in %q: %v", name, text, err)
			}
		}
	})
}

// FuzzEdit: on whatever valid file, an edit either fails and changes nothing, or gives a valid file in which all else
// means the same. The editor checks that itself, so it is checked here without its help.
func FuzzEdit(f *testing.F) {
	f.Add("", "a", "x", "", false)
	f.Add(commentedFile, "files", "${home}", "K", true)
	f.Add("servers.a.command='x'\n[servers.b]\ncommand=\"y\"\n#c", "b", "'\"\\\n", "é", true)
	f.Add("\ufeff[servers]\r\na={command='x'}\r\n", "a", "\x7f", "A", false)
	f.Fuzz(func(t *testing.T, text, name, arg, variable string, replace bool) {
		if len(text) > 4096 {
			t.Skip("long texts only cost time")
		}
		env := world{}.environment()
		e, err := NewEditor(testPath, []byte(text), env)
		if err != nil {
			t.Skip("only valid files are edited")
		}
		before, err := Parse(testPath, []byte(text), takenForGranted(env))
		if err != nil {
			t.Fatal(err)
		}
		check := func(changed bool, err error, names ...string) {
			t.Helper()
			if (err != nil || !changed) && string(e.Bytes()) != text {
				t.Fatalf("%v, %v, and yet\n%q became\n%q", changed, err, text, e.Bytes())
			}
			after, perr := Parse(testPath, e.Bytes(), takenForGranted(env))
			if perr != nil {
				t.Fatalf("%q became\n%q:\n%v", text, e.Bytes(), perr)
			}
			a, b := clone(before), clone(after)
			for _, n := range names {
				delete(a.Servers, n)
				delete(b.Servers, n)
			}
			if string(a.TOML()) != string(b.TOML()) {
				t.Fatalf("%q became\n%q", text, e.Bytes())
			}
		}
		old, _, _ := e.Find(name)
		entry := Entry{Name: name, Raw: Raw{Command: "x", Args: []string{arg}, Env: map[string]string{variable: arg}}}
		changed, err := e.Add(entry, replace)
		check(changed, err, name, old)
		if err == nil {
			added := string(e.Bytes())
			if _, err := e.Remove(name); err != nil && !errors.Is(err, errEdit) {
				if _, shape := errors.AsType[*ShapeError](err); !shape {
					t.Fatalf("%q: %v", added, err)
				}
			}
			text = string(e.Bytes())
			check(true, nil, name, old)
		}
	})
}

func editOptions(t *testing.T) EditOptions {
	return EditOptions{Environment: world{}.environment(), LockFile: filepath.Join(t.TempDir(), "lock")}
}

func add(name string) func(*Editor) error {
	return func(e *Editor) error {
		_, err := e.Add(plainEntry(name), false)
		return err
	}
}

func TestEditFileMakesAPrivateFileWhereThereIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "mcpd.toml")
	changed, err := EditFile(t.Context(), path, editOptions(t), add("a"))
	if err != nil || !changed {
		t.Fatalf("%v, %v", changed, err)
	}
	data, err := os.ReadFile(path)
	if want := newFileHead + "\n[servers.a]\ncommand = \"prog\"\n"; err != nil || string(data) != want {
		t.Errorf("%q, %v", data, err)
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestEditFileKeepsModeAndLink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "dotfiles", "mcpd.toml"), filepath.Join(dir, "mcpd.toml")
	if err := os.Mkdir(filepath.Dir(real), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, real, "# mine\n")
	if err := os.Chmod(real, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if _, err := EditFile(t.Context(), link, editOptions(t), add("a")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	info, err = os.Stat(real)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if data, _ := os.ReadFile(real); !strings.Contains(string(data), "[servers.a]") {
		t.Errorf("%s", data)
	}
	if entries, err := os.ReadDir(filepath.Dir(real)); err != nil || len(entries) != 1 {
		t.Errorf("more is left than the file: %v, %v", entries, err)
	}

	if err := os.Remove(real); err != nil {
		t.Fatal(err)
	}
	if _, err := EditFile(t.Context(), link, editOptions(t), add("a")); err == nil || !strings.Contains(err.Error(), "symbolic link to something that does not exist") {
		t.Errorf("a link to nothing: %v", err)
	}
}

func TestEditFileLeavesAReadOnlyFileAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcpd.toml")
	writeFile(t, path, "# mine\n")
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := EditFile(t.Context(), path, editOptions(t), add("a")); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("the error is %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "# mine\n" {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // or Windows does not remove it
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("more is left than the file: %v, %v", entries, err)
	}
}

func TestEditFileWritesNothingWhereThereIsNothingToWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcpd.toml")
	o := editOptions(t)
	if changed, err := EditFile(t.Context(), path, o, func(*Editor) error { return nil }); changed || err != nil {
		t.Errorf("%v, %v", changed, err)
	}
	dry := o
	dry.DryRun = true
	if changed, err := EditFile(t.Context(), path, dry, add("a")); !changed || err != nil {
		t.Errorf("dry run: %v, %v", changed, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
	writeFile(t, path, "[daemon]\nlisten = 1\n")
	if _, err := EditFile(t.Context(), path, o, add("a")); len(problemsOf(t, err)) != 1 {
		t.Errorf("a file with a problem: %v", err)
	}
	failure := errors.New("no")
	writeFile(t, path, "[daemon]\n")
	if _, err := EditFile(t.Context(), path, o, func(e *Editor) error {
		return errors.Join(add("a")(e), failure)
	}); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
	_, err := EditFile(t.Context(), path, o, func(e *Editor) error {
		writeFile(t, path, "[security]\n") // as another program would
		return add("a")(e)
	})
	if err == nil || !strings.Contains(err.Error(), "changed by another program") {
		t.Errorf("%v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "[security]\n" {
		t.Errorf("%q", data)
	}
}

func TestEditsAtTheSameTimeAllHappen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcpd.toml")
	o := editOptions(t)
	var group sync.WaitGroup
	const many = 8
	for i := range many {
		group.Go(func() {
			if _, err := EditFile(context.Background(), path, o, add(fmt.Sprintf("s%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	cfg, err := Load(path, o.Environment)
	if err != nil || len(cfg.Servers) != many {
		t.Errorf("%v, %v", cfg, err)
	}
}
