//go:build unix

package service

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func windowsTask(t *testing.T) *task {
	t.Helper()
	return &task{run: run, user: `BOX\Ada & Co`, temp: t.TempDir()}
}

const taskName = `\mcpd\BOX-Ada & Co`

func noTask() []answer {
	return []answer{{To: []string{"schtasks", "/query", "/tn"}, Code: 1, Err: "FEHLER: Das System kann die angegebene Datei nicht finden.\n"}}
}

func thereIs(d Definition, state string) []answer {
	return []answer{
		{To: []string{"schtasks", "/query", "/tn"}, Out: string(renderTask(d, `BOX\Ada & Co`))},
		{To: []string{"powershell"}, Out: state + "\r\n"},
	}
}

func TestATaskIsMadeStartedEndedAndRemoved(t *testing.T) {
	r := newRecorder(t, noTask()...)
	w := windowsTask(t)
	ctx := t.Context()
	verbs := func() []string {
		var list []string
		for _, q := range r.asked(t) {
			words := strings.Fields(q)
			if words[1] != "/query" && words[0] != "powershell" {
				list = append(list, words[1])
			}
		}
		return list
	}
	if out, err := w.Install(ctx, adaOnWindows()); err != nil || !out.Changed {
		t.Fatalf("%+v, %v", out, err)
	}
	asked := r.asked(t)
	create := asked[len(asked)-1]
	if !strings.HasPrefix(create, "schtasks /create /tn "+taskName+" /xml ") || !strings.HasSuffix(create, "/f") || strings.Contains(create, "/rp") {
		t.Errorf("it was made by %q", create)
	}
	if left, err := os.ReadDir(w.temp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	r.answer(t, thereIs(adaOnWindows(), "3,0")...)
	if out, err := w.Install(ctx, adaOnWindows()); err != nil || out.Changed {
		t.Errorf("again: %+v, %v", out, err)
	}
	if err := w.Start(ctx); err != nil {
		t.Error(err)
	}
	if err := w.Stop(ctx); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"/run"}, verbs()); diff != "" {
		t.Errorf("start and stop of one that does not run:\n%s", diff)
	}
	r.answer(t, thereIs(adaOnWindows(), "4,267009")...)
	if out, err := w.Uninstall(ctx); err != nil || !out.Changed {
		t.Errorf("uninstall: %+v, %v", out, err)
	}
	if diff := cmp.Diff([]string{"/end", "/delete"}, verbs()); diff != "" {
		t.Errorf("uninstall of one that runs:\n%s", diff)
	}
	r.answer(t, noTask()...)
	if out, err := w.Uninstall(ctx); err != nil || out.Changed {
		t.Errorf("uninstall again: %+v, %v", out, err)
	}
	if err := w.Start(ctx); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("start of nothing: %v", err)
	}
}

func TestAMovedProgramMakesTheTaskAnew(t *testing.T) {
	r := newRecorder(t, thereIs(adaOnWindows(), "3,0")...)
	w := windowsTask(t)
	moved := with(adaOnWindows(), func(d *Definition) { d.Executable = `D:\mcpd.exe` })
	out, err := w.Install(t.Context(), moved)
	if err != nil || !out.Changed {
		t.Fatalf("%+v, %v", out, err)
	}
	// Undone, the task is what it was.
	r.asked(t)
	if err := out.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked := r.asked(t); len(asked) != 1 || !strings.HasPrefix(asked[0], "schtasks /create") {
		t.Errorf("undone by %q", asked)
	}
}

func TestTheSchedulersAnswersBecomeStates(t *testing.T) {
	for row, want := range map[string]State{
		"4,267009": Running, "3,0": Stopped, "3,267011": Stopped, "3,267014": Stopped, "3,1": Failed, "2,0": Starting, "1,0": Stopped,
	} {
		newRecorder(t, thereIs(adaOnWindows(), row)...)
		st, err := windowsTask(t).Status(t.Context())
		if err != nil || st.State != want || st.State != Running && st.State != Starting && st.Hint == "" {
			t.Errorf("%s: %+v, %v; want %s", row, st, err, want)
		}
		if want := `Get-Content -Tail 20 -Wait "C:\Users\Ada & Co\AppData\Local\mcpd\logs\mcpd.log"`; st.Log != want {
			t.Errorf("the log is %s", st.Log)
		}
	}
	newRecorder(t, answer{To: []string{"schtasks"}, Code: 1, Err: "ERROR: the service is not running\n"})
	if st, err := windowsTask(t).Status(t.Context()); err != nil || st.State != Unreachable || st.Hint == "" {
		t.Errorf("without a scheduler: %+v, %v", st, err)
	}
}
