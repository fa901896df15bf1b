"""Where strategies and formats meet: a request is read, planned, checked and written.

- `pipeline`: `compact` for one request. Edits are admitted one by one (laws 4 and 8); a plan that breaks a rule of the
  provider is not carried out; whatever goes wrong, the request goes out as it came, with the reason (law 12).
- `session.Session`: a conversation that grows. Work is done for what is new, and the outcome is what `compact` gives.
- `incremental`, `journal`: what is known of such a conversation, and of how and when its requests were sent.
- `notebook`: what is noted of these, in a store.
- `expansion`: the way back. `stats`: what a plan saved.

Nothing here may know a strategy or a provider by its name: what one of them needs is asked of all of them. Tests:
tests/engine, of which test_laws.py holds for every profile. Rearranging this folder changes no byte of what is sent:
see benchmarks/digest.py.
"""
