package security

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// tokenFileVersion is the version of tokens.json that this code writes.
const tokenFileVersion = 1

// tokenFile is tokens.json.
type tokenFile struct {
	Version int           `json:"version"`
	Tokens  []tokenRecord `json:"tokens"`
}

// tokenRecord is one token in tokens.json.
type tokenRecord struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	SHA256     string    `json:"sha256"`               // of the whole token, in hex
	NextSHA256 string    `json:"next_sha256,omitzero"` // of the value that a rotation is about to give
	Admin      bool      `json:"admin"`
	AllServers bool      `json:"all_servers"`       // a member of its own, so that nothing is granted by leaving one out
	Servers    []string  `json:"servers,omitempty"` // where AllServers is not set
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
}

func newRecord(name string, hash [sha256.Size]byte, options CreateOptions) tokenRecord {
	var id [8]byte
	_, _ = rand.Read(id[:]) // does not fail, says crypto/rand
	now := time.Now().UTC().Truncate(time.Second)
	record := tokenRecord{
		ID:         hex.EncodeToString(id[:]),
		Name:       name,
		SHA256:     hex.EncodeToString(hash[:]),
		Admin:      options.Admin,
		AllServers: options.Servers == nil,
		Servers:    slices.Clone(options.Servers),
		CreatedAt:  now,
	}
	if options.TTL > 0 {
		record.ExpiresAt = time.Now().UTC().Add(options.TTL)
	}
	return record
}

func (r *tokenRecord) principal() *Principal {
	return &Principal{ID: r.ID, Name: r.Name, Admin: r.Admin, Servers: r.servers()}
}

// servers is the list in the form of Principal.Servers: nil means every one.
func (r *tokenRecord) servers() []string {
	if r.AllServers {
		return nil
	}
	return append([]string{}, r.Servers...)
}

func (r *tokenRecord) state(now time.Time) TokenState {
	switch {
	case !r.RevokedAt.IsZero():
		return TokenRevoked
	case !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt):
		return TokenExpired
	default:
		return TokenActive
	}
}

func (r *tokenRecord) info(now time.Time) TokenInfo {
	return TokenInfo{
		ID: r.ID, Name: r.Name, State: r.state(now), Admin: r.Admin,
		AllServers: r.AllServers, Servers: r.servers(),
		CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt,
	}
}

// activeByName returns the index of the active token of that name, or -1.
func activeByName(records []tokenRecord, name string, now time.Time) int {
	return slices.IndexFunc(records, func(r tokenRecord) bool {
		return r.Name == name && r.state(now) == TokenActive
	})
}

// pruned returns a copy without the tokens that have been dead for long.
func pruned(records []tokenRecord, now time.Time) []tokenRecord {
	kept := make([]tokenRecord, 0, len(records)+1)
	for _, r := range records {
		died := r.RevokedAt
		if died.IsZero() || !r.ExpiresAt.IsZero() && r.ExpiresAt.Before(died) {
			died = r.ExpiresAt
		}
		if died.IsZero() || now.Sub(died) < keepDead {
			kept = append(kept, r)
		}
	}
	return kept
}

// load reads tokens.json. The error matches fs.ErrNotExist if there is none.
func (s *TokenStore) load() (*tokenSet, error) {
	path := s.path(hashFile)
	data, stamp, err := readPrivateFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the list of tokens: %w", err)
	}
	records, err := decodeTokens(data)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w; restore it from a backup, or move it away and start mcpd again: "+
			"then only the token in %s is accepted, and the others have to be made anew", path, err, s.path(plainFile))
	}
	set, err := newTokenSet(records)
	if err != nil {
		return nil, err
	}
	set.stamp = stamp
	return set, nil
}

// store writes tokens.json. It is called under the lock, so what it finds
// afterwards is what it wrote.
func (s *TokenStore) store(records []tokenRecord) (*tokenSet, error) {
	records = slices.Clone(records)
	set, err := newTokenSet(records)
	if err != nil {
		return nil, err
	}
	data, err := encodeTokens(records)
	if err != nil {
		return nil, err
	}
	path := s.path(hashFile)
	if err := WritePrivateFile(path, data); err != nil {
		return nil, fmt.Errorf("writing the list of tokens: %w", err)
	}
	if set.stamp, err = os.Lstat(path); err != nil {
		return nil, err
	}
	return set, nil
}

func encodeTokens(records []tokenRecord) ([]byte, error) {
	data, err := json.Marshal(tokenFile{Version: tokenFileVersion, Tokens: records}, jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("encoding the list of tokens: %w", err)
	}
	return append(data, '\n'), nil
}

// decodeTokens reads the contents of tokens.json strictly: a member that is
// not understood could be one that takes a right away.
func decodeTokens(data []byte) ([]tokenRecord, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	// The version first, on its own: a newer file may have members unknown here.
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, damaged(err)
	}
	if version.Version != tokenFileVersion {
		return nil, fmt.Errorf("it has version %d, and this mcpd knows only version %d", version.Version, tokenFileVersion)
	}
	var file tokenFile
	if err := json.Unmarshal(data, &file, json.RejectUnknownMembers(true)); err != nil {
		return nil, damaged(err)
	}
	if len(file.Tokens) > maxTokens {
		return nil, fmt.Errorf("it has %d tokens, and %d are the most", len(file.Tokens), maxTokens)
	}
	ids, hashes := make(map[string]bool), make(map[string]bool)
	for i, r := range file.Tokens {
		switch {
		case r.ID == "" || ids[r.ID]:
			return nil, fmt.Errorf("token %d has no id of its own", i+1)
		case hashes[r.SHA256]:
			return nil, fmt.Errorf("token %d has the hash of another", i+1)
		case !isHash(r.SHA256) || r.NextSHA256 != "" && !isHash(r.NextSHA256):
			return nil, fmt.Errorf("token %d has a hash that is not one", i+1)
		case r.AllServers && len(r.Servers) > 0:
			return nil, fmt.Errorf("token %d is for all servers and for some", i+1)
		}
		if err := checkTokenName(r.Name); err != nil {
			return nil, fmt.Errorf("token %d: %w", i+1, err)
		}
		ids[r.ID], hashes[r.SHA256] = true, true
	}
	return file.Tokens, nil
}

// damaged keeps out of the error what somebody may have put into the file by
// hand: decoders quote what they do not expect.
func damaged(err error) error {
	return fmt.Errorf("it is damaged: %s", redactTokens(err.Error()))
}

func newTokenSet(records []tokenRecord) (*tokenSet, error) {
	set := &tokenSet{records: records, entries: make([]tokenEntry, len(records))}
	for i := range records {
		r := &records[i]
		entry := &set.entries[i]
		if n, err := hex.Decode(entry.hash[:], []byte(r.SHA256)); err != nil || n != len(entry.hash) {
			return nil, fmt.Errorf("token %q has a hash that is not one", r.Name)
		}
		entry.principal = r.principal()
		entry.expires = r.ExpiresAt
		entry.revoked = !r.RevokedAt.IsZero()
	}
	return set, nil
}

func isHash(s string) bool {
	if len(s) != hex.EncodedLen(sha256.Size) {
		return false
	}
	for i := range len(s) {
		if !('0' <= s[i] && s[i] <= '9' || 'a' <= s[i] && s[i] <= 'f') {
			return false
		}
	}
	return true
}

// checkTokenName keeps names fit for a command line and a log, and apart from
// tokens: somebody will paste one in the wrong place.
func checkTokenName(name string) error {
	if strings.HasPrefix(name, tokenPrefix) {
		return fmt.Errorf("a token's name must not begin with %s, as tokens themselves do", tokenPrefix)
	}
	ok := name != "" && len(name) <= 64
	for i := range len(name) {
		b := name[i]
		alnum := 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
		ok = ok && (alnum || i > 0 && (b == '.' || b == '_' || b == '-'))
	}
	if !ok {
		return fmt.Errorf("%s is not a name for a token: use up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit",
			printable(name))
	}
	return nil
}

// parseToken reads the contents of the token file.
func parseToken(s string) (Secret, bool) {
	s = strings.TrimSpace(s)
	encoded, ok := strings.CutPrefix(s, tokenPrefix)
	if !ok {
		return Secret{}, false
	}
	random, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(random) != tokenBytes || strings.ContainsAny(encoded, "\r\n") {
		return Secret{}, false
	}
	return NewSecret(s), true
}
