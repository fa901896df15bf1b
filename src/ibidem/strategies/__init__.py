"""Read a conversation, propose edits. A strategy changes nothing and knows no wire format.

- `strategy`: what one is, and how `compact`, `Session` and replay drive it: `begin` gives a `Fold` that is fed each
  message once; one that has `plan` alone starts over for every request.
- `arrival`: decide once, when a text is first sent: free under every cache.
- `revision`: look again at what was sent; each change costs a rewrite of what stands behind it, and must pay.
- `ported`: another system's habits, to the byte, to compare with and to take over from.
- `repair`: calls without results and results without calls.
- `profiles`: which strategies run under a name, and in which order.

A strategy has a `name`, says what it `touches` (other edits are refused), and its fields are its settings. A new
one of ours is a file in one of the folders, a name in `ibidem.__init__`, and a profile if people are to choose it;
tests/engine/test_laws.py then holds it to the laws. Names of profiles and strategies stand in reports and users' files.
"""
