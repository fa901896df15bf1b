"""Count the tokens from a message to the end of the conversation, while texts are added and evicted.

It is a Fenwick tree over messages.
"""

from __future__ import annotations


class TokenSums:
    """Tokens by message. Each operation takes time logarithmic in the number of messages."""

    def __init__(self) -> None:
        self.total = 0.0
        self._tree = [0.0]
        """Node i has the sum of the last `i & -i` messages up to message i - 1."""

    def add(self, message: int, tokens: float) -> None:
        """Add tokens of a message, or remove them (negative)."""
        while len(self._tree) <= message + 1:
            self._append_node()
        self.total += tokens
        place = message + 1
        while place < len(self._tree):
            self._tree[place] += tokens
            place += place & -place

    def tokens_from(self, message: int) -> float:
        """Return the tokens of a message and all later ones."""
        place = min(message, len(self._tree) - 1)
        tokens_before = 0.0
        while place:
            tokens_before += self._tree[place]
            place -= place & -place
        return self.total - tokens_before

    def _append_node(self) -> None:
        place = len(self._tree)
        below, total = place - 1, 0.0
        while below > place - (place & -place):
            total += self._tree[below]
            below -= below & -below
        self._tree.append(total)
