"""Local reverse proxy that rewrites requests to providers and forwards everything else unchanged.

    client ─▶ edge.server ─▶ edge.driver ─▶ Exchange ─▶ Rewriter ─▶ edge.upstreams ─▶ provider

- `Exchange` (`exchange`) is one request and its response: a state machine, events in, commands out. Its events are in
  `events`, its commands in `commands`, its states in `states`. `ibidem.providers` decides where requests go.
- `Driver` (`edge.exchange_driver`) turns what the two connections receive into events, and executes the commands.
- `ibidem.live` rewrites the request. It never raises: after an error it sends the request as its `fallback` decides.
- `experiment` assigns conversations to the two variants of `--trial`, and measures what their agents do.
- `LiveStats` (`accounting`) records what happened and what it cost. It decides nothing.

Everything outside of `edge` is values in, values out: no socket, no loop, no await, no time except that of the `Clock`
which is passed in. A response is never changed. Headers and keys are never stored. If anything in the proxy fails, the
request is still sent (invariant 12).
"""
