"""Cause and cost of cache misses, and what cache breakpoints would have saved in requests without them."""

from __future__ import annotations

from ...billing.misses import CachedRequest, Miss, SinceThen, explain, marks_would_save
from ...billing.prices import Price
from ...billing.usage import Usage
from ...live.types import RewriteResult
from .ledger import CacheView
from .rows import ConversationRow, ExchangeRow

REVISED = "changed by ibidem"


def explained(
    found: ExchangeRow,
    row: ConversationRow,
    view: CacheView,
    parent: CacheView | None,
    outcome: RewriteResult,
    usage: Usage,
    price: Price,
) -> Miss | None:
    """Explain a cache miss, if there is one, and store it in both rows.

    `parent` is the cache state of the conversation from which this one branches off.
    """
    asked = outcome.new().asked or view.asked
    tools, system = (asked.tools, asked.system) if asked is not None else (None, None)
    answered = found.at + (found.total_ms or 0.0) / 1e3
    request = CachedRequest(outcome.model, usage, outcome.messages, found.at, answered, tools, system)
    before, tokens = view.before, None
    shared = before.messages if before is not None else 0
    if before is None and parent is not None and asked is not None and outcome.first_new:
        before, shared, tokens = parent.before, outcome.first_new, asked.shared * usage.input
    blocks = asked.blocks if asked is not None else None
    ours = view.ours or (parent.ours if parent is not None else None)
    since = SinceThen(shared, blocks, ours is not None and ours.long, tokens)
    rates = price.rates(usage.input)
    miss = explain(before, request, since, price.caching, rates)
    if miss is not None:
        if outcome.revision and miss.cause in ("unexplained", "look-back"):
            miss = miss._replace(cause="history", where=REVISED)
        found.miss = f"{miss.cause}: {miss.where}" if miss.where not in ("", miss.cause) else miss.cause
        found.missed = miss.dollars
        row.missed[miss.cause] = row.missed.get(miss.cause, 0.0) + miss.dollars
    bare = price.caching.marks and asked is not None and not asked.marks and usage.fresh == usage.input
    if bare and usage.input >= price.caching.minimum:
        row.unmarked = before is not None
        row.marks_would_save += marks_would_save(before, request, since, price.caching, rates)
    elif not bare:
        row.unmarked = False
    view.before = request
    return miss
