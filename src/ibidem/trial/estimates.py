"""Estimate means over points, with intervals that account for similar points within a session.

Points of a session share a model, a project and habits. So the error is the jackknife over sessions, with Student's t.
If all sessions have the same weight, this is the usual interval of session means, with sessions − 1 degrees of freedom.
With unequal weights the interval is wider, because the jackknife varies more and there are fewer degrees of freedom.

If an event is rare, a few sessions have most of it. A trial without these sessions has a mean and a variance that are
both too small. So there are fewer degrees of freedom if few sessions have most of the deviation, and the end of the
interval on the side of the long tail is further out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

from .outcomes import Stratum
from .student_t import t_above, t_quantile, unseen_share

COVERAGE = 0.95
"""Coverage of intervals: the share of trials in which they contain the true value."""
NORMAL = NormalDist().inv_cdf((1 + COVERAGE) / 2)
"""Half-width of that coverage in standard errors of a normal distribution."""
FEW = 6
"""Minimum points with a difference for which the observed variance is informative."""


class Contrast(NamedTuple):
    """One outcome at one point: its level in both variants, and their difference with the outcome's sign."""

    session: str
    stratum: Stratum
    weight: float
    original: float
    rewritten: float
    difference: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over points, with its interval. Shares are between 0 and 1."""

    original: float
    """Level with original requests; for agreement, that of A with A."""
    rewritten: float
    """Level with rewritten requests; for agreement, that of A with B."""
    value: float
    low: float | None
    """Ends of the 95 % interval; None with a single session, because the variance between sessions is then unknown."""
    high: float | None
    points: int
    sessions: int
    effective: float
    """Number of points with equal weights that has the same information."""
    above_zero: float | None
    """One-sided p value of the t test against a mean of at most zero; None without an interval or variance."""


def estimate(contrasts: Sequence[Contrast], *, weighted: bool, share: bool = True) -> Estimate | None:
    """Estimate the mean of the contrasts and its interval, or return None without points.

    A `share` is between −1 and 1. If few points differ, its interval has a minimum width (`_least_half_width`).
    """
    if not contrasts:
        return None
    weights = [each.weight if weighted else 1.0 for each in contrasts]
    total = fsum(weights)
    value = _weighted_mean(weights, [each.difference for each in contrasts], total)
    effective = total**2 / fsum(weight**2 for weight in weights)
    sessions = _sum_by_session(contrasts, weights, value)
    low = high = above = None
    if len(sessions) > 1:
        changes = [each.deviation / (total - each.weight) for each in sessions]
        error, freedom = _standard_error(changes), min(_weight_freedom(sessions), _kurtosis_freedom(changes))
        least = _least_half_width(contrasts, weights, sessions, error) if share else 0.0
        low, high = (value + sign * max(least, _half_width(changes, error, freedom, sign)) for sign in (-1, 1))
        if share:
            low, high = max(-1.0, low), min(1.0, high)
        above = t_above(value / error, freedom) if error > 0 else None
    return Estimate(
        original=_weighted_mean(weights, [each.original for each in contrasts], total),
        rewritten=_weighted_mean(weights, [each.rewritten for each in contrasts], total),
        value=value,
        low=low,
        high=high,
        points=len(contrasts),
        sessions=len(sessions),
        effective=effective,
        above_zero=above,
    )


def _differing_weight(contrasts: Iterable[Contrast], weights: Sequence[float]) -> float:
    """Return the total weight of the points with a difference, in units of the heaviest point."""
    return fsum(weight for contrast, weight in zip(contrasts, weights, strict=True) if contrast.difference) / max(
        weights
    )


def _weighted_mean(weights: Iterable[float], values: Iterable[float], total: float) -> float:
    return fsum(weight * value for weight, value in zip(weights, values, strict=True)) / total


class _SessionSum(NamedTuple):
    weight: float
    deviation: float
    """Weighted sum of the deviations of its points from the mean."""


def _sum_by_session(contrasts: Iterable[Contrast], weights: Iterable[float], value: float) -> list[_SessionSum]:
    points_by_session: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for contrast, weight in zip(contrasts, weights, strict=True):
        points_by_session[contrast.session].append((weight, weight * (contrast.difference - value)))
    return [_SessionSum(*map(fsum, zip(*points, strict=True))) for points in points_by_session.values()]


def _standard_error(changes: Sequence[float]) -> float:
    """Return the jackknife standard error, from the change of the mean without each session."""
    return sqrt((len(changes) - 1) / len(changes) * fsum(change**2 for change in changes))


def _weight_freedom(sessions: Sequence[_SessionSum]) -> float:
    """Return Satterthwaite's degrees of freedom, if a session's part of the variance is its squared weight."""
    squares = [session.weight**2 for session in sessions]
    return max(1.0, fsum(squares) ** 2 / fsum(square**2 for square in squares) - 1)


def _kurtosis_freedom(changes: Sequence[float]) -> float:
    """Return the degrees of freedom by the kurtosis of the changes: few if a few sessions have most of the variance.

    For normally distributed changes it is sessions − 1.
    """
    count, squares = len(changes), fsum(change**2 for change in changes)
    kurtosis = count * fsum(step**4 for step in changes) / squares**2 if squares else 0.0
    return max(1.0, 2 * (count - 1) / (kurtosis - 1)) if kurtosis > 1 else inf


def _half_width(changes: Sequence[float], error: float, freedom: float, sign: int) -> float:
    """Return the distance from the mean to the end on one side: Student's t, with Hall's correction for skewness.

    The correction only moves the end on the side of the long tail outward. Moving the other end inward would reduce
    coverage if the tail is there by chance.
    """
    squares = fsum(change**2 for change in changes)
    skewness = sign * fsum(step**3 for step in changes) / (6 * squares**1.5) if squares else 0.0
    return error * (t_quantile((1 + COVERAGE) / 2, freedom) + max(0.0, skewness) * (2 * NORMAL**2 + 1))


def _least_half_width(
    contrasts: Sequence[Contrast], weights: Sequence[float], sessions: Sequence[_SessionSum], error: float
) -> float:
    """Return the minimum half-width if few points differ, and 0 otherwise.

    It is the share that so many points can miss. Similar points within a session count less (the design effect), with
    equal session weights down to one per session.
    """
    if _differing_weight(contrasts, weights) >= FEW:
        return 0.0
    total = fsum(weights)
    effective = total**2 / fsum(weight**2 for weight in weights)
    value = _weighted_mean(weights, [each.difference for each in contrasts], total)
    squares = ((weight * (each.difference - value)) ** 2 for each, weight in zip(contrasts, weights, strict=True))
    if unlike := fsum(squares) / total**2:
        effective /= max(1.0, error**2 / unlike)
    return unseen_share(max(effective, total**2 / fsum(each.weight**2 for each in sessions)))
