"""Strategies that decide once, when a text is first sent. They never invalidate the prompt cache.

- `backrefs.BackReferences`: replaces repeated lines with back-references; the strategy of profile `lossless`.
- `line_index`: the texts sent so far, by line. `indexed_text`: one such text, and how lines are compared.
- `result_encoder`: chooses what to send for one result. `partial_output`: that text while it is assembled.
- `sent_text`: how a text was sent.
- `hints`: the wording of a reference to a whole result.

A decision is final (invariant 2): it may depend only on the text and on earlier messages, never on later ones or on
time. Work must grow with the new messages, not with the history: tests/engine/test_growth.py. Other tests:
tests/strategies/test_backrefs.py.
"""

from .backrefs import BackReferences
from .hints import HintStyle

__all__ = ["BackReferences", "HintStyle"]
