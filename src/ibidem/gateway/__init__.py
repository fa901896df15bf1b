"""An MCP gateway: between a client and one server, it says "as before" where a tool's result was sent in full.

It is a line pump. Every message passes as the bytes that came, in both directions and in every version of the protocol,
but for one kind: the result of a `tools/call` that holds text alone, was sent before, and can still be seen. What
could not be looked at, or has another meaning to somebody, passes, and what was remembered is forgotten where it might
no longer be true.

- `messages`: what one JSON-RPC message is, and how it is changed.
- `rules`: what a user declares of a server's tools. `contexts`: what each context was sent, in either style.
- `session`: one client and one server: a message in, a message out. No sockets, no clock, no threads.
- `lines`, `events`: the two framings. `pump`: standard input and output. `web`: HTTP.
"""
