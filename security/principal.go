package security

import (
	"context"
	"slices"
)

// Principal is who a request comes from: the holder of one token. It is shared
// between requests and must not be changed.
type Principal struct {
	// ID is stable for the life of the token, and across its rotation. It is
	// not a secret.
	ID string
	// Name is what the person called the token.
	Name string
	// Admin is the right to control the daemon.
	Admin bool
	// Servers are the names of the servers this principal may use; nil means
	// every server, an empty list means none.
	Servers []string
}

// MayUse reports whether p may use the named server. A nil Principal may use
// nothing.
func (p *Principal) MayUse(server string) bool {
	if p == nil {
		return false
	}
	return p.Servers == nil || slices.Contains(p.Servers, server)
}

type principalKey struct{}

// WithPrincipal returns a context that carries p.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the Principal that the gate accepted for this request.
// There is none on a public route.
func PrincipalFrom(ctx context.Context) (*Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(*Principal)
	return p, ok && p != nil
}
