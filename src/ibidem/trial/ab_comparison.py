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

from ..usage_db import AssignedConversation
from .estimates import COVERAGE, FEW
from .student_t import anytime_quantile, t_quantile

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


class ShareComparison(NamedTuple):
    """Conversations that started while this share of conversations was rewritten."""

    share: float
    measured: tuple[AssignedConversation, ...]
    rewritten: tuple[AssignedConversation, ...]

    @property
    def conversation_count(self) -> int:
        """Number of conversations in both variants."""
        return len(self.measured) + len(self.rewritten)

    @property
    def has_enough(self) -> bool:
        """Whether both variants have enough conversations for a comparison."""
        return min(len(self.measured), len(self.rewritten)) >= LEAST_UNITS

    @property
    def effective_pairs(self) -> float:
        """Number of conversations per variant that has the same information if both numbers are equal."""
        return 2 * len(self.measured) * len(self.rewritten) / self.conversation_count


class ErrorSpread(NamedTuple):
    """Error of a difference, in its own unit or as a logarithm."""

    error: float
    """Standard error."""
    freedom: float
    pairs: float

    @property
    def fixed_half_width(self) -> float:
        """Half-width of the interval for one check. Degrees of freedom are rounded down, which widens it."""
        return t_quantile((1 + COVERAGE) / 2, floor(self.freedom)) * self.error

    def anytime_half_width(self, times: float = 1.0) -> float:
        """Return the half-width of the interval for all checks.

        With `times`, it is the expected half-width at that multiple of the current number of conversations.
        """
        reach = anytime_quantile(COVERAGE, times * self.pairs, floor(times * self.freedom))
        return reach * self.error / sqrt(times)


@dataclass(frozen=True, slots=True)
class VariantDifference:
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
    spread: ErrorSpread | None = None
    problem: str = ""
    """Reason for a missing interval."""


@dataclass(frozen=True, slots=True)
class VariantComparison:
    """Result of the A/B comparison of conversations, for the profile of the newest one."""

    shares: tuple[ShareComparison, ...]
    """Conversations by share, those with the newest conversation first."""
    paused_count: int
    """Number of conversations that were paused by the user."""
    other_profile_count: int
    """Number of conversations with other profiles."""
    differences: tuple[VariantDifference, ...]
    """Empty if there are too few conversations."""
    margin: float | None
    """Extra reads per 100 requests that use up the savings, or None without savings."""

    @property
    def compared_shares(self) -> tuple[ShareComparison, ...]:
        """Shares with enough conversations."""
        return tuple(share for share in self.shares if share.has_enough)

    @property
    def has_enough(self) -> bool:
        """Whether any share has enough conversations for a comparison."""
        return bool(self.compared_shares)

    @property
    def measured_units(self) -> tuple[AssignedConversation, ...]:
        """Compared conversations that were only measured, or all measured ones if no share has enough."""
        return tuple(unit for share in self.compared_shares or self.shares for unit in share.measured)

    @property
    def rewritten_units(self) -> tuple[AssignedConversation, ...]:
        """Compared conversations that were rewritten, or all rewritten ones if no share has enough."""
        return tuple(unit for share in self.compared_shares or self.shares for unit in share.rewritten)

    @property
    def reread_difference(self) -> VariantDifference | None:
        """Difference in re-reads per 100 requests."""
        return next((difference for difference in self.differences if difference.ratio is REREADS), None)

    @property
    def dollar_difference(self) -> VariantDifference | None:
        """Difference in dollars per user turn."""
        return next((difference for difference in self.differences if difference.ratio is DOLLARS), None)

    def missing_for_dollars(self) -> int | None:
        """Estimate how many more conversations are needed until the savings are significant in dollars per user turn.

        Return 0 if they are, and None if unknown. The savings are assumed to be as large as measured so far.
        """
        dollars = self.dollar_difference
        if dollars is None or dollars.spread is None or dollars.ever_high is None or self.margin is None:
            return None
        return 0 if dollars.ever_high < 0 else self._missing_conversations(dollars.spread, log1p(self.margin / 100))

    def missing_for_rereads(self, target: float) -> int | None:
        """Estimate how many more conversations in total exclude `target` extra reads per 100 requests.

        Return 0 if they are excluded, and None if unknown or if more conversations would not help. A difference below
        zero counts as zero, because it may be chance.
        """
        rereads = self.reread_difference
        if rereads is None or rereads.spread is None or rereads.value is None or rereads.ever_high is None:
            return None
        if rereads.ever_high < target:
            return 0
        gap = target - max(0.0, rereads.value)
        return self._missing_conversations(rereads.spread, gap) if gap > 0 else None

    def _missing_conversations(self, spread: ErrorSpread, half: float) -> int | None:
        """Return the missing conversations until the interval's half-width is at most `half`, at the same shares."""
        count, times = (
            len(self.measured_units) + len(self.rewritten_units),
            _least_multiple(lambda times: spread.anytime_half_width(times) <= half),
        )
        return max(1, ceil(count * times) - count) if times is not None else None


def _least_multiple(enough: Callable[[float], bool]) -> float | None:
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


def compare_variants(units: Sequence[AssignedConversation]) -> VariantComparison:
    """Compare the variants of the profile of the newest conversation."""
    profile = max(units, key=lambda each: each.first).profile if units else ""
    profile_units = [each for each in units if each.profile == profile and each.requests]
    active_units = [each for each in profile_units if not each.off]
    shares = group_by_share(active_units)
    comparable_shares = [each for each in shares if each.has_enough]
    return VariantComparison(
        shares,
        len(profile_units) - len(active_units),
        sum(each.profile != profile for each in units),
        tuple(compare_ratio(each, comparable_shares) for each in RATIOS) if comparable_shares else (),
        saving_margin(unit for each in comparable_shares or shares for unit in each.rewritten),
    )


def group_by_share(units: Iterable[AssignedConversation]) -> tuple[ShareComparison, ...]:
    """Group conversations by share. Periods with the same share are one group, because their odds are equal."""
    newest_first = sorted(units, key=lambda unit: unit.first, reverse=True)
    return tuple(
        ShareComparison(
            share, *(tuple(each for each in share_units if each.arm == arm) for arm in ("measure", "rewrite"))
        )
        for share in dict.fromkeys(each.share for each in newest_first)
        for share_units in [[each for each in newest_first if each.share == share]]
    )


def saving_margin(units: Iterable[AssignedConversation]) -> float | None:
    """Return the extra reads per 100 requests that use up the savings. A read is priced like an average request."""
    sums = [(unit.paid, unit.saved) for unit in units]
    total_cost, total_saving = (fsum(column) for column in zip(*sums, strict=True)) if sums else (0.0, 0.0)
    return 100 * total_saving / total_cost if total_cost > 0 and total_saving > 0 else None


def compare_ratio(ratio: Ratio, shares: Sequence[ShareComparison]) -> VariantDifference:
    """Compare one ratio over all shares. A share without a denominator is skipped, unless all are without."""
    every = [_compare_share(ratio, each) for each in shares]
    parts = [part for part in every if not part.problem] or every
    measured_level, rewritten_level = (
        _average_ratio(ratio, [(part.pairs, part.levels[place]) for part in parts]) for place in (0, 1)
    )
    spread, numerator_sum = _combine_errors(parts), round(fsum(part.numerator_sum for part in parts))
    problem = parts[0].problem
    if not (problem or ratio.relative) and numerator_sum < FEW:
        problem = f"only {numerator_sum} seen so far"
    if problem or not spread.error:
        return VariantDifference(ratio, measured_level, rewritten_level, problem=problem or ALIKE)
    centre = _weighted_mean((part.pairs, part.centre) for part in parts)
    ends = [
        centre,
        centre - spread.fixed_half_width,
        centre + spread.fixed_half_width,
        centre - spread.anytime_half_width(),
        centre + spread.anytime_half_width(),
    ]
    value, low, high, ever_low, ever_high = [exp(end) - 1 for end in ends] if ratio.relative else ends
    return VariantDifference(ratio, measured_level, rewritten_level, value, low, high, ever_low, ever_high, spread)


class _ShareDifference(NamedTuple):
    """Comparison of one ratio within one share."""

    pairs: float
    levels: tuple[float | None, float | None]
    numerator_sum: float
    """Sum of the numerators of both variants."""
    centre: float = 0.0
    """Difference, or logarithm of the quotient."""
    variances: Variances = ()
    """Parts of the variance of the difference, each with its degrees of freedom."""
    problem: str = ""


def _compare_share(ratio: Ratio, sides: ShareComparison) -> _ShareDifference:
    measured_ratio, rewritten_ratio = _VariantRatio(ratio, sides.measured), _VariantRatio(ratio, sides.rewritten)
    before, after = measured_ratio.ratio_value, rewritten_ratio.ratio_value
    share_difference = _ShareDifference(
        sides.effective_pairs, (before, after), measured_ratio.above + rewritten_ratio.above
    )
    if before is None or after is None:
        return share_difference._replace(problem=f"no {ratio.below.replace('_', ' ')} yet")
    if ratio.relative and not (before and after):
        return share_difference._replace(problem="one variant has a count of zero")
    first, second = measured_ratio.jackknife_variance, rewritten_ratio.jackknife_variance
    if first is None or second is None:
        return share_difference._replace(problem=ALIKE)
    centre = log(after / before) if ratio.relative else after - before
    return share_difference._replace(
        centre=centre, variances=_difference_variances(first, second, *map(len, sides[1:]))
    )


def _difference_variances(first: float, second: float, count: int, other: int) -> Variances:
    """Return the variance of each variant, or the pooled variance if that is larger.

    If something rare happened to be missing in one variant, its own variance would be too small.
    """
    separate = ((first, count - 1), (second, other - 1))
    freedom = count + other - 2
    mean_variance = fsum(size * (size - 1) * variance for size, variance in ((count, first), (other, second))) / freedom
    pooled_variance = mean_variance / count + mean_variance / other
    return ((pooled_variance, freedom),) if pooled_variance > first + second else separate


def _combine_errors(parts: Sequence[_ShareDifference]) -> ErrorSpread:
    """Combine the errors of all shares, with Satterthwaite's degrees of freedom. For one share these are Welch's."""
    whole = fsum(part.pairs for part in parts)
    terms = [((part.pairs / whole) ** 2 * each, freedom) for part in parts for each, freedom in part.variances]
    variance = fsum(each for each, _ in terms)
    doubt = fsum(each**2 / freedom for each, freedom in terms)
    return ErrorSpread(sqrt(variance), variance**2 / doubt if doubt else 1.0, whole)


def _average_ratio(ratio: Ratio, levels: Iterable[tuple[float, float | None]]) -> float | None:
    """Average the ratio of one variant like the differences, so that both agree."""
    known_levels = [(weight, level) for weight, level in levels if level is not None]
    if not known_levels:
        return None
    if ratio.relative and all(level for _, level in known_levels):
        return exp(_weighted_mean((weight, log(level)) for weight, level in known_levels))
    return _weighted_mean(known_levels)


def _weighted_mean(pairs: Iterable[tuple[float, float]]) -> float:
    pair_list = list(pairs)
    return fsum(weight * value for weight, value in pair_list) / fsum(weight for weight, _ in pair_list)


class _VariantRatio:
    """One ratio of one variant."""

    def __init__(self, ratio: Ratio, units: Iterable[AssignedConversation]) -> None:
        self._ratio = ratio
        self._pairs = [(float(getattr(unit, ratio.above)), float(getattr(unit, ratio.below))) for unit in units]
        self.above, self.below = (fsum(column) for column in zip(*self._pairs, strict=True))

    @property
    def ratio_value(self) -> float | None:
        return self._ratio.times * self.above / self.below if self.below else None

    @property
    def jackknife_variance(self) -> float | None:
        """Jackknife variance of the ratio or its logarithm; None if one conversation has the whole sum."""
        without = []
        for above, below in self._pairs:
            rest_above, rest_below = self.above - above, self.below - below
            if rest_below <= 0 or (self._ratio.relative and rest_above <= 0):
                return None
            level = self._ratio.times * rest_above / rest_below
            without.append(log(level) if self._ratio.relative else level)
        count, mean = len(without), fsum(without) / len(without)
        return (count - 1) / count * fsum((level_without - mean) ** 2 for level_without in without)
