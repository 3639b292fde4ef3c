package bridge

import (
	"mcpd/bridge/jsonrpc"
)

// injectKeys gives the edits that add the idempotency key to the advertised
// schemas of the tools that mcpd adds it to.
func (u *Upstream) injectKeys(got *inbound) []jsonrpc.Edit {
	tools := u.retry.Load().Tools
	if len(tools) == 0 || got.msg.Kind != jsonrpc.Result {
		return nil
	}
	data := got.data
	var edits []jsonrpc.Edit
	list := jsonrpc.Lookup(data, got.msg.Result.Value, "tools")
	for tool := range jsonrpc.Elements(data, list.Value) {
		name, err := jsonrpc.Unquote(data, jsonrpc.Lookup(data, tool, "name").Value)
		if err != nil || !tools[name].Inject {
			continue
		}
		edits = append(edits, u.injectKey(data, jsonrpc.Lookup(data, tool, "inputSchema"), name, tools[name].Key)...)
	}
	return edits
}

func (u *Upstream) injectKey(data []byte, schema jsonrpc.Member, tool, key string) []jsonrpc.Edit {
	if !isObject(data, schema.Value) {
		return nil
	}
	member := jsonrpc.AppendQuote(nil, key)
	member = append(member, `:{"type":"string","minLength":1,"maxLength":256,"description":"A unique value for this call, `+
		`such as a UUID. If you are not sure whether a call went through, repeat it with the same value and the same arguments: `+
		`it takes effect at most once, and you get the first result. Use a new value for every new call."}`...)
	properties := jsonrpc.Lookup(data, schema.Value, "properties")
	switch {
	case !properties.Present():
		return []jsonrpc.Edit{jsonrpc.InsertMembers(data, schema.Value, wrap(`"properties":{`, member, `}`))}
	case !isObject(data, properties.Value):
		return nil
	case jsonrpc.Lookup(data, properties.Value, key).Present():
		u.logger.Warn("a tool has an argument of its own where mcpd is to add the idempotency key; "+
			"write idempotency_key = \""+key+"\" instead of { inject = true }", "tool", clip(tool))
		return nil
	}
	return []jsonrpc.Edit{jsonrpc.InsertMembers(data, properties.Value, member)}
}
