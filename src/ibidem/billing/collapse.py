"""Whether a provider still finds in its cache what it was sent: judged from what it charges for, request by request.

A request that goes on from one that was answered lately should be read from the cache nearly whole. If it is not, right
after something sent before was changed, that change is why; and where the cache had been found before, the conversation
is better left alone from then on.
"""

from __future__ import annotations

from typing import NamedTuple

from .caching import Caching
from .usage import Usage

FOUND_SHARE = 0.5
"""A provider that reads less than this share of the last request, warm and unchanged, has lost it."""


class Billed(NamedTuple):
    """A request that its provider charged for."""

    size: float
    """In provider tokens, as it came; if nothing is rewritten, as it would have been sent."""
    sent: int
    """As it was sent."""
    messages: int
    model: str
    at: float
    """When it was answered."""
    revised: bool
    """It changed what had been sent."""


class CacheHistory(NamedTuple):
    """What is known of a conversation before an answer."""

    caching: Caching
    last: Billed | None = None
    hits: int = 0
    """How many of its requests were found."""
    stopped: bool = False
    """What was sent is not changed any more."""
    new_head: bool = False
    """The tools or the system text differ from those of the last request, so nothing behind them is found."""


class Verdict(NamedTuple):
    warm: bool = False
    """The request before can still be in the cache."""
    hit: bool = False
    """It was found there."""
    lost: bool = False
    """It was not, because it had changed what was sent before it."""
    collapsed: bool = False
    """And that should be the last time."""


NO_VERDICT = Verdict()
"""Of a request that nothing can be compared with."""


def was_found(usage: Usage, last: Billed) -> bool:
    """Whether the request before was read from the cache."""
    return usage.read >= FOUND_SHARE * min(last.sent, usage.input)


def judge(history: CacheHistory, usage: Usage, model: str, at: float, revised: bool) -> Verdict:
    """Of a request that was sent `at` that time, from what its provider counted."""
    last, caching = history.last, history.caching
    if last is None:
        return NO_VERDICT
    warm = last.model == model and at - last.at <= caching.lifetime and not history.new_head
    hit = was_found(usage, last)
    lost = warm and not hit and last.revised and not revised
    long = usage.input > 2 * caching.minimum
    return Verdict(warm, hit, lost, lost and long and history.hits > 0 and not history.stopped)
