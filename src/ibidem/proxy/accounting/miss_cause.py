"""Cause and cost of cache misses, and what cache breakpoints would have saved in requests without them."""

from __future__ import annotations

from ...billing.cache_misses import CachedRequest, CacheMiss, PrefixOverlap, breakpoint_savings, explain_miss
from ...billing.prices import Price
from ...billing.usage import Usage
from ...live.types import RewriteResult
from .exchange_rows import ConversationRow, ExchangeRow
from .shadow_cache import ShadowCache

REVISED = "changed by ibidem"


def explain_exchange(
    exchange_row: ExchangeRow,
    row: ConversationRow,
    view: ShadowCache,
    parent: ShadowCache | None,
    outcome: RewriteResult,
    usage: Usage,
    price: Price,
) -> CacheMiss | None:
    """Explain a cache miss, if there is one, and store it in both rows.

    `parent` is the cache state of the conversation from which this one branches off.
    """
    directives = outcome.new_input().asked or view.directives
    tools, system = (directives.tools, directives.system) if directives is not None else (None, None)
    response_time = exchange_row.at + (exchange_row.total_ms or 0.0) / 1e3
    request = CachedRequest(outcome.model, usage, outcome.messages, exchange_row.at, response_time, tools, system)
    before, tokens = view.previous_request, None
    shared = before.messages if before is not None else 0
    if before is None and parent is not None and directives is not None and outcome.first_new:
        before, shared, tokens = parent.previous_request, outcome.first_new, directives.shared * usage.input
    blocks = directives.blocks if directives is not None else None
    ours = view.cached_prefix or (parent.cached_prefix if parent is not None else None)
    since = PrefixOverlap(shared, blocks, ours is not None and ours.long, tokens)
    rates = price.rates(usage.input)
    miss = explain_miss(before, request, since, price.caching, rates)
    if miss is not None:
        if outcome.revision_reason and miss.cause in ("unexplained", "look-back"):
            miss = miss._replace(cause="history", where=REVISED)
        exchange_row.miss = f"{miss.cause}: {miss.where}" if miss.where not in ("", miss.cause) else miss.cause
        exchange_row.missed = miss.dollars
        row.missed[miss.cause] = row.missed.get(miss.cause, 0.0) + miss.dollars
    is_uncached = price.caching.marks and directives is not None and not directives.marks and usage.fresh == usage.input
    if is_uncached and usage.input >= price.caching.minimum:
        row.unmarked = before is not None
        row.marks_would_save += breakpoint_savings(before, request, since, price.caching, rates)
    elif not is_uncached:
        row.unmarked = False
    view.previous_request = request
    return miss
