"""What a coin per conversation shows (`--trial`): each side as ratios, and how they differ, with 95 % intervals.

A ratio is a sum over a sum: requests over turns, dollars over requests. What varies by chance is the conversation, not
the request, so the error of a ratio is that of leaving out one conversation at a time (the jackknife), and the interval
of a difference is Student's t with Welch's degrees of freedom. Counts that are rare are compared as differences, sizes
as quotients: the error of a quotient is taken of its logarithm, since sizes of conversations have long tails.

A conversation counts on the side that it began on, whatever became of its requests. One that somebody switched off is
left out on either side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, fsum, log, log1p, sqrt

from ..gains import TrialUnit
from .estimates import COVERED, FEW
from .quantiles import t_quantile

LEAST_UNITS = 10
"""Conversations of each side below which nothing is compared: an interval of fewer says more than it knows."""
WORTH_EXCLUDING = 5.0
"""Extra reads per 100 requests: about half of what is usually saved."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One of the figures that are compared."""

    key: str
    words: str
    above: str
    below: str
    """Fields of a unit that are added up; the first over the second."""
    times: float = 1.0
    relative: bool = True
    """Told as a quotient; otherwise as a difference."""


REREADS = Ratio("rereads_per_100_requests", "files read again per 100 requests", "rereads", "requests", 100, False)
DOLLARS = Ratio("dollars_per_turn", "dollars per user turn", "paid", "turns")
RATIOS = (
    REREADS,
    Ratio("failed_edits_per_100_edits", "failed edits per 100 edits", "failed_edits", "edits", 100, False),
    Ratio("requests_per_turn", "requests per user turn", "requests", "turns"),
    Ratio("tokens_per_request", "input tokens per request", "input", "priced"),
    Ratio("tokens_per_turn", "input tokens per user turn", "input", "turns"),
    Ratio("dollars_per_request", "dollars per request", "paid", "priced"),
    DOLLARS,
)


@dataclass(frozen=True, slots=True)
class ArmDifference:
    """Rewritten against measured. Where a ratio is relative, 0.1 is a tenth more; otherwise it is in its own unit."""

    ratio: Ratio
    measured: float | None
    """None where there is nothing to divide by."""
    rewritten: float | None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    problem: str = ""
    """Why there is no interval."""


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """All of it."""

    measured: tuple[TrialUnit, ...]
    rewritten: tuple[TrialUnit, ...]
    left_out: int
    """Conversations that somebody switched off."""
    others: int
    """Those of other profiles than the last that was tried."""
    differences: tuple[ArmDifference, ...]
    """Empty where there are too few to compare."""
    margin: float | None
    """Extra reads per 100 requests at which the saving is gone; None where nothing is saved."""

    @property
    def enough(self) -> bool:
        return min(len(self.measured), len(self.rewritten)) >= LEAST_UNITS

    @property
    def rereads(self) -> ArmDifference | None:
        return next((each for each in self.differences if each.ratio is REREADS), None)

    @property
    def dollars(self) -> ArmDifference | None:
        return next((each for each in self.differences if each.ratio is DOLLARS), None)

    def more_dollars(self) -> int | None:
        """Conversations that are still to come until the saving, as large as it is by our count, shows in dollars per
        user turn, about; 0 where it does, None where that cannot be told."""
        found = self.dollars
        if found is None or found.low is None or found.high is None or self.margin is None:
            return None
        if found.high < 0:
            return 0
        half, count = log((1 + found.high) / (1 + found.low)) / 2, len(self.measured) + len(self.rewritten)
        return max(1, ceil(count * (half / log1p(self.margin / 100)) ** 2) - count)

    def more(self, target: float) -> int | None:
        """Conversations that are still to come, of both sides together, until more extra reads than `target` per 100
        requests are excluded, about; 0 where they are, None where that cannot be told or more would not do it.

        A lucky difference below nothing is not counted on.
        """
        found = self.rereads
        if found is None or found.value is None or found.high is None:
            return None
        if found.high < target:
            return 0
        gap = target - max(0.0, found.value)
        count = len(self.measured) + len(self.rewritten)
        return max(1, ceil(count * ((found.high - found.value) / gap) ** 2) - count) if gap > 0 else None


def compare(units: Sequence[TrialUnit]) -> ArmComparison:
    """Of the profile that was tried last."""
    profile = max(units, key=lambda each: each.first).profile if units else ""
    of_it = [each for each in units if each.profile == profile and each.requests]
    stayed = [each for each in of_it if not each.off]
    measured, rewritten = (tuple(each for each in stayed if each.arm == arm) for arm in ("measure", "rewrite"))
    enough = min(len(measured), len(rewritten)) >= LEAST_UNITS
    return ArmComparison(
        measured,
        rewritten,
        len(of_it) - len(stayed),
        sum(each.profile != profile for each in units),
        tuple(difference(each, measured, rewritten) for each in RATIOS) if enough else (),
        margin(rewritten),
    )


def margin(rewritten: Iterable[TrialUnit]) -> float | None:
    """One read more is one request more, at the price of an average one."""
    paid, saved = fsum(each.paid for each in rewritten), fsum(each.saved for each in rewritten)
    return 100 * saved / paid if paid > 0 and saved > 0 else None


def difference(ratio: Ratio, measured: Sequence[TrialUnit], rewritten: Sequence[TrialUnit]) -> ArmDifference:
    sides = [_Side(ratio, units) for units in (measured, rewritten)]
    levels = [None if side.level is None else ratio.times * side.level for side in sides]
    told = ArmDifference(ratio, levels[0], levels[1])
    if levels[0] is None or levels[1] is None:
        return _without(told, f"no {ratio.below.replace('_', ' ')} yet")
    if not ratio.relative and (seen := round(fsum(side.above for side in sides))) < FEW:
        return _without(told, f"only {seen} seen so far")
    if ratio.relative and not (levels[0] and levels[1]):
        return _without(told, "nothing was counted on one side")
    errors = [side.error for side in sides]
    if errors[0] is None or errors[1] is None or not errors[0] + errors[1]:
        return _without(told, "conversations are too few, or too much alike")
    centre = log(levels[1] / levels[0]) if ratio.relative else levels[1] - levels[0]
    half = ratio.times ** (not ratio.relative) * _half(errors[0], errors[1], len(measured), len(rewritten))
    ends = [centre, centre - half, centre + half]
    value, low, high = [exp(end) - 1 for end in ends] if ratio.relative else ends
    return ArmDifference(ratio, levels[0], levels[1], value, low, high)


def _without(told: ArmDifference, problem: str) -> ArmDifference:
    return ArmDifference(told.ratio, told.measured, told.rewritten, problem=problem)


def _half(first: float, second: float, count: int, other: int) -> float:
    """Half of an interval, of the variances of both sides. Degrees of freedom are rounded down, to the careful side."""
    whole = first + second
    df = whole**2 / (first**2 / (count - 1) + second**2 / (other - 1))
    return t_quantile((1 + COVERED) / 2, floor(df)) * sqrt(whole)


class _Side:
    """One ratio of one side."""

    def __init__(self, ratio: Ratio, units: Iterable[TrialUnit]) -> None:
        self._relative = ratio.relative
        self._pairs = [(float(getattr(each, ratio.above)), float(getattr(each, ratio.below))) for each in units]
        self.above, self.below = (fsum(column) for column in zip(*self._pairs, strict=True))

    @property
    def level(self) -> float | None:
        return self.above / self.below if self.below else None

    @property
    def error(self) -> float | None:
        """The variance of the ratio, or of its logarithm; None where all of it is in one conversation."""
        without = []
        for above, below in self._pairs:
            rest_above, rest_below = self.above - above, self.below - below
            if rest_below <= 0 or (self._relative and rest_above <= 0):
                return None
            without.append(log(rest_above / rest_below) if self._relative else rest_above / rest_below)
        count, mean = len(without), fsum(without) / len(without)
        return (count - 1) / count * fsum((each - mean) ** 2 for each in without)
