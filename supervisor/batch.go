package supervisor

import (
	"errors"
	"path/filepath"
	"strings"
)

// The rules here are those of Windows. They are pure, so they are tested everywhere.

// defaultPathExt is what Windows takes where PATHEXT is not set.
const defaultPathExt = ".COM;.EXE;.BAT;.CMD"

// pathExts splits PATHEXT. Only kinds of files that can be executed without a further program are kept: .JS or .VBS in
// the default PATHEXT would otherwise be found before a .cmd of the same name and could not be started.
func pathExts(list string) []string {
	if list == "" {
		list = defaultPathExt
	}
	var exts []string
	for e := range strings.SplitSeq(list, ";") {
		switch e = strings.ToLower(strings.TrimSpace(e)); e {
		case ".com", ".exe", ".bat", ".cmd":
			exts = append(exts, e)
		}
	}
	return exts
}

// withExt finds path as it is when it has one of the extensions, or else with each of them in order. A file without an
// extension is not executable, although npm puts one (a shell script) beside each .cmd.
func withExt(path string, exts []string, exists func(string) bool) string {
	have := strings.ToLower(filepath.Ext(path))
	for _, e := range exts {
		if e == have && exists(path) {
			return path
		}
	}
	for _, e := range exts {
		if p := path + e; exists(p) {
			return p
		}
	}
	return ""
}

func isBatch(path string) bool {
	// Trailing dots and spaces are no part of a Windows file name, so they must not hide the kind of a file.
	switch strings.ToLower(filepath.Ext(strings.TrimRight(path, ". "))) {
	case ".cmd", ".bat":
		return true
	default:
		return false
	}
}

// batchCommandLine is the command line by which cmd.exe runs a batch file with args as its arguments and as nothing
// else. cmd.exe expands %VARIABLES% even inside quotes and splits at & and | outside of them, so an argument could
// otherwise run commands: everything unusual is quoted, a quote is doubled, and each percent sign is preceded by an
// expansion that yields nothing and leaves it without a partner. A line end cannot be passed at all.
func batchCommandLine(script string, args []string) (string, error) {
	if strings.ContainsAny(script, "\"\r\n\x00%") {
		return "", errors.New("the path of a batch file must not hold quotes, percent signs or line ends")
	}
	var b strings.Builder
	// /d: no AutoRun commands; /e:on: the expansion below needs extensions; /v:off: ! means nothing.
	b.WriteString(`cmd.exe /d /e:on /v:off /s /c "`)
	b.WriteString(`"` + script + `"`)
	for _, arg := range args {
		if strings.ContainsAny(arg, "\r\n\x00") {
			return "", errors.New("an argument of a batch file must not hold a line end or a NUL")
		}
		b.WriteByte(' ')
		quoteBatchArg(&b, arg)
	}
	b.WriteByte('"')
	return b.String(), nil
}

func quoteBatchArg(b *strings.Builder, arg string) {
	quote := arg == "" || strings.HasSuffix(arg, `\`)
	for _, r := range arg {
		if !isPlainInBatch(r) {
			quote = true
			break
		}
	}
	if !quote {
		b.WriteString(arg)
		return
	}
	b.WriteByte('"')
	backslashes := 0
	for _, r := range arg {
		switch r {
		case '\\':
			backslashes++
			b.WriteByte('\\')
			continue
		case '"': // doubled for cmd.exe; the program behind it wants the backslashes before it doubled too
			b.WriteString(strings.Repeat(`\`, backslashes))
			b.WriteString(`""`)
		case '%':
			b.WriteString(`%%cd:~,%`)
		default:
			b.WriteRune(r)
		}
		backslashes = 0
	}
	b.WriteString(strings.Repeat(`\`, backslashes))
	b.WriteByte('"')
}

func isPlainInBatch(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(`#$*+-./:?@\_`, r)
}
