package control

import (
	"errors"
	"net/http"
	"time"

	"mcpd/security"
)

// Tokens changes the tokens of a state folder: in the daemon, and in a command
// while no daemon runs.
type Tokens struct{ Store *security.TokenStore }

// List lists the access tokens, oldest first.
func (t Tokens) List() []Token { return t.Store.List() }

// Create makes an access token.
func (t Tokens) Create(n NewToken) (CreatedToken, error) {
	secret, p, err := t.Store.Create(n.Name, security.CreateOptions{
		Admin:   n.Admin,
		Servers: n.Servers,
		TTL:     time.Duration(n.TTLSeconds) * time.Second,
	})
	if err != nil {
		return CreatedToken{}, Errorf(http.StatusBadRequest, "%v", err)
	}
	c := CreatedToken{Secret: secret.Reveal()}
	for _, info := range t.Store.List() {
		if info.ID == p.ID {
			c.Token = info
		}
	}
	return c, nil
}

// Revoke ends an access token, named by its id or name.
func (t Tokens) Revoke(idOrName string) error {
	err := t.Store.Revoke(idOrName)
	switch {
	case errors.Is(err, security.ErrNoSuchToken):
		return Errorf(http.StatusNotFound, "%v", err)
	case err != nil:
		return Errorf(http.StatusInternalServerError, "%v", err)
	}
	return nil
}

// Rotate gives the default token a new value.
func (t Tokens) Rotate() error {
	if _, err := t.Store.Rotate(); err != nil {
		return Errorf(http.StatusInternalServerError, "%v", err)
	}
	return nil
}
