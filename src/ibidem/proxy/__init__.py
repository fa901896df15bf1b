"""A local reverse proxy that rewrites requests on their way and passes everything else on as it came.

    client ─▶ edge.server ─▶ edge.driver ─▶ Exchange ─▶ Rewriter ─▶ edge.upstreams ─▶ provider

- `Exchange` (`exchange`) is one request and its answer: a state machine, events in, commands out. What it may be told
  is in `events`, what it may command in `commands`, and its table in `states`. `ibidem.providers` decides
  for it.
- `Driver` (`edge.driver`) feeds it what the two connections say and carries out what it commands, in one place.
- `ibidem.live` rewrites the request. It never raises: after an error it sends the request as its `fallback` says.
- `experiment` assigns conversations to the two variants of `--trial`, and counts what their agents do.
- `Records` (`books`) take down what happened and what it cost. They decide nothing.

Everything outside of `edge` is values in, values out: no socket, no loop, no await, no time but that of the `Clock`
which is passed in. An answer is never changed. A header or a key is never kept. Whatever fails in here, the request
goes out (law 12).
"""
