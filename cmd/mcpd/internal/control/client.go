package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Client asks a running daemon.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// NewClient returns a client of the daemon that proves to be i.
func (i Identity) NewClient(token string) *Client {
	return &Client{base: "http://" + i.Address, token: token, http: i.NewHTTPClient()}
}

// NewHTTPClient returns an HTTP client that is fit to carry a token to the
// daemon: it uses no proxy, whatever the environment says, and follows no
// redirect.
func NewHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:           nil,
			DialContext:     (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			MaxIdleConns:    2,
			IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close releases idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// do sends a request and returns its answer where that is a success. The
// caller closes the body.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var rd io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		rd = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+Prefix+path, rd)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the URL says nothing to the person
		}
		var stranger *Error
		if errors.As(err, &stranger) {
			return nil, err
		}
		return nil, fmt.Errorf("cannot reach the daemon at %s: %w", c.base, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	e := &Error{Status: resp.StatusCode}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil || json.Unmarshal(data, e) != nil || e.Message == "" {
		e.Message = "the daemon answered " + resp.Status
		if resp.StatusCode == http.StatusUnauthorized {
			e.Message = "the daemon does not know this token"
			e.Hint = "the state folder may be another one than the daemon's: see --state-dir"
		}
	}
	return nil, e
}

func get[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var v T
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return v, err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return v, fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	return v, nil
}

// Status asks for the daemon's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, http.MethodGet, "status", nil)
}

// Reload has the config file read now.
func (c *Client) Reload(ctx context.Context) (Reload, error) {
	return get[Reload](ctx, c, http.MethodPost, "reload", nil)
}

// Act does "start", "stop" or "restart" with a server and returns its status
// after that.
func (c *Client) Act(ctx context.Context, name, action string) (Server, error) {
	return get[Server](ctx, c, http.MethodPost, "servers/"+url.PathEscape(name)+"/"+url.PathEscape(action), nil)
}

// Logs gives each of the last n lines of a server's log to emit, and with
// follow each new one until ctx ends, the daemon stops, or emit fails.
func (c *Client) Logs(ctx context.Context, name string, n int, follow bool, emit func(LogLine) error) error {
	q := url.Values{"n": {strconv.Itoa(n)}}
	if follow {
		q.Set("follow", "1")
	}
	resp, err := c.do(ctx, http.MethodGet, "servers/"+url.PathEscape(name)+"/logs?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	dec := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var l LogLine
		switch err := dec.Decode(&l); {
		case errors.Is(err, io.EOF), err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the daemon's answer broke off: %w", err)
		}
		if err := emit(l); err != nil {
			return err
		}
	}
}

// Ledger lists the calls that are remembered, oldest first; a state other than
// "" leaves out the others.
func (c *Client) Ledger(ctx context.Context, state string) ([]LedgerEntry, error) {
	return get[[]LedgerEntry](ctx, c, http.MethodGet, "ledger?"+url.Values{"state": {state}}.Encode(), nil)
}

// ResolveLedger settles an unknown outcome.
func (c *Client) ResolveLedger(ctx context.Context, id string, done bool) (LedgerEntry, error) {
	return get[LedgerEntry](ctx, c, http.MethodPost, "ledger/resolve", LedgerResolve{ID: id, Done: &done})
}

// ListTokens lists the access tokens.
func (c *Client) ListTokens(ctx context.Context) ([]Token, error) {
	return get[[]Token](ctx, c, http.MethodGet, "tokens", nil)
}

// CreateToken makes an access token.
func (c *Client) CreateToken(ctx context.Context, t NewToken) (CreatedToken, error) {
	return get[CreatedToken](ctx, c, http.MethodPost, "tokens", t)
}

// RevokeToken ends an access token.
func (c *Client) RevokeToken(ctx context.Context, idOrName string) error {
	return c.post(ctx, "tokens/revoke", RevokeToken{Token: idOrName})
}

// RotateToken replaces the default token. The new one is in the state folder.
func (c *Client) RotateToken(ctx context.Context) error { return c.post(ctx, "tokens/rotate", nil) }

func (c *Client) post(ctx context.Context, path string, body any) error {
	resp, err := c.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
