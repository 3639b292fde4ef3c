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

// accepted is what the gate accepted a request for.
type accepted struct {
	principal *Principal
	auth      Authenticator // nil where nothing can be checked again
	bearer    string
}

// WithPrincipal returns a context that carries p.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return withAccepted(ctx, p, nil, "")
}

// withAccepted is WithPrincipal for a request whose token can be checked again.
func withAccepted(ctx context.Context, p *Principal, auth Authenticator, bearer string) context.Context {
	return context.WithValue(ctx, principalKey{}, &accepted{principal: p, auth: auth, bearer: bearer})
}

// PrincipalFrom returns the Principal that the gate accepted for this request.
// There is none on a public route.
func PrincipalFrom(ctx context.Context) (*Principal, bool) {
	a, ok := ctx.Value(principalKey{}).(*accepted)
	if !ok || a.principal == nil {
		return nil, false
	}
	return a.principal, true
}

// StillAccepted reports whether the token of a request is still good: a stream
// outlives the check at its beginning, and must not outlive the token.
func StillAccepted(ctx context.Context) bool {
	a, ok := ctx.Value(principalKey{}).(*accepted)
	if !ok || a.auth == nil {
		return ok
	}
	_, err := a.auth.Authenticate(a.bearer)
	return err == nil
}
