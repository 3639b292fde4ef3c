package bridge

import (
	"bytes"
	"errors"
	"net/http"

	"mcpd/bridge/jsonrpc"
	"mcpd/security"
)

// listen serves subscriptions/listen: a stream that stays open until the
// client leaves, the server ends it, or mcpd does.
func (u *Upstream) listen(rs *response, in *incoming) error {
	if !rs.sse {
		return faultf(http.StatusNotAcceptable, CodeNotAcceptable, "subscriptions/listen answers with text/event-stream: Accept must allow it")
	}
	request, err := readListen(in)
	if err != nil {
		return err
	}
	release, err := u.admitListener()
	if err != nil {
		return err
	}
	defer release()
	ctx := in.http.Context()
	// The server has to be up for the acknowledgement; a lazy one is started.
	if _, err := u.acquire(ctx); err != nil {
		if ctx.Err() != nil {
			return goneOr(ctx, false)
		}
		return err
	}
	// The stream may stay for days: what is not needed goes now.
	id := append([]byte(nil), in.id...)
	in.id = id
	in.body.release()
	in.body = nil
	in.msg = jsonrpc.Message{}

	l := &listener{box: newMailbox(u.limits.Load().StreamBufferBytes)}
	if err := u.subs.subscribe(l, request); err != nil {
		return err
	}
	defer u.subs.unsubscribe(l)
	revoked := func() bool { return !security.StillAccepted(ctx) }
	p := pump{rs: rs, box: l.box, revoked: revoked, handle: func(got *inbound) (bool, error) {
		if revoked() {
			return true, errRevoked
		}
		if got.msg.Kind == jsonrpc.Notification {
			return false, rs.event(got.data, got.msg.HasNewline, ownIDs(got, id))
		}
		return true, rs.message(http.StatusOK, got.data, got.msg.HasNewline, ownIDs(got, id))
	}}
	err = p.run(ctx)
	var refused *refusedError
	if errors.As(err, &refused) {
		got := refused.in
		return rs.message(statusOfChildError(string(got.msg.Err.Code.Of(got.data))), got.data, got.msg.HasNewline, ownIDs(got, id))
	}
	if errors.Is(err, errRevoked) {
		u.logger.Info("a listen stream was ended: its token is no longer good")
		got := completion()
		return rs.message(http.StatusOK, got.data, false, ownIDs(got, id))
	}
	if errors.Is(err, errSlowReader) {
		u.logger.Warn("a listen stream was ended: its client reads too slowly")
		return errClientGone
	}
	return err
}

// errRevoked ends a stream whose token was revoked, rotated, or has expired.
var errRevoked = errors.New("the token is no longer good")

// readListen reads what a client wants to be told.
func readListen(in *incoming) (listenRequest, error) {
	data, m := in.data(), &in.msg
	if !m.Param.Notifications.Present() {
		return listenRequest{}, invalidParams("subscriptions/listen needs params.notifications, an object")
	}
	f, unknown, err := parseFilter(data, m.Param.Notifications.Value)
	if err != nil {
		return listenRequest{}, invalidParams("%v", err)
	}
	size := 0
	for _, uri := range f.uris {
		size += len(uri)
	}
	if size > mostURIBytes {
		return listenRequest{}, invalidParams("params.notifications.resourceSubscriptions holds more than %d bytes", mostURIBytes)
	}
	if len(f.uris) > mostURIs {
		return listenRequest{}, invalidParams("params.notifications.resourceSubscriptions has more than %d URIs", mostURIs)
	}
	key := []byte(unknown)
	for name, member := range jsonrpc.Members(data, m.Params.Value) {
		if name != "_meta" && name != "notifications" {
			key = appendKey(key, name, member.Of(data))
		}
	}
	if len(key) == 0 {
		return listenRequest{filter: f}, nil
	}
	// It is more than mcpd knows of. Listeners share such a subscription only
	// where the server could not tell them apart: same filter, same metadata,
	// same of everything unknown.
	key = f.appendJSON(append(key, 0))
	for name, member := range jsonrpc.Members(data, m.Param.Meta.Value) {
		if !isOwnMeta(name) {
			key = appendKey(key, name, member.Of(data))
		}
	}
	// A progress token names one client's request, and a log level asks for
	// what no listener gets.
	edits := jsonrpc.RemoveMembers(data, m.Param.Meta.Value, m.Meta.ProgressToken, m.Meta.LogLevel)
	line := jsonrpc.AppendLine(nil, data, edits...)
	var edited jsonrpc.Message
	if err := jsonrpc.Scan(line[:len(line)-1], &edited); err != nil {
		return listenRequest{}, faultOfScan(err)
	}
	return listenRequest{key: string(key), filter: f, params: bytes.Clone(edited.Params.Of(line))}, nil
}

// mostURIs and mostURIBytes bound one filter: each resource is a subscription at
// the server, and all of it is kept as long as the stream.
const (
	mostURIs     = 1000
	mostURIBytes = 256 << 10
)

// isOwnMeta reports metadata that tells one client or one request from another
// but changes nothing of what a subscription delivers.
func isOwnMeta(name string) bool {
	switch name {
	case "progressToken", metaProtocolVersion, metaClientInfo, metaLogLevel, "traceparent", "tracestate", "baggage":
		return true
	}
	return false
}

func appendKey(key []byte, name string, value []byte) []byte {
	key = append(key, 0)
	key = jsonrpc.AppendQuote(key, name)
	key = append(key, ':')
	return append(key, value...)
}

// ownIDs gives the edits that put a listener's own id where the message names
// the request or the subscription.
func ownIDs(got *inbound, id []byte) []jsonrpc.Edit {
	m := &got.msg
	edits := make([]jsonrpc.Edit, 0, 2)
	switch m.Kind {
	case jsonrpc.Notification:
		switch {
		case m.Meta.SubscriptionID.Present():
			return append(edits, jsonrpc.Edit{Span: m.Meta.SubscriptionID.Value, New: id})
		case isObject(got.data, m.Param.Meta.Value):
			return append(edits, jsonrpc.InsertMembers(got.data, m.Param.Meta.Value, subscriptionMember(nil, id)))
		case m.Param.Meta.Present(): // it is no object, so it says nothing
			return append(edits, jsonrpc.Edit{Span: m.Param.Meta.Value, New: append(subscriptionMember([]byte("{"), id), '}')})
		case m.Params.Present():
			return append(edits, jsonrpc.InsertMembers(got.data, m.Params.Value, append(subscriptionMember([]byte(`"_meta":{`), id), '}')))
		default:
			return append(edits, jsonrpc.InsertMembers(got.data, m.Object, append(subscriptionMember([]byte(`"params":{"_meta":{`), id), "}}"...)))
		}
	case jsonrpc.Result:
		if m.ResMeta.SubscriptionID.Present() {
			edits = append(edits, jsonrpc.Edit{Span: m.ResMeta.SubscriptionID.Value, New: id})
		}
	}
	if m.ID.Present() {
		edits = append(edits, jsonrpc.Edit{Span: m.ID.Value, New: id})
	}
	return edits
}

func subscriptionMember(dst, id []byte) []byte {
	dst = append(dst, `"`+metaSubscriptionID+`":`...)
	return append(dst, id...)
}
