package supervisor

import (
	"strings"
	"testing"
)

func TestBatchArgumentsStayArguments(t *testing.T) {
	for _, tt := range []struct{ name, arg, want string }{
		{"a plain word", `-y`, `-y`},
		{"a package name", `@scope/server@1.0.0`, `@scope/server@1.0.0`},
		{"nothing", ``, `""`},
		{"a space", `a b`, `"a b"`},
		{"a second command", `a&calc`, `"a&calc"`},
		{"a redirection", `a>b`, `"a>b"`},
		{"a caret", `^`, `"^"`},
		{"a quote that would end the quoting", `"&calc&"`, `"""&calc&"""`},
		{"backslashes before a quote", `\\"`, `"\\\\"""`},
		{"a backslash at the end", `C:\dir\`, `"C:\dir\\"`},
		{"a variable", `%PATH%`, `"%%cd:~,%PATH%%cd:~,%"`},
		{"delayed expansion", `!PATH!`, `"!PATH!"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := batchCommandLine(`C:\Program Files\nodejs\npx.cmd`, []string{tt.arg})
			want := `cmd.exe /d /e:on /v:off /s /c ""C:\Program Files\nodejs\npx.cmd" ` + tt.want + `"`
			if err != nil || got != want {
				t.Errorf("got  %s %v\nwant %s", got, err, want)
			}
		})
	}
}

func TestWhatABatchFileCannotTakeIsRefused(t *testing.T) {
	for _, arg := range []string{"a\nb", "a\rb", "a\x00b"} {
		if line, err := batchCommandLine(`C:\x.cmd`, []string{arg}); err == nil {
			t.Errorf("%q became %s", arg, line)
		}
	}
	for _, script := range []string{`C:\a"b.cmd`, `C:\%X%\a.cmd`} {
		if line, err := batchCommandLine(script, nil); err == nil {
			t.Errorf("%q became %s", script, line)
		}
	}
}

func TestPathExtFindsWhatCanBeExecuted(t *testing.T) {
	files := map[string]bool{`npx`: true, `npx.cmd`: true, `uvx.exe`: true, `tool.js`: true, `tool.bat`: true, `My.Server.exe`: true}
	exists := func(p string) bool { return files[p] }
	for name, want := range map[string]string{
		`npx`: `npx.cmd`, `npx.cmd`: `npx.cmd`, `uvx`: `uvx.exe`, `tool`: `tool.bat`, `My.Server`: `My.Server.exe`, `none`: ``,
	} {
		if got := withExt(name, pathExts(".COM;.EXE;.BAT;.CMD;.VBS;.JS"), exists); got != want {
			t.Errorf("%s is found as %q, want %q", name, got, want)
		}
	}
	if got := strings.Join(pathExts(""), ";"); got != ".com;.exe;.bat;.cmd" {
		t.Errorf("default %s", got)
	}
	for path, want := range map[string]bool{`a.cmd`: true, `a.BAT`: true, `a.bat. `: true, `a.exe`: false, `a`: false} {
		if isBatch(path) != want {
			t.Errorf("isBatch(%q) = %v", path, !want)
		}
	}
}
