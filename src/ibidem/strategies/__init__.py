"""Strategies read a conversation and propose edits. They do not change the request and know no wire format.

- `strategy`: the interface, and how `compact`, `Session` and replay run a strategy. `begin` returns a `Fold` (the
  strategy state), which gets each message once. A strategy with only `plan` runs again for every request.
- `arrival`: edits made when a text is first sent. They never invalidate the prompt cache.
- `revision`: edits of text that was already sent. Each one costs a cache rewrite of the rest, and must pay for it.
- `ported`: exact copies of other systems' strategies, for comparison and migration.
- `repair`: calls without results and results without calls.
- `profiles`: named lists of strategies, in the order in which they run.

A strategy has a `name`, the kinds of text it `touches` (other edits are rejected), and settings as fields. To add one:
write a module in one of the folders, export it from `ibidem.__init__`, and add a profile if users should choose it.
tests/engine/test_laws.py then checks the invariants. Reports and users' files contain the names of profiles and
strategies, so these names must not change.
"""
