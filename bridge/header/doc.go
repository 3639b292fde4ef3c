// Package header checks the HTTP headers that mirror parts of an MCP request
// against its body (MCP 2026-07-28, basic/transports/streamable-http, "Custom
// Headers from Tool Parameters", "Value Encoding", "Server Validation").
//
// A proxy may route on a header while the server acts on the body. The two
// have to say the same, or the request is refused before anything runs.
//
// The package owns the encoding of header values (DecodeValue, EncodeValue),
// the reading of x-mcp-header annotations out of a tool's input schema (Params,
// ToolParams), and the comparison of Mcp-Param-* headers with the arguments of
// a call (Check). It never judges whether arguments are valid under the schema:
// that is for the server that runs the tool. It keeps no state, and it never
// writes a header or a response.
package header
