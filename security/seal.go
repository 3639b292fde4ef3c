package security

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

// SealKeySize is the length of a sealing key, in bytes.
const SealKeySize = chacha20poly1305.KeySize

// ErrNotSealed says that a text was not sealed with this key and binding, or
// that it was changed since. It does not say which of these it is.
var ErrNotSealed = errors.New("the text was not sealed here, or was changed")

// Sealer makes short texts that go through hands that are not trusted: who
// holds one cannot read it and cannot change it. XChaCha20-Poly1305, with a
// random nonce for each text.
type Sealer struct{ aead cipher.AEAD }

// NewSealer makes a Sealer of a key of SealKeySize bytes.
func NewSealer(key []byte) (*Sealer, error) {
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, err
	}
	return &Sealer{aead: aead}, nil
}

// OpenSealer reads the key in the file at path, or makes a new one there. A key
// that others could have read, or that is none, is replaced: what was sealed
// with it is then worth nothing any more. why says that it was replaced, and
// is nil where it was not.
func OpenSealer(path string) (s *Sealer, why, err error) {
	text, err := ReadPrivateFile(path)
	if err == nil {
		var key []byte
		if key, err = hex.DecodeString(strings.TrimSpace(string(text))); err == nil {
			if s, err = NewSealer(key); err == nil {
				return s, nil, nil
			}
		}
		why = fmt.Errorf("%s holds no key", path) // and not what it holds
	} else if !errors.Is(err, fs.ErrNotExist) {
		why = err
	}
	key := make([]byte, SealKeySize)
	_, _ = rand.Read(key) // does not fail, says crypto/rand
	if s, err = NewSealer(key); err != nil {
		return nil, why, err
	}
	err = WritePrivateFile(path, []byte(hex.EncodeToString(key)+"\n"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, why, fmt.Errorf("the folder of %s is not there: %w", path, err)
	}
	return s, why, err
}

// Seal gives text as base64url, bound to binding: Open has to be told the same.
func (s *Sealer) Seal(text, binding []byte) string {
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(text)+s.aead.Overhead())
	_, _ = rand.Read(nonce) // does not fail, says crypto/rand
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, text, binding))
}

// Open gives what was sealed, or ErrNotSealed.
func (s *Sealer) Open(sealed string, binding []byte) ([]byte, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	// The decoder skips line ends: one text would have many spellings.
	if err != nil || len(raw) < s.aead.NonceSize() || strings.ContainsAny(sealed, "\r\n") {
		return nil, ErrNotSealed
	}
	text, err := s.aead.Open(nil, raw[:s.aead.NonceSize()], raw[s.aead.NonceSize():], binding)
	if err != nil {
		return nil, ErrNotSealed
	}
	return text, nil
}
