"""How many tokens of a conversation stand from a message on, while some of them go: a Fenwick tree over messages."""

from __future__ import annotations


class Standing:
    """Tokens by message. A message more, a change, and a question each take steps as the logarithm of their number."""

    def __init__(self) -> None:
        self.total = 0.0
        self._tree = [0.0]
        """Each place has the sum of as many messages before it as its lowest bit says."""

    def add(self, message: int, tokens: float) -> None:
        """Tokens that came with a message, or are no more there (negative)."""
        while len(self._tree) <= message + 1:
            self._append()
        self.total += tokens
        place = message + 1
        while place < len(self._tree):
            self._tree[place] += tokens
            place += place & -place

    def behind(self, message: int) -> float:
        """Tokens of a message and all after it."""
        place = min(message, len(self._tree) - 1)
        before = 0.0
        while place:
            before += self._tree[place]
            place -= place & -place
        return self.total - before

    def _append(self) -> None:
        place = len(self._tree)
        below, total = place - 1, 0.0
        while below > place - (place & -place):
            total += self._tree[below]
            below -= below & -below
        self._tree.append(total)
