package config

import "strings"

// Keys of a [servers.NAME.tools.TOOL] table.
const (
	keyIdempotency = "idempotency_key"
	keyReadOnly    = "read_only"
	keyInject      = "inject"
)

// tools reads the tables of a server's tools.
func (c *checker) tools(n *node, path string) (map[string]Tool, bool) {
	if !c.isTable(n, path) {
		return nil, false
	}
	tools := make(map[string]Tool, len(n.children))
	for _, child := range n.children {
		childPath := path + "." + keyText(child.name)
		if child.name == "" {
			c.complainAbout(childPath, child.key, flawf("a tool's name is not empty"))
			continue
		}
		if c.isTable(child, childPath) {
			tools[child.name] = c.tool(child, childPath)
		}
	}
	return tools, true
}

func (c *checker) tool(n *node, path string) Tool {
	var t Tool
	for _, child := range n.children {
		childPath := path + "." + child.name
		switch child.name {
		case keyIdempotency:
			t.IdempotencyKey, t.InjectKey = c.idempotencyKey(child, childPath)
		case keyReadOnly:
			ok := false
			if t.ReadOnly, ok = child.data.(bool); !ok {
				c.complainAbout(childPath, child.at(), wrongType("true or false", child.data))
			}
		default:
			c.unknownKey(child, n, path, []string{keyIdempotency, keyReadOnly})
		}
	}
	if t.ReadOnly && t.IdempotencyKey != "" {
		c.complainAbout(path, n.key, flawf("a tool that is read_only needs no idempotency_key").
			withHint("leave one of the two out: a lost call of a tool that changes nothing is repeated without a key"))
	}
	return t
}

// idempotencyKey reads the name of an argument, or { inject = true }.
func (c *checker) idempotencyKey(n *node, path string) (name string, inject bool) {
	const hint = `write the name of the argument, or { inject = true } where the tool has none`
	switch value := n.data.(type) {
	case string:
		if strings.TrimSpace(value) == "" {
			c.complainAbout(path, n.at(), flawf("the name is empty").withHint(hint))
			return "", false
		}
		return value, false
	case map[string]any:
		for _, child := range n.children {
			switch on, isBool := child.data.(bool); {
			case child.name != keyInject:
				c.unknownKey(child, n, path, []string{keyInject})
			case !isBool:
				c.complainAbout(path+"."+keyInject, child.at(), wrongType("true or false", child.data))
			default:
				inject = on
			}
		}
		if len(n.children) == 0 || n.child(keyInject) != nil && n.child(keyInject).data == false {
			c.complainAbout(path, n.at(), flawf("says nothing").withHint(hint))
		}
		if inject {
			return InjectedKey, true
		}
	default:
		c.complainAbout(path, n.at(), wrongType("a string or { inject = true }", n.data).withHint(hint))
	}
	return "", false
}

// text is the tool's table as TOML, on one line.
func (t Tool) text() string {
	var parts []string
	switch {
	case t.InjectKey:
		parts = append(parts, keyIdempotency+" = { "+keyInject+" = true }")
	case t.IdempotencyKey != "":
		parts = append(parts, keyIdempotency+" = "+quoteTOML(t.IdempotencyKey))
	}
	if t.ReadOnly {
		parts = append(parts, keyReadOnly+" = true")
	}
	if len(parts) == 0 {
		return "{}"
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// values is the tool's table in the types that the file has.
func (t Tool) values() map[string]any {
	v := map[string]any{}
	switch {
	case t.InjectKey:
		v[keyIdempotency] = map[string]any{keyInject: true}
	case t.IdempotencyKey != "":
		v[keyIdempotency] = t.IdempotencyKey
	}
	if t.ReadOnly {
		v[keyReadOnly] = true
	}
	return v
}
