package bridge

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"mcpd/bridge/jsonrpc"
	"mcpd/bridge/ledger"
)

// Sealer makes a requestState that clients can neither read nor change.
type Sealer interface {
	// Seal gives text in a form for JSON strings, bound to binding.
	Seal(text, binding []byte) string
	// Open gives what was sealed with the same binding, or an error.
	Open(sealed string, binding []byte) ([]byte, error)
}

// requestState names, in an input_required result of mcpd's own, the call that
// waits for the answers. What it says is what basic/patterns/mrtr wants in it;
// the principal and the server are what it is sealed with.
type requestState struct {
	Epoch      string        `json:"e"` // of this Upstream, from its making to its end
	Call       string        `json:"c"`
	Generation uint64        `json:"g"` // each is good for one delivery of answers
	Expires    int64         `json:"x"` // Unix seconds
	Method     string        `json:"m"`
	Digest     ledger.Digest `json:"d"` // of the params that the client has to repeat
	Keyed      bool          `json:"k,omitempty"`
}

// statePrefix tells a requestState of mcpd from one of a server.
const statePrefix = "mcpd1."

func (u *Upstream) stateBinding(in *incoming) []byte {
	return []byte("mcpd requestState\x00" + in.principal.ID + "\x00" + u.name)
}

func (u *Upstream) sealState(in *incoming, st *requestState) (string, error) {
	text, err := json.Marshal(st)
	if err != nil {
		return "", err
	}
	return statePrefix + u.sealer.Seal(text, u.stateBinding(in)), nil
}

// openState gives the requestState that this Upstream sealed for the client's
// principal; nil where the request has none of that kind. Such a text may
// still be meant for the server.
func (u *Upstream) openState(in *incoming) *requestState {
	if u.sealer == nil || !in.msg.Param.RequestState.Present() {
		return nil
	}
	text, err := jsonrpc.Unquote(in.data(), in.msg.Param.RequestState.Value)
	if err != nil {
		return nil
	}
	sealed, ours := strings.CutPrefix(text, statePrefix)
	if !ours {
		return nil
	}
	plain, err := u.sealer.Open(sealed, u.stateBinding(in))
	if err != nil {
		return nil
	}
	st := new(requestState)
	if json.Unmarshal(plain, st) != nil {
		return nil
	}
	return st
}

// check compares a requestState with the request that brings it.
func (st *requestState) check(in *incoming) error {
	if time.Now().Unix() >= st.Expires {
		return invalidParams("params.requestState has expired: the questions were not answered in time")
	}
	digest, err := repeatable(in)
	if err != nil {
		return err
	}
	if st.Method != in.method || st.Digest != digest {
		return invalidParams("params.requestState belongs to another request: the method and the params must be those of " +
			"the request that was answered with it")
	}
	return nil
}

// repeatable digests what a client must repeat with its answers.
func repeatable(in *incoming) (ledger.Digest, error) {
	data, m := in.data(), &in.msg
	var removed []jsonrpc.Member
	for _, member := range []jsonrpc.Member{m.Param.Meta, m.Param.InputResponses, m.Param.RequestState} {
		if member.Present() {
			removed = append(removed, member)
		}
	}
	params := m.Params.Value
	digest, err := ledger.DigestOf(editedSpan(data, params, jsonrpc.RemoveMembers(data, params, removed...)))
	if err != nil {
		return digest, invalidParams("the params cannot be compared with those of a repeat: %v", err)
	}
	return digest, nil
}

// refuseState refuses what only a modern server, or mcpd, can have asked for.
// A legacy server is not shown it.
func refuseState(in *incoming) error {
	switch {
	case in.era != EraModern:
	case in.msg.Param.RequestState.Present():
		return invalidParams("params.requestState is not one of this server for this user, or was changed")
	case in.msg.Param.InputResponses.Present():
		return invalidParams("params.inputResponses answers no question: params.requestState is missing")
	}
	return nil
}

func randomID() string { return rand.Text() }
