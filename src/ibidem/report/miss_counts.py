"""How the requests of a session were cached, by what their provider counted: shares, and misses by cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from ..billing.misses import CachedRequest, SinceThen, explain, is_unmarked, marks_would_save
from ..billing.prices import Price, Prices, Rates
from ..billing.usage import Usage
from ..model import Message
from ..replay.billing import Replay, Step
from .session_result import CacheUse, MissCount


class _RequestPair(NamedTuple):
    """A request and the one before, if both were counted."""

    number: int
    price: Price
    """Price of the requested model, whatever `--price-as` says."""
    rates: Rates
    sent: CachedRequest
    before: CachedRequest | None
    since: SinceThen


def cache_use_of(
    replay: Replay, messages: Sequence[Sequence[Message]], prices: Prices, chosen: Sequence[bool]
) -> CacheUse | None:
    """Add up the cache use of the chosen requests; None without recorded usage.

    `prices` has the cache rules of the requested models, whatever `--price-as` says. For models that are not in it,
    misses are unknown and only shares are counted.
    """
    usages = [step.sent.usage for step in compress(replay.steps, chosen) if step.sent.usage is not None]
    if not sum(usage.input for usage in usages):
        return None
    found = CacheUse(
        sum(usage.read for usage in usages),
        sum(usage.written for usage in usages),
        sum(usage.written_1h for usage in usages),
        sum(usage.fresh for usage in usages),
    )
    pairs = [pair for pair in _pairs(replay, messages, prices) if not pair.price.assumed]
    marked = bool(pairs) and all(pair.price.caching.marks for pair in pairs)
    found.unmarked = marked and is_unmarked((pair.sent.usage for pair in pairs), pairs[0].price.caching)
    pairs = [pair for pair in pairs if chosen[pair.number - 1]]
    for pair in pairs:
        miss = explain(pair.before, pair.sent, pair.since, pair.price.caching, pair.rates)
        if miss is not None:
            cause = "unmarked" if found.unmarked else miss.cause
            one = MissCount(1, miss.tokens, miss.dollars, miss.dollars, pair.number, miss.where)
            found.misses.setdefault(cause, MissCount()).add(one)
    if found.unmarked:  # net saving of breakpoints: cheaper reads less the surcharge for writes
        saved = (marks_would_save(pair.before, pair.sent, pair.since, pair.price.caching, pair.rates) for pair in pairs)
        found.misses.setdefault("unmarked", MissCount()).cost = sum(saved)
    return found


def _pairs(replay: Replay, messages: Sequence[Sequence[Message]], prices: Prices) -> Iterator[_RequestPair]:
    long = False
    last: Step | None = None
    for number, step in enumerate(replay.steps, 1):
        usage = step.sent.usage
        if usage is not None:
            before = _request(last) if last is not None else None
            added = messages[step.segment][max(step.shared, 0) : step.sent.length]
            tokens = step.head + step.held * step.prefix.before(step.shared) if step.shared > 0 else 0.0
            blocks = sum(len(message.parts) for message in added)
            since = SinceThen(step.shared, blocks, long, tokens, step.entry_at(usage.read))
            price = prices.of(step.sent.model, replay.session.format, step.sent.at)
            yield _RequestPair(number, price, step.rates, _counted(step, usage), before, since)
            if usage.written or usage.written_1h:
                long = usage.written_1h > usage.written
        last = step


def _request(step: Step) -> CachedRequest | None:
    return None if step.sent.usage is None else _counted(step, step.sent.usage)


def _counted(step: Step, usage: Usage) -> CachedRequest:
    sent = step.sent
    return CachedRequest(sent.model, usage, sent.length, sent.at, sent.answered)
