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


def encoding_of(model: str | None) -> str:
    name = (model or "").rpartition("/")[2]
    return next((found for prefix, found in ENCODINGS.items() if name.startswith(prefix)), DEFAULT_ENCODING)


def counter(model: str | None = None) -> TokenCounter:
    """Return the token counter for a model; see `ENCODINGS`."""
    encoding = encoding_of(model)
    if encoding not in _counters:
        with _loading:  # otherwise two threads could load the same ranks
            if encoding not in _counters:
                _counters[encoding] = _counter(encoding)
    return _counters[encoding]


_counters: dict[str, TokenCounter] = {}
_loading = threading.Lock()


def _counter(encoding: str) -> TokenCounter:
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
            stop = _cut(text, start + PIECE_CHARACTERS)
            total += len(encode(text[start:stop]))
            start = stop
        return total

    return count


def _cut(text: str, end: int) -> int:
    """Return the last position before `end` where a token surely ends: between two words."""
    if end >= len(text):
        return len(text)
    found = [match.start() for match in _BETWEEN_WORDS.finditer(text, end - PIECE_CHARACTERS // 16, end)]
    return found[-1] if found else end


def fewer(long: str, short: str, count: TokenCounter) -> int:
    """Return how many tokens fewer `short` has than `long`. Only lines that differ are counted."""
    limit = min(len(long), len(short))
    start = _boundary_before(long, _agree(lambda size: long[:size] == short[:size], limit))
    end = _agree(lambda size: long[len(long) - size :] == short[len(short) - size :], limit - start)
    found = _LINE_START.search(long, len(long) - end + 1)  # the line break is part of both
    behind = len(long) - found.start() if found else 0
    return count(long[start : len(long) - behind]) - count(short[start : len(short) - behind])


_LINE_START = re.compile(r"(?<=\n)(?=[ \t]*[A-Za-z0-9])")
"""A position that no token spans. A token with a line break ends with the last one, or with slashes after it."""


def _boundary_before(text: str, end: int) -> int:
    """Return the last position up to `end` that no token spans, searched in a few lines; 0 without one."""
    first = max(0, end - SEARCHED_CHARACTERS)
    starts = [found.start() for found in _LINE_START.finditer(text, first, end)]
    return starts[-1] if starts else 0


SEARCHED_CHARACTERS = 1000


def _agree(same: Callable[[int], bool], limit: int) -> int:
    """Return the largest size up to the limit for which `same` is true. It must be true for every smaller size."""
    if same(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if same(middle) else (low, middle)
    return low


def no_more(short: str, long: str, count: TokenCounter) -> bool:
    """Return True if `short` has no more tokens than `long`, counting only if bounds do not decide.

    No token is longer than `MAX_TOKEN_BYTES` or spans two words, and none is shorter than a byte.
    """
    at_most = len(short.encode("utf-8", "replace"))
    if len(long) > at_most * MAX_TOKEN_BYTES or len(long[: 8 * at_most].split()) >= at_most:
        return True
    return count(short) <= count(long)


SAMPLED_PIECES, SAMPLE_CHARACTERS = 8, 400
"""Number of pieces of a long text that are counted for an estimate, and their characters. The error is nearly always at
most 4%."""


def estimate(text: str) -> float:
    """Estimate the number of tokens; exact for a short text."""
    noted = _NOTED.get()
    return _estimated(text, counter()) if noted is None else noted.estimate(text)


def _estimated(text: str, count: TokenCounter) -> float:
    if len(text) <= SAMPLED_PIECES * SAMPLE_CHARACTERS:
        return count(text) if text else 0
    step = (len(text) - SAMPLE_CHARACTERS) // (SAMPLED_PIECES - 1)
    pieces = "".join(text[at : at + SAMPLE_CHARACTERS] for at in range(0, SAMPLED_PIECES * step, step))
    return count(pieces) * len(text) / len(pieces)


class Remembering:
    """Counts each text once."""

    def __init__(self, count: TokenCounter) -> None:
        self.known: dict[str, int] = {}
        self.count = count

    def __call__(self, text: str) -> int:
        found = self.known.get(text)
        if found is None:
            found = self.known[text] = self.count(text)
        return found


def remembering(count: TokenCounter) -> Remembering:
    return Remembering(count)


class TokenNotes:
    """Counts of texts that are needed a few times. `known` has the counts of other texts."""

    def __init__(self, count: TokenCounter, known: Mapping[str, int]) -> None:
        self._count, self._known = count, known
        self._counts: dict[str, int] = {}
        self._estimates: dict[str, float] = {}

    def __call__(self, text: str) -> int:
        found = self._known.get(text)
        if found is None:
            found = self._counts.get(text)
        if found is None:
            found = self._counts[text] = self._count(text)
        return found

    def estimate(self, text: str) -> float:
        """As `tokens.estimate`, with the counts stored."""
        if len(text) <= SAMPLED_PIECES * SAMPLE_CHARACTERS:
            return self(text) if text else 0
        found = self._estimates.get(text)
        if found is None:
            found = self._estimates[text] = _estimated(text, self._count)
        return found

    def forget(self) -> None:
        self._counts.clear()
        self._estimates.clear()


_NOTED: ContextVar[TokenNotes | None] = ContextVar("noted", default=None)


@contextmanager
def noting(notes: TokenNotes) -> Iterator[None]:
    """Within this context, store estimates in `notes` instead of computing them again. Only for the default
    encoding."""
    token = _NOTED.set(notes)
    try:
        yield
    finally:
        _NOTED.reset(token)
