"""Whether what is sent instead of a text saves enough, counting tokens only where nothing quicker tells."""

from __future__ import annotations

from typing import NamedTuple

from ...model import size
from ...tokens import TokenCounter, fewer

MAX_COUNTED = 512
"""Characters of what is sent instead up to which its tokens are counted first."""
WORD = 8
"""Characters of a word and what parts it from the next, about."""
SLACK = 4
"""Tokens that two texts may have more beside each other than apart."""


class Margin(NamedTuple):
    count: TokenCounter
    gain: int
    """Tokens that must be saved."""

    def gains(self, before: str, after: str) -> bool:
        """Whether bytes and enough tokens are saved."""
        if size(after) >= size(before):
            return False
        words = least_tokens(before[: 3 * WORD * len(after)]) if len(after) <= MAX_COUNTED else 0
        if words >= len(after) + self.gain:
            return True
        least = self.count(after) + self.gain
        return words >= least or self.count(before) >= least

    def saves(self, before: str, after: str) -> bool:
        """Whether a text that has this in it saves enough; False where that takes counting all of it."""
        if size(after) >= size(before):
            return False
        if least_tokens(before[: 2 * WORD * len(after)]) >= len(after) + self.gain:  # most often it is far from it
            return True
        words = least_tokens(before)
        return words >= len(after) + self.gain or words >= self.count(after) + self.gain

    def folds(self, text: str, folded: str, marker: str, spared: int) -> bool:
        """Whether a folded text with a marker behind it saves enough; `spared` tokens are known to be fewer in it."""
        sent = f"{folded}\n{marker}"
        if size(sent) >= size(text):
            return False
        known = spared - SLACK - self.gain
        if known > 0 and known >= self.count(f"\n{marker}"):
            return True
        return fewer(text, folded, self.count) + fewer(folded, sent, self.count) >= self.gain

    def has(self, text: str, tokens: int) -> bool:
        """Whether a text has so many tokens."""
        return least_tokens(text[: 3 * WORD * tokens]) >= tokens or self.count(text) >= tokens


def least_tokens(text: str) -> int:
    """No token spans two words, but for those that end in a slash at the start of a line."""
    return len(text.split()) - text.count("\n/") - text.count("\r/")
