"""Sockets of the proxy, its event loop and its threads.

- `server` listens and starts the proxy (`serve`, `BackgroundServer`). `acceptor` accepts connections.
- `app.Proxy` is the running proxy: it dispatches requests, owns the threads that rewrite, and sets time limits.
- `exchange_driver.Driver` is one exchange: it passes events to an `Exchange` and executes its commands.
- `server_protocol` is a client's connection, `response_writer` writes responses to it, byte by byte.
- `upstreams` connects to providers. `UpstreamConnection` is a connection for one exchange, based on
  `upstream_protocol`. `tunnel` forwards bytes after an upgrade.
- `admin_routes` serves the page and its API; `pause_route` pauses conversations; `hook_route` handles hooks.
- `compact_route` returns a rewritten request to a client that sends it itself.

`exchange` decides what is sent through the sockets: a new rule belongs there, with a row in its test. This package
contains only what depends on a socket: who has disconnected, what was written, how long to wait.
Private attributes of aiohttp are listed in tests/proxy/test_aiohttp.py.
"""
