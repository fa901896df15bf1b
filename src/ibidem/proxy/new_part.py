"""What is new in a request, as far as the books want to know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..tokens import SAMPLE_CHARACTERS, SAMPLED_PIECES, estimate
from .asked import CacheAsked


class SampledText:
    """JSON, as some pieces of it. Its tokens are counted when somebody asks for them: not every request tells what they
    are compared with."""

    def __init__(self, data: bytes) -> None:
        step = max(1, len(data) // SAMPLED_PIECES)
        if len(data) > SAMPLED_PIECES * SAMPLE_CHARACTERS:
            pieces = [data[at : at + SAMPLE_CHARACTERS] for at in range(0, len(data), step)]
            self._sample = b"".join(pieces)
        else:
            self._sample = data
        self._size = len(data)
        self._tokens: float | None = None

    def tokens(self) -> float:
        """About: read as text, with the commonest escapes undone."""
        if self._tokens is None:
            self._tokens = self._counted()
        return self._tokens

    def _counted(self) -> float:
        plain = self._sample.replace(b"\\n", b"\n").replace(b'\\"', b'"').replace(b"\\t", b"\t")
        return estimate(plain.decode("utf-8", "replace")) * self._size / max(1, len(self._sample))


NO_TEXT = SampledText(b"")


class Reckoned(NamedTuple):
    text: SampledText = NO_TEXT
    """As it came."""
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
