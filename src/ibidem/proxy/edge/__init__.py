"""All sockets of the proxy, its event loop and its threads.

- `server` listens, and is where the proxy is started (`serve`, `Running`).
- `own_pages` is the page and its API; `switched` switches conversations off and on.
- `compacted` gives a request back to a client that sends it itself.
- `app.Proxy` lives as long as it does: who is answered by whom, threads that rewrite, time limits.
- `driver.Driver` is one exchange: it feeds an `Exchange` with events and carries out its commands (`_carry_out`).
- `incoming` is a client's connection, `client_side` what is written to it, byte by byte.
- `upstreams` has the providers; `Link` is a connection to one of them for the time of one exchange, `connections` what
  that is made of. `tunnel` passes bytes where it is not HTTP any more.

What is said through the sockets is decided outside, by `exchange`: a new rule belongs there, with a row in its test.
Here belongs only what cannot be known without a socket: who is gone, what was written, how long to wait.
Private attributes of aiohttp are listed in tests/proxy/test_aiohttp.py.
"""
