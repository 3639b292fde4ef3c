// Package jsonrpc reads the envelope of one JSON-RPC message as byte spans,
// and edits messages by splicing bytes.
//
// Scan validates the whole text once, strictly, and reports where the members
// are that a bridge has to know: nothing is decoded, nothing is copied, and
// what is not edited travels byte for byte. Strict means that no second parser
// can read another message out of an accepted text:
//
//   - the grammar is that of RFC 8259, with one value and nothing behind it;
//   - text is UTF-8 without a single invalid sequence, and \u escapes never
//     leave half of a surrogate pair;
//   - member names occur once in every object that carries meaning for the
//     envelope (the message, params, params._meta, params.arguments, result,
//     result._meta, error). Names are compared unescaped, and a known name is
//     known in every spelling;
//   - nesting ends at MaxDepth.
//
// Objects below those may repeat names: they belong to the two ends, and a
// check that reads deeper has to look for repetitions itself.
//
// The package never decides what a method means, never sends anything, and
// never changes a byte outside the spans it is told to replace.
package jsonrpc
