"""A simulated prompt cache, exact enough to compute costs.

A request is a list of units: tools, system, then blocks or messages, as sent. Units that start an earlier request with
the same key and model, unchanged, are read from the cache. The rest costs the full price. If a provider needs cache
breakpoints, only a prefix up to one is stored or found, for its TTL, and each breakpoint finds entries within a limited
number of units before it. A read renews an entry with the TTL that was paid for at its write; a breakpoint with a
longer TTL does not change that. Sizes are in the tokens of `ibidem.tokens`.
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
"""Fields that only the provider can read."""

UNIT_TOKENS = 4
"""Tokens of a unit in addition to its texts."""


class Unit(NamedTuple):
    """The smallest part of a request that is compared."""

    value: Any
    """The value as sent, without its breakpoint."""
    mark: float | None = None
    """TTL in seconds of a breakpoint here; None without a breakpoint."""


class CachedPrefix(NamedTuple):
    """An entry of the cache."""

    until: float
    lifetime: float


class PromptCache:
    """The prompt cache of one provider. Entries of one key are invisible to all others."""

    def __init__(self) -> None:
        self._kept: dict[bytes, CachedPrefix] = {}
        self._sizes: dict[bytes, int] = {}

    def ask(
        self, caching: Caching, key: str, units: Sequence[Unit], now: float, *, keeps: bool = True, tells: bool = True
    ) -> Usage:
        """Return the usage of a request. It is cached if `keeps`. Unless `tells`, cache writes are reported as
        uncached."""
        names = [_name(json.dumps(unit.value, sort_keys=True)) for unit in units]
        prefixes = list(accumulate(names, lambda before, name: _name(before, name), initial=_name(key)))[1:]
        ends = list(accumulate(self._size(name, unit.value) for name, unit in zip(names, units, strict=True)))
        marks = _marks(units, caching)
        found = self._found(prefixes, marks, ends, caching, now)
        if keeps:
            self._keep(prefixes, marks, ends, found, caching, now)
        return _split(ends, found, marks if tells else {}, caching)

    def spoken(self, usage: Usage, parts: Sequence[AnswerPart]) -> Usage:
        """Return the usage of a request with the tokens of its response."""
        sizes = [(part, sum(map(counter(), _texts(part)))) for part in parts]
        reasoning = sum(size for part, size in sizes if isinstance(part, Thought))
        return replace(usage, output=sum(size for _, size in sizes), reasoning=reasoning)

    def _found(
        self, prefixes: list[bytes], marks: dict[int, float], ends: list[int], caching: Caching, now: float
    ) -> int:
        """Return the number of units that are read from the cache."""
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
            if place < found:  # a read renews the entry, with the TTL paid before
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
    """Yield the texts of a value that a model reads."""
    if isinstance(value, dict):
        value = [each for key, each in value.items() if key not in SEALED_FIELDS]
    if isinstance(value, str | int | float):
        yield str(value)
    elif value is not None:
        for each in value:
            yield from _texts(each)


def _sealed_tokens(value: Any) -> int:
    """Return the tokens of thinking with an empty text. Its signature grows with it."""
    if isinstance(value, list):
        return sum(map(_sealed_tokens, value))
    if not isinstance(value, dict) or any(_texts(value.get("thinking"))):
        return 0
    sealed = sum(max(0, len(str(value[key])) - EMPTY_SEAL) for key in SEALED_FIELDS if key in value)
    return round(sealed / SEALED_CHARACTERS_PER_TOKEN)


def _marks(units: Sequence[Unit], caching: Caching) -> dict[int, float]:
    """Return positions where a prefix is cached, with the TTL. An automatic cache stores every prefix."""
    if caching.marks:
        return {place: unit.mark for place, unit in enumerate(units) if unit.mark is not None}
    return {place: unit.mark or caching.lifetime for place, unit in enumerate(units)}


def _split(ends: list[int], found: int, marks: dict[int, float], caching: Caching) -> Usage:
    """Return the usage. Tokens after the read prefix are written up to the last breakpoint, each range with the TTL of
    the breakpoint after it."""
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
