"""Token counts: exact for OpenAI's public encodings, and the common yardstick for everyone else's.

No current Claude or Gemini tokenizer is public. Their counts are stated in o200k tokens, and never pretend to be
the provider's own.
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
"""Model name prefix → encoding; the first that fits counts, and what fits none has `DEFAULT_ENCODING`."""

DEFAULT_ENCODING = "o200k_base"

BYTES_PER_TOKEN = 4
"""About, where counting is not worth its time."""

PIECE_CHARACTERS = 1 << 16
"""Characters handed over at once: the encoder holds the interpreter while it works."""

SPECIAL, TOKEN_BYTES = "<|", 4
"""How every special token begins: a text with one is counted in the slower way, which takes it for the text that it is.
Of all others the tokens are asked for as one run of bytes, so many for each."""

MAX_TOKEN_BYTES = 128
"""Bytes of the longest token in either encoding (a run of spaces)."""


_BETWEEN_WORDS = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])|(?<=\n)(?=[A-Za-z])")


class TokenCounter(Protocol):
    def __call__(self, text: str) -> int: ...


def encoding_of(model: str | None) -> str:
    name = (model or "").rpartition("/")[2]
    return next((found for prefix, found in ENCODINGS.items() if name.startswith(prefix)), DEFAULT_ENCODING)


def counter(model: str | None = None) -> TokenCounter:
    """The counter for a model; see `ENCODINGS`."""
    encoding = encoding_of(model)
    if encoding not in _counters:
        with _loading:  # two threads that ask at once would each load the ranks, and one of them for nothing
            if encoding not in _counters:
                _counters[encoding] = _counter(encoding)
    return _counters[encoding]


_counters: dict[str, TokenCounter] = {}
_loading = threading.Lock()


def _counter(encoding: str) -> TokenCounter:
    """Loads its ranks: 50 ms, and nothing is fetched."""
    import splintr

    tokenizer = splintr.Tokenizer.from_pretrained(encoding)
    encode, to_bytes = tokenizer.encode_ordinary, tokenizer.encode_flat

    def count(text: str) -> int:
        if not text.isascii():  # a lone surrogate is no UTF-8: it counts as the replacement character
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
    """The last place before `end` where a token ends for certain: between two words."""
    if end >= len(text):
        return len(text)
    found = [match.start() for match in _BETWEEN_WORDS.finditer(text, end - PIECE_CHARACTERS // 16, end)]
    return found[-1] if found else end


def fewer(long: str, short: str, count: TokenCounter) -> int:
    """Tokens that `short` has less than `long`, counting no more than the lines in which they differ."""
    limit = min(len(long), len(short))
    start = _boundary_before(long, _agree(lambda size: long[:size] == short[:size], limit))
    end = _agree(lambda size: long[len(long) - size :] == short[len(short) - size :], limit - start)
    found = _LINE_START.search(long, len(long) - end + 1)  # the break as well stands in both
    behind = len(long) - found.start() if found else 0
    return count(long[start : len(long) - behind]) - count(short[start : len(short) - behind])


_LINE_START = re.compile(r"(?<=\n)(?=[ \t]*[A-Za-z0-9])")
"""No token spans it: what has a line break in it ends with the last of them, and slashes behind that."""


def _boundary_before(text: str, end: int) -> int:
    """The last place up to there that no token spans, within a few lines; 0 if there is none."""
    first = max(0, end - SEARCHED_CHARACTERS)
    starts = [found.start() for found in _LINE_START.finditer(text, first, end)]
    return starts[-1] if starts else 0


SEARCHED_CHARACTERS = 1000


def _agree(same: Callable[[int], bool], limit: int) -> int:
    """The largest size up to the limit for which two texts are the same, as they are for every smaller one."""
    if same(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if same(middle) else (low, middle)
    return low


def no_more(short: str, long: str, count: TokenCounter) -> bool:
    """Whether `short` has no more tokens than `long`, counting only where bounds do not decide.

    No token is longer than LONGEST bytes or spans two words, and none is shorter than a byte.
    """
    at_most = len(short.encode("utf-8", "replace"))
    if len(long) > at_most * MAX_TOKEN_BYTES or len(long[: 8 * at_most].split()) >= at_most:
        return True
    return count(short) <= count(long)


SAMPLED_PIECES, SAMPLE_CHARACTERS = 8, 400
"""Pieces of a long text that are counted for an estimate, and their characters: 4 % off at most, nearly always."""


def estimate(text: str) -> float:
    """About how many tokens; exact for a short text."""
    noted = _NOTED.get()
    return _estimated(text, counter()) if noted is None else noted.estimate(text)


def _estimated(text: str, count: TokenCounter) -> float:
    if len(text) <= SAMPLED_PIECES * SAMPLE_CHARACTERS:
        return count(text) if text else 0
    step = (len(text) - SAMPLE_CHARACTERS) // (SAMPLED_PIECES - 1)
    pieces = "".join(text[at : at + SAMPLE_CHARACTERS] for at in range(0, SAMPLED_PIECES * step, step))
    return count(pieces) * len(text) / len(pieces)


class Remembering:
    """A text is counted once, however often it is met."""

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
    """Counts of texts that are met a few times and then no more; those of others are known."""

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
    """In here, what is estimated is noted there, in the encoding that is usual, and not counted again."""
    token = _NOTED.set(notes)
    try:
        yield
    finally:
        _NOTED.reset(token)
