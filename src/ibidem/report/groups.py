"""Figures of sessions that have something in common, added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from ..billing.misses import Shares, shares
from ..billing.usage import Usage
from .figures import Cached, Missed, Recorded, Saved, SessionFigures, Spent, World
from .numbers import ROUNDING


@dataclass(slots=True)
class Worlds:
    """A group of sessions under a profile that changes what had been sent, by what a provider finds afterwards."""

    cost: float = 0.0
    rewrites: float = 0.0
    best: float | None = None
    """What the same edits would have cost at the best moments."""
    dearer: int = 0
    """Sessions that cost more than with nothing done."""
    ratio: float = 0.0
    """The cost of the dearest session, as a share of its cost with nothing done."""
    dearest: SessionFigures | None = None
    worst: float = 0.0
    """The largest share by which a session was ever dearer than with nothing done, at its end or before."""
    worst_in: SessionFigures | None = None
    """None if none ever was."""

    def add(self, session: SessionFigures, world: World) -> None:
        self.cost += world.cost
        self.rewrites += world.rewrites
        if world.best is not None:
            self.best = (self.best or 0.0) + world.best
        base = session.baseline.cost
        self.dearer += world.cost > base * (1 + ROUNDING)
        if base and world.cost / base > self.ratio:
            self.ratio, self.dearest = world.cost / base, session
        if world.worst > max(self.worst, ROUNDING):
            self.worst, self.worst_in = world.worst, session

    def reached(self, base: float) -> float | None:
        """Of what the best moments would have saved, the share that was; None if that would be nothing."""
        return None if self.best is None or base <= self.best else (base - self.cost) / (base - self.best)


@dataclass(slots=True)
class Profile:
    """A group of sessions under one profile."""

    spent: Spent = field(default_factory=Spent)
    dearer: int = 0
    """Sessions that cost more than with nothing done."""
    worst: float = 0.0
    """The largest share by which one was ever dearer than that, at its end or before."""
    law_failures: int = 0
    restored: int = 0
    """Requests of which what they added was restored and compared."""
    points: Counter[str] = field(default_factory=Counter)
    """Why what had been sent was changed, and how often."""
    strategies: dict[str, Saved] = field(default_factory=dict)
    worlds: dict[str, Worlds] = field(default_factory=dict)
    """Empty for a profile that never changes what had been sent."""

    @property
    def changing(self) -> dict[str, Worlds]:
        """What it costs to change what had been sent, by world; empty if nothing was, and nobody asked what can be."""
        told = self.spent.breaks or any(world.best is not None for world in self.worlds.values())
        return self.worlds if told else {}


@dataclass(slots=True)
class MissedTotal:
    """Misses of a group of sessions, for one reason."""

    count: int = 0
    tokens: float = 0.0
    cost: float = 0.0
    dearest: Missed = field(default_factory=Missed)
    """That of the session with the dearest one."""
    dearest_in: SessionFigures | None = None

    def add(self, session: SessionFigures, missed: Missed) -> None:
        self.count += missed.count
        self.tokens += missed.tokens
        self.cost += missed.cost
        if self.dearest_in is None or missed.dearest > self.dearest.dearest:
            self.dearest, self.dearest_in = missed, session


@dataclass(slots=True)
class CachedTotal:
    """How a group of sessions was cached: those that recorded usage."""

    sessions: int = 0
    cost: float = 0.0
    """As recorded."""
    tokens: Usage = field(default_factory=Usage)
    misses: dict[str, MissedTotal] = field(default_factory=dict)
    """By cause."""
    unmarked: int = 0
    """Sessions that asked for no cache where it has to be asked for."""
    unmarked_cost: float = 0.0
    """What these cost, as recorded."""
    unmarked_saved: float = 0.0
    """What five-minute marks would have saved of it."""

    def add(self, session: SessionFigures, cached: Cached) -> None:
        cost = session.recorded.cost if session.recorded else 0.0
        self.sessions += 1
        self.cost += cost
        self.tokens = Usage(
            self.tokens.fresh + cached.fresh,
            self.tokens.read + cached.read,
            self.tokens.written + cached.written,
            self.tokens.written_1h + cached.written_1h,
        )
        for cause, missed in cached.misses.items():
            self.misses.setdefault(cause, MissedTotal()).add(session, missed)
        if cached.unmarked:
            self.unmarked += 1
            self.unmarked_cost += cost
            self.unmarked_saved += cached.misses["unmarked"].cost

    @property
    def shares(self) -> Shares:
        return shares([self.tokens]) or Shares()


@dataclass(slots=True)
class Group:
    """Sessions that have something in common."""

    sessions: int = 0
    requests: int = 0
    baseline: Spent = field(default_factory=Spent)
    recorded: Recorded | None = None
    thinking: float = 0.0
    """Dollars of the baseline for thinking that was sent back with later requests."""
    errors: list[float] = field(default_factory=list)
    """Of the baseline against the recorded bill, as a share, by session."""
    profiles: dict[str, Profile] = field(default_factory=dict)
    cached: CachedTotal | None = None
    """None where nothing was recorded."""
    caching: dict[str, dict[str, Worlds]] = field(default_factory=dict)
    """How caching is asked for → profile, or `NOTHING_DONE`."""
    unasked: int = 0
    """Sessions whose provider keeps by itself."""

    def add(self, session: SessionFigures) -> None:
        self.sessions += 1
        self.requests += session.requests
        self.unasked += session.unasked
        _add(self.baseline, session.baseline)
        self.thinking += session.thinking
        if session.recorded:
            if session.recorded.cost:
                self.errors.append(session.recorded.baseline / session.recorded.cost - 1)
            self.recorded = _sum(self.recorded, session.recorded)
        if session.cached:
            self.cached = self.cached or CachedTotal()
            self.cached.add(session, session.cached)
        for caching, ways in session.caching.items():
            for way, figures in ways.items():
                self.caching.setdefault(caching, {}).setdefault(way, Worlds()).add(session, figures)
        for name, outcome in session.profiles.items():
            profile = self.profiles.setdefault(name, Profile())
            _add(profile.spent, outcome.spent)
            profile.dearer += outcome.spent.cost > session.baseline.cost * (1 + ROUNDING)
            profile.worst = max(profile.worst, outcome.worst)
            profile.law_failures += outcome.law_failures
            profile.restored += outcome.restored
            profile.points.update(outcome.points)
            for world, figures in outcome.worlds.items():
                profile.worlds.setdefault(world, Worlds()).add(session, figures)
            for strategy, saved in outcome.strategies.items():
                profile.strategies.setdefault(strategy, Saved()).add(saved.hits, saved.tokens, saved.cost)

    def saved(self, profile: str) -> float:
        """The share of the bill that a profile saves; negative where it costs more."""
        return share(self.baseline.cost, self.profiles[profile].spent.cost)

    @property
    def thinking_share(self) -> float:
        """Of the bill with nothing done."""
        return self.thinking / self.baseline.cost if self.baseline.cost else 0.0

    @property
    def error(self) -> float | None:
        """Of the baseline against the recorded bill, in all."""
        return self.recorded.baseline / self.recorded.cost - 1 if self.recorded and self.recorded.cost else None

    @property
    def error_by_rule(self) -> float | None:
        """Of the bill by the rules of the cache alone, against the recorded one: recorded hits are not looked at."""
        return self.recorded.by_rule / self.recorded.cost - 1 if self.recorded and self.recorded.cost else None

    def error_at(self, quantile: float) -> float | None:
        """The error that so many of the sessions do not exceed."""
        found = sorted(map(abs, self.errors))
        if not found:
            return None
        return median(found) if quantile == 0.5 else found[min(len(found) - 1, int(quantile * len(found)))]


def share(before: float, after: float) -> float:
    return 1 - after / before if before else 0.0


def _add(total: Spent, more: Spent) -> None:
    total.cost += more.cost
    total.tokens += more.tokens
    total.read += more.read
    total.peak = max(total.peak, more.peak)
    total.breaks += more.breaks


def _sum(total: Recorded | None, more: Recorded) -> Recorded:
    if total is None:
        return Recorded(more.cost, more.requests, more.baseline, more.by_rule)
    return Recorded(
        total.cost + more.cost,
        total.requests + more.requests,
        total.baseline + more.baseline,
        total.by_rule + more.by_rule,
    )
