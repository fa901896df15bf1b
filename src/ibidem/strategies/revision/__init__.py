"""Strategies that change what was sent before. Each change costs a rewrite of the provider's cached prefix.

- `evict.Evict`: what is no longer needed goes, when that pays (`billing.budget`); behind `balanced`, `recoverable`,
  `aggressive`.
- `gate`: the rules for what stays although it is old; `names`: the files that protect a text.
- `inventory`, `entry`: the texts that stand in a conversation, and what became of each.
- `waiting`: those that could go, what that would free, and which of them may go now.
- `stub`: what is left in a text's place, and that it can come back.

`calls.file_access` has the files that a call reads or writes.

A wrong guess in `file_access` lets a text go that the model needs, a missed one costs a little: only what is certain
counts. An original is in the store before anything refers to it. Tests: tests/strategies/test_evict.py.
"""

from .evict import Evict

__all__ = ["Evict"]
