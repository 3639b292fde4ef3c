package jsonrpc

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"
)

// drawSpace draws white space between tokens.
func drawSpace(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "", " ", "\n", "\r\n\t"}).Draw(t, "space")
}

// drawSpelling draws one of the many spellings of a string.
func drawSpelling(t *rapid.T, text string) string {
	if rapid.IntRange(0, 3).Draw(t, "escaped") > 0 {
		return Quote(text)
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case rapid.Bool().Draw(t, "hex") && r < 0x10000:
			fmt.Fprintf(&b, `\u%04X`, r)
		case r == '/' && rapid.Bool().Draw(t, "slash"):
			b.WriteString(`\/`)
		default:
			b.WriteString(strings.Trim(Quote(string(r)), `"`))
			if r == '"' {
				b.WriteByte('"') // Trim took the quote of the escape as well
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}

func drawText(t *rapid.T) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "b", "_meta", "name", "世界", "😀", "\x00\n\"\\", "plain text that is longer than a word"}),
		rapid.StringN(0, 60, -1), // short enough for an id in its longest spelling
	).Draw(t, "text")
}

func drawValue(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth == 0 {
		kind %= 5
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")
	case 1:
		return drawNumber(t)
	case 2, 3, 4:
		return drawSpelling(t, drawText(t))
	case 5:
		n := rapid.IntRange(0, 3).Draw(t, "n")
		parts := make([]string, n)
		for i := range parts {
			parts[i] = drawSpace(t) + drawValue(t, depth-1) + drawSpace(t)
		}
		return "[" + drawSpace(t) + strings.Join(parts, ",") + "]"
	default:
		n := rapid.IntRange(0, 3).Draw(t, "n")
		parts := make([]string, n)
		for i := range parts {
			parts[i] = drawMember(t, drawText(t), drawValue(t, depth-1))
		}
		return "{" + drawSpace(t) + strings.Join(parts, ",") + "}"
	}
}

func drawNumber(t *rapid.T) string {
	return rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,4})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?`),
		rapid.Map(rapid.Int64(), func(v int64) string { return fmt.Sprint(v) }),
	).Draw(t, "number")
}

func drawMember(t *rapid.T, key, value string) string {
	return drawSpace(t) + drawSpelling(t, key) + drawSpace(t) + ":" + drawSpace(t) + value + drawSpace(t)
}

func drawObject(t *rapid.T, names []string, value func(name string) string) string {
	n := rapid.IntRange(0, len(names)).Draw(t, "members")
	chosen := rapid.Permutation(names).Draw(t, "order")[:n]
	if rapid.IntRange(0, 9).Draw(t, "repeat") == 0 && n > 0 {
		chosen = append(chosen, chosen[0])
	}
	parts := make([]string, len(chosen))
	for i, name := range chosen {
		parts[i] = drawMember(t, name, value(name))
	}
	return "{" + drawSpace(t) + strings.Join(parts, ",") + "}"
}

// drawMessage draws a text that is a message, or nearly one.
func drawMessage(t *rapid.T) []byte {
	const prefix = "io.modelcontextprotocol/"
	rough := func(good string) string {
		if rapid.IntRange(0, 19).Draw(t, "rough") == 0 {
			return drawValue(t, 2)
		}
		return good
	}
	any3 := func(string) string { return drawValue(t, 3) }
	params := func(name string) string {
		switch name {
		case "_meta":
			return rough(drawObject(t, []string{
				"progressToken", prefix + "protocolVersion", prefix + "clientCapabilities",
				prefix + "clientInfo", prefix + "logLevel", prefix + "subscriptionId", "other",
			}, any3))
		case "arguments":
			return rough(drawObject(t, []string{"a", "b", "c", "_meta"}, any3))
		default:
			return drawValue(t, 3)
		}
	}
	result := func(name string) string {
		if name == "_meta" {
			return rough(drawObject(t, []string{prefix + "serverInfo", prefix + "subscriptionId", "other"}, any3))
		}
		return drawValue(t, 3)
	}
	value := func(name string) string {
		switch name {
		case "jsonrpc":
			return rough(drawSpelling(t, "2.0"))
		case "id":
			return rough(drawID(t))
		case "method":
			return rough(drawSpelling(t, "tools/call"))
		case "params":
			return rough(drawObject(t, []string{
				"_meta", "name", "uri", "arguments", "notifications", "progressToken", "requestId", "level",
				"protocolVersion", "cursor", "ref", "capabilities", "clientInfo", "inputResponses", "requestState", "other",
			}, params))
		case "result":
			return rough(drawObject(t, []string{"_meta", "resultType", "ttlMs", "cacheScope", "content"}, result))
		case "error":
			return rough("{" + drawMember(t, "code", drawNumber(t)) + "," + drawMember(t, "message", drawSpelling(t, drawText(t))) + "}")
		default:
			return drawValue(t, 3)
		}
	}
	names := rapid.SampledFrom([][]string{
		{"jsonrpc", "id", "method", "params"},
		{"jsonrpc", "method", "params"},
		{"jsonrpc", "id", "result"},
		{"jsonrpc", "id", "error", "other"},
		{"jsonrpc", "id", "method", "params", "result", "error", "other"},
	}).Draw(t, "shape")
	names = rapid.Permutation(names).Draw(t, "order")
	parts := make([]string, 0, len(names)+1)
	for _, name := range names {
		parts = append(parts, drawMember(t, name, value(name)))
	}
	if rapid.IntRange(0, 9).Draw(t, "repeat") == 0 {
		parts = append(parts, parts[0])
	}
	return []byte(drawSpace(t) + "{" + strings.Join(parts, ",") + "}" + drawSpace(t))
}

func drawID(t *rapid.T) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"0", "-0", "1", "1.0", "1e2", "100e-2", "-7", "9007199254740993", `""`, `"1"`, `"\u0061"`}),
		rapid.Map(rapid.Int64(), func(v int64) string { return fmt.Sprint(v) }),
		rapid.Custom(func(t *rapid.T) string { return drawSpelling(t, drawText(t)) }),
	).Draw(t, "id")
}
