"""Detect that a provider's cache keeps missing after our revisions, from its counts of cache reads.

A request that continues a recent one should be read from the cache nearly completely. If it is not, right after a
revision, the revision is the cause. If the conversation had cache hits before, it should not be revised any more.
"""

from __future__ import annotations

from typing import NamedTuple

from .cache_rules import CacheRules
from .usage import Usage

FOUND_SHARE = 0.5
"""A read of less than this share of the last request is a miss."""


class BilledRequest(NamedTuple):
    """A request with the provider's usage."""

    size: float
    """Provider tokens as received from the client; if requests are only observed, as they would have been sent."""
    sent: int
    """Provider tokens as sent."""
    messages: int
    model: str
    at: float
    """Time of the response in seconds."""
    revised: bool
    """It revised text already sent."""


class CacheHistory(NamedTuple):
    """Facts about a conversation before a response."""

    caching: CacheRules
    last: BilledRequest | None = None
    hits: int = 0
    """Number of its requests that were read from the cache."""
    stopped: bool = False
    """The conversation is not revised any more."""
    new_head: bool = False
    """Tools or system text differ from those of the last request, so the messages after them cannot be cached."""


class CacheVerdict(NamedTuple):
    """Result of judging the cache after a response."""

    warm: bool = False
    """The previous request can still be in the cache."""
    hit: bool = False
    """The previous request was read from the cache."""
    lost: bool = False
    """The previous request was not read, because it had revised text sent before it."""
    collapsed: bool = False
    """Stop revising this conversation: the cache misses after our revisions."""


NO_VERDICT = CacheVerdict()
"""Verdict for a conversation's first request."""


def was_found(usage: Usage, last: BilledRequest) -> bool:
    """Whether the previous request was read from the cache."""
    return usage.read >= FOUND_SHARE * min(last.sent, usage.input)


def judge_cache(history: CacheHistory, usage: Usage, model: str, at: float, is_revision: bool) -> CacheVerdict:
    """Judge the cache from the usage of a request sent `at` this time."""
    last, caching = history.last, history.caching
    if last is None:
        return NO_VERDICT
    warm = last.model == model and at - last.at <= caching.lifetime and not history.new_head
    hit = was_found(usage, last)
    is_lost = warm and not hit and last.revised and not is_revision
    long = usage.input > 2 * caching.minimum
    return CacheVerdict(warm, hit, is_lost, is_lost and long and history.hits > 0 and not history.stopped)
