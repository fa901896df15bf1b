"""Strategies that decide once, when a text is first sent, from it and what came before: free under every cache.

- `backrefs.BackReferences`: nothing is said twice, line by line; the strategy behind `lossless`.
- `index`: what the model has been shown so far, and where. `outgoing`: one text on its way out. `sent`: how it went.
- `hints`: the words of a reference to a whole result.

What was decided stays decided (law 2): nothing may depend on what comes later, on time, or on anything but the history
itself. Work must grow with what is new, not with what is there: tests/engine/test_growth.py. Tests:
tests/strategies/test_backrefs.py.
"""

from .backrefs import BackReferences
from .hints import HintStyle

__all__ = ["BackReferences", "HintStyle"]
