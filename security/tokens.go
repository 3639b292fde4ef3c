package security

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
)

const (
	// tokenPrefix lets a person, and scanners for leaked secrets, see what a
	// token belongs to.
	tokenPrefix = "mcpd_"
	tokenBytes  = 32 // random bytes in a token

	// DefaultTokenName names the token that is made at the first start. It has
	// every right; the commands of mcpd use it.
	DefaultTokenName = "default"

	plainFile = "token"       // the default token itself, for `mcpd token show`
	hashFile  = "tokens.json" // hashes of all tokens
	lockFile  = "tokens.lock" // held while one of the others changes

	recheckInterval = time.Second         // between looks for changes by other processes
	keepDead        = 30 * 24 * time.Hour // how long a revoked or expired token stays in the list
	maxTokens       = 1000                // in the file, so that comparing with all of them stays cheap
)

// ErrNoSuchToken says that no token has the given id or name.
var ErrNoSuchToken = errors.New("no such token")

// TokenStoreOptions are the parts of a TokenStore that have defaults.
type TokenStoreOptions struct {
	// Logger gets what happens to the files; nil logs nothing. It never gets a
	// token.
	Logger *slog.Logger
	// LockTimeout is how long a change waits for that of another process;
	// 0 means 10 s.
	LockTimeout time.Duration
}

// CreateOptions are the rights of a new token.
type CreateOptions struct {
	Admin   bool          // may control the daemon
	Servers []string      // names of the servers it is for; nil means every server
	TTL     time.Duration // until it expires; 0 means never
}

// TokenState says whether a token is accepted.
type TokenState string

const (
	TokenActive  TokenState = "active"
	TokenRevoked TokenState = "revoked"
	TokenExpired TokenState = "expired"
)

// TokenInfo is what may be shown of a token.
type TokenInfo struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	State      TokenState `json:"state"`
	Admin      bool       `json:"admin"`
	AllServers bool       `json:"all_servers"`
	Servers    []string   `json:"servers"` // where AllServers is not set
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at,omitzero"`
	RevokedAt  time.Time  `json:"revoked_at,omitzero"`
}

// TokenStore holds the tokens that mcpd accepts, in a folder that is closed to
// other users. It is safe for concurrent use, and several processes may use
// one folder at once: changes are made under a lock, and each sees those of
// the others within a second.
//
// Only hashes of the tokens are stored, except for the default token, which
// `mcpd token show` has to print: it lies in a file of its own.
//
// The hash is plain SHA-256. A slow, salted password hash makes guessing
// costly where secrets come from people. A token is 256 random bits, so there
// is nothing to guess, no two are equal, and no table can hold them; a slow
// hash would only make each request slow, and let anyone load the CPU with
// wrong tokens.
type TokenStore struct {
	dir         string
	logger      *slog.Logger
	lockTimeout time.Duration
	opened      time.Time

	set       atomic.Pointer[tokenSet]
	nextCheck atomic.Int64 // nanoseconds after opened

	changeMu sync.Mutex // held around the lock file: waiting for another process must not hold up requests

	// mu is held while a request loads tokens.json and while a change is
	// published, so that what was loaded before a change cannot replace it.
	mu        sync.Mutex
	failed    fs.FileInfo // the tokens.json that could not be loaded, if any
	lastError string      // what was last logged about it
}

// tokenSet is one state of tokens.json. It does not change.
type tokenSet struct {
	records []tokenRecord
	entries []tokenEntry // one for each record
	stamp   fs.FileInfo
}

type tokenEntry struct {
	hash      [sha256.Size]byte
	principal *Principal
	expires   time.Time
	revoked   bool
}

// OpenTokenStore opens the tokens in dir. At the first start it makes the
// folder, the default token and both files; of two processes that do so at
// once, one makes them and the other reads them.
//
// It fails, with what to do about it, if the folder or a file is open to other
// users (*[NotPrivateError]), or if tokens.json is damaged: a damaged file is
// never replaced, because that would silently lock out every client.
func OpenTokenStore(dir string, options TokenStoreOptions) (*TokenStore, error) {
	s := &TokenStore{
		dir:         dir,
		logger:      options.Logger,
		lockTimeout: options.LockTimeout,
		opened:      time.Now(),
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if s.lockTimeout == 0 {
		s.lockTimeout = 10 * time.Second
	}
	if err := MakePrivateDir(dir); err != nil {
		return nil, fmt.Errorf("the folder of the tokens: %w", err)
	}
	err := s.locked(func() error {
		if err := removeLeftovers(s.dir, plainFile, hashFile); err != nil {
			return err
		}
		set, err := s.loadForChange()
		if errors.Is(err, fs.ErrNotExist) {
			set, err = s.makeFirst()
		}
		if err != nil {
			return err
		}
		// Nothing of the plaintext is used here, but a token that others can
		// read must not be accepted any longer without a word.
		if _, err := s.readPlain(); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errBadPlain) {
			return err
		}
		s.publish(set)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Authenticate returns whose token bearer is. The error matches [ErrNoToken],
// [ErrUnknownToken], [ErrRevoked] or [ErrExpired]; it may name the token, and
// never holds it.
//
// The token's digest is compared with every stored one, each in constant time,
// so the time taken tells neither how much of it was right nor which entry it
// is.
func (s *TokenStore) Authenticate(bearer string) (*Principal, error) {
	if bearer == "" {
		return nil, ErrNoToken
	}
	s.refresh(false)
	digest := sha256.Sum256([]byte(bearer))
	entry := s.set.Load().find(&digest)
	if entry == nil && s.refresh(true) {
		// Another process made the token a moment ago.
		entry = s.set.Load().find(&digest)
	}
	switch {
	case entry == nil:
		return nil, ErrUnknownToken
	case entry.revoked:
		return nil, fmt.Errorf("token %q: %w", entry.principal.Name, ErrRevoked)
	case !entry.expires.IsZero() && !time.Now().Before(entry.expires):
		return nil, fmt.Errorf("token %q: %w", entry.principal.Name, ErrExpired)
	}
	return entry.principal, nil
}

func (t *tokenSet) find(digest *[sha256.Size]byte) *tokenEntry {
	found := -1
	for i := range t.entries {
		equal := subtle.ConstantTimeCompare(digest[:], t.entries[i].hash[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 {
		return nil
	}
	return &t.entries[found]
}

// Show returns the default token.
func (s *TokenStore) Show() (Secret, error) {
	var plain Secret
	err := s.locked(func() error {
		set, err := s.loadForChange()
		if err != nil {
			return s.explainMissing(err)
		}
		s.publish(set)
		if plain, err = s.readPlain(); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the default token is not stored in %s (it was revoked, or the file was removed); "+
				"'mcpd token rotate' makes a new one", s.path(plainFile))
		} else if err != nil {
			return err
		}
		i := activeByName(set.records, DefaultTokenName, time.Now())
		hash := hashOf(plain)
		if i < 0 || subtle.ConstantTimeCompare(hash[:], set.entries[i].hash[:]) != 1 {
			return fmt.Errorf("the token in %s is not the one in %s, so mcpd does not accept it; "+
				"'mcpd token rotate' makes a new one", s.path(plainFile), s.path(hashFile))
		}
		return nil
	})
	if err != nil {
		return Secret{}, err
	}
	return plain, nil
}

// Rotate gives the default token a new value and returns it. The old value is
// refused from then on, by this store at once and by other processes within a
// second. The principal stays the same.
func (s *TokenStore) Rotate() (Secret, error) {
	plain := newToken()
	hash := hashOf(plain)
	err := s.change(func(records []tokenRecord) ([]tokenRecord, error) {
		i := activeByName(records, DefaultTokenName, time.Now())
		if i < 0 {
			record := newRecord(DefaultTokenName, hash, CreateOptions{Admin: true})
			return append(records, record), s.writePlain(plain)
		}
		// Two files cannot change in one step. The new hash is noted first, so
		// that after a crash the next start can tell how far this came.
		records[i].NextSHA256 = hex.EncodeToString(hash[:])
		if _, err := s.store(records); err != nil {
			return nil, err
		}
		if err := s.writePlain(plain); err != nil {
			return nil, err
		}
		records[i].SHA256, records[i].NextSHA256 = records[i].NextSHA256, ""
		return records, nil
	})
	if err != nil {
		return Secret{}, fmt.Errorf("rotating the token: %w", err)
	}
	s.logger.Info("the default token was rotated; the old one is refused from now on")
	return plain, nil
}

// Create makes a token with a name and returns it; it cannot be shown again.
// The name must not belong to a token that is still active.
func (s *TokenStore) Create(name string, options CreateOptions) (Secret, *Principal, error) {
	if err := checkTokenName(name); err != nil {
		return Secret{}, nil, err
	}
	switch {
	case name == DefaultTokenName:
		return Secret{}, nil, fmt.Errorf("the name %q is that of mcpd's own token: choose another", name)
	case options.TTL < 0:
		return Secret{}, nil, errors.New("a token cannot expire before it is made: give a positive duration")
	case options.Servers != nil && len(options.Servers) == 0:
		return Secret{}, nil, errors.New("the list of servers is empty: name at least one, or give none for every server")
	case slices.Contains(options.Servers, ""):
		return Secret{}, nil, errors.New("the list of servers holds an empty name")
	}
	plain := newToken()
	record := newRecord(name, hashOf(plain), options)
	err := s.change(func(records []tokenRecord) ([]tokenRecord, error) {
		if activeByName(records, name, time.Now()) >= 0 {
			return nil, fmt.Errorf("a token named %q exists already: revoke it first, or choose another name", name)
		}
		if len(records) >= maxTokens {
			return nil, fmt.Errorf("there are %d tokens already, which is the most: revoke some", len(records))
		}
		return append(records, record), nil
	})
	if err != nil {
		return Secret{}, nil, fmt.Errorf("creating a token: %w", err)
	}
	s.logger.Info("a token was made", "name", name, "id", record.ID, "admin", record.Admin, "servers", record.Servers)
	return plain, record.principal(), nil
}

// List returns what is known of each token, oldest first, without any token.
func (s *TokenStore) List() []TokenInfo {
	s.refresh(true)
	set, now := s.set.Load(), time.Now()
	infos := make([]TokenInfo, len(set.records))
	for i := range set.records {
		infos[i] = set.records[i].info(now)
	}
	return infos
}

// Revoke makes mcpd refuse a token, named by its id or by the name of an
// active token; an id goes before a name. Revoking the default token also
// removes the file that holds it. The error matches [ErrNoSuchToken] if there
// is none.
func (s *TokenStore) Revoke(idOrName string) error {
	var revoked TokenInfo
	err := s.change(func(records []tokenRecord) ([]tokenRecord, error) {
		now := time.Now()
		i := slices.IndexFunc(records, func(r tokenRecord) bool { return r.ID == idOrName })
		if i < 0 {
			i = activeByName(records, idOrName, now)
		}
		if i < 0 {
			return nil, fmt.Errorf("%w: nothing active has the id or name %s; 'mcpd token list' shows all",
				ErrNoSuchToken, printable(idOrName))
		}
		if records[i].RevokedAt.IsZero() {
			records[i].RevokedAt = now.UTC().Truncate(time.Second)
		}
		revoked = records[i].info(now)
		return records, nil
	})
	if err != nil {
		return fmt.Errorf("revoking a token: %w", err)
	}
	s.logger.Info("a token was revoked", "name", revoked.Name, "id", revoked.ID)
	if revoked.Name != DefaultTokenName {
		return nil
	}
	// Only now: a crash in between leaves a file whose token is refused.
	return s.locked(func() error {
		plain, err := s.readPlain()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			hash := hashOf(plain)
			if entry := s.set.Load().find(&hash); entry == nil || !entry.revoked {
				return nil // another process rotated meanwhile
			}
		}
		return os.Remove(s.path(plainFile))
	})
}

// Reload reads tokens.json again at once, as every request does within a
// second. If it cannot be read, the tokens known before stay accepted.
func (s *TokenStore) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reload()
}

// reload is called with mu held.
func (s *TokenStore) reload() error {
	set, err := s.load()
	if err != nil {
		return s.explainMissing(err)
	}
	s.set.Store(set)
	s.failed, s.lastError = nil, ""
	return nil
}

// refresh loads tokens.json if another process changed it, and reports whether
// it did. Unless forced it looks at most once in recheckInterval, and costs a
// clock reading otherwise.
//
// A file that cannot be loaded changes nothing, like every bad file of mcpd's:
// else one slip in an editor, or a moment without free descriptors, would
// refuse every client, and a 401 sends many of them looking for another way to
// log in.
func (s *TokenStore) refresh(force bool) (changed bool) {
	now, due := int64(time.Since(s.opened)), s.nextCheck.Load()
	isDue := now >= due && s.nextCheck.CompareAndSwap(due, now+int64(recheckInterval))
	if !isDue && !force {
		return false
	}
	info, err := os.Lstat(s.path(hashFile))
	if err == nil && sameFile(info, s.set.Load().stamp) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && sameFile(info, s.set.Load().stamp) {
		return true // another request loaded it meanwhile
	}
	if !isDue && (err != nil || s.failed != nil && sameFile(info, s.failed)) {
		return false // wrong tokens must not make mcpd read a bad file again and again
	}
	if err := s.reload(); err != nil {
		s.failed = info
		if s.lastError != err.Error() {
			s.lastError = err.Error()
			s.logger.Error("the tokens changed, but cannot be read; those known before stay accepted", "error", err)
		}
		return false
	}
	return true
}

// publish makes set the one that requests are checked against. It is called
// under the lock file, so no other process can have made a newer one.
func (s *TokenStore) publish(set *tokenSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set.Store(set)
	s.failed, s.lastError = nil, ""
}

// sameFile reports whether two looks at tokens.json saw the same contents.
// Each write makes a new file, so a change shows even within one tick of the
// file system's clock.
func sameFile(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// change runs edit on a fresh copy of the records and writes what it returns,
// all under the lock.
func (s *TokenStore) change(edit func([]tokenRecord) ([]tokenRecord, error)) error {
	return s.locked(func() error {
		set, err := s.loadForChange()
		if err != nil {
			return s.explainMissing(err)
		}
		// It is what other processes left, and holds also if edit fails.
		s.publish(set)
		records, err := edit(pruned(set.records, time.Now()))
		if err != nil {
			return err
		}
		if set, err = s.store(records); err != nil {
			return err
		}
		s.publish(set)
		return nil
	})
}

// locked runs fn while no other process, and no other goroutine, reads or
// changes the files through locked.
func (s *TokenStore) locked(fn func() error) (err error) {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	lock := flock.New(s.path(lockFile), flock.SetPermissions(0o600))
	defer func() { err = errors.Join(err, lock.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), s.lockTimeout)
	defer cancel()
	if _, err := lock.TryLockContext(ctx, 10*time.Millisecond); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("another mcpd process has been changing the tokens for %v (it holds %s): try again, or end it",
			s.lockTimeout, s.path(lockFile))
	} else if err != nil {
		return fmt.Errorf("locking %s: %w", s.path(lockFile), err)
	}
	return fn()
}

// loadForChange is load under the lock. It ends a rotation that a crash broke
// off: forwards if the new token had reached its file, else backwards.
func (s *TokenStore) loadForChange() (*tokenSet, error) {
	set, err := s.load()
	if err != nil {
		return nil, err
	}
	pending := slices.IndexFunc(set.records, func(r tokenRecord) bool { return r.NextSHA256 != "" })
	if pending < 0 {
		return set, nil
	}
	records := slices.Clone(set.records)
	record := &records[pending]
	if plain, err := s.readPlain(); err == nil {
		hash := hashOf(plain)
		if hex.EncodeToString(hash[:]) == record.NextSHA256 {
			record.SHA256 = record.NextSHA256
		}
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errBadPlain) {
		return nil, err
	}
	record.NextSHA256 = ""
	s.logger.Warn("a rotation of the default token was broken off before; it was brought to an end")
	return s.store(records)
}

// makeFirst makes what is missing at the first start. A token without
// tokens.json is what a crash between the two writes leaves; it is kept, so
// that a client which has it already goes on working.
func (s *TokenStore) makeFirst() (*tokenSet, error) {
	plain, err := s.readPlain()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		plain = newToken()
		if err := s.writePlain(plain); err != nil {
			return nil, fmt.Errorf("making the first token: %w", err)
		}
		s.logger.Info("made the first token; 'mcpd token show' prints it", "file", s.path(plainFile))
	case errors.Is(err, errBadPlain):
		return nil, fmt.Errorf("%w: move it away and start mcpd again; that makes a new token", err)
	case err != nil:
		return nil, err
	default:
		s.logger.Warn("there was no list of tokens; made one with the default token alone",
			"token", s.path(plainFile), "list", s.path(hashFile))
	}
	return s.store([]tokenRecord{newRecord(DefaultTokenName, hashOf(plain), CreateOptions{Admin: true})})
}

var errBadPlain = errors.New("does not hold a token of mcpd's")

func (s *TokenStore) readPlain() (Secret, error) {
	path := s.path(plainFile)
	data, err := ReadPrivateFile(path)
	if notPrivate, ok := errors.AsType[*NotPrivateError](err); ok {
		return Secret{}, fmt.Errorf("the token may be known to others: %w; then run: mcpd token rotate", notPrivate)
	}
	if err != nil {
		return Secret{}, fmt.Errorf("reading the token: %w", err)
	}
	plain, ok := parseToken(string(data))
	if !ok {
		return Secret{}, fmt.Errorf("%s %w", path, errBadPlain)
	}
	return plain, nil
}

func (s *TokenStore) writePlain(plain Secret) error {
	return WritePrivateFile(s.path(plainFile), []byte(plain.Reveal()+"\n"))
}

func (s *TokenStore) path(name string) string { return filepath.Join(s.dir, name) }

func (s *TokenStore) explainMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is gone, and with it the list of accepted tokens; restore it from a backup, "+
			"or start mcpd again to make one with the default token alone: %w", s.path(hashFile), err)
	}
	return err
}

func newToken() Secret {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // does not fail, says crypto/rand
	return NewSecret(tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:]))
}

func hashOf(plain Secret) [sha256.Size]byte { return sha256.Sum256([]byte(plain.Reveal())) }
