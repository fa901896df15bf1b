"""MCP gateway between a client and one server: it replaces repeated tool results by a short hint.

It forwards messages byte for byte, in both directions and in every version of the protocol. Only one kind of message
is changed: the result of a `tools/call` that contains only text that the context received before and still has. A
message that the gateway cannot read is forwarded, and its memory is cleared if it may no longer be true.

- `jsonrpc`: parse and change one JSON-RPC message.
- `tool_rules`: what a user declares about a server's tools. `contexts`: outputs that each context received.
- `mcp_session`: one client and one server: a message in, a message out. No sockets, no clock, no threads.
- `line_framing`, `sse_framing`: the two framings. `stdio`: standard input and output. `http_transport`: HTTP.
"""
