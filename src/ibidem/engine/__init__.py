"""Apply strategies to a request: parse, plan, check and write it.

- `pipeline`: `compact` for one request. It admits edits one by one (invariants 4 and 8) and rejects a plan that breaks
  a provider's rule. After any error, the request is sent unchanged, with the reason (invariant 12).
- `session.Session`: a growing conversation. It processes only new messages, with the same result as `compact`.
- `incremental`, `journal`: state of such a conversation, and facts about how and when its requests were sent.
- `journal_store`: the journal in a store.
- `breakpoint_placement`: cache breakpoints and their TTL, if the user enabled them.
- `expansion`: `expand`, which restores the original. `stats`: what a plan saved.

Code here must not name a strategy or a provider, only use properties that all strategies or providers have. Tests:
tests/engine; test_laws.py runs for every profile. Refactoring must not change any sent byte: see benchmarks/digest.py.
"""
