"""A local reverse proxy that rewrites requests on their way and passes everything else on as it came.

    client ─▶ edge.server ─▶ edge.driver ─▶ Exchange ─▶ Rewriter ─▶ edge.upstreams ─▶ provider

- `Exchange` (`exchange`) is one request and its answer: a state machine, events in, commands out. What it may be told
  is in `events`, what it may command in `commands`, and its table in `states`. `routes` and `headers` decide for it;
  `default_upstreams` refuses requests that belong to another provider.
- `Driver` (`edge.driver`) feeds it what the two connections say and carries out what it commands, in one place.
- `Conversations` finds the `LiveConversation` that a request goes on, or begins one; each has a session of the engine.
- `Rewriter` makes an `Outcome` of a `Job`. It never raises: what goes wrong is sent by `fallback`, which begins as the
  last request did that the provider took.
- `Records` (`books`) take down what happened and what it cost. They decide nothing.

Everything outside of `edge` is values in, values out: no socket, no loop, no await, no time but that of the `Clock`
which is passed in. An answer is never changed. A header or a key is never kept. Whatever fails in here, the request
goes out (law 12).
"""
