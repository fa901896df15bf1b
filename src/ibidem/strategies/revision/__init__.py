"""Strategies that change what was sent before. Each change costs a rewrite of the provider's cached prefix.

- `evict.Evict`: what is no longer needed goes, when that pays (`billing.budget`); behind `recoverable`, `aggressive`.
- `inventory`, `entry`: the texts that stand in a conversation, and what became of each.
- `waiting`: those that could go, what that would free, and which of them may go now.
- `stub`: what is left in a text's place, and that it can come back.
- `files`, `prose`: which lines of which file a call reads or writes; which lines of a text are prose.

A wrong guess in `files` lets a text go that the model needs, a missed one costs a little: only what is certain counts.
An original is in the store before anything refers to it. Tests: tests/strategies/test_evict.py, test_files.py.
"""

from .evict import Evict

__all__ = ["Evict"]
