//go:build unix

package security

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFilesAndFoldersAreMadeForTheOwnerAlone(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077, 0o177} {
		dir := filepath.Join(t.TempDir(), "deep", "state")
		old := unix.Umask(umask)
		_, err := OpenTokenStore(dir, TokenStoreOptions{})
		unix.Umask(old)
		if err != nil {
			t.Fatalf("umask %03o: %v", umask, err)
		}
		for path, want := range map[string]fs.FileMode{
			filepath.Dir(dir):             0o700 | fs.ModeDir,
			dir:                           0o700 | fs.ModeDir,
			filepath.Join(dir, plainFile): 0o600,
			filepath.Join(dir, hashFile):  0o600,
			filepath.Join(dir, lockFile):  0o600,
		} {
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != want {
				t.Errorf("umask %03o: %s has mode %v, want %v", umask, filepath.Base(path), info.Mode(), want)
			}
		}
	}
}

func TestAnOddUmaskDoesNotLockTheOwnerOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	old := unix.Umask(0o777)
	err := WritePrivateFile(path, []byte("x"))
	unix.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestWhatOthersCanReadIsRefusedWithTheCommandThatMendsIt(t *testing.T) {
	for _, tc := range []struct {
		name string
		path string // in the folder; "" is the folder itself
		mode fs.FileMode
		fix  string
	}{
		{"the token, by everybody", plainFile, 0o644, "chmod 600 "},
		{"the token, by the group", plainFile, 0o640, "chmod 600 "},
		{"the token, writable by the group", plainFile, 0o620, "chmod 600 "},
		{"the token, executable by others", plainFile, 0o601, "chmod 600 "},
		{"the list, by everybody", hashFile, 0o604, "chmod 600 "},
		{"the list, writable by everybody", hashFile, 0o666, "chmod 600 "},
		{"the folder, by everybody", "", 0o755, "chmod 700 "},
		{"the folder, to pass through", "", 0o711, "chmod 700 "},
		{"the folder, by the group", "", 0o750, "chmod 700 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "it's a folder")
			openStore(t, dir)
			path := filepath.Join(dir, tc.path)
			if err := os.Chmod(path, tc.mode); err != nil {
				t.Fatal(err)
			}
			_, err := OpenTokenStore(dir, TokenStoreOptions{})
			notPrivate, ok := errors.AsType[*NotPrivateError](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			want := tc.fix + shellQuote(path)
			if notPrivate.Fix != want || !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
			if tc.path == plainFile && !strings.Contains(err.Error(), "mcpd token rotate") {
				t.Errorf("error %q does not say that the token may be known", err)
			}
			// What it says mends it.
			if out, err := execShell(notPrivate.Fix); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			openStore(t, dir)
		})
	}
}

func TestLinksAndPipesAreNotFollowed(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"a link to a good file": func(path string) error {
			if err := os.Rename(path, path+".moved"); err != nil {
				return err
			}
			return os.Symlink(path+".moved", path)
		},
		"a link to nothing": func(path string) error { return os.Symlink(path+".none", path) },
		"a named pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a folder":          func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		for _, file := range []string{plainFile, hashFile} {
			t.Run(file+" is "+name, func(t *testing.T) {
				dir := stateDir(t)
				openStore(t, dir)
				path := filepath.Join(dir, file)
				if name != "a link to a good file" {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
				if err := replace(path); err != nil {
					t.Fatal(err)
				}
				_, err := OpenTokenStore(dir, TokenStoreOptions{})
				if _, ok := errors.AsType[*NotPrivateError](err); !ok {
					t.Errorf("error %v", err)
				}
			})
		}
	}
}

func TestAWriteReplacesALinkAndLeavesItsTarget(t *testing.T) {
	dir := stateDir(t)
	if err := MakePrivateDir(dir); err != nil {
		t.Fatal(err)
	}
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := WritePrivateFile(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "precious" {
		t.Errorf("the target holds %q, %v", got, err)
	}
	if got, err := ReadPrivateFile(link); err != nil || string(got) != "new" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestAWriteClosesAFileThatWasOpenToOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WritePrivateFile(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestWhatBelongsToAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	for _, file := range []string{plainFile, hashFile, ""} {
		dir := stateDir(t)
		openStore(t, dir)
		path := filepath.Join(dir, file)
		if err := os.Chown(path, 12345, -1); err != nil {
			t.Fatal(err)
		}
		_, err := OpenTokenStore(dir, TokenStoreOptions{})
		notPrivate, ok := errors.AsType[*NotPrivateError](err)
		if !ok || !strings.Contains(notPrivate.Problem, "12345") {
			t.Errorf("%q: error %v", file, err)
		}
	}
}

func TestAFolderMayBeReachedThroughALink(t *testing.T) {
	dir := stateDir(t)
	openStore(t, dir)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	openStore(t, link)
	// It is the folder behind it that counts.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTokenStore(link, TokenStoreOptions{}); err == nil {
		t.Error("an open folder behind a link was taken")
	}
}

func TestShellQuote(t *testing.T) {
	for _, path := range []string{"/plain/path-1.x", "/with space", "it's", "$HOME `x` \"q\" \\", "", "a;b", "ü"} {
		out, err := execShell("printf %s " + shellQuote(path))
		if err != nil || out != path {
			t.Errorf("%q became %q, %v", path, out, err)
		}
	}
}

func execShell(command string) (string, error) {
	out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput()
	return string(out), err
}
