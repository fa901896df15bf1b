"""Compute the statistics of a trial: for each outcome a value, an interval and a one-sided p value. No I/O.

Two outcomes decide, with Holm's correction at 5 % for both together. One is the deficit: how much less often A and B
agree than A and A. The second is how much more often B re-reads text. Their p values are from a permutation test, where
points with a relevant reference have more weight (`STRENGTH`): harm is most likely there. The estimates that
are compared with the savings are weighted back to the recordings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, comb, isfinite, sqrt
from random import Random
from statistics import NormalDist
from types import MappingProxyType

from .estimates import Contrast, Estimate, estimate
from .evalue import HARM_ENOUGH, harm_evalue
from .outcomes import PointResult, Sample, Stratum
from .permutation import DRAWS, PointTest, make_agreement_test, make_rate_test, one_sided_p
from .student_t import minimum_points

__all__ = [
    "HARM_ENOUGH",
    "LEVEL",
    "Comparison",
    "TrialStatistics",
    "compute_statistics",
    "harm_evalue",
    "required_points",
]

LEVEL = 0.05
"""Maximum probability of a false alarm."""
STRENGTH = MappingProxyType({Stratum.FOLLOWS: 4, Stratum.TOUCHES: 2, Stratum.ANY: 1})
"""Weight of a point in a test. The weights have nearly full power if all harm is at points that must follow a
reference, and also if harm is the same at all points."""
PLANNED_POWER = 0.8
LEAST_POINTS = 20
"""Minimum number of planned points, for any margin."""
LARGEST_MARGIN = 5.0
"""Extra re-reads per 100 requests that a trial must be able to find, even if the savings allow more."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Estimates and p value of one outcome. The `value` of an estimate is B − A, except for agreement: there it is
    the deficit, A − B."""

    weighted: Estimate | None
    """Estimate over the recordings: each point has the weight of the requests that it represents."""
    unweighted: Estimate | None
    """Estimate over the points of the trial, with equal weights."""
    strata: Mapping[Stratum, Estimate]
    p: float | None
    """One-sided p value for harm; None if unknown."""
    adjusted: float | None = None
    """P value after Holm's correction; None for outcomes that do not decide."""
    problem: str = ""
    """Reason for a missing p value or missing estimates, as text."""

    @property
    def has_alarm(self) -> bool:
        """Whether this outcome decides and shows significant harm."""
        return self.adjusted is not None and self.adjusted <= LEVEL


@dataclass(frozen=True, slots=True)
class TrialStatistics:
    """Statistics of all outcomes of a trial."""

    agreement: Comparison
    """O1: how much less often A and B agree than A and A."""
    looks: Comparison
    """O2: share of samples that re-read text in the request."""
    edits: Comparison
    """O3: share of samples that edit a text which the request does not show."""
    matches: Comparison
    """O4: share of samples with the recorded action. Harm is below zero."""
    tokens: Comparison
    """Output tokens per sample."""
    files: Comparison
    """Share of samples that use a file of the recorded action, if it has one. Harm is below zero."""
    likeness: Comparison
    """Similarity of the edited text to the recorded edit, if there is one. Harm is below zero."""
    harm: float
    """E-value for an early stop, which happens at `HARM_ENOUGH`."""
    points: int
    """Number of points with samples in both variants."""
    sessions: int
    samples: tuple[int, int]
    """Number of samples of A and of B."""
    seed: int

    @property
    def has_alarm(self) -> bool:
        """Whether an outcome that decides shows significant harm."""
        return self.agreement.has_alarm or self.looks.has_alarm


def compute_statistics(points: Sequence[PointResult], *, seed: int, draws: int = DRAWS) -> TrialStatistics:
    """Compute all outcomes of these points, without points that have no samples in one variant."""
    _check_weights(points)
    both = [point for point in points if point.original and point.rewritten]
    pairs = [point for point in both if len(point.original) > 1]
    rng = Random(seed)
    agreement = _test_contrasts(
        [_agreement_contrast(point) for point in pairs],
        [
            make_agreement_test(_action_classes(point.original), _action_classes(point.rewritten))._replace(
                strength=STRENGTH[point.stratum]
            )
            for point in pairs
        ],
        rng,
        draws,
        "no point has two samples of the original, so its noise is unknown: request at least 2 per variant",
    )
    looks = _compare_rates(both, lambda point, sample: sample.looks_again, rng, draws)
    edits = _compare_rates(both, lambda point, sample: bool(sample.broken_edit), rng, draws)
    matches = _compare_rates(
        both, lambda point, sample: sample.action == point.recorded, rng, draws, fewer_is_harm=True
    )
    on_files = [point for point in both if _has_values(point, lambda sample: sample.same_file)]
    nowhere = "no recorded action is on a file"
    files = _compare_rates(
        on_files, lambda point, sample: bool(sample.same_file), rng, draws, fewer_is_harm=True, none=nowhere
    )
    agreement, looks = _adjust_holm((agreement, looks))
    return TrialStatistics(
        agreement=agreement,
        looks=looks,
        edits=edits,
        matches=matches,
        tokens=_compare_tokens(both),
        files=files,
        likeness=_compare_similarity(both),
        harm=harm_evalue(both),
        points=len(both),
        sessions=len({point.session for point in both}),
        samples=(sum(len(point.original) for point in both), sum(len(point.rewritten) for point in both)),
        seed=seed,
    )


def _check_weights(points: Iterable[PointResult]) -> None:
    for point in points:
        if not (isfinite(point.weight) and point.weight > 0):
            raise ValueError(f"point {point.point!r}: its weight is {point.weight}, and must be a number above zero")


def _action_classes(samples: Iterable[Sample]) -> list[str]:
    return [sample.action for sample in samples]


def _agreement_contrast(point: PointResult) -> Contrast:
    original_actions, rewritten_actions = _action_classes(point.original), _action_classes(point.rewritten)
    size, other = len(original_actions), len(rewritten_actions)
    within = sum(original_actions.count(action) - 1 for action in original_actions) / (size * (size - 1))
    across = sum(rewritten_actions.count(action) for action in original_actions) / (size * other)
    return Contrast(point.session, point.stratum, point.weight, within, across, within - across)


def _mean_contrast(point: PointResult, number: Callable[[PointResult, Sample], float]) -> Contrast:
    original_mean = sum(number(point, sample) for sample in point.original) / len(point.original)
    rewritten_mean = sum(number(point, sample) for sample in point.rewritten) / len(point.rewritten)
    return Contrast(
        point.session, point.stratum, point.weight, original_mean, rewritten_mean, rewritten_mean - original_mean
    )


def _compare_rates(
    points: Sequence[PointResult],
    has_property: Callable[[PointResult, Sample], bool],
    rng: Random,
    draws: int,
    fewer_is_harm: bool = False,
    none: str = "no point has samples of both variants",
) -> Comparison:
    def make_test(point: PointResult) -> PointTest:
        original_flags = [has_property(point, sample) for sample in point.original]
        rewritten_flags = [has_property(point, sample) for sample in point.rewritten]
        arms = (rewritten_flags, original_flags) if fewer_is_harm else (original_flags, rewritten_flags)
        return make_rate_test(*arms)._replace(strength=STRENGTH[point.stratum])

    contrasts = [_mean_contrast(point, has_property) for point in points]
    return _test_contrasts(contrasts, [make_test(point) for point in points], rng, draws, none)


def _test_contrasts(
    contrasts: Sequence[Contrast], tests: Sequence[PointTest], rng: Random, draws: int, none: str
) -> Comparison:
    comparison = _estimate_contrasts(contrasts, share=True)
    if not contrasts:
        return replace(comparison, problem=none)
    return replace(comparison, p=one_sided_p(tests, rng, draws))


def _estimate_contrasts(contrasts: Sequence[Contrast], *, share: bool) -> Comparison:
    strata: dict[Stratum, Estimate] = {}
    for stratum in Stratum:
        stratum_contrasts = [each for each in contrasts if each.stratum == stratum]
        if stratum_estimate := estimate(stratum_contrasts, weighted=True, share=share):
            strata[stratum] = stratum_estimate
    weighted_estimate, unweighted_estimate = (estimate(contrasts, weighted=each, share=share) for each in (True, False))
    return Comparison(weighted_estimate, unweighted_estimate, MappingProxyType(strata), None)


def _compare_tokens(points: Sequence[PointResult]) -> Comparison:
    """Compare output lengths with the t test of the estimate. They are not counts, and do not decide."""
    comparison = _estimate_contrasts(
        [_mean_contrast(point, lambda _, sample: sample.output_tokens) for point in points], share=False
    )
    if comparison.unweighted is None:
        return replace(comparison, problem="no point has samples of both variants")
    problem = (
        "only one session, so the variance between sessions is unknown" if comparison.unweighted.sessions < 2 else ""
    )
    return replace(comparison, p=comparison.unweighted.above_zero, problem=problem)


def _compare_similarity(points: Sequence[PointResult]) -> Comparison:
    """Compare the similarity to the recorded edit, over the points that have one."""
    edit_points = [point for point in points if _has_values(point, lambda sample: sample.edit_likeness)]
    comparison = _estimate_contrasts(
        [_mean_contrast(point, lambda _, sample: sample.edit_likeness or 0.0) for point in edit_points], share=True
    )
    if comparison.unweighted is None:
        return replace(comparison, problem="no recorded action edits a text")
    above = comparison.unweighted.above_zero
    problem = (
        "only one session, so the variance between sessions is unknown" if comparison.unweighted.sessions < 2 else ""
    )
    return replace(comparison, p=None if above is None else 1 - above, problem=problem)


def _has_values(point: PointResult, number: Callable[[Sample], float | None]) -> bool:
    """Return whether all samples of a point have this value. Run logs of older versions may not have it."""
    return all(number(sample) is not None for sample in (*point.original, *point.rewritten))


def _adjust_holm(family: Sequence[Comparison]) -> list[Comparison]:
    """Apply Holm's correction: multiply the smallest of n p values by n, the next by n − 1, and keep them ascending.

    Comparisons without a p value do not count as tests.
    """
    order = sorted((comparison.p, place) for place, comparison in enumerate(family) if comparison.p is not None)
    adjusted_values: dict[int, float] = {}
    least = 0.0
    for rank, (p, place) in enumerate(order):
        least = max(least, min(1.0, p * (len(order) - rank)))
        adjusted_values[place] = least
    return [replace(each, adjusted=adjusted_values.get(place)) for place, each in enumerate(family)]


def required_points(points: Sequence[PointResult], margin: float, *, samples: int | None = None) -> int:
    """Return the number of points that can exclude an effect of `margin` extra re-reads per 100 requests, at most 5.

    This has 80 % power at one-sided 5 % if there is no effect. Only samples of originals are used, so the plan cannot
    depend on the result. `samples` is the number per variant (default: as in these points).
    """
    sampled_points = [point for point in points if point.original]
    if not sampled_points:
        raise ValueError("no point has a sample of the original: collect some before planning the number of points")
    if not margin > 0:
        raise ValueError(f"a margin of {margin} extra re-reads per 100 requests is too small: pass one above zero")
    _check_weights(sampled_points)
    margin = min(margin, LARGEST_MARGIN)
    answers = samples or max(1, round(sum(len(point.original) for point in sampled_points) / len(sampled_points)))
    spread = max(_reread_variance(sampled_points, answers), _agreement_variance(sampled_points, answers))
    weights = [point.weight for point in sampled_points]
    unevenness = len(weights) * sum(weight**2 for weight in weights) / sum(weights) ** 2
    reach = NormalDist().inv_cdf(1 - LEVEL) + NormalDist().inv_cdf(PLANNED_POWER)
    separable_points = reach**2 * spread / (margin / 100) ** 2
    return max(LEAST_POINTS, ceil(unevenness * max(separable_points, minimum_points(margin / 100))))


def _reread_variance(points: Sequence[PointResult], answers: int) -> float:
    """Return the variance of a point's B − A for re-reads.

    Two re-reads and two other samples are added (Agresti and Coull), because 20 points without a re-read do not mean a
    rate of zero.
    """
    looks = [sample.looks_again for point in points for sample in point.original]
    rate = (sum(looks) + 2) / (len(looks) + 4)
    return 2 * rate * (1 - rate) / answers


def _agreement_variance(points: Sequence[PointResult], answers: int) -> float:
    """Return the variance of a point's deficit, if one action is usual and no two others are equal.

    It is the variance of the usual action's rate in both variants, plus that of the pairs within and across them.
    """
    pairs = sum(comb(len(point.original), 2) for point in points)
    if not pairs or answers < 2:
        return 0.0
    equal = sum(
        comb(actions.count(action), 2)
        for point in points
        for actions in [_action_classes(point.original)]
        for action in set(actions)
    )
    usual = sqrt((equal + 2) / (pairs + 4))
    spread = usual * (1 - usual)
    return 2 * usual**2 * spread / answers + 2 * spread**2 / (answers * (answers - 1)) + spread**2 / answers**2
