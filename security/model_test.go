package security

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestTokenStoreBehavesLikeItsModel does random things to two stores on one
// folder and compares, after each, what becomes of every token ever made.
func TestTokenStoreBehavesLikeItsModel(t *testing.T) {
	root := t.TempDir()
	runs := 0
	type token struct {
		plain   string
		name    string
		expires time.Time
		revoked bool
		rotated bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		dir := filepath.Join(root, fmt.Sprint(runs))
		synctest.Test(t, func(t *testing.T) {
			open := func() *TokenStore {
				store, err := OpenTokenStore(dir, TokenStoreOptions{})
				if err != nil {
					rt.Fatal(err)
				}
				return store
			}
			stores := []*TokenStore{open(), open()}
			first, err := stores[0].Show()
			if err != nil {
				rt.Fatal(err)
			}
			model := []*token{{plain: first.Reveal(), name: DefaultTokenName}}
			active := func(name string) *token {
				for _, m := range model {
					if m.name == name && !m.revoked && !m.rotated && (m.expires.IsZero() || time.Now().Before(m.expires)) {
						return m
					}
				}
				return nil
			}
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				at := rapid.IntRange(0, 1).Draw(rt, "store")
				name := rapid.SampledFrom([]string{"a", "b", DefaultTokenName}).Draw(rt, "name")
				switch what := rapid.SampledFrom([]string{"create", "create", "revoke", "rotate", "wait", "reopen"}).Draw(rt, "what"); what {
				case "create":
					ttl := rapid.SampledFrom([]time.Duration{0, 3 * time.Second, time.Minute}).Draw(rt, "ttl")
					plain, _, err := stores[at].Create(name, CreateOptions{TTL: ttl})
					if (err == nil) != (name != DefaultTokenName && active(name) == nil) {
						rt.Fatalf("create %s: %v", name, err)
					}
					if err == nil {
						m := &token{plain: plain.Reveal(), name: name}
						if ttl > 0 {
							m.expires = time.Now().Add(ttl)
						}
						model = append(model, m)
					}
				case "revoke":
					err := stores[at].Revoke(name)
					m := active(name)
					if (err == nil) != (m != nil) {
						rt.Fatalf("revoke %s: %v", name, err)
					}
					if m != nil {
						m.revoked = true
					}
				case "rotate":
					plain, err := stores[at].Rotate()
					if err != nil {
						rt.Fatal(err)
					}
					if m := active(DefaultTokenName); m != nil {
						m.rotated = true
					}
					model = append(model, &token{plain: plain.Reveal(), name: DefaultTokenName})
				case "wait":
					time.Sleep(2 * time.Second)
				case "reopen":
					stores[at] = open()
				}
				// The store that did it knows at once, the other in a second.
				for _, store := range []*TokenStore{stores[at], stores[1-at]} {
					for _, m := range model {
						var want error
						switch {
						case m.rotated:
							want = ErrUnknownToken
						case m.revoked:
							want = ErrRevoked
						case !m.expires.IsZero() && !time.Now().Before(m.expires):
							want = ErrExpired
						}
						p, err := store.Authenticate(m.plain)
						if !errors.Is(err, want) || err == nil && p.Name != m.name {
							rt.Fatalf("token of %s: %v, want %v", m.name, err, want)
						}
					}
					time.Sleep(recheckInterval)
				}
				shown, err := stores[at].Show()
				m := active(DefaultTokenName)
				if (err == nil) != (m != nil) || m != nil && shown.Reveal() != m.plain {
					rt.Fatalf("Show: %v; there is an active default token: %v", err, m != nil)
				}
			}
		})
	})
}
