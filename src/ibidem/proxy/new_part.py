"""What is new in a request, as far as the books want to know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .asked import CacheAsked


class Reckoned(NamedTuple):
    tokens: float = 0.0
    """As they came, by our count, about."""
    asked: CacheAsked | None = None
    """What the client asks its provider to keep, where that is known."""


class NewPart:
    """Call it to have it reckoned, once. That takes its time, which nobody has to wait for: a request may go before."""

    __slots__ = ("_known", "_reckon")

    def __init__(self, reckon: Callable[[], Reckoned] | None = None, known: Reckoned = Reckoned()) -> None:  # noqa: B008
        self._reckon = reckon
        self._known = known

    def __call__(self) -> Reckoned:
        if self._reckon is not None:
            reckon, self._reckon = self._reckon, None  # with it goes the request
            self._known = reckon()
        return self._known


NOTHING_NEW = NewPart()
