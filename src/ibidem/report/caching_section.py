"""How sessions were cached, in words and as a section of the page: shares, misses by cause, and what asking for caching
in another way would have cost."""

from __future__ import annotations

from collections.abc import Iterator

from ..billing.misses import Shares
from ..render.number_format import dollars, plural
from .aggregate import Report, ReportRow, ScenarioTotals
from .session_result import NOTHING_DONE, MissCount, SessionFigures

MARKS_COMMAND = "ibidem wrap --cache auto -- …"
ADVICE_PAGE = "docs/caching.md"

ADVICE = f"How to have a provider keep what it is sent, with and without ibidem: {ADVICE_PAGE} in ibidem's repository."

CAUSES = {
    "unmarked": "nothing marked it",
    "pause": "a pause longer than its lifetime",
    "model": "another model",
    "tools": "tools changed",
    "system": "system prompt changed",
    "history": "history changed",
    "look-back": "too many blocks since the last mark",
    "minimum": "shorter than the minimum",
    "unexplained": "unexplained",
}
"""Why less was read than could have been, in words for people; `billing.misses` says what each means."""

ASKED = {
    "recorded": "as recorded",
    "none": "no cache",
    "5m": "5 minutes",
    "1h": "1 hour",
    "auto": "auto",
}
"""Ways to ask for caching, in words."""

SHARES = ("read", "5 min", "1 hour", "not cached")
"""Heads over `Shares`: what was written has its lifetime."""

NAMED_CAUSES = 3
"""Causes whose dearest miss is named."""


def headline(total: ReportRow) -> str:
    """The cost of sessions without cache breakpoints; empty if breakpoints would have saved nothing."""
    unmarked = total.unmarked
    if unmarked.saved <= 0:
        return ""
    with_marks = dollars(unmarked.cost - unmarked.saved)
    they, their = ("it", "its") if unmarked.sessions == 1 else ("they", "their")
    asked = f"{plural(unmarked.sessions, 'session')} asked {their} provider to keep nothing"
    return f"{asked}: {they} cost {dollars(unmarked.cost)} and would have cost {with_marks} with marks"


def by_agent(report: Report) -> list[tuple[str, int, Shares]]:
    """Agent, sessions and cache shares: a line for each agent if there are several, and one for all."""
    some = [(name, row) for name, row in report.groups("agent").items() if row.cached]
    some.sort(key=lambda pair: -pair[1].cached_cost)
    rows = [*(some if len(some) > 1 else ()), ("in all", report.total)]
    return [(name, len(row.cached_sessions), row.cached.shares) for name, row in rows if row.cached]


def by_cost(row: ReportRow) -> list[tuple[str, MissCount]]:
    """Misses by cause, the most expensive first."""
    return sorted(row.cached.misses.items(), key=lambda pair: -pair[1].cost) if row.cached else []


def most_expensive_miss(row: ReportRow, cause: str) -> tuple[str, SessionFigures] | None:
    """The most expensive miss in words, and its session; None for `unmarked`, which every request pays."""
    worst = row.most_expensive_miss(cause)
    if cause == "unmarked" or worst is None:
        return None
    session, miss = worst
    where = f" ({miss.where})" if miss.where else ""
    return f"worst {dollars(miss.dearest)}{where}, request {miss.request:,} of", session


def not_recorded(report: Report) -> str:
    """How many sessions say nothing of it; empty where all do, or none does."""
    total = report.total
    rest = len(total.replayed) - len(total.cached_sessions) if total.cached else 0
    they = "it was" if rest == 1 else "they were"
    return f"{plural(rest, 'session')} recorded no usage: how {they} cached is not known." if rest else ""


def caching_modes(total: ReportRow) -> Iterator[tuple[str, str, ScenarioTotals]]:
    """How caching is asked for, with which profile, and what that costs; for each, nothing done comes first."""
    for caching, found in total.caching.items():
        for way, each in found.items():
            yield ASKED[caching], "" if way == NOTHING_DONE else way, each


def as_they_are(total: ReportRow) -> str:
    """What no way of asking changes; empty where there is nothing of that kind, or nobody asked."""
    if not total.unasked or not total.caching:
        return ""
    have = "has" if total.unasked == 1 else "have"
    return (
        f"{plural(total.unasked, 'session')} {have} a provider that keeps by itself what it is sent: it costs what was"
        " recorded, whatever is asked for; only auto may ask it to keep longer, at no other price."
    )
