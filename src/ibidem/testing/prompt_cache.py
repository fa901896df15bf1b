"""A provider's prompt cache, played honestly enough to count money with.

A request is a row of units: tools, system, then blocks or messages, as they were sent. Units that stand at the
beginning of an earlier request of the same key and model, unchanged, are read; the rest is paid in full. Where a
provider wants marks, only what a mark covers is kept or found, for as long as the mark says, and a mark looks back over
a limited number of units. What is read is kept for as long again as was paid for when it was written: a mark that asks
for more does not change that. Sizes are in the tokens of `ibidem.tokens`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple

from ..billing.caching import Caching
from ..billing.thinking import SEALED_CHARACTERS_PER_TOKEN
from ..billing.usage import Usage
from ..formats.anthropic import EMPTY_SEAL
from ..tokens import counter
from .answers import AnswerPart, Thought

SEALED_FIELDS = ("signature", "encrypted_content")
"""Fields that only the provider reads."""

UNIT_TOKENS = 4
"""Tokens that a unit takes beside its texts."""


class Unit(NamedTuple):
    """The smallest thing that is compared."""

    value: Any
    """As sent, without its mark."""
    mark: float | None = None
    """Seconds for which everything up to here is kept; None where no mark stands."""


class CachedPrefix(NamedTuple):
    until: float
    lifetime: float


class PromptCache:
    """What one provider remembers. Keys never see each other's."""

    def __init__(self) -> None:
        self._kept: dict[bytes, CachedPrefix] = {}
        self._sizes: dict[bytes, int] = {}

    def ask(
        self, caching: Caching, key: str, units: Sequence[Unit], now: float, *, keeps: bool = True, tells: bool = True
    ) -> Usage:
        """The usage of such a request. It is remembered if it `keeps`; unless it `tells`, what is written is fresh."""
        names = [_name(json.dumps(unit.value, sort_keys=True)) for unit in units]
        prefixes = list(accumulate(names, lambda before, name: _name(before, name), initial=_name(key)))[1:]
        ends = list(accumulate(self._size(name, unit.value) for name, unit in zip(names, units, strict=True)))
        marks = _marks(units, caching)
        found = self._found(prefixes, marks, ends, caching, now)
        if keeps:
            self._keep(prefixes, marks, ends, found, caching, now)
        return _split(ends, found, marks if tells else {}, caching)

    def spoken(self, usage: Usage, parts: Sequence[AnswerPart]) -> Usage:
        """The usage of a request together with what its answer takes."""
        sizes = [(part, sum(map(counter(), _texts(part)))) for part in parts]
        reasoning = sum(size for part, size in sizes if isinstance(part, Thought))
        return replace(usage, output=sum(size for _, size in sizes), reasoning=reasoning)

    def _found(
        self, prefixes: list[bytes], marks: dict[int, float], ends: list[int], caching: Caching, now: float
    ) -> int:
        """The number of units that are read."""
        for mark in sorted(marks, reverse=True):
            first = max(mark - caching.look_back, 0) if caching.look_back is not None else mark
            for place in range(mark, first - 1, -1):
                if self._alive(prefixes[place], now) and ends[place] >= caching.minimum:
                    return place + 1
        return 0

    def _alive(self, prefix: bytes, now: float) -> bool:
        entry = self._kept.get(prefix)
        return entry is not None and entry.until >= now

    def _keep(
        self, prefixes: list[bytes], marks: dict[int, float], ends: list[int], found: int, caching: Caching, now: float
    ) -> None:
        read = self._kept[prefixes[found - 1]].lifetime if found else 0.0
        wanted = {**({found - 1: read} if found else {}), **marks}
        for place, lifetime in wanted.items():
            if place < found:  # being read is being used, and was paid for already
                lifetime = self._kept[prefixes[place]].lifetime if self._alive(prefixes[place], now) else read
            if ends[place] >= caching.minimum:
                self._kept[prefixes[place]] = CachedPrefix(now + lifetime, lifetime)

    def _size(self, name: bytes, value: Any) -> int:
        if name not in self._sizes:
            self._sizes[name] = UNIT_TOKENS + sum(map(counter(), _texts(value))) + _sealed_tokens(value)
        return self._sizes[name]


def _name(*texts: str | bytes) -> bytes:
    whole = b"\0".join(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass") for text in texts)
    return blake2b(whole, digest_size=16).digest()


def _texts(value: Any) -> Iterator[str]:
    """What a model reads of a value."""
    if isinstance(value, dict):
        value = [each for key, each in value.items() if key not in SEALED_FIELDS]
    if isinstance(value, str | int | float):
        yield str(value)
    elif value is not None:
        for each in value:
            yield from _texts(each)


def _sealed_tokens(value: Any) -> int:
    """Tokens of thinking whose text is empty: its seal grows with it."""
    if isinstance(value, list):
        return sum(map(_sealed_tokens, value))
    if not isinstance(value, dict) or any(_texts(value.get("thinking"))):
        return 0
    sealed = sum(max(0, len(str(value[key])) - EMPTY_SEAL) for key in SEALED_FIELDS if key in value)
    return round(sealed / SEALED_CHARACTERS_PER_TOKEN)


def _marks(units: Sequence[Unit], caching: Caching) -> dict[int, float]:
    """Places where a beginning is kept, and for how long. An automatic cache keeps every one."""
    if caching.marks:
        return {place: unit.mark for place, unit in enumerate(units) if unit.mark is not None}
    return {place: unit.mark or caching.lifetime for place, unit in enumerate(units)}


def _split(ends: list[int], found: int, marks: dict[int, float], caching: Caching) -> Usage:
    """What is not read is written up to the last mark, each piece for as long as the mark after it says."""
    total = ends[-1] if ends else 0
    read = ends[found - 1] if found else 0
    read -= read % caching.step
    written = {True: 0, False: 0}
    done = read
    for place, lifetime in sorted(marks.items()):
        if ends[place] > done and ends[place] >= caching.minimum:
            written[caching.marks and lifetime > caching.lifetime] += ends[place] - done
            done = ends[place]
    return Usage(fresh=total - done, read=read, written=written[False], written_1h=written[True])
