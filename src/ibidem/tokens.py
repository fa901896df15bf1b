"""Token counts: exact for OpenAI's public encodings, and the common yardstick for everyone else's.

No current Claude or Gemini tokenizer is public. Their counts are stated in o200k tokens, and never pretend to be
the provider's own.
"""

from __future__ import annotations

import re
from functools import cache
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
    return _counter(encoding_of(model))


@cache
def _counter(encoding: str) -> TokenCounter:
    """Loads its ranks (50 ms, nothing is fetched) the first time it is asked."""
    import splintr

    encode = splintr.Tokenizer.from_pretrained(encoding).encode_ordinary

    def count(text: str) -> int:
        if not text.isascii():  # a lone surrogate is no UTF-8: it counts as the replacement character
            text = text.encode("utf-8", "replace").decode()
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
    if len(text) <= SAMPLED_PIECES * SAMPLE_CHARACTERS:
        return counter()(text) if text else 0
    step = (len(text) - SAMPLE_CHARACTERS) // (SAMPLED_PIECES - 1)
    pieces = "".join(text[at : at + SAMPLE_CHARACTERS] for at in range(0, SAMPLED_PIECES * step, step))
    return counter()(pieces) * len(text) / len(pieces)


def remembering(count: TokenCounter) -> TokenCounter:
    """A text is counted once, however often it is met."""
    known: dict[str, int] = {}

    def counted(text: str) -> int:
        found = known.get(text)
        if found is None:
            found = known[text] = count(text)
        return found

    return counted
