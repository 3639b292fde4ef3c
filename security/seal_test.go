package security

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func newSealer(t *testing.T, first byte) *Sealer {
	t.Helper()
	key := make([]byte, SealKeySize)
	key[0] = first
	s, err := NewSealer(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOnlyWhatWasSealedForTheSameOpens(t *testing.T) {
	s := newSealer(t, 1)
	sealed := s.Seal([]byte("a state"), []byte("principal\x00server"))
	if got, err := s.Open(sealed, []byte("principal\x00server")); err != nil || string(got) != "a state" {
		t.Fatalf("opened %q, %v", got, err)
	}
	if strings.Contains(sealed, base64.RawURLEncoding.EncodeToString([]byte("a state"))) {
		t.Errorf("%q can be read", sealed)
	}
	if again := s.Seal([]byte("a state"), []byte("principal\x00server")); again == sealed {
		t.Error("the same text is sealed the same twice")
	}
	for name, open := range map[string]func() ([]byte, error){
		"another binding": func() ([]byte, error) { return s.Open(sealed, []byte("principal2\x00server")) },
		"no binding":      func() ([]byte, error) { return s.Open(sealed, nil) },
		"another key": func() ([]byte, error) {
			return newSealer(t, 2).Open(sealed, []byte("principal\x00server"))
		},
		"nothing":     func() ([]byte, error) { return s.Open("", nil) },
		"a short one": func() ([]byte, error) { return s.Open(sealed[:10], []byte("principal\x00server")) },
		"padding":     func() ([]byte, error) { return s.Open(sealed+"=", []byte("principal\x00server")) },
		"a line end":  func() ([]byte, error) { return s.Open(sealed+"\n", []byte("principal\x00server")) },
		"no base64":   func() ([]byte, error) { return s.Open("ä"+sealed, []byte("principal\x00server")) },
	} {
		if got, err := open(); !errors.Is(err, ErrNotSealed) {
			t.Errorf("%s: opened %q, %v", name, got, err)
		}
	}
	for i := range sealed {
		changed := []byte(sealed)
		if changed[i]++; changed[i] == sealed[i] {
			continue
		}
		if got, err := s.Open(string(changed), []byte("principal\x00server")); err == nil {
			t.Errorf("opened %q with byte %d changed", got, i)
		}
	}
}

func TestAKeyIsMadeOnceAndReplacedWhenOthersCouldHaveReadIt(t *testing.T) {
	dir := stateDir(t)
	if err := MakePrivateDir(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "questions.key")
	open := func() (*Sealer, error) {
		t.Helper()
		s, why, err := OpenSealer(path)
		if err != nil {
			t.Fatal(err)
		}
		return s, why
	}
	first, why := open()
	if why != nil {
		t.Errorf("a first key replaces something: %v", why)
	}
	sealed := first.Seal([]byte("x"), nil)
	second, why := open()
	if _, err := second.Open(sealed, nil); err != nil || why != nil {
		t.Errorf("the key did not stay: %v, %v", err, why)
	}
	damage := map[string]func() error{
		"cut off":  func() error { return os.Truncate(path, 20) },
		"no key":   func() error { return os.WriteFile(path, []byte(strings.Repeat("x", 64)), 0o600) },
		"empty":    func() error { return os.Truncate(path, 0) },
		"too long": func() error { return os.WriteFile(path, []byte(strings.Repeat("00", 64)), 0o600) },
	}
	if runtime.GOOS != "windows" {
		damage["readable by others"] = func() error { return os.Chmod(path, 0o644) }
	}
	for name, harm := range damage {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		s, why := open()
		if why == nil {
			t.Errorf("%s: the key was kept", name)
		} else if strings.Contains(why.Error(), "xxxx") {
			t.Errorf("%s: the error shows the file: %v", name, why)
		}
		if _, err := s.Open(sealed, nil); err == nil {
			t.Errorf("%s: the old key still opens", name)
		}
		if _, err := ReadPrivateFile(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, why := open(); why != nil {
			t.Errorf("%s: the new key did not stay: %v", name, why)
		}
	}
	if _, _, err := OpenSealer(filepath.Join(dir, "missing", "key")); err == nil {
		t.Error("a key was made in a folder that is not there")
	}
}
