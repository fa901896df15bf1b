"""How large a difference is, and between which bounds: means over points, with the error that sessions make.

Points of a session have a model, a project and a habit in common. So the error is that of leaving out one session at a
time (the jackknife), with Student's t on one degree of freedom less than there are sessions. Where sessions weigh
alike this is the usual interval of session means. Where some weigh much more than others, it is wider: the jackknife
moves more, and only as many sessions count as would do the same if they were alike.

Where something is rare, a few sessions have most of it, and trials that drew none of these have a mean that is too
low and a spread that is too small, both at once. So degrees of freedom are the fewer, the more of what deviates is in
few sessions, and the end on the side of the long tail is further out than the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

from .outcomes import Stratum
from .quantiles import t_above, t_quantile, unseen_share

COVERED = 0.95
"""Of intervals: in how many of 100 trials they hold the true value."""
NORMAL = NormalDist().inv_cdf((1 + COVERED) / 2)
"""What 95 % are within, in standard errors of a normal distribution."""
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
    what so many points, as much alike as they are within sessions, can miss."""
    if not contrasts:
        return None
    weights = [each.weight if weighted else 1.0 for each in contrasts]
    total = fsum(weights)
    value = _mean(weights, [each.difference for each in contrasts], total)
    effective = total**2 / fsum(weight**2 for weight in weights)
    sessions = _by_session(contrasts, weights, value)
    low = high = above = None
    if len(sessions) > 1:
        moved = [each.deviation / (total - each.weight) for each in sessions]
        error, freedom = _error(moved), min(_freedom(sessions), _carried(moved))
        least = _floor(contrasts, weights, sessions, error) if share else 0.0
        low, high = (value + sign * max(least, _reach(moved, error, freedom, sign)) for sign in (-1, 1))
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


def _error(moved: Sequence[float]) -> float:
    """Of what the mean moves by without each session: what it adds to the deviations, over the weight that is left."""
    return sqrt((len(moved) - 1) / len(moved) * fsum(step**2 for step in moved))


def _freedom(sessions: Sequence[_SessionSum]) -> float:
    """Satterthwaite's degrees of freedom, if what a session adds to the variance goes with the square of its weight."""
    squares = [each.weight**2 for each in sessions]
    return max(1.0, fsum(squares) ** 2 / fsum(square**2 for square in squares) - 1)


def _carried(moved: Sequence[float]) -> float:
    """Degrees of freedom by what each session was seen to add to the variance: if few carry it, it is known as badly as
    that of so few. They are sessions − 1 where these vary as the normal distribution does."""
    count, squares = len(moved), fsum(step**2 for step in moved)
    peaked = count * fsum(step**4 for step in moved) / squares**2 if squares else 0.0
    return max(1.0, 2 * (count - 1) / (peaked - 1)) if peaked > 1 else inf


def _reach(moved: Sequence[float], error: float, freedom: float, sign: int) -> float:
    """From the mean to the end on this side: Student's t, and Hall's correction where the long tail is there. The other
    end is not drawn in by it: a tail that is seen there by chance would cost coverage."""
    squares = fsum(step**2 for step in moved)
    skewed = sign * fsum(step**3 for step in moved) / (6 * squares**1.5) if squares else 0.0
    return error * (t_quantile((1 + COVERED) / 2, freedom) + max(0.0, skewed) * (2 * NORMAL**2 + 1))


def _floor(
    contrasts: Sequence[Contrast], weights: Sequence[float], sessions: Sequence[_SessionSum], error: float
) -> float:
    """What the points can miss, where hardly one differs; else nothing. The more points of a session are alike, the
    fewer they count for (the design effect), down to one for each session where none is heavier than others."""
    if _differing(contrasts, weights) >= FEW:
        return 0.0
    total = fsum(weights)
    effective = total**2 / fsum(weight**2 for weight in weights)
    value = _mean(weights, [each.difference for each in contrasts], total)
    squares = ((weight * (each.difference - value)) ** 2 for each, weight in zip(contrasts, weights, strict=True))
    if unlike := fsum(squares) / total**2:
        effective /= max(1.0, error**2 / unlike)
    return unseen_share(max(effective, total**2 / fsum(each.weight**2 for each in sessions)))
