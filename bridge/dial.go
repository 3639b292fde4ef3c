package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mcpd/bridge/jsonrpc"
)

// RestartError asks the owner of the process for a fresh one at once: the
// server did not survive, or did not understand, how it was greeted, and the
// next one will be greeted differently. It is no crash of the server's own.
type RestartError struct{ Reason string }

func (e *RestartError) Error() string { return e.Reason }

// serverInfo is what a server told about itself in its handshake.
type serverInfo struct {
	version      string          // protocol revision spoken with it
	versions     []string        // revisions it listed
	capabilities json.RawMessage // object, or nil
	declared     map[string]map[string]bool
	info         json.RawMessage // Implementation object, or nil
	instructions json.RawMessage // string, or nil
}

func (s *serverInfo) nameAndVersion() (name, version string) {
	var info struct{ Name, Version string }
	if json.Unmarshal(s.info, &info) != nil {
		return "", ""
	}
	return info.Name, info.Version
}

// parseCapabilities reads which capabilities are declared, and which boolean
// members of each are true.
func parseCapabilities(raw json.RawMessage) map[string]map[string]bool {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	declared := make(map[string]map[string]bool, len(all))
	for name, raw := range all {
		var members map[string]any
		_ = json.Unmarshal(raw, &members) // a capability that is no object has no flags
		flags := make(map[string]bool)
		for flag, v := range members {
			if on, _ := v.(bool); on {
				flags[flag] = true
			}
		}
		declared[name] = flags
	}
	return declared
}

// capability reports whether the server declared a capability, and whether
// the boolean member flag of it is true.
func (s *serverInfo) capability(name, flag string) (declared, flagged bool) {
	flags, declared := s.declared[name]
	return declared, flags[flag]
}

// Dial greets a new process and finds out which era it is. The Conn it returns
// is ready for requests; on an error nothing of it is left. An error of type
// *RestartError wants a fresh process.
func (u *Upstream) Dial(ctx context.Context, p Pipes) (*Conn, error) {
	u.start.Lock()
	commandLine, protocol, skipProbe := u.start.commandLine, u.start.protocol, u.start.skipProbe
	u.start.Unlock()

	limits := *u.limits.Load()
	if u.sealer == nil {
		limits.Interactive = InteractiveOff
	}
	conn := newConn(u.name, u.version, p, limits, u, u.logger)
	g := greeting{u: u, conn: conn, commandLine: commandLine}
	err := g.run(ctx, protocol, skipProbe)
	if err == nil && conn.Era() == EraLegacy && conn.interactive != InteractiveOff {
		g.settle(ctx)
	}
	if err != nil {
		conn.Close(err)
		return nil, err
	}
	return conn, nil
}

// Ready makes conn the one that carries subscriptions: each one is sent to it
// again before any request that comes later.
func (u *Upstream) Ready(conn *Conn) { u.subs.adopt(conn) }

// settleTime bounds how long a legacy server has for what it asks at once after
// the handshake.
const settleTime = 250 * time.Millisecond

// settle waits until the server has done with the end of the handshake. Some
// servers then ask for the roots, of no client's request: were one in flight
// already, they would be taken to ask about that.
func (g *greeting) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if in, err := g.conn.roundTrip(ctx, methodPing, nil); err == nil {
		in.release()
	}
}

// greeting is the handshake with one process.
type greeting struct {
	u           *Upstream
	conn        *Conn
	commandLine string
}

func (g *greeting) run(ctx context.Context, protocol Era, skipProbe bool) error {
	remembered := EraUnknown
	if g.u.eras != nil && protocol == EraUnknown {
		if era, ok := g.u.eras.Era(g.commandLine); ok {
			remembered = era
		}
	}
	switch {
	case protocol == EraModern:
		return g.discover(ctx)
	case protocol == EraLegacy:
		return g.initialize(ctx)
	case skipProbe || remembered == EraLegacy:
		err := g.initialize(ctx)
		if err == nil {
			g.learned(EraLegacy)
			return nil
		}
		g.setSkipProbe(false)
		if remembered == EraLegacy && !errors.Is(ctx.Err(), context.Canceled) {
			// The command may have been upgraded to another era since.
			g.u.eras.Forget(g.commandLine)
			return &RestartError{Reason: fmt.Sprintf("it was remembered as a legacy server but did not initialize: %v", err)}
		}
		return err
	}
	era, err := g.probe(ctx)
	if err != nil {
		if remembered != EraUnknown && !errors.Is(ctx.Err(), context.Canceled) {
			g.u.eras.Forget(g.commandLine)
		}
		return err
	}
	g.learned(era)
	return nil
}

func (g *greeting) setSkipProbe(v bool) {
	g.u.start.Lock()
	defer g.u.start.Unlock()
	if g.u.start.commandLine == g.commandLine {
		g.u.start.skipProbe = v
	}
}

func (g *greeting) learned(era Era) {
	if g.u.eras != nil {
		g.u.eras.Remember(g.commandLine, era)
	}
}

// answer is the outcome of one greeting request.
type answer struct {
	in  *inbound
	err error
}

// ask sends a request; the answer comes on the returned channel, which is
// buffered so that nobody has to take it.
func (g *greeting) ask(ctx context.Context, method string, params []byte) <-chan answer {
	ch := make(chan answer, 1)
	if !g.conn.spawn(func() {
		in, err := g.conn.roundTrip(ctx, method, params)
		ch <- answer{in, err}
	}) {
		ch <- answer{err: g.conn.Err()}
	}
	return ch
}

// probe sends server/discover and falls back to initialize on any answer that
// is not a modern one, or on silence (basic/transports/stdio, "Backward
// Compatibility"). After silence both are open, and the first success decides:
// a server that was merely slow to start is not taken for a legacy one.
func (g *greeting) probe(ctx context.Context) (Era, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	discovered := g.ask(ctx, methodDiscover, g.conn.modernParams())
	silence := time.NewTimer(probeTimeout)
	defer silence.Stop()

	var initialized <-chan answer
	fallBack := func() {
		if initialized == nil {
			initialized = g.ask(ctx, methodInitialize, g.initializeParams())
		}
	}
	for {
		select {
		case a := <-discovered:
			discovered = nil
			if a.err != nil {
				return "", g.died(ctx, a.err)
			}
			err := g.acceptDiscover(a.in)
			a.in.release()
			switch {
			case err == nil:
				return EraModern, nil
			case errors.Is(err, errNotModern):
				fallBack()
			default:
				return "", err
			}
		case a := <-initialized:
			if a.err != nil {
				return "", g.died(ctx, a.err)
			}
			err := g.acceptInitialize(a.in)
			a.in.release()
			if err != nil {
				if discovered != nil {
					// It knows no initialize: wait for its discover result.
					initialized = nil
					continue
				}
				return "", err
			}
			return EraLegacy, nil
		case <-silence.C:
			fallBack()
		}
	}
}

// died judges the end of the process during the probe. Some legacy servers
// exit on a request they do not expect: the next process of this command line
// is then greeted with initialize alone.
func (g *greeting) died(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("the server did not answer its handshake: %w", ctx.Err())
	}
	g.setSkipProbe(true)
	return &RestartError{Reason: fmt.Sprintf("it ended on server/discover (%v) and is tried with initialize", err)}
}

// errNotModern is an answer to server/discover that no modern server gives.
var errNotModern = errors.New("not a modern server")

func (g *greeting) discover(ctx context.Context) error {
	in, err := g.conn.roundTrip(ctx, methodDiscover, g.conn.modernParams())
	if err != nil {
		return fmt.Errorf("the server did not answer server/discover: %w", err)
	}
	defer in.release()
	if err := g.acceptDiscover(in); errors.Is(err, errNotModern) {
		return fmt.Errorf("protocol = \"modern\" is configured, but the server is not: it answered server/discover with %s", describe(in))
	} else if err != nil {
		return err
	}
	return nil
}

func (g *greeting) initialize(ctx context.Context) error {
	in, err := g.conn.roundTrip(ctx, methodInitialize, g.initializeParams())
	if err != nil {
		return fmt.Errorf("the server did not answer initialize: %w", err)
	}
	defer in.release()
	return g.acceptInitialize(in)
}

func (g *greeting) initializeParams() []byte {
	b := []byte(`{"protocolVersion":"` + version20251125 + `","capabilities":` + declaredToLegacy(g.conn.interactive) + `,"clientInfo":{"name":"mcpd","version":`)
	return append(jsonrpc.AppendQuote(b, g.u.version), "}}"...)
}

// acceptDiscover takes a modern answer, also a modern error, and refuses any
// other with errNotModern.
func (g *greeting) acceptDiscover(in *inbound) error {
	if in.msg.Kind == jsonrpc.Error {
		code := string(in.msg.Err.Code.Value.Of(in.data))
		switch code {
		case "-32020", "-32021":
			// A modern server that objects to the probe itself: it is modern,
			// and tells nothing about itself.
			g.accept(EraModern, serverInfo{version: version20260728, versions: modernVersions()})
			return nil
		case "-32022":
			var data struct{ Supported []string }
			_ = json.Unmarshal(in.msg.Err.Data.Of(in.data), &data) // without a list nothing is common
			version, err := commonVersion(data.Supported)
			if err != nil {
				return err
			}
			g.accept(EraModern, serverInfo{version: version, versions: data.Supported})
			return nil
		}
		return errNotModern
	}
	var result struct {
		SupportedVersions []string
		Capabilities      json.RawMessage
		Instructions      json.RawMessage
		Meta              map[string]json.RawMessage `json:"_meta"`
		ServerInfo        json.RawMessage
	}
	if err := json.Unmarshal(in.msg.Result.Value.Of(in.data), &result); err != nil || len(result.SupportedVersions) == 0 {
		return errNotModern
	}
	version, err := commonVersion(result.SupportedVersions)
	if err != nil {
		return err
	}
	info := result.Meta[metaServerInfo]
	if info == nil {
		info = result.ServerInfo
	}
	g.accept(EraModern, serverInfo{
		version: version, versions: result.SupportedVersions,
		capabilities: result.Capabilities, info: info, instructions: result.Instructions,
	})
	return nil
}

// commonVersion picks the newest modern revision that both sides speak. It is
// errNotModern when they have only a legacy one in common.
func commonVersion(supported []string) (string, error) {
	for _, v := range modernVersions() {
		if slices.Contains(supported, v) {
			return v, nil
		}
	}
	if slices.ContainsFunc(supported, isLegacyVersion) {
		return "", errNotModern
	}
	return "", fmt.Errorf("the server speaks protocol %s; mcpd speaks %s and legacy revisions",
		clip(strings.Join(supported, ", ")), strings.Join(modernVersions(), ", "))
}

func (g *greeting) acceptInitialize(in *inbound) error {
	if in.msg.Kind == jsonrpc.Error {
		return fmt.Errorf("the server refused initialize: %s", describe(in))
	}
	var result struct {
		ProtocolVersion string
		Capabilities    json.RawMessage
		ServerInfo      json.RawMessage
		Instructions    json.RawMessage
	}
	if err := json.Unmarshal(in.msg.Result.Value.Of(in.data), &result); err != nil {
		return fmt.Errorf("the server's initialize result cannot be read: %w", err)
	}
	if !isLegacyVersion(result.ProtocolVersion) {
		return fmt.Errorf("the server chose protocol %s; mcpd speaks %s",
			clip(result.ProtocolVersion), strings.Join(legacyVersions(), ", "))
	}
	buf := newBuffer(0)
	buf.b = append(buf.b, `{"jsonrpc":"2.0","method":"`+notifyInitialized+`"}`+"\n"...)
	if err := g.conn.notify(buf); err != nil {
		return err
	}
	g.accept(EraLegacy, serverInfo{
		version: result.ProtocolVersion, versions: []string{result.ProtocolVersion},
		capabilities: result.Capabilities, info: result.ServerInfo, instructions: result.Instructions,
	})
	return nil
}

func (g *greeting) accept(era Era, info serverInfo) {
	info.declared = parseCapabilities(info.capabilities)
	info.info = compacted(info.info)
	info.instructions = compacted(info.instructions)
	g.conn.server = info
	if era == EraLegacy {
		g.conn.legacy = newLegacyConn(g.conn)
	}
	g.conn.era.Store(&era)
}

// compacted takes white space out of raw JSON that goes into messages of
// mcpd's own: a carriage return in it would break an event stream.
func compacted(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil || string(raw) == "null" {
		return nil
	}
	return b.Bytes()
}

// describe renders a server's error for a person, bounded.
func describe(in *inbound) string {
	if in.msg.Kind != jsonrpc.Error {
		return "a result"
	}
	text, err := jsonrpc.Unquote(in.data, in.msg.Err.Message.Value)
	if err != nil {
		text = ""
	}
	return fmt.Sprintf("error %s: %s", in.msg.Err.Code.Value.Of(in.data), clip(text))
}
