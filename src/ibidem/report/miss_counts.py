"""How the requests of a session were cached, by what their provider counted: shares, and misses by cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from ..billing.cache_misses import CachedRequest, PrefixOverlap, breakpoint_savings, explain_miss, lacks_breakpoints
from ..billing.prices import Price, Prices, Rates
from ..billing.usage import Usage
from ..model import Message
from ..replay.replay_bill import Replay, ReplayStep
from .session_result import CacheUse, MissCount


class _RequestPair(NamedTuple):
    """A request and the one before, if both were counted."""

    number: int
    price: Price
    """Price of the requested model, whatever `--price-as` says."""
    rates: Rates
    sent: CachedRequest
    before: CachedRequest | None
    since: PrefixOverlap


def cache_use_of(
    replay: Replay, messages: Sequence[Sequence[Message]], prices: Prices, is_counted: Sequence[bool]
) -> CacheUse | None:
    """Add up the cache use of the chosen requests; None without recorded usage.

    `prices` has the cache rules of the requested models, whatever `--price-as` says. For models that are not in it,
    misses are unknown and only shares are counted.
    """
    usages = [step.sent.usage for step in compress(replay.steps, is_counted) if step.sent.usage is not None]
    if not sum(usage.input for usage in usages):
        return None
    use = CacheUse(
        sum(usage.read for usage in usages),
        sum(usage.written for usage in usages),
        sum(usage.written_1h for usage in usages),
        sum(usage.fresh for usage in usages),
    )
    pairs = [pair for pair in _request_pairs(replay, messages, prices) if not pair.price.assumed]
    needs_breakpoints = bool(pairs) and all(pair.price.caching.marks for pair in pairs)
    use.unmarked = needs_breakpoints and lacks_breakpoints((pair.sent.usage for pair in pairs), pairs[0].price.caching)
    pairs = [pair for pair in pairs if is_counted[pair.number - 1]]
    for pair in pairs:
        miss = explain_miss(pair.before, pair.sent, pair.since, pair.price.caching, pair.rates)
        if miss is not None:
            cause = "unmarked" if use.unmarked else miss.cause
            count = MissCount(1, miss.tokens, miss.dollars, miss.dollars, pair.number, miss.where)
            use.misses.setdefault(cause, MissCount()).add(count)
    if use.unmarked:  # net saving of breakpoints: cheaper reads less the surcharge for writes
        savings = (
            breakpoint_savings(pair.before, pair.sent, pair.since, pair.price.caching, pair.rates) for pair in pairs
        )
        use.misses.setdefault("unmarked", MissCount()).cost = sum(savings)
    return use


def _request_pairs(replay: Replay, messages: Sequence[Sequence[Message]], prices: Prices) -> Iterator[_RequestPair]:
    is_hour = False
    last: ReplayStep | None = None
    for number, step in enumerate(replay.steps, 1):
        usage = step.sent.usage
        if usage is not None:
            before = _previous_request(last) if last is not None else None
            new_messages = messages[step.segment][max(step.shared, 0) : step.sent.length]
            tokens = step.head + step.held * step.prefix.tokens_before(step.shared) if step.shared > 0 else 0.0
            blocks = sum(len(message.parts) for message in new_messages)
            since = PrefixOverlap(step.shared, blocks, is_hour, tokens, step.entry_at(usage.read))
            price = prices.of(step.sent.model, replay.session.format, step.sent.at)
            yield _RequestPair(number, price, step.rates, _cached_request(step, usage), before, since)
            if usage.written or usage.written_1h:
                is_hour = usage.written_1h > usage.written
        last = step


def _previous_request(step: ReplayStep) -> CachedRequest | None:
    return None if step.sent.usage is None else _cached_request(step, step.sent.usage)


def _cached_request(step: ReplayStep, usage: Usage) -> CachedRequest:
    request = step.sent
    return CachedRequest(request.model, usage, request.length, request.at, request.answered)
