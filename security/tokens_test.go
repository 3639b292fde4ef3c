package security

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/go-cmp/cmp"
)

func authenticates(store *TokenStore, token string) error {
	_, err := store.Authenticate(token)
	return err
}

func TestFirstStartMakesATokenThatIsAccepted(t *testing.T) {
	dir := stateDir(t)
	store := openStore(t, dir)
	plain := mustShow(t, store)
	if _, ok := parseToken(plain); !ok {
		t.Error("what was made is not a token")
	}
	p, err := store.Authenticate(plain)
	if err != nil || p.Name != DefaultTokenName || !p.Admin || !p.MayUse("anything") {
		t.Errorf("principal %+v, error %v", p, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, hashFile))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), plain[len(tokenPrefix):]) {
		t.Error("tokens.json holds the token")
	}
	again := openStore(t, dir)
	if mustShow(t, again) != plain {
		t.Error("the second start made another token")
	}
	if q, err := again.Authenticate(plain); err != nil || q.ID != p.ID {
		t.Errorf("the second start sees %+v, error %v", q, err)
	}
	if other := openStore(t, stateDir(t)); mustShow(t, other) == plain {
		t.Error("two folders have the same token")
	}
}

func TestOnlyTheWholeTokenIsAccepted(t *testing.T) {
	store := openStore(t, stateDir(t))
	plain := mustShow(t, store)
	hash := hashOf(NewSecret(plain))
	for name, token := range map[string]string{
		"none": "", "a prefix": plain[:len(plain)-1], "a suffix": plain[1:], "more": plain + "x", "a newline": plain + "\n",
		"upper case": strings.ToUpper(plain), "without the prefix": plain[len(tokenPrefix):], "its hash": hex.EncodeToString(hash[:]),
		"raw hash": string(hash[:]), "the prefix": tokenPrefix,
	} {
		err := authenticates(store, token)
		want := ErrUnknownToken
		if token == "" {
			want = ErrNoToken
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

func TestEachOfManyTokensIsFound(t *testing.T) {
	store := openStore(t, stateDir(t))
	tokens := map[string]string{DefaultTokenName: mustShow(t, store)}
	for i := range 20 {
		name := fmt.Sprintf("client-%d", i)
		tokens[name] = mustCreate(t, store, name, CreateOptions{Servers: []string{name}})
	}
	for name, token := range tokens {
		if p, err := store.Authenticate(token); err != nil || p.Name != name {
			t.Errorf("token of %s: %+v, %v", name, p, err)
		}
	}
}

func TestRotationRefusesTheOldTokenAtOnce(t *testing.T) {
	dir := stateDir(t)
	store := openStore(t, dir)
	old := mustShow(t, store)
	before, err := store.Authenticate(old)
	if err != nil {
		t.Fatal(err)
	}
	named := mustCreate(t, store, "named", CreateOptions{})
	rotated, err := store.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if err := authenticates(store, old); !errors.Is(err, ErrUnknownToken) {
		t.Errorf("the old token: %v", err)
	}
	after, err := store.Authenticate(rotated.Reveal())
	if err != nil || after.ID != before.ID || !after.Admin {
		t.Errorf("the new token: %+v, %v", after, err)
	}
	if mustShow(t, store) != rotated.Reveal() {
		t.Error("Show gives another token")
	}
	if err := authenticates(store, named); err != nil {
		t.Errorf("another token: %v", err)
	}
	if reopened := openStore(t, dir); authenticates(reopened, old) == nil || authenticates(reopened, rotated.Reveal()) != nil {
		t.Error("the rotation did not reach the disk")
	}
}

func TestAnotherStoreSeesChangesWithinASecond(t *testing.T) {
	dir := stateDir(t)
	synctest.Test(t, func(t *testing.T) {
		daemon, command := openStore(t, dir), openStore(t, dir)
		old := mustShow(t, daemon)
		if err := authenticates(daemon, old); err != nil {
			t.Fatal(err)
		}
		rotated, err := command.Rotate()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(recheckInterval)
		if err := authenticates(daemon, old); !errors.Is(err, ErrUnknownToken) {
			t.Errorf("the old token after a second: %v", err)
		}
		if err := authenticates(daemon, rotated.Reveal()); err != nil {
			t.Errorf("the new token: %v", err)
		}
		// A token that is not known yet is looked for at once.
		fresh := mustCreate(t, command, "fresh", CreateOptions{})
		if err := authenticates(daemon, fresh); err != nil {
			t.Errorf("a token made this moment: %v", err)
		}
		if err := command.Revoke("fresh"); err != nil {
			t.Fatal(err)
		}
		if err := daemon.Reload(); err != nil {
			t.Fatal(err)
		}
		if err := authenticates(daemon, fresh); !errors.Is(err, ErrRevoked) {
			t.Errorf("a token revoked before Reload: %v", err)
		}
	})
}

func TestATokenExpires(t *testing.T) {
	dir := stateDir(t)
	synctest.Test(t, func(t *testing.T) {
		store := openStore(t, dir)
		token := mustCreate(t, store, "guest", CreateOptions{TTL: time.Hour})
		time.Sleep(time.Hour - time.Nanosecond)
		if err := authenticates(store, token); err != nil {
			t.Errorf("just before: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := authenticates(store, token); !errors.Is(err, ErrExpired) || strings.Contains(err.Error(), token) {
			t.Errorf("at the end: %v", err)
		}
		if got := store.List()[1].State; got != TokenExpired {
			t.Errorf("listed as %s", got)
		}
		// Its name is free again, and the dead token leaves the list in time.
		mustCreate(t, store, "guest", CreateOptions{})
		time.Sleep(keepDead)
		mustCreate(t, store, "later", CreateOptions{})
		if names := namesOf(store.List()); !slices.Equal(names, []string{"default", "guest", "later"}) {
			t.Errorf("list %v", names)
		}
		if err := authenticates(store, token); !errors.Is(err, ErrUnknownToken) {
			t.Errorf("after it left the list: %v", err)
		}
	})
}

func namesOf(infos []TokenInfo) (names []string) {
	for _, info := range infos {
		names = append(names, info.Name)
	}
	return names
}

func TestRevokingByNameAndById(t *testing.T) {
	store := openStore(t, stateDir(t))
	first := mustCreate(t, store, "laptop", CreateOptions{})
	if err := store.Revoke("laptop"); err != nil {
		t.Fatal(err)
	}
	if err := authenticates(store, first); !errors.Is(err, ErrRevoked) {
		t.Errorf("by name: %v", err)
	}
	second := mustCreate(t, store, "laptop", CreateOptions{})
	p, err := store.Authenticate(second)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Revoke(p.ID); err != nil {
		t.Fatal(err)
	}
	if err := authenticates(store, second); !errors.Is(err, ErrRevoked) {
		t.Errorf("by id: %v", err)
	}
	if err := store.Revoke(p.ID); err != nil {
		t.Errorf("again, by id: %v", err)
	}
	for _, name := range []string{"laptop", "nobody", "", first} {
		err := store.Revoke(name)
		if !errors.Is(err, ErrNoSuchToken) {
			t.Errorf("%q: %v", name, err)
		}
		if strings.Contains(err.Error(), first[len(tokenPrefix):]) {
			t.Error("the error holds a token that was given for a name")
		}
	}
}

func TestRevokingTheDefaultTokenRemovesItsFile(t *testing.T) {
	dir := stateDir(t)
	store := openStore(t, dir)
	old := mustShow(t, store)
	if err := store.Revoke(DefaultTokenName); err != nil {
		t.Fatal(err)
	}
	if err := authenticates(store, old); !errors.Is(err, ErrRevoked) {
		t.Errorf("the token: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, plainFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
	// A start does not bring it back.
	store = openStore(t, dir)
	if _, err := store.Show(); err == nil || !strings.Contains(err.Error(), "mcpd token rotate") {
		t.Errorf("Show: %v", err)
	}
	if err := authenticates(store, old); err == nil {
		t.Error("a start brought the revoked token back")
	}
	rotated, err := store.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if p, err := store.Authenticate(rotated.Reveal()); err != nil || !p.Admin {
		t.Errorf("after rotate: %+v, %v", p, err)
	}
	if mustShow(t, store) != rotated.Reveal() {
		t.Error("Show gives another token")
	}
}

func TestCreateRefusesWhatCannotBeMeant(t *testing.T) {
	store := openStore(t, stateDir(t))
	mustCreate(t, store, "taken", CreateOptions{})
	for _, tc := range []struct {
		name    string
		options CreateOptions
		want    string
	}{
		{"", CreateOptions{}, "not a name"},
		{"two words", CreateOptions{}, "not a name"},
		{"-f", CreateOptions{}, "not a name"},
		{"a\nb", CreateOptions{}, "not a name"},
		{strings.Repeat("x", 65), CreateOptions{}, "not a name"},
		{newToken().Reveal(), CreateOptions{}, "must not begin"},
		{DefaultTokenName, CreateOptions{}, "mcpd's own"},
		{"taken", CreateOptions{}, "exists already"},
		{"past", CreateOptions{TTL: -time.Second}, "expire"},
		{"none", CreateOptions{Servers: []string{}}, "empty"},
		{"blank", CreateOptions{Servers: []string{"a", ""}}, "empty name"},
	} {
		_, _, err := store.Create(tc.name, tc.options)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q %+v: %v, want one about %q", tc.name, tc.options, err, tc.want)
		}
	}
	if names := namesOf(store.List()); !slices.Equal(names, []string{"default", "taken"}) {
		t.Errorf("list %v", names)
	}
}

func TestRightsSurviveTheFile(t *testing.T) {
	dir := stateDir(t)
	store := openStore(t, dir)
	for name, options := range map[string]CreateOptions{
		"all": {}, "some": {Servers: []string{"a", "b"}}, "operator": {Admin: true}, "both": {Admin: true, Servers: []string{"a"}, TTL: time.Hour},
	} {
		plain, made, err := store.Create(name, options)
		if err != nil {
			t.Fatal(err)
		}
		read, err := openStore(t, dir).Authenticate(plain.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(made, read); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		want := &Principal{ID: made.ID, Name: name, Admin: options.Admin, Servers: options.Servers}
		if diff := cmp.Diff(want, read); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPrincipalRights(t *testing.T) {
	var nobody *Principal
	if nobody.MayUse("a") {
		t.Error("nobody may use a server")
	}
	if (&Principal{Servers: []string{}}).MayUse("a") || (&Principal{Admin: true, Servers: []string{"b"}}).MayUse("a") {
		t.Error("a list that does not name a server lets it be used")
	}
	if _, ok := PrincipalFrom(WithPrincipal(t.Context(), nil)); ok {
		t.Error("a nil principal counts as one")
	}
}

// otherProcess is a process of its own that works on a folder of tokens.
type otherProcess struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
	stderr strings.Builder
}

func startOther(t *testing.T, what, dir string, args ...string) *otherProcess {
	t.Helper()
	p := &otherProcess{cmd: exec.Command(os.Args[0], append([]string{dir}, args...)...)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+what)
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	if line, err := p.stdout.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return p
}

func (p *otherProcess) finish(t *testing.T) string {
	t.Helper()
	out, err := io.ReadAll(p.stdout)
	if err != nil {
		t.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func TestProcessesThatStartForTheFirstTimeAtOnceAgreeOnOneToken(t *testing.T) {
	for range 5 {
		dir := stateDir(t)
		var processes []*otherProcess
		for range 4 {
			processes = append(processes, startOther(t, "show", dir))
		}
		for _, p := range processes {
			if err := p.stdin.Close(); err != nil {
				t.Error(err)
			}
		}
		want := ""
		for _, p := range processes {
			got := p.finish(t)
			if want == "" {
				want = got
			}
			if got == "" || got != want {
				t.Error("the processes see different tokens")
			}
		}
		if err := authenticates(openStore(t, dir), want); err != nil {
			t.Error(err)
		}
	}
}

func TestProcessesDoNotLoseEachOthersChanges(t *testing.T) {
	dir := stateDir(t)
	store := openStore(t, dir)
	old := mustShow(t, store)
	want := []string{DefaultTokenName}
	var processes []*otherProcess
	for i := range 4 {
		var names []string
		for j := range 10 {
			names = append(names, fmt.Sprintf("p%d-%d", i, j))
		}
		want = append(want, names...)
		processes = append(processes, startOther(t, "create", dir, names...))
	}
	processes = append(processes, startOther(t, "rotate", dir))
	for _, p := range processes {
		if err := p.stdin.Close(); err != nil {
			t.Error(err)
		}
	}
	for j := range 10 {
		name := fmt.Sprintf("here-%d", j)
		want = append(want, name)
		mustCreate(t, store, name, CreateOptions{})
	}
	for _, p := range processes {
		p.finish(t)
	}
	got := namesOf(store.List())
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if authenticates(store, old) == nil {
		t.Error("the rotation was lost")
	}
	if err := authenticates(store, mustShow(t, store)); err != nil {
		t.Error(err)
	}
}

func TestADamagedListIsAnErrorAndStaysAsItIs(t *testing.T) {
	dir := stateDir(t)
	store := openStore(t, dir)
	mustCreate(t, store, "laptop", CreateOptions{})
	path := filepath.Join(dir, hashFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, new string) string {
		changed := strings.Replace(string(good), old, new, 1)
		if changed == string(good) {
			t.Fatalf("%q is not in the file", old)
		}
		return changed
	}
	for name, content := range map[string]string{
		"empty":                "",
		"cut off":              string(good[:len(good)/2]),
		"not JSON":             "tokens: []",
		"an array":             "[]",
		"null":                 "null",
		"more behind it":       string(good) + "{}",
		"no version":           edit(`"version": 1,`, ``),
		"a newer version":      edit(`"version": 1`, `"version": 2`),
		"an unknown member":    edit(`"admin": true`, `"admin": true, "scope": "none"`),
		"a member twice":       edit(`"admin": true`, `"admin": false, "admin": true`),
		"another case":         edit(`"admin"`, `"Admin"`),
		"a hash too short":     edit(`"sha256": "`, `"sha256": "", "x": "`),
		"no hash":              edit(`"sha256"`, `"sha265"`),
		"two of one id":        strings.ReplaceAll(string(good), store.List()[1].ID, store.List()[0].ID),
		"all servers and some": edit(`"all_servers": true`, `"all_servers": true, "servers": ["a"]`),
		"bad UTF-8":            edit(`"laptop"`, "\"lap\xfftop\""),
		"a token for a name":   edit(`"laptop"`, `"`+mustShow(t, store)+`"`),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := OpenTokenStore(dir, TokenStoreOptions{})
			if err == nil {
				t.Fatal("opened")
			}
			for _, want := range []string{path, "restore it from a backup"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
			after, readErr := os.ReadFile(path)
			if readErr != nil || string(after) != content {
				t.Error("the file was changed")
			}
			// Nor does a change write over it.
			if _, _, err := store.Create("new", CreateOptions{}); err == nil {
				t.Error("Create went on")
			}
			if _, err := store.Rotate(); err == nil {
				t.Error("Rotate went on")
			}
			if after, readErr = os.ReadFile(path); readErr != nil || string(after) != content {
				t.Error("a change wrote over the file")
			}
		})
	}
}

func TestADamagedListChangesNothingWhileTheDaemonRuns(t *testing.T) {
	dir := stateDir(t)
	path := filepath.Join(dir, hashFile)
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		store, err := OpenTokenStore(dir, TokenStoreOptions{Logger: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		token := mustShow(t, store)
		before := len(log.lines())
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, damage := range []func() error{
			func() error { return os.WriteFile(path, []byte("{"), 0o600) },
			func() error { return os.Remove(path) },
		} {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				time.Sleep(recheckInterval)
				if err := authenticates(store, token); err != nil {
					t.Errorf("the token: %v", err)
				}
				if err := authenticates(store, "wrong"); !errors.Is(err, ErrUnknownToken) {
					t.Errorf("a wrong token: %v", err)
				}
			}
			if got := len(log.lines()) - before; got != 1 {
				t.Errorf("%d lines logged, want one: %v", got, log.lines()[before:])
			}
			before = len(log.lines())
			if err := store.Reload(); err == nil {
				t.Error("Reload says that all is well")
			}
		}
		// Mended, it is taken up again.
		if err := WritePrivateFile(path, []byte(strings.Replace(string(good), `"created_at"`, `"revoked_at": "2020-01-01T00:00:00Z", "created_at"`, 1))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(recheckInterval)
		if err := authenticates(store, token); !errors.Is(err, ErrRevoked) {
			t.Errorf("after mending: %v", err)
		}
	})
}

func TestWrongTokensDoNotMakeABadListBeReadAgain(t *testing.T) {
	dir := stateDir(t)
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		store, err := OpenTokenStore(dir, TokenStoreOptions{Logger: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, hashFile), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := len(log.lines())
		for range 100 {
			if err := authenticates(store, "wrong"); !errors.Is(err, ErrUnknownToken) {
				t.Error(err)
			}
			store.mu.Lock()
			store.lastError = "" // each further reading shows as a line of its own
			store.mu.Unlock()
		}
		// One when it was due, and one for the first wrong token at the most.
		if got := len(log.lines()) - before; got < 1 || got > 2 {
			t.Errorf("read %d times", got)
		}
	})
}

func TestACrashInTheFirstStartIsMended(t *testing.T) {
	dir := stateDir(t)
	plain := mustShow(t, openStore(t, dir))
	// The token reached the disk, the list did not.
	if err := os.Remove(filepath.Join(dir, hashFile)); err != nil {
		t.Fatal(err)
	}
	store := openStore(t, dir)
	if mustShow(t, store) != plain {
		t.Error("another token was made")
	}
	if p, err := store.Authenticate(plain); err != nil || !p.Admin {
		t.Errorf("%+v, %v", p, err)
	}
	// A file that holds something else is not taken for a token.
	if err := os.Remove(filepath.Join(dir, hashFile)); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "password", plain[:len(plain)-1], plain + "x", plain + "\n" + plain, plain[:20] + "\n" + plain[20:]} {
		if err := os.WriteFile(filepath.Join(dir, plainFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTokenStore(dir, TokenStoreOptions{}); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("%d bytes: %v", len(content), err)
		} else if content != "" && strings.Contains(err.Error(), content) {
			t.Error("the error holds what the file holds")
		}
	}
}

func TestACrashInARotationIsMended(t *testing.T) {
	for _, tc := range []struct {
		name    string
		written bool // the new token reached its file
	}{
		{"before the new token was written, the old one stays", false},
		{"after the new token was written, the new one holds", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := stateDir(t)
			store := openStore(t, dir)
			old, fresh := mustShow(t, store), newToken()
			hash := hashOf(fresh)
			records := slices.Clone(store.set.Load().records)
			records[0].NextSHA256 = hex.EncodeToString(hash[:])
			if _, err := store.store(records); err != nil {
				t.Fatal(err)
			}
			accepted, refused := old, fresh.Reveal()
			if tc.written {
				if err := store.writePlain(fresh); err != nil {
					t.Fatal(err)
				}
				accepted, refused = refused, accepted
			}
			reopened := openStore(t, dir)
			if got := mustShow(t, reopened); got != accepted {
				t.Error("Show gives the other token")
			}
			if err := authenticates(reopened, accepted); err != nil {
				t.Error(err)
			}
			if err := authenticates(reopened, refused); err == nil {
				t.Error("both tokens are accepted")
			}
			if data, err := os.ReadFile(filepath.Join(dir, hashFile)); err != nil || strings.Contains(string(data), "next_sha256") {
				t.Errorf("the rotation is still noted as unfinished: %v", err)
			}
		})
	}
}

func TestATokenFileThatDoesNotBelongToTheListIsNotShown(t *testing.T) {
	dir := stateDir(t)
	store := openStore(t, dir)
	good := mustShow(t, store)
	other := newToken()
	if err := store.writePlain(other); err != nil {
		t.Fatal(err)
	}
	store = openStore(t, dir) // the daemon starts all the same
	if _, err := store.Show(); err == nil || !strings.Contains(err.Error(), "mcpd token rotate") || strings.Contains(err.Error(), other.Reveal()) {
		t.Errorf("Show: %v", err)
	}
	if authenticates(store, other.Reveal()) == nil {
		t.Error("a token that is in the file alone is accepted")
	}
	if err := authenticates(store, good); err != nil {
		t.Error(err)
	}
}

func TestWhatACrashLeftIsRemoved(t *testing.T) {
	dir := stateDir(t)
	openStore(t, dir)
	left := []string{tempPrefix(plainFile) + "0123456789abcdef", tempPrefix(hashFile) + "0123456789abcdef"}
	for _, name := range left {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	openStore(t, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, []string{plainFile, hashFile, lockFile}) {
		t.Errorf("the folder holds %v", names)
	}
}

func TestAChangeDoesNotWaitForEverAndRequestsDoNotWaitAtAll(t *testing.T) {
	dir := stateDir(t)
	store, err := OpenTokenStore(dir, TokenStoreOptions{LockTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	token := mustShow(t, store)
	holder := flock.New(filepath.Join(dir, lockFile))
	if err := holder.Lock(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := store.Rotate(); err == nil || !strings.Contains(err.Error(), lockFile) {
			t.Errorf("Rotate under another's lock: %v", err)
		}
	})
	if err := authenticates(store, token); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := holder.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Rotate(); err != nil {
		t.Error(err)
	}
}

func TestTheStoreLogsAndFailsWithoutTokens(t *testing.T) {
	dir := stateDir(t)
	var log logBuffer
	store, err := OpenTokenStore(dir, TokenStoreOptions{Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	tokens := []string{mustShow(t, store)}
	var texts []string
	note := func(err error) { texts = append(texts, fmt.Sprint(err)) }
	rotated, err := store.Rotate()
	note(err)
	tokens = append(tokens, rotated.Reveal(), mustCreate(t, store, "a", CreateOptions{}))
	note(store.Revoke("a"))
	for _, token := range tokens {
		note(authenticates(store, token))
		note(authenticates(store, token+"x"))
		note(store.Revoke(token))
		_, _, err := store.Create(token, CreateOptions{})
		note(err)
		_, _, err = store.Create("x "+token, CreateOptions{})
		note(err)
		note(os.WriteFile(filepath.Join(dir, hashFile), []byte(`{"version": 1, "`+token+`": 1}`), 0o600))
		note(store.Reload())
		note(authenticates(store, "unknown"))
		note(os.WriteFile(filepath.Join(dir, hashFile), []byte(`{"version": 1, "tokens": "`+token+`"}`), 0o600))
		note(store.Reload())
		_, err = OpenTokenStore(dir, TokenStoreOptions{Logger: log.logger()})
		note(err)
	}
	note(fmt.Errorf("%+v %#v", store.List(), rotated))
	all := log.String() + strings.Join(texts, "\n")
	for _, token := range tokens {
		if strings.Contains(all, token[len(tokenPrefix):len(tokenPrefix)+12]) {
			t.Error("a token was printed")
		}
	}
	if !strings.Contains(all, "was revoked") || !strings.Contains(all, "was rotated") || !strings.Contains(all, "is damaged") {
		t.Errorf("the test does not show what it should: %s", all)
	}
}

func TestConcurrentUseOfOneStore(t *testing.T) {
	store := openStore(t, stateDir(t))
	token := mustCreate(t, store, "steady", CreateOptions{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := fmt.Sprintf("c%d", i)
			for range 5 {
				own := mustCreate(t, store, name, CreateOptions{})
				if err := authenticates(store, own); err != nil {
					t.Error(err)
				}
				if err := store.Revoke(name); err != nil {
					t.Error(err)
				}
				if err := authenticates(store, own); !errors.Is(err, ErrRevoked) {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 200 {
				if err := authenticates(store, token); err != nil {
					t.Error(err)
				}
				if i == 0 { // and one that makes the store look at the file
					if err := authenticates(store, "wrong"); !errors.Is(err, ErrUnknownToken) {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}
