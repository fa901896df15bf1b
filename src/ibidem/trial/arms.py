"""Compare randomly assigned conversations (`ibidem gain --trial`): ratios of both variants, and their differences.

A ratio is a sum divided by a sum: requests per turn, dollars per request. Conversations vary by chance, not requests.
So the error of a ratio is the jackknife over conversations, and the interval of a difference is Student's t with
Welch's degrees of freedom. Rare counts are compared as differences, sizes as quotients. The error of a quotient is
computed for its logarithm, because sizes of conversations have long tails.

Work changes over time, and the user may change the share of rewritten conversations. Then one variant would have more
of the earlier work. So variants are compared within conversations that started at the same share. The results are
averaged, weighted by their effective pairs (the harmonic mean of both numbers of conversations).

Each difference has two 95 % intervals. One is for a single check, at a number of conversations that was fixed in
advance. The second one is wider and holds for any number of checks at any time. All conclusions use the wider one.

A conversation belongs to its first variant, whatever happens later. Conversations that were paused by the user are
excluded in both variants.
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
"""Minimum conversations per variant and share for a comparison. With fewer, the coverage of intervals is too small."""
WORTH_EXCLUDING = 5.0
"""Extra reads per 100 requests that use up about half of the usual savings."""
MOST_TIMES = 1e6
"""Largest multiple of the current number of conversations that is reported as missing."""
ALIKE = "too few conversations, or no variation between them"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio that is compared between variants."""

    key: str
    words: str
    above: str
    below: str
    """Names of the fields that are summed up for the numerator and the denominator."""
    times: float = 1.0
    relative: bool = True
    """The ratios are compared as a quotient; if not, as a difference."""


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
    """Conversations that started while this share of conversations was rewritten."""

    share: float
    measured: tuple[TrialUnit, ...]
    rewritten: tuple[TrialUnit, ...]

    @property
    def conversations(self) -> int:
        """Number of conversations in both variants."""
        return len(self.measured) + len(self.rewritten)

    @property
    def enough(self) -> bool:
        """Whether both variants have enough conversations for a comparison."""
        return min(len(self.measured), len(self.rewritten)) >= LEAST_UNITS

    @property
    def pairs(self) -> float:
        """Number of conversations per variant that has the same information if both numbers are equal."""
        return 2 * len(self.measured) * len(self.rewritten) / self.conversations


class Spread(NamedTuple):
    """Error of a difference, in its own unit or as a logarithm."""

    error: float
    """Standard error."""
    freedom: float
    pairs: float

    @property
    def once(self) -> float:
        """Half-width of the interval for one check. Degrees of freedom are rounded down, which widens it."""
        return t_quantile((1 + COVERED) / 2, floor(self.freedom)) * self.error

    def ever(self, times: float = 1.0) -> float:
        """Return the half-width of the interval for all checks.

        With `times`, it is the expected half-width at that multiple of the current number of conversations.
        """
        reach = ever_quantile(COVERED, times * self.pairs, floor(times * self.freedom))
        return reach * self.error / sqrt(times)


@dataclass(frozen=True, slots=True)
class ArmDifference:
    """Difference between rewritten and measured conversations. A relative value of 0.1 means 10 % more."""

    ratio: Ratio
    measured: float | None
    """None if the denominator is zero."""
    rewritten: float | None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """Ends of the interval for one check."""
    ever_low: float | None = None
    ever_high: float | None = None
    """Ends of the interval for all checks."""
    spread: Spread | None = None
    problem: str = ""
    """Reason for a missing interval."""


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """Result of the A/B comparison of conversations, for the profile of the newest one."""

    shares: tuple[ShareSides, ...]
    """Conversations by share, those with the newest conversation first."""
    left_out: int
    """Number of conversations that were paused by the user."""
    others: int
    """Number of conversations with other profiles."""
    differences: tuple[ArmDifference, ...]
    """Empty if there are too few conversations."""
    margin: float | None
    """Extra reads per 100 requests that use up the savings, or None without savings."""

    @property
    def compared(self) -> tuple[ShareSides, ...]:
        """Shares with enough conversations."""
        return tuple(each for each in self.shares if each.enough)

    @property
    def enough(self) -> bool:
        """Whether any share has enough conversations for a comparison."""
        return bool(self.compared)

    @property
    def measured(self) -> tuple[TrialUnit, ...]:
        """Compared conversations that were only measured, or all measured ones if no share has enough."""
        return tuple(unit for each in self.compared or self.shares for unit in each.measured)

    @property
    def rewritten(self) -> tuple[TrialUnit, ...]:
        """Compared conversations that were rewritten, or all rewritten ones if no share has enough."""
        return tuple(unit for each in self.compared or self.shares for unit in each.rewritten)

    @property
    def rereads(self) -> ArmDifference | None:
        """Difference in re-reads per 100 requests."""
        return next((each for each in self.differences if each.ratio is REREADS), None)

    @property
    def dollars(self) -> ArmDifference | None:
        """Difference in dollars per user turn."""
        return next((each for each in self.differences if each.ratio is DOLLARS), None)

    def more_dollars(self) -> int | None:
        """Estimate how many more conversations are needed until the savings are significant in dollars per user turn.

        Return 0 if they are, and None if unknown. The savings are assumed to be as large as measured so far.
        """
        found = self.dollars
        if found is None or found.spread is None or found.ever_high is None or self.margin is None:
            return None
        return 0 if found.ever_high < 0 else self._more(found.spread, log1p(self.margin / 100))

    def more(self, target: float) -> int | None:
        """Estimate how many more conversations in total exclude `target` extra reads per 100 requests.

        Return 0 if they are excluded, and None if unknown or if more conversations would not help. A difference below
        zero counts as zero, because it may be chance.
        """
        found = self.rereads
        if found is None or found.spread is None or found.value is None or found.ever_high is None:
            return None
        if found.ever_high < target:
            return 0
        gap = target - max(0.0, found.value)
        return self._more(found.spread, gap) if gap > 0 else None

    def _more(self, spread: Spread, half: float) -> int | None:
        """Return the missing conversations until the interval's half-width is at most `half`, at the same shares."""
        count, times = len(self.measured) + len(self.rewritten), _times(lambda times: spread.ever(times) <= half)
        return max(1, ceil(count * times) - count) if times is not None else None


def _times(enough: Callable[[float], bool]) -> float | None:
    """Return the least factor of at least 1 that is enough, to a precision of 0.1 %, or None above `MOST_TIMES`."""
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
    """Compare the variants of the profile of the newest conversation."""
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
    """Group conversations by share. Periods with the same share are one group, because their odds are equal."""
    newest_first = sorted(units, key=lambda each: each.first, reverse=True)
    return tuple(
        ShareSides(share, *(tuple(each for each in of_it if each.arm == arm) for arm in ("measure", "rewrite")))
        for share in dict.fromkeys(each.share for each in newest_first)
        for of_it in [[each for each in newest_first if each.share == share]]
    )


def margin(rewritten: Iterable[TrialUnit]) -> float | None:
    """Return the extra reads per 100 requests that use up the savings. A read is priced like an average request."""
    sums = [(each.paid, each.saved) for each in rewritten]
    paid, saved = (fsum(column) for column in zip(*sums, strict=True)) if sums else (0.0, 0.0)
    return 100 * saved / paid if paid > 0 and saved > 0 else None


def difference(ratio: Ratio, shares: Sequence[ShareSides]) -> ArmDifference:
    """Compare one ratio over all shares. A share without a denominator is skipped, unless all are without."""
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
    """Comparison of one ratio within one share."""

    pairs: float
    levels: tuple[float | None, float | None]
    seen: float
    """Sum of the numerators of both variants."""
    centre: float = 0.0
    """Difference, or logarithm of the quotient."""
    variances: Variances = ()
    """Parts of the variance of the difference, each with its degrees of freedom."""
    problem: str = ""


def _part(ratio: Ratio, sides: ShareSides) -> _Part:
    measured, rewritten = _Side(ratio, sides.measured), _Side(ratio, sides.rewritten)
    before, after = measured.level, rewritten.level
    found = _Part(sides.pairs, (before, after), measured.above + rewritten.above)
    if before is None or after is None:
        return found._replace(problem=f"no {ratio.below.replace('_', ' ')} yet")
    if ratio.relative and not (before and after):
        return found._replace(problem="one variant has a count of zero")
    first, second = measured.variance, rewritten.variance
    if first is None or second is None:
        return found._replace(problem=ALIKE)
    centre = log(after / before) if ratio.relative else after - before
    return found._replace(centre=centre, variances=_variances(first, second, *map(len, sides[1:])))


def _variances(first: float, second: float, count: int, other: int) -> Variances:
    """Return the variance of each variant, or the pooled variance if that is larger.

    If something rare happened to be missing in one variant, its own variance would be too small.
    """
    alone = ((first, count - 1), (second, other - 1))
    freedom = count + other - 2
    each = fsum(size * (size - 1) * variance for size, variance in ((count, first), (other, second))) / freedom
    together = each / count + each / other
    return ((together, freedom),) if together > first + second else alone


def _spread(parts: Sequence[_Part]) -> Spread:
    """Combine the errors of all shares, with Satterthwaite's degrees of freedom. For one share these are Welch's."""
    whole = fsum(part.pairs for part in parts)
    terms = [((part.pairs / whole) ** 2 * each, freedom) for part in parts for each, freedom in part.variances]
    variance = fsum(each for each, _ in terms)
    doubt = fsum(each**2 / freedom for each, freedom in terms)
    return Spread(sqrt(variance), variance**2 / doubt if doubt else 1.0, whole)


def _level(ratio: Ratio, levels: Iterable[tuple[float, float | None]]) -> float | None:
    """Average the ratio of one variant like the differences, so that both agree."""
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
    """One ratio of one variant."""

    def __init__(self, ratio: Ratio, units: Iterable[TrialUnit]) -> None:
        self._ratio = ratio
        self._pairs = [(float(getattr(each, ratio.above)), float(getattr(each, ratio.below))) for each in units]
        self.above, self.below = (fsum(column) for column in zip(*self._pairs, strict=True))

    @property
    def level(self) -> float | None:
        return self._ratio.times * self.above / self.below if self.below else None

    @property
    def variance(self) -> float | None:
        """Jackknife variance of the ratio or its logarithm; None if one conversation has the whole sum."""
        without = []
        for above, below in self._pairs:
            rest_above, rest_below = self.above - above, self.below - below
            if rest_below <= 0 or (self._ratio.relative and rest_above <= 0):
                return None
            level = self._ratio.times * rest_above / rest_below
            without.append(log(level) if self._ratio.relative else level)
        count, mean = len(without), fsum(without) / len(without)
        return (count - 1) / count * fsum((each - mean) ** 2 for each in without)
