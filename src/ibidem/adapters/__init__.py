"""Rewrite requests inside a program: one module per framework, and `httpx` for SDKs that accept an HTTP client.

    framework ─▶ adapter ─▶ WireMirror (framework classes) ─▶ RequestRewriter ─▶ PendingRequest ─▶ the framework's call

- `httpx.Transport` sees the bytes that an SDK sends. Frameworks have their own adapter if they do not accept a client,
  or if bodies are signed before they are sent. Others have one because it is easier to use.
- `RequestRewriter` (`_request_rewriter`) recognizes the conversation of a request, as the proxy does, and rewrites the
  request. It never raises. If anything fails, the original is sent (invariant 12). The adapter reports the provider's
  usage to the `PendingRequest`.
- `WireMirror` (`_wire_mirror`) writes a history of framework classes in a wire format, and returns the changed results.

`ibidem` itself does not import this package, and an adapter imports only its own framework. Objects of a framework are
never modified: a changed message is a copy.
"""
