package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// process is a running process as /proc shows it.
type process struct {
	pid     int
	command string
}

// marked finds all living processes with the mark in their environment.
func marked(t *testing.T, mark string) []process {
	t.Helper()
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	wanted := []byte(runMark + "=" + mark)
	var found []process
	for _, path := range environments {
		environment, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended, or is another user's
		}
		for entry := range bytes.SplitSeq(environment, []byte{0}) {
			if !bytes.Equal(entry, wanted) {
				continue
			}
			dir := filepath.Dir(path)
			command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
			if err != nil || len(command) == 0 {
				continue // a zombie has no command line
			}
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, process{pid: pid, command: string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))})
		}
	}
	return found
}

// openFiles counts the descriptors of a process.
func openFiles(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
