package control

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"mcpd/security"
)

const (
	challengePath = "challenge" // below Prefix
	nonceBytes    = 32
	proofTimeout  = 5 * time.Second
	maxProof      = 16 << 10 // bytes of the whole answer, header included
	// proofLabel keeps proofs apart from anything else that the key may be
	// used for.
	proofLabel = "mcpd daemon proof 1"
)

// Identity is what a daemon and the commands of its owner have in common, and
// nobody else has. By it the daemon proves that it is the one, before it is
// sent a token: a port can be taken by any program of any user.
type Identity struct {
	Address string // HOST:PORT that the daemon told commands to use
	Key     security.Secret
}

// challenge asks for a proof.
type challenge struct {
	Nonce []byte `json:"nonce"` // of the one who asks, random
}

// proof answers a challenge. It is of no use for any other: both nonces and the
// address are part of it, the address so that another program cannot pass the
// question on and the answer back.
type proof struct {
	Nonce []byte `json:"nonce"` // of the one who answers, random
	Proof []byte `json:"proof"`
}

func (i Identity) sum(asked, answered []byte) []byte {
	mac := hmac.New(sha256.New, []byte(i.Key.Reveal()))
	for _, part := range [][]byte{[]byte(proofLabel), []byte(i.Address), asked, answered} {
		// The lengths make each sequence of parts another text.
		_, _ = fmt.Fprintf(mac, "%d:", len(part))
		_, _ = mac.Write(part) // does not fail, says hash.Hash
	}
	return mac.Sum(nil)
}

// prove answers a challenge.
func (i Identity) prove(c challenge) proof {
	p := proof{Nonce: make([]byte, nonceBytes)}
	_, _ = rand.Read(p.Nonce) // does not fail, says crypto/rand
	p.Proof = i.sum(c.Nonce, p.Nonce)
	return p
}

// proves says whether p answers c, in constant time.
func (i Identity) proves(c challenge, p proof) bool {
	return !i.Key.IsZero() && len(p.Nonce) == nonceBytes && hmac.Equal(p.Proof, i.sum(c.Nonce, p.Nonce))
}

func (a *API) challenge(w http.ResponseWriter, r *http.Request) error {
	var c challenge
	if err := readJSON(r.Body, &c); err != nil {
		return err
	}
	id := a.daemon.Identity()
	if len(c.Nonce) != nonceBytes || id.Key.IsZero() {
		return Errorf(http.StatusBadRequest, "the nonce must have %d bytes", nonceBytes)
	}
	writeJSON(w, http.StatusOK, id.prove(c))
	return nil
}

// NewHTTPClient is like [NewHTTPClient], and every connection that it opens is
// used only after the daemon has proved on that very connection that it is the
// one. It reaches no other address. Where the proof fails, the error is an
// *[Error].
func (i Identity) NewHTTPClient() *http.Client {
	c := NewHTTPClient()
	transport := c.Transport.(*http.Transport)
	plain := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != i.Address {
			return nil, fmt.Errorf("control: %s is not the address of the daemon", addr)
		}
		conn, err := plain(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := i.demand(ctx, conn); err != nil {
			_ = conn.Close() // nothing of ours is on it
			return nil, err
		}
		return conn, nil
	}
	return c
}

// demand has the other side of a fresh connection prove that it is the daemon.
func (i Identity) demand(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := i.ask(ctx, conn)
	if !stop() {
		return fmt.Errorf("%w (%w)", i.stranger(), context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", i.stranger(), err)
	}
	return nil
}

func (i Identity) ask(ctx context.Context, conn net.Conn) error {
	c := challenge{Nonce: make([]byte, nonceBytes)}
	_, _ = rand.Read(c.Nonce) // does not fail, says crypto/rand
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+i.Address+Prefix+challengePath, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if err := req.Write(conn); err != nil {
		return errors.New("the connection broke off")
	}
	in := bufio.NewReader(io.LimitReader(conn, maxProof))
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return errors.New("its answer is not HTTP")
	}
	defer func() { _ = resp.Body.Close() }() // read to its end, or of no use
	answer, err := io.ReadAll(resp.Body)
	if err != nil || in.Buffered() > 0 {
		return errors.New("its answer cannot be read")
	}
	var p proof
	if resp.StatusCode != http.StatusOK || resp.Close || json.Unmarshal(answer, &p) != nil || !i.proves(c, p) {
		return errors.New("its answer proves nothing")
	}
	return nil
}

// stranger is the error for a program that is not the daemon.
func (i Identity) stranger() *Error {
	return &Error{
		Status:  http.StatusForbidden,
		Message: fmt.Sprintf("the program that listens on %s did not prove that it is your mcpd, so it was sent no token", i.Address),
		Hint:    "mcpd doctor tells which program listens there; end it, then restart mcpd",
	}
}
