package service

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the fake commands of the system are told through their environment.
const (
	variableFake   = "MCPD_TEST_FAKE" // the folder of their state
	recordFile     = "record"         // what they were asked, one JSON array a line
	answersFile    = "answers.json"   // what they answer
	answersByIndex = "used"           // how many of the answers to a question are used up
)

// answer is what a fake command says to a question that begins with some words.
type answer struct {
	To     []string `json:"to"`
	Out    string   `json:"out"`
	Err    string   `json:"err"`
	Code   int      `json:"code"`
	Once   bool     `json:"once"`
	Create string   `json:"create,omitempty"`
}

// TestMain makes the test binary the commands of the system too: it is linked
// under their names into a folder on the PATH.
func TestMain(m *testing.M) {
	if dir := os.Getenv(variableFake); dir != "" {
		os.Exit(fake(dir))
	}
	os.Exit(m.Run())
}

func fake(dir string) int {
	asked := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	line, err := json.Marshal(asked)
	if err != nil {
		return 99
	}
	f, err := os.OpenFile(filepath.Join(dir, recordFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 99
	}
	if _, err := f.Write(append(line, '\n')); err != nil || f.Close() != nil {
		return 99
	}
	data, err := os.ReadFile(filepath.Join(dir, answersFile))
	var answers []answer
	if err != nil || json.Unmarshal(data, &answers) != nil {
		return 99
	}
	for i, a := range answers {
		if len(asked) < len(a.To) || !slices.Equal(asked[:len(a.To)], a.To) {
			continue
		}
		used := filepath.Join(dir, fmt.Sprint(answersByIndex, i))
		if a.Once {
			if _, err := os.Stat(used); err == nil {
				continue
			}
			if err := os.WriteFile(used, nil, 0o600); err != nil {
				return 99
			}
		}
		fmt.Print(a.Out)
		fmt.Fprint(os.Stderr, a.Err)
		return a.Code
	}
	return 0
}

// recorder is a system whose commands record what they are asked.
type recorder struct {
	dir string
	n   int // questions that were looked at
}

func newRecorder(t *testing.T, answers ...answer) *recorder {
	t.Helper()
	r := &recorder{dir: t.TempDir()}
	bin := filepath.Join(r.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"systemctl", "launchctl", "schtasks", "powershell", "journalctl"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	t.Setenv(variableFake, r.dir)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // or each command takes a second longer
	t.Setenv("HOME", filepath.Join(r.dir, "home"))
	r.answer(t, answers...)
	return r
}

func (r *recorder) home() string { return filepath.Join(r.dir, "home") }

func (r *recorder) answer(t *testing.T, answers ...answer) {
	t.Helper()
	data, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, answersFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// asked returns what was asked since it was called last.
func (r *recorder) asked(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, recordFile))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		var words []string
		if err := json.Unmarshal([]byte(line), &words); err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.Join(words, " "))
	}
	list, r.n = list[min(r.n, len(list)):], len(list)
	return list
}
