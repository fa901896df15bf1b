"""Ibidem inside of a program: one file for each framework, and `httpx` for every SDK that lets one hand in a client.

    framework ─▶ its adapter ─▶ Shadow (own classes) ─▶ Seat ─▶ Turn ─▶ the framework's own call

- `httpx.Transport` sees the bytes that are sent, below an SDK. Where no client can be handed in, where a body is signed
  before it is sent, or where one would rather stay in the framework's own words, there is an adapter of that name.
- `Seat` (`_seat`) finds the conversation that a request goes on, as the proxy does, and rewrites it. It never raises:
  whatever goes wrong, the original is sent (law 12). What a provider counted is told to the `Turn`.
- `Shadow` (`_shadow`) writes a history of a framework's own classes in a wire format, and says which results changed.

Nothing here is imported by `ibidem` itself, and an adapter imports no framework but its own. What a framework keeps is
never written to: a changed message is a copy.
"""
