"""What is new in a request, as far as the books want to know it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ..formats.anthropic import EMPTY_SEAL
from ..tokens import SAMPLE_CHARACTERS, SAMPLED_PIECES, estimate
from .cache_directives import CacheAsked
from .thinking import SEALED_CHARACTERS_PER_TOKEN

MAX_SAMPLES = 8
"""Messages that are sampled one by one. More of them are sampled together."""

SEALED_FIELD = re.compile(
    rb'"(signature|encrypted_content|data|thought_?[sS]ignature)"\s*:\s*"([A-Za-z0-9+/=_-]{100,}+)"'
)
"""A string that the model does not read as text: sealed thinking, or an image."""


class SampledText:
    """JSON messages, as some pieces of each. Their tokens are counted when somebody asks for them: not every request
    tells what they are compared with."""

    def __init__(self, *messages: bytes) -> None:
        parts = messages if len(messages) <= MAX_SAMPLES else (b",".join(messages),)
        self._samples = [_sample(SEALED_FIELD.sub(b'""', part)) for part in parts]
        self._sealed = sum(map(_sealed_tokens, parts))
        self._tokens: float | None = None

    def tokens(self) -> float:
        """About: read as text, with the commonest escapes undone."""
        if self._tokens is None:
            self._tokens = self._sealed + sum(map(_estimate, self._samples))
        return self._tokens


class _Sample(NamedTuple):
    text: bytes
    size: int
    """Bytes that it stands for."""


def _sample(data: bytes) -> _Sample:
    if len(data) <= SAMPLED_PIECES * SAMPLE_CHARACTERS:
        return _Sample(data, len(data))
    step = len(data) // SAMPLED_PIECES
    pieces = [data[at : at + SAMPLE_CHARACTERS] for at in range(0, len(data), step)]
    return _Sample(b"".join(pieces), len(data))


def _estimate(sample: _Sample) -> float:
    plain = sample.text.replace(b"\\n", b"\n").replace(b'\\"', b'"').replace(b"\\t", b"\t")
    return estimate(plain.decode("utf-8", "replace")) * sample.size / max(1, len(sample.text))


def _sealed_tokens(data: bytes) -> float:
    sealed = (len(match[2]) - EMPTY_SEAL for match in SEALED_FIELD.finditer(data) if match[1] != b"data")
    return sum(max(0, size) for size in sealed) / SEALED_CHARACTERS_PER_TOKEN


NO_TEXT = SampledText()


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
