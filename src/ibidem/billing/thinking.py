"""How large thinking is for its provider, which shows us a summary of it, or nothing.

Its text may be empty or a summary, while the provider counts what the model thought. What is sealed beside it (a
signature, encrypted content) grows with that, so its length tells the size.
"""

from __future__ import annotations

from ..model import Thinking

SEALED_CHARACTERS_PER_TOKEN = 5.0
"""Characters of a signature for one token of thinking, beyond those that every signature has."""
EMPTY_SEAL = 300
"""Characters of the shortest signature."""


def thinking_tokens(part: Thinking, visible: float) -> float:
    """Tokens that a provider counts for thinking, given those of its text."""
    return max(visible, (part.sealed - EMPTY_SEAL) / SEALED_CHARACTERS_PER_TOKEN, 0.0)
