package bridge

import (
	"errors"
	"net/http"

	"mcpd/bridge/jsonrpc"
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
			return errClientGone
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
	g, err := u.subs.subscribe(l, request)
	if err != nil {
		return err
	}
	defer u.subs.unsubscribe(g, l)
	p := pump{rs: rs, box: l.box, handle: func(got *inbound) (bool, error) {
		if got.msg.Kind == jsonrpc.Notification {
			return false, rs.event(got.data, got.msg.HasNewline, ownIDs(got, id))
		}
		status := http.StatusOK
		if got.msg.Kind == jsonrpc.Error {
			status = statusOfChildError(string(got.msg.Err.Code.Of(got.data)))
		}
		return true, rs.message(status, got.data, got.msg.HasNewline, ownIDs(got, id))
	}}
	err = p.run(ctx)
	if errors.Is(err, errSlowReader) {
		u.logger.Warn("a listen stream was ended: its client reads too slowly")
		return errClientGone
	}
	return err
}

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
	// Listeners share a subscription only where the server could not tell them
	// apart: same filter, same capabilities, same of everything unknown.
	key := append([]byte(unknown), 0)
	key = f.appendJSON(key)
	key = append(key, 0)
	key = append(key, m.Meta.ClientCapabilities.Of(data)...)
	for name, member := range jsonrpc.Members(data, m.Params.Value) {
		if name != "_meta" && name != "notifications" {
			key = append(key, 0)
			key = append(key, name...)
			key = append(key, ':')
			key = append(key, member.Of(data)...)
		}
	}
	// A progress token names one client's request, which this one is not.
	var edits []jsonrpc.Edit
	if m.Meta.ProgressToken.Present() {
		edits = jsonrpc.RemoveMembers(data, m.Param.Meta.Value, m.Meta.ProgressToken)
	}
	line := jsonrpc.AppendLine(nil, data, edits...)
	var edited jsonrpc.Message
	if err := jsonrpc.Scan(line[:len(line)-1], &edited); err != nil {
		return listenRequest{}, faultOfScan(err)
	}
	return listenRequest{key: string(key), filter: f, params: edited.Params.Of(line)}, nil
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
