"""How large a difference is, and between which bounds: means over points, with the error that sessions make.

Points of a session have a model, a project and a habit in common. So the error is that of leaving out one session at a
time (the jackknife), with Student's t on one degree of freedom less than there are sessions. Where sessions weigh
alike this is the usual interval of session means. Where some weigh much more than others, it is wider: the jackknife
moves more, and only as many sessions count as would do the same if they were alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import NamedTuple

from .outcomes import Stratum
from .quantiles import t_above, t_quantile, unseen_share

COVERED = 0.95
"""Of intervals: in how many of 100 trials they hold the true value."""
FEW = 6
"""With fewer points that differ at all, what they spread is no measure: nothing seen is not nothing there."""


class Contrast(NamedTuple):
    """What one point says of one outcome: the levels of both arms, and how they differ, in the outcome's own sign."""

    session: str
    stratum: Stratum
    weight: float
    original: float
    rewritten: float
    difference: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over points. Shares are between 0 and 1; tokens are tokens."""

    original: float
    """The level with original requests; for agreement, that of A with A."""
    rewritten: float
    """The level with rewritten requests; for agreement, that of A with B."""
    value: float
    low: float | None
    """Ends of the 95 % interval. None with a single session: how sessions differ is unknown then."""
    high: float | None
    points: int
    sessions: int
    effective: float
    """As many points of equal weight would do the same."""
    above_zero: float | None
    """One-sided p of the t test that the mean is not above zero; None without an interval or without any spread."""


def estimate(contrasts: Sequence[Contrast], *, weighted: bool, share: bool = True) -> Estimate | None:
    """None without points. A `share` lies between −1 and 1; where hardly a point differs, its interval is as wide as
    what so many points can miss."""
    if not contrasts:
        return None
    weights = [each.weight if weighted else 1.0 for each in contrasts]
    total = fsum(weights)
    value = _mean(weights, [each.difference for each in contrasts], total)
    effective = total**2 / fsum(weight**2 for weight in weights)
    sessions = _by_session(contrasts, weights, value)
    low = high = above = None
    if len(sessions) > 1:
        error, freedom = _error(sessions, total), _freedom(sessions)
        half = t_quantile((1 + COVERED) / 2, freedom) * error
        if share and _differing(contrasts, weights) < FEW:
            half = max(half, unseen_share(effective))
        low, high = value - half, value + half
        if share:
            low, high = max(-1.0, low), min(1.0, high)
        above = t_above(value / error, freedom) if error > 0 else None
    return Estimate(
        original=_mean(weights, [each.original for each in contrasts], total),
        rewritten=_mean(weights, [each.rewritten for each in contrasts], total),
        value=value,
        low=low,
        high=high,
        points=len(contrasts),
        sessions=len(sessions),
        effective=effective,
        above_zero=above,
    )


def _differing(contrasts: Iterable[Contrast], weights: Sequence[float]) -> float:
    """Points that differ, counted in the heaviest: light ones say nothing of how heavy ones would."""
    return fsum(weight for each, weight in zip(contrasts, weights, strict=True) if each.difference) / max(weights)


def _mean(weights: Iterable[float], values: Iterable[float], total: float) -> float:
    return fsum(weight * value for weight, value in zip(weights, values, strict=True)) / total


class _SessionSum(NamedTuple):
    weight: float
    deviation: float
    """What its points are off the mean, weighted and added up."""


def _by_session(contrasts: Iterable[Contrast], weights: Iterable[float], value: float) -> list[_SessionSum]:
    found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for each, weight in zip(contrasts, weights, strict=True):
        found[each.session].append((weight, weight * (each.difference - value)))
    return [_SessionSum(*map(fsum, zip(*points, strict=True))) for points in found.values()]


def _error(sessions: Sequence[_SessionSum], total: float) -> float:
    """Without a session the mean moves by what that session adds to the deviations, over the weight that is left."""
    count = len(sessions)
    moved = (each.deviation / (total - each.weight) for each in sessions)
    return sqrt((count - 1) / count * fsum(step**2 for step in moved))


def _freedom(sessions: Sequence[_SessionSum]) -> float:
    """Satterthwaite's degrees of freedom, if what a session adds to the variance goes with the square of its weight."""
    squares = [each.weight**2 for each in sessions]
    return max(1.0, fsum(squares) ** 2 / fsum(square**2 for square in squares) - 1)
