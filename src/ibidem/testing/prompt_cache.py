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

from ..billing.cache_rules import CacheRules
from ..billing.thinking_size import SEALED_CHARACTERS_PER_TOKEN
from ..billing.usage import Usage
from ..formats.anthropic import EMPTY_SIGNATURE_LENGTH
from ..tokens import counter_for
from .answers import AnswerPart, ThinkingPart

SEALED_FIELDS = ("signature", "encrypted_content")
"""Fields that only the provider can read."""

UNIT_TOKENS = 4
"""Tokens of a unit in addition to its texts."""


class Unit(NamedTuple):
    """The smallest part of a request that is compared."""

    value: Any
    """The value as sent, without its breakpoint."""
    ttl: float | None = None
    """TTL in seconds of a breakpoint here; None without a breakpoint."""


class CachedPrefix(NamedTuple):
    """An entry of the cache."""

    expires_at: float
    ttl: float


class PromptCache:
    """The prompt cache of one provider. Entries of one key are invisible to all others."""

    def __init__(self) -> None:
        self._entries: dict[bytes, CachedPrefix] = {}
        self._sizes: dict[bytes, int] = {}

    def bill_request(
        self,
        rules: CacheRules,
        key: str,
        units: Sequence[Unit],
        now: float,
        *,
        stores_prefix: bool = True,
        reports_writes: bool = True,
    ) -> Usage:
        """Return the usage of a request. It is cached if `stores_prefix`. Unless `reports_writes`, cache writes are
        reported as uncached."""
        names = [_hash_texts(json.dumps(unit.value, sort_keys=True)) for unit in units]
        prefixes = list(accumulate(names, lambda before, name: _hash_texts(before, name), initial=_hash_texts(key)))[1:]
        ends = list(accumulate(self._unit_tokens(name, unit.value) for name, unit in zip(names, units, strict=True)))
        marks = _breakpoint_ttls(units, rules)
        read_units = self._find_prefix(prefixes, marks, ends, rules, now)
        if stores_prefix:
            self._store_prefixes(prefixes, marks, ends, read_units, rules, now)
        return _split_usage(ends, read_units, marks if reports_writes else {}, rules)

    def add_output(self, usage: Usage, parts: Sequence[AnswerPart]) -> Usage:
        """Return the usage of a request with the tokens of its response."""
        sizes = [(part, sum(map(counter_for(), _readable_texts(part)))) for part in parts]
        reasoning = sum(size for part, size in sizes if isinstance(part, ThinkingPart))
        return replace(usage, output=sum(size for _, size in sizes), reasoning=reasoning)

    def _find_prefix(
        self, prefixes: list[bytes], marks: dict[int, float], ends: list[int], rules: CacheRules, now: float
    ) -> int:
        """Return the number of units that are read from the cache."""
        for mark in sorted(marks, reverse=True):
            first = max(mark - rules.look_back, 0) if rules.look_back is not None else mark
            for place in range(mark, first - 1, -1):
                if self._is_cached(prefixes[place], now) and ends[place] >= rules.minimum:
                    return place + 1
        return 0

    def _is_cached(self, prefix: bytes, now: float) -> bool:
        entry = self._entries.get(prefix)
        return entry is not None and entry.expires_at >= now

    def _store_prefixes(
        self,
        prefixes: list[bytes],
        marks: dict[int, float],
        ends: list[int],
        read_units: int,
        rules: CacheRules,
        now: float,
    ) -> None:
        read = self._entries[prefixes[read_units - 1]].ttl if read_units else 0.0
        ttls = {**({read_units - 1: read} if read_units else {}), **marks}
        for place, ttl in ttls.items():
            if place < read_units:  # a read renews the entry, with the TTL paid before
                ttl = self._entries[prefixes[place]].ttl if self._is_cached(prefixes[place], now) else read
            if ends[place] >= rules.minimum:
                self._entries[prefixes[place]] = CachedPrefix(now + ttl, ttl)

    def _unit_tokens(self, name: bytes, value: Any) -> int:
        if name not in self._sizes:
            self._sizes[name] = UNIT_TOKENS + sum(map(counter_for(), _readable_texts(value))) + _sealed_tokens(value)
        return self._sizes[name]


def _hash_texts(*texts: str | bytes) -> bytes:
    joined = b"\0".join(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass") for text in texts)
    return blake2b(joined, digest_size=16).digest()


def _readable_texts(value: Any) -> Iterator[str]:
    """Yield the texts of a value that a model reads."""
    if isinstance(value, dict):
        value = [each for key, each in value.items() if key not in SEALED_FIELDS]
    if isinstance(value, str | int | float):
        yield str(value)
    elif value is not None:
        for each in value:
            yield from _readable_texts(each)


def _sealed_tokens(value: Any) -> int:
    """Return the tokens of thinking with an empty text. Its signature grows with it."""
    if isinstance(value, list):
        return sum(map(_sealed_tokens, value))
    if not isinstance(value, dict) or any(_readable_texts(value.get("thinking"))):
        return 0
    hidden_characters = sum(
        max(0, len(str(value[key])) - EMPTY_SIGNATURE_LENGTH) for key in SEALED_FIELDS if key in value
    )
    return round(hidden_characters / SEALED_CHARACTERS_PER_TOKEN)


def _breakpoint_ttls(units: Sequence[Unit], rules: CacheRules) -> dict[int, float]:
    """Return positions where a prefix is cached, with the TTL. An automatic cache stores every prefix."""
    if rules.marks:
        return {place: unit.ttl for place, unit in enumerate(units) if unit.ttl is not None}
    return {place: unit.ttl or rules.lifetime for place, unit in enumerate(units)}


def _split_usage(ends: list[int], read_units: int, marks: dict[int, float], rules: CacheRules) -> Usage:
    """Return the usage. Tokens after the read prefix are written up to the last breakpoint, each range with the TTL of
    the breakpoint after it."""
    total = ends[-1] if ends else 0
    read = ends[read_units - 1] if read_units else 0
    read -= read % rules.step
    written_tokens = {True: 0, False: 0}
    counted_tokens = read
    for place, lifetime in sorted(marks.items()):
        if ends[place] > counted_tokens and ends[place] >= rules.minimum:
            written_tokens[rules.marks and lifetime > rules.lifetime] += ends[place] - counted_tokens
            counted_tokens = ends[place]
    return Usage(
        fresh=total - counted_tokens, read=read, written=written_tokens[False], written_1h=written_tokens[True]
    )
