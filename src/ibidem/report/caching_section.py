"""Prompt caching in a report, for the terminal and the page: cache shares, misses by cause, and costs by caching
mode."""

from __future__ import annotations

from collections.abc import Iterator

from ..billing.cache_misses import CacheShares
from ..render.number_format import dollars, plural
from .aggregate import Report, ReportRow, ScenarioTotals
from .session_result import NOTHING_DONE, MissCount, SessionResult

MARKS_COMMAND = "ibidem wrap --cache auto -- …"
ADVICE_PAGE = "docs/caching.md"

ADVICE = f"How to turn on prompt caching, with and without ibidem: {ADVICE_PAGE} in ibidem's repository."

CAUSES = {
    "unmarked": "no cache breakpoints",
    "pause": "idle for longer than the TTL",
    "model": "another model",
    "tools": "tools changed",
    "system": "system prompt changed",
    "history": "history changed",
    "look-back": "too many blocks since the last breakpoint",
    "minimum": "shorter than the minimum",
    "unexplained": "unexplained",
}
"""Cause of a cache miss → text for people. `billing.cache_misses` defines the causes."""

MODE_NAMES = {
    "recorded": "as recorded",
    "none": "no cache",
    "5m": "5 minutes",
    "1h": "1 hour",
    "auto": "auto",
}
"""Caching mode → text for people."""

SHARES = ("read", "5 min", "1 hour", "not cached")
"""Column heads for `CacheShares`. A written token is named by its TTL."""

NAMED_CAUSES = 3
"""Number of causes whose most expensive miss is named."""


def headline(total: ReportRow) -> str:
    """The cost of sessions without cache breakpoints; empty if breakpoints would have saved nothing."""
    totals = total.missing_breakpoints
    if totals.saved <= 0:
        return ""
    with_marks = dollars(totals.cost - totals.saved)
    they, their = ("it", "its") if totals.sessions == 1 else ("they", "their")
    problem = f"{plural(totals.sessions, 'session')} did not use {their} provider's prompt cache"
    return f"{problem}: {they} cost {dollars(totals.cost)} and would have cost {with_marks} with cache breakpoints"


def by_agent(report: Report) -> list[tuple[str, int, CacheShares]]:
    """List agent, sessions and cache shares: a row for each agent if there are several, and one for all."""
    agents = [(name, row) for name, row in report.groups("agent").items() if row.cached]
    agents.sort(key=lambda pair: -pair[1].cached_cost)
    rows = [*(agents if len(agents) > 1 else ()), ("in all", report.total)]
    return [(name, len(row.cached_sessions), row.cached.shares) for name, row in rows if row.cached]


def by_cost(row: ReportRow) -> list[tuple[str, MissCount]]:
    """List misses by cause, the most expensive first."""
    return sorted(row.cached.misses.items(), key=lambda pair: -pair[1].cost) if row.cached else []


def most_expensive_miss(row: ReportRow, cause: str) -> tuple[str, SessionResult] | None:
    """Describe the most expensive miss of a cause. Returns text and session; None for `unmarked`: every request has
    it."""
    worst = row.most_expensive_miss(cause)
    if cause == "unmarked" or worst is None:
        return None
    session, miss = worst
    where = f" ({miss.where})" if miss.where else ""
    return f"worst {dollars(miss.dearest)}{where}, request {miss.request:,} of", session


def not_recorded(report: Report) -> str:
    """Count the sessions without recorded usage, in a sentence; empty if all sessions have usage, or no session has."""
    total = report.total
    missing = len(total.replayed) - len(total.cached_sessions) if total.cached else 0
    they = "it was" if missing == 1 else "they were"
    return f"{plural(missing, 'session')} recorded no usage, so it is unknown how {they} cached." if missing else ""


def caching_modes(total: ReportRow) -> Iterator[tuple[str, str, ScenarioTotals]]:
    """Yield caching mode, profile and costs. The profile is empty for the baseline, which is the first of each mode."""
    for caching, by_profile in total.caching_totals.items():
        for profile, each in by_profile.items():
            yield MODE_NAMES[caching], "" if profile == NOTHING_DONE else profile, each


def as_they_are(total: ReportRow) -> str:
    """Note the sessions whose provider caches automatically; empty if there are none or modes were not compared."""
    if not total.automatic_sessions or not total.caching_totals:
        return ""
    have = "has" if total.automatic_sessions == 1 else "have"
    return (
        f"{plural(total.automatic_sessions, 'session')} {have} a provider that caches automatically. The cost is as"
        " recorded in every mode. Only auto may request a longer TTL, at the same price."
    )
