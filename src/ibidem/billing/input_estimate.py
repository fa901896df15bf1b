"""Estimate the tokens of a request's new messages, for the proxy's accounting."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ..formats.anthropic import EMPTY_SIGNATURE_LENGTH
from ..tokens import SAMPLE_CHARACTERS, SAMPLED_PIECES, estimate
from .cache_directives import CacheDirectives
from .thinking_size import SEALED_CHARACTERS_PER_TOKEN

MAX_SAMPLES = 8
"""Up to this number of messages, each is sampled separately. More messages are sampled as one text."""

SEALED_FIELD = re.compile(
    rb'"(signature|encrypted_content|data|thought_?[sS]ignature)"\s*:\s*"([A-Za-z0-9+/=_-]{100,}+)"'
)
"""A string that the model does not read as text: encrypted thinking, or an image."""


class SampledText:
    """Samples of JSON messages. Tokens are estimated on demand, because not every request has usage to compare with."""

    def __init__(self, *messages: bytes) -> None:
        parts = messages if len(messages) <= MAX_SAMPLES else (b",".join(messages),)
        self._samples = [_take_sample(SEALED_FIELD.sub(b'""', part)) for part in parts]
        self._sealed = sum(map(_sealed_tokens, parts))
        self._tokens: float | None = None

    def count_tokens(self) -> float:
        """Estimate the tokens, with the most common JSON escapes decoded."""
        if self._tokens is None:
            self._tokens = self._sealed + sum(map(_estimate_tokens, self._samples))
        return self._tokens


class _Sample(NamedTuple):
    text: bytes
    size: int
    """Bytes of the text from which the sample was taken."""


def _take_sample(data: bytes) -> _Sample:
    if len(data) <= SAMPLED_PIECES * SAMPLE_CHARACTERS:
        return _Sample(data, len(data))
    step = len(data) // SAMPLED_PIECES
    pieces = [data[at : at + SAMPLE_CHARACTERS] for at in range(0, len(data), step)]
    return _Sample(b"".join(pieces), len(data))


def _estimate_tokens(sample: _Sample) -> float:
    plain = sample.text.replace(b"\\n", b"\n").replace(b'\\"', b'"').replace(b"\\t", b"\t")
    return estimate(plain.decode("utf-8", "replace")) * sample.size / max(1, len(sample.text))


def _sealed_tokens(data: bytes) -> float:
    lengths = (len(match[2]) - EMPTY_SIGNATURE_LENGTH for match in SEALED_FIELD.finditer(data) if match[1] != b"data")
    return sum(max(0, size) for size in lengths) / SEALED_CHARACTERS_PER_TOKEN


NO_TEXT = SampledText()


class InputEstimate(NamedTuple):
    """New messages and cache directives of a request."""

    text: SampledText = NO_TEXT
    """New messages, as the client sent them."""
    asked: CacheDirectives | None = None
    """The client's cache directives; None if unknown."""


class LazyInputEstimate:
    """Callable that computes the estimate on the first call, so that the request can be sent before."""

    __slots__ = ("_known", "_reckon")

    def __init__(self, reckon: Callable[[], InputEstimate] | None = None, initial: InputEstimate | None = None) -> None:
        self._reckon = reckon
        self._known = initial or InputEstimate()

    def __call__(self) -> InputEstimate:
        if self._reckon is not None:
            reckon, self._reckon = self._reckon, None  # frees the request
            self._known = reckon()
        return self._known


NO_INPUT = LazyInputEstimate()
