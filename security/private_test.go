package security

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestPrivateFileRoundTrip(t *testing.T) {
	dir := stateDir(t)
	if err := MakePrivateDir(filepath.Join(dir, "a", "b")); err != nil {
		t.Fatal(err)
	}
	if err := MakePrivateDir(filepath.Join(dir, "a", "b")); err != nil {
		t.Errorf("a folder that is there: %v", err)
	}
	path := filepath.Join(dir, "a", "b", "file")
	if _, err := ReadPrivateFile(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, content := range []string{"first", "", "third\n"} {
		if err := WritePrivateFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadPrivateFile(path); err != nil || string(got) != content {
			t.Errorf("read %q, %v; want %q", got, err, content)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}

func TestPrivateFileIsReplacedInOneStep(t *testing.T) {
	dir := stateDir(t)
	if err := MakePrivateDir(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "file")
	content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 100_000) }
	if err := WritePrivateFile(path, content(0)); err != nil {
		t.Fatal(err)
	}
	// Each write is met by a read. A reader that never pauses would show no
	// more, and on Windows would keep the file open all the time.
	var writers, reader sync.WaitGroup
	writing := make(chan struct{})
	for i := range 4 {
		writers.Go(func() {
			for range 10 {
				writing <- struct{}{}
				if err := WritePrivateFile(path, content(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	reader.Go(func() {
		for range writing {
			got, err := ReadPrivateFile(path)
			if err != nil || len(got) != 100_000 || !bytes.Equal(got, content(int(got[0]-'a'))) {
				t.Errorf("read %d bytes, %v", len(got), err)
			}
		}
	})
	writers.Wait()
	close(writing)
	reader.Wait()
}

func TestAWriteThatFailsLeavesNothingBehind(t *testing.T) {
	dir := stateDir(t)
	target := filepath.Join(dir, "file")
	if err := MakePrivateDir(filepath.Join(target, "in the way")); err != nil {
		t.Fatal(err)
	}
	if err := WritePrivateFile(target, []byte("x")); err == nil {
		t.Fatal("a folder was replaced by a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	if err := WritePrivateFile(filepath.Join(dir, "missing", "file"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a folder that is not there: %v", err)
	}
}

func TestWhatIsNoRegularFileIsNotRead(t *testing.T) {
	dir := stateDir(t)
	if err := MakePrivateDir(filepath.Join(dir, "folder")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPrivateFile(filepath.Join(dir, "folder")); err == nil {
		t.Error("a folder was read as a file")
	}
	big := filepath.Join(dir, "big")
	if err := WritePrivateFile(big, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, maxPrivateFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPrivateFile(big); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a file over the limit: %v", err)
	}
	plain := filepath.Join(dir, "plain")
	if err := WritePrivateFile(plain, nil); err != nil {
		t.Fatal(err)
	}
	if err := MakePrivateDir(plain); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("a file for a folder: %v", err)
	}
}

func TestNotPrivateErrorSaysWhatToDo(t *testing.T) {
	err := fmt.Errorf("opening: %w", &NotPrivateError{Path: "/p", Problem: "is open", Fix: "chmod 600 /p"})
	if got := err.Error(); got != "opening: /p is open; to mend it: chmod 600 /p" {
		t.Errorf("%q", got)
	}
}
