"""What a coin per conversation shows (`--trial`): each side as ratios, and how they differ, with 95 % intervals.

A ratio is a sum over a sum: requests over turns, dollars over requests. What varies by chance is the conversation, not
the request, so the error of a ratio is that of leaving out one conversation at a time (the jackknife), and the interval
of a difference is Student's t with Welch's degrees of freedom. Counts that are rare are compared as differences, sizes
as quotients: the error of a quotient is taken of its logarithm, since sizes of conversations have long tails.

Work changes over time, and so may the share of the coin: then one side would have more of the earlier work. So sides
are compared among conversations that began at the same share, and what these comparisons say is averaged, each with
the weight of its pairs (the harmonic mean of its sides).

Each difference has two intervals. One is for a single look, at a number of conversations that was chosen beforehand.
The other is wider and holds at all looks together, however often and whenever one looks: what is concluded is from it.

A conversation counts on the side that it began on, whatever became of its requests. One that somebody switched off is
left out on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, fsum, log, log1p, sqrt
from typing import NamedTuple, TypeAlias

from ..gains import TrialUnit
from .estimates import COVERED, FEW
from .quantiles import ever_quantile, t_quantile

LEAST_UNITS = 10
"""Conversations of each side, begun at the same share, below which they are not compared: an interval of fewer says
more than it knows."""
WORTH_EXCLUDING = 5.0
"""Extra reads per 100 requests: about half of what is usually saved."""
MOST_TIMES = 1e6
"""As many conversations as so far, times this, are not waited for."""
ALIKE = "conversations are too few, or too much alike"


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


Variances: TypeAlias = tuple[tuple[float, int], ...]


class ShareSides(NamedTuple):
    """Conversations that began while the coin had this share."""

    share: float
    measured: tuple[TrialUnit, ...]
    rewritten: tuple[TrialUnit, ...]

    @property
    def conversations(self) -> int:
        return len(self.measured) + len(self.rewritten)

    @property
    def enough(self) -> bool:
        return min(len(self.measured), len(self.rewritten)) >= LEAST_UNITS

    @property
    def pairs(self) -> float:
        """As many of each side would tell as much, if both were equally many."""
        return 2 * len(self.measured) * len(self.rewritten) / self.conversations


class Spread(NamedTuple):
    """How far off a difference may be, in its own unit or as a logarithm."""

    error: float
    """Its standard error."""
    freedom: float
    pairs: float

    @property
    def once(self) -> float:
        """Half of the interval for one look. Degrees of freedom are rounded down, to the careful side."""
        return t_quantile((1 + COVERED) / 2, floor(self.freedom)) * self.error

    def ever(self, times: float = 1.0) -> float:
        """Half of the interval for all looks; of so many times the conversations, if they go on as they do."""
        reach = ever_quantile(COVERED, times * self.pairs, floor(times * self.freedom))
        return reach * self.error / sqrt(times)


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
    """Ends of the interval for one look."""
    ever_low: float | None = None
    ever_high: float | None = None
    """Ends of the interval that holds at all looks together."""
    spread: Spread | None = None
    problem: str = ""
    """Why there is no interval."""


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """All of it."""

    shares: tuple[ShareSides, ...]
    """Of the profile that was tried last; the share at which a conversation began last comes first."""
    left_out: int
    """Conversations that somebody switched off."""
    others: int
    """Those of other profiles than the last that was tried."""
    differences: tuple[ArmDifference, ...]
    """Empty where there are too few to compare."""
    margin: float | None
    """Extra reads per 100 requests at which the saving is gone; None where nothing is saved."""

    @property
    def compared(self) -> tuple[ShareSides, ...]:
        return tuple(each for each in self.shares if each.enough)

    @property
    def enough(self) -> bool:
        return bool(self.compared)

    @property
    def measured(self) -> tuple[TrialUnit, ...]:
        """Those that are compared; all, where there are too few of each share."""
        return tuple(unit for each in self.compared or self.shares for unit in each.measured)

    @property
    def rewritten(self) -> tuple[TrialUnit, ...]:
        return tuple(unit for each in self.compared or self.shares for unit in each.rewritten)

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
        if found is None or found.spread is None or found.ever_high is None or self.margin is None:
            return None
        return 0 if found.ever_high < 0 else self._more(found.spread, log1p(self.margin / 100))

    def more(self, target: float) -> int | None:
        """Conversations that are still to come, of both sides together, until more extra reads than `target` per 100
        requests are excluded, about; 0 where they are, None where that cannot be told or more would not do it.

        A lucky difference below nothing is not counted on.
        """
        found = self.rereads
        if found is None or found.spread is None or found.value is None or found.ever_high is None:
            return None
        if found.ever_high < target:
            return 0
        gap = target - max(0.0, found.value)
        return self._more(found.spread, gap) if gap > 0 else None

    def _more(self, spread: Spread, half: float) -> int | None:
        """Until half of the interval is no more than this, at the same shares as so far."""
        count, times = len(self.measured) + len(self.rewritten), _times(lambda times: spread.ever(times) <= half)
        return max(1, ceil(count * times) - count) if times is not None else None


def _times(enough: Callable[[float], bool]) -> float | None:
    """The least number from 1 on that is, to a thousandth of it; None if it is more than anybody has patience for."""
    low, high = 1.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_TIMES:
            return None
    while high - low > low / 1000:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def compare(units: Sequence[TrialUnit]) -> ArmComparison:
    """Of the profile that was tried last."""
    profile = max(units, key=lambda each: each.first).profile if units else ""
    of_it = [each for each in units if each.profile == profile and each.requests]
    stayed = [each for each in of_it if not each.off]
    shares = by_share(stayed)
    compared = [each for each in shares if each.enough]
    return ArmComparison(
        shares,
        len(of_it) - len(stayed),
        sum(each.profile != profile for each in units),
        tuple(difference(each, compared) for each in RATIOS) if compared else (),
        margin(unit for each in compared or shares for unit in each.rewritten),
    )


def by_share(units: Iterable[TrialUnit]) -> tuple[ShareSides, ...]:
    """A share that was left and taken up again is one: at the same odds, no side has more of the earlier work."""
    newest_first = sorted(units, key=lambda each: each.first, reverse=True)
    return tuple(
        ShareSides(share, *(tuple(each for each in of_it if each.arm == arm) for arm in ("measure", "rewrite")))
        for share in dict.fromkeys(each.share for each in newest_first)
        for of_it in [[each for each in newest_first if each.share == share]]
    )


def margin(rewritten: Iterable[TrialUnit]) -> float | None:
    """One read more is one request more, at the price of an average one."""
    sums = [(each.paid, each.saved) for each in rewritten]
    paid, saved = (fsum(column) for column in zip(*sums, strict=True)) if sums else (0.0, 0.0)
    return 100 * saved / paid if paid > 0 and saved > 0 else None


def difference(ratio: Ratio, shares: Sequence[ShareSides]) -> ArmDifference:
    """A share at which there is nothing to divide by adds nothing, unless that is so at all of them."""
    every = [_part(ratio, each) for each in shares]
    parts = [part for part in every if not part.problem] or every
    measured, rewritten = (_level(ratio, [(part.pairs, part.levels[place]) for part in parts]) for place in (0, 1))
    spread, seen = _spread(parts), round(fsum(part.seen for part in parts))
    problem = parts[0].problem
    if not (problem or ratio.relative) and seen < FEW:
        problem = f"only {seen} seen so far"
    if problem or not spread.error:
        return ArmDifference(ratio, measured, rewritten, problem=problem or ALIKE)
    centre = _mean((part.pairs, part.centre) for part in parts)
    ends = [centre, centre - spread.once, centre + spread.once, centre - spread.ever(), centre + spread.ever()]
    value, low, high, ever_low, ever_high = [exp(end) - 1 for end in ends] if ratio.relative else ends
    return ArmDifference(ratio, measured, rewritten, value, low, high, ever_low, ever_high, spread)


class _Part(NamedTuple):
    """One ratio among conversations of one share."""

    pairs: float
    levels: tuple[float | None, float | None]
    seen: float
    """What was counted on both sides, of what stands above the line."""
    centre: float = 0.0
    """The difference, or the logarithm of the quotient."""
    variances: Variances = ()
    """That add up to that of the difference, each with its degrees of freedom."""
    problem: str = ""


def _part(ratio: Ratio, sides: ShareSides) -> _Part:
    measured, rewritten = _Side(ratio, sides.measured), _Side(ratio, sides.rewritten)
    before, after = measured.level, rewritten.level
    found = _Part(sides.pairs, (before, after), measured.above + rewritten.above)
    if before is None or after is None:
        return found._replace(problem=f"no {ratio.below.replace('_', ' ')} yet")
    if ratio.relative and not (before and after):
        return found._replace(problem="nothing was counted on one side")
    first, second = measured.variance, rewritten.variance
    if first is None or second is None:
        return found._replace(problem=ALIKE)
    centre = log(after / before) if ratio.relative else after - before
    return found._replace(centre=centre, variances=_variances(first, second, *map(len, sides[1:])))


def _variances(first: float, second: float, count: int, other: int) -> Variances:
    """Of each side. Where few conversations of one side have hardly any of something rare, its own variance would say
    that so little is normal: both sides together know better, if that makes the whole larger."""
    alone = ((first, count - 1), (second, other - 1))
    freedom = count + other - 2
    each = fsum(size * (size - 1) * variance for size, variance in ((count, first), (other, second))) / freedom
    together = each / count + each / other
    return ((together, freedom),) if together > first + second else alone


def _spread(parts: Sequence[_Part]) -> Spread:
    """With Satterthwaite's degrees of freedom, which for the two sides of one share are Welch's."""
    whole = fsum(part.pairs for part in parts)
    terms = [((part.pairs / whole) ** 2 * each, freedom) for part in parts for each, freedom in part.variances]
    variance = fsum(each for each, _ in terms)
    doubt = fsum(each**2 / freedom for each, freedom in terms)
    return Spread(sqrt(variance), variance**2 / doubt if doubt else 1.0, whole)


def _level(ratio: Ratio, levels: Iterable[tuple[float, float | None]]) -> float | None:
    """Averaged as differences are, so that levels differ by what is told beside them."""
    known = [(weight, level) for weight, level in levels if level is not None]
    if not known:
        return None
    if ratio.relative and all(level for _, level in known):
        return exp(_mean((weight, log(level)) for weight, level in known))
    return _mean(known)


def _mean(weighted: Iterable[tuple[float, float]]) -> float:
    known = list(weighted)
    return fsum(weight * value for weight, value in known) / fsum(weight for weight, _ in known)


class _Side:
    """One ratio of one side."""

    def __init__(self, ratio: Ratio, units: Iterable[TrialUnit]) -> None:
        self._ratio = ratio
        self._pairs = [(float(getattr(each, ratio.above)), float(getattr(each, ratio.below))) for each in units]
        self.above, self.below = (fsum(column) for column in zip(*self._pairs, strict=True))

    @property
    def level(self) -> float | None:
        return self._ratio.times * self.above / self.below if self.below else None

    @property
    def variance(self) -> float | None:
        """Of the ratio, or of its logarithm; None where all of it is in one conversation."""
        without = []
        for above, below in self._pairs:
            rest_above, rest_below = self.above - above, self.below - below
            if rest_below <= 0 or (self._ratio.relative and rest_above <= 0):
                return None
            level = self._ratio.times * rest_above / rest_below
            without.append(log(level) if self._ratio.relative else level)
        count, mean = len(without), fsum(without) / len(without)
        return (count - 1) / count * fsum((each - mean) ** 2 for each in without)
