"""Token counts: exact for OpenAI's public encodings, and an estimate in the same unit for all other models.

No current Claude or Gemini tokenizer is public. Their counts are in o200k tokens, and never presented as the provider's
own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

ENCODINGS: dict[str, str] = {
    "gpt-3.5": "cl100k_base",
    "gpt-4o": "o200k_base",
    "gpt-4.": "o200k_base",
    "gpt-4": "cl100k_base",
}
"""Model name prefix → encoding. The first match counts; without one, `DEFAULT_ENCODING`."""

DEFAULT_ENCODING = "o200k_base"

BYTES_PER_TOKEN = 4
"""Rough average, for uses where counting takes too long."""

PIECE_CHARACTERS = 1 << 16
"""Characters per call of the encoder, which blocks other threads while it works."""

SPECIAL, TOKEN_BYTES = "<|", 4
"""Start of every special token, and bytes per token of the flat encoding. A text with such a start is counted in the
slower way, which treats it as plain text. For all others, the tokens are requested as one byte string."""

MAX_TOKEN_BYTES = 128
"""Bytes of the longest token in either encoding (a run of spaces)."""


_BETWEEN_WORDS = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])|(?<=\n)(?=[A-Za-z])")


class TokenCounter(Protocol):
    """A function that counts the tokens of a text."""

    def __call__(self, text: str) -> int: ...


def encoding_for(model: str | None) -> str:
    name = (model or "").rpartition("/")[2]
    return next((encoding for prefix, encoding in ENCODINGS.items() if name.startswith(prefix)), DEFAULT_ENCODING)


def counter_for(model: str | None = None) -> TokenCounter:
    """Return the token counter for a model; see `ENCODINGS`."""
    encoding = encoding_for(model)
    if encoding not in _counters:
        with _loading:  # otherwise two threads could load the same ranks
            if encoding not in _counters:
                _counters[encoding] = _load_counter(encoding)
    return _counters[encoding]


_counters: dict[str, TokenCounter] = {}
_loading = threading.Lock()


def _load_counter(encoding: str) -> TokenCounter:
    """Load the ranks of an encoding. It takes 50 ms and downloads nothing."""
    import splintr

    tokenizer = splintr.Tokenizer.from_pretrained(encoding)
    encode, to_bytes = tokenizer.encode_ordinary, tokenizer.encode_flat

    def count(text: str) -> int:
        if not text.isascii():  # a lone surrogate is not valid UTF-8 and counts as the replacement character
            text = text.encode("utf-8", "replace").decode()
        if len(text) <= PIECE_CHARACTERS and SPECIAL not in text:
            return len(to_bytes(text)) // TOKEN_BYTES
        total = start = 0
        while start < len(text):
            stop = _cut_position(text, start + PIECE_CHARACTERS)
            total += len(encode(text[start:stop]))
            start = stop
        return total

    return count


def _cut_position(text: str, end: int) -> int:
    """Return the last position before `end` where a token surely ends: between two words."""
    if end >= len(text):
        return len(text)
    boundaries = [match.start() for match in _BETWEEN_WORDS.finditer(text, end - PIECE_CHARACTERS // 16, end)]
    return boundaries[-1] if boundaries else end


def token_difference(long: str, short: str, count: TokenCounter) -> int:
    """Return how many tokens fewer `short` has than `long`. Only lines that differ are counted."""
    limit = min(len(long), len(short))
    start = _boundary_before(long, _longest_equal(lambda size: long[:size] == short[:size], limit))
    end = _longest_equal(lambda size: long[len(long) - size :] == short[len(short) - size :], limit - start)
    line_start = _LINE_START.search(long, len(long) - end + 1)  # the line break is part of both
    shared_end = len(long) - line_start.start() if line_start else 0
    return count(long[start : len(long) - shared_end]) - count(short[start : len(short) - shared_end])


_LINE_START = re.compile(r"(?<=\n)(?=[ \t]*[A-Za-z0-9])")
"""A position that no token spans. A token with a line break ends with the last one, or with slashes after it."""


def _boundary_before(text: str, end: int) -> int:
    """Return the last position up to `end` that no token spans, searched in a few lines; 0 without one."""
    first = max(0, end - SEARCHED_CHARACTERS)
    starts = [match.start() for match in _LINE_START.finditer(text, first, end)]
    return starts[-1] if starts else 0


SEARCHED_CHARACTERS = 1000


def _longest_equal(same: Callable[[int], bool], limit: int) -> int:
    """Return the largest size up to the limit for which `same` is true. It must be true for every smaller size."""
    if same(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if same(middle) else (low, middle)
    return low


def has_no_more_tokens(short: str, long: str, count: TokenCounter) -> bool:
    """Return True if `short` has no more tokens than `long`, counting only if bounds do not decide.

    No token is longer than `MAX_TOKEN_BYTES` or spans two words, and none is shorter than a byte.
    """
    max_tokens = len(short.encode("utf-8", "replace"))
    if len(long) > max_tokens * MAX_TOKEN_BYTES or len(long[: 8 * max_tokens].split()) >= max_tokens:
        return True
    return count(short) <= count(long)


SAMPLED_PIECES, SAMPLE_CHARACTERS = 8, 400
"""Number of pieces of a long text that are counted for an estimate, and their characters. The error is nearly always at
most 4%."""


def estimate(text: str) -> float:
    """Estimate the number of tokens; exact for a short text."""
    estimate_log = _CURRENT_LOG.get()
    return _estimate_with(text, counter_for()) if estimate_log is None else estimate_log.estimate(text)


def _estimate_with(text: str, count: TokenCounter) -> float:
    if len(text) <= SAMPLED_PIECES * SAMPLE_CHARACTERS:
        return count(text) if text else 0
    step = (len(text) - SAMPLE_CHARACTERS) // (SAMPLED_PIECES - 1)
    pieces = "".join(text[at : at + SAMPLE_CHARACTERS] for at in range(0, SAMPLED_PIECES * step, step))
    return count(pieces) * len(text) / len(pieces)


class CachedCounter:
    """Counts each text once."""

    def __init__(self, count: TokenCounter) -> None:
        self.counts: dict[str, int] = {}
        self.count = count

    def __call__(self, text: str) -> int:
        tokens = self.counts.get(text)
        if tokens is None:
            tokens = self.counts[text] = self.count(text)
        return tokens


def cached_counter(count: TokenCounter) -> CachedCounter:
    return CachedCounter(count)


class EstimateLog:
    """Counts of texts that are needed a few times. `known` has the counts of other texts."""

    def __init__(self, count: TokenCounter, known: Mapping[str, int]) -> None:
        self._count, self._known = count, known
        self._counts: dict[str, int] = {}
        self._estimates: dict[str, float] = {}

    def __call__(self, text: str) -> int:
        tokens = self._known.get(text)
        if tokens is None:
            tokens = self._counts.get(text)
        if tokens is None:
            tokens = self._counts[text] = self._count(text)
        return tokens

    def estimate(self, text: str) -> float:
        """As `tokens.estimate`, with the counts stored."""
        if len(text) <= SAMPLED_PIECES * SAMPLE_CHARACTERS:
            return self(text) if text else 0
        tokens = self._estimates.get(text)
        if tokens is None:
            tokens = self._estimates[text] = _estimate_with(text, self._count)
        return tokens

    def clear(self) -> None:
        self._counts.clear()
        self._estimates.clear()


_CURRENT_LOG: ContextVar[EstimateLog | None] = ContextVar("noted", default=None)


@contextmanager
def collect_estimates(notes: EstimateLog) -> Iterator[None]:
    """Within this context, store estimates in `notes` instead of computing them again. Only for the default
    encoding."""
    token = _CURRENT_LOG.set(notes)
    try:
        yield
    finally:
        _CURRENT_LOG.reset(token)
