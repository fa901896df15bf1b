"""Strategies that change text that was already sent. Each change makes the provider rewrite its cached prefix.

- `evict.Evict`: evicts old text when that pays (`billing.revision_budget`). The strategy of `balanced`, `recoverable`
  and `aggressive`.
- `file_protection`: text that stays although it is old. `file_names`: the files that protect a text.
- `inventory`, `entry`: the texts of a conversation, and the state of each.
- `eviction_queue`: texts that could be evicted, how much that would free, and which texts may be evicted now.
- `stub`: the text that replaces an evicted one, and the check that the original can be restored.
- `stale_arguments`, `removed_thinking`, `token_sums`: parts of the above.

`calls.file_access` has the files that a call reads or writes. It reports only certain ones: a wrong guess would evict a
text that the model needs, and a missed one costs little. An original is in the store before a marker refers to it.
Tests: tests/strategies/test_evict.py.
"""

from .evict import Evict

__all__ = ["Evict"]
