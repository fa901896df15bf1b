"""What the answers say: five outcomes, each with a value, an interval and a one-sided p. Nothing is asked here.

Two of them decide, with Holm's correction at 5 % for both together: how much less often a rewritten request leads to
the action that the original leads to (beyond how often the original disagrees with itself), and how much more often
text is read again. Their p is that of shuffled labels, and points count the more in it the more a reference has to do
with them (`STRENGTH`), because that is where harm would be; the sizes that are set against the saving are weighted back
to the recordings instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, comb, isfinite, sqrt
from random import Random
from statistics import NormalDist
from types import MappingProxyType

from .estimates import Contrast, Estimate, estimate
from .evalue import HARM_ENOUGH, harm
from .outcomes import PointResult, Sample, Stratum
from .permutation import DRAWS, PointTest, agreement_test, chance_of_more, count_test
from .quantiles import seen_enough

__all__ = ["HARM_ENOUGH", "LEVEL", "Comparison", "Judgement", "harm", "judge", "needed"]

LEVEL = 0.05
"""Of the alarm: how often it is raised, at most, where rewritten requests are answered as the originals are."""
STRENGTH = MappingProxyType({Stratum.FOLLOWS: 4, Stratum.TOUCHES: 2, Stratum.ANY: 1})
"""What a point counts in a test. If all harm is where a reference must be followed, this finds it nearly as well as
those points alone would; if it is everywhere, nearly as well as equal counts would."""
PLANNED_POWER = 0.8
LEAST_POINTS = 20
"""Fewer are not planned for, however wide the margin."""
FOUND_LOOKS = 5.0
"""Extra looks per 100 requests that a trial is to find, however many more the saving would bear."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One outcome. `value` of its estimates is B − A, but A − B for agreement, where it is what is missing."""

    weighted: Estimate | None
    """Over the requests of the recordings: each point counts for those that it stands for."""
    asked: Estimate | None
    """Over the points that were asked, each alike."""
    strata: Mapping[Stratum, Estimate]
    p: float | None
    """One-sided, for harm: how often chance alone does as much. None where it cannot be told."""
    adjusted: float | None = None
    """After Holm's correction; None for what is told beside."""
    problem: str = ""
    """Why there is no p, or no estimate at all, in words."""

    @property
    def alarm(self) -> bool:
        return self.adjusted is not None and self.adjusted <= LEVEL


@dataclass(frozen=True, slots=True)
class Judgement:
    """All that the answers say."""

    agreement: Comparison
    """O1: how much less often A and B agree than A and A."""
    looks: Comparison
    """O2: reads again what stands in the request."""
    edits: Comparison
    """O3: answers with an edit of a text that the request does not show, of all answers."""
    matches: Comparison
    """O4: does what the agent did when it was recorded. Below zero is harm here."""
    tokens: Comparison
    """Output tokens of an answer."""
    files: Comparison
    """Is on a file that the recorded action is on, where that is on one. Below zero is harm here, too."""
    likeness: Comparison
    """How much of what edits put in is alike what was put in then, where something was. Below zero is harm."""
    harm: float
    """The e-value for an early stop; `HARM_ENOUGH` is enough."""
    points: int
    """With an answer in each arm."""
    sessions: int
    samples: tuple[int, int]
    """Answers in the arms A and B."""
    seed: int

    @property
    def alarm(self) -> bool:
        return self.agreement.alarm or self.looks.alarm


def judge(points: Sequence[PointResult], *, seed: int, draws: int = DRAWS) -> Judgement:
    """All outcomes of these points. Points with an empty arm (A/A only, or all dropped) are left out."""
    _check(points)
    both = [point for point in points if point.original and point.rewritten]
    pairs = [point for point in both if len(point.original) > 1]
    rng = Random(seed)
    agreement = _comparison(
        [_agreement(point) for point in pairs],
        [
            agreement_test(_actions(point.original), _actions(point.rewritten))._replace(
                strength=STRENGTH[point.stratum]
            )
            for point in pairs
        ],
        rng,
        draws,
        "no point has two answers to the original, so its noise is unknown: ask at least 2 per arm",
    )
    looks = _counted(both, lambda point, sample: sample.looks_again, rng, draws)
    edits = _counted(both, lambda point, sample: bool(sample.broken_edit), rng, draws)
    matches = _counted(both, lambda point, sample: sample.action == point.recorded, rng, draws, fewer_is_harm=True)
    on_files = [point for point in both if _tells(point, lambda sample: sample.same_file)]
    nowhere = "no recorded action is on a file"
    files = _counted(
        on_files, lambda point, sample: bool(sample.same_file), rng, draws, fewer_is_harm=True, none=nowhere
    )
    agreement, looks = _holm((agreement, looks))
    return Judgement(
        agreement=agreement,
        looks=looks,
        edits=edits,
        matches=matches,
        tokens=_tokens(both),
        files=files,
        likeness=_likeness(both),
        harm=harm(both),
        points=len(both),
        sessions=len({point.session for point in both}),
        samples=(sum(len(point.original) for point in both), sum(len(point.rewritten) for point in both)),
        seed=seed,
    )


def _check(points: Iterable[PointResult]) -> None:
    for point in points:
        if not (isfinite(point.weight) and point.weight > 0):
            raise ValueError(f"point {point.point!r}: its weight is {point.weight}, and must be a number above zero")


def _actions(samples: Iterable[Sample]) -> list[str]:
    return [sample.action for sample in samples]


def _agreement(point: PointResult) -> Contrast:
    original, rewritten = _actions(point.original), _actions(point.rewritten)
    size, other = len(original), len(rewritten)
    within = sum(original.count(action) - 1 for action in original) / (size * (size - 1))
    across = sum(rewritten.count(action) for action in original) / (size * other)
    return Contrast(point.session, point.stratum, point.weight, within, across, within - across)


def _contrast(point: PointResult, number: Callable[[PointResult, Sample], float]) -> Contrast:
    original = sum(number(point, sample) for sample in point.original) / len(point.original)
    rewritten = sum(number(point, sample) for sample in point.rewritten) / len(point.rewritten)
    return Contrast(point.session, point.stratum, point.weight, original, rewritten, rewritten - original)


def _counted(
    points: Sequence[PointResult],
    there: Callable[[PointResult, Sample], bool],
    rng: Random,
    draws: int,
    fewer_is_harm: bool = False,
    none: str = "no point has an answer in each arm",
) -> Comparison:
    def test(point: PointResult) -> PointTest:
        original = [there(point, sample) for sample in point.original]
        rewritten = [there(point, sample) for sample in point.rewritten]
        arms = (rewritten, original) if fewer_is_harm else (original, rewritten)
        return count_test(*arms)._replace(strength=STRENGTH[point.stratum])

    contrasts = [_contrast(point, there) for point in points]
    return _comparison(contrasts, [test(point) for point in points], rng, draws, none)


def _comparison(
    contrasts: Sequence[Contrast], tests: Sequence[PointTest], rng: Random, draws: int, none: str
) -> Comparison:
    found = _estimated(contrasts, share=True)
    if not contrasts:
        return replace(found, problem=none)
    return replace(found, p=chance_of_more(tests, rng, draws))


def _estimated(contrasts: Sequence[Contrast], *, share: bool) -> Comparison:
    strata: dict[Stratum, Estimate] = {}
    for stratum in Stratum:
        of_it = [each for each in contrasts if each.stratum == stratum]
        if told := estimate(of_it, weighted=True, share=share):
            strata[stratum] = told
    weighted, asked = (estimate(contrasts, weighted=each, share=share) for each in (True, False))
    return Comparison(weighted, asked, MappingProxyType(strata), None)


def _tokens(points: Sequence[PointResult]) -> Comparison:
    """Lengths have long tails and no few classes: the t test of the estimate does for what is told beside."""
    found = _estimated([_contrast(point, lambda _, sample: sample.output_tokens) for point in points], share=False)
    if found.asked is None:
        return replace(found, problem="no point has an answer in each arm")
    problem = "one session: how much sessions differ is unknown" if found.asked.sessions < 2 else ""
    return replace(found, p=found.asked.above_zero, problem=problem)


def _likeness(points: Sequence[PointResult]) -> Comparison:
    """Over the points at which a text was edited when they were recorded."""
    edited = [point for point in points if _tells(point, lambda sample: sample.edit_likeness)]
    found = _estimated(
        [_contrast(point, lambda _, sample: sample.edit_likeness or 0.0) for point in edited], share=True
    )
    if found.asked is None:
        return replace(found, problem="no recorded action edits a text")
    above = found.asked.above_zero
    problem = "one session: how much sessions differ is unknown" if found.asked.sessions < 2 else ""
    return replace(found, p=None if above is None else 1 - above, problem=problem)


def _tells(point: PointResult, number: Callable[[Sample], float | None]) -> bool:
    """Whether all of its answers have this: those that were given before it was asked for have not."""
    return all(number(sample) is not None for sample in (*point.original, *point.rewritten))


def _holm(family: Sequence[Comparison]) -> list[Comparison]:
    """The smallest p times their number, the next times one less, and none below one before it. What cannot be tested
    is no test, and is not corrected for."""
    order = sorted((each.p, place) for place, each in enumerate(family) if each.p is not None)
    adjusted: dict[int, float] = {}
    least = 0.0
    for rank, (p, place) in enumerate(order):
        least = max(least, min(1.0, p * (len(order) - rank)))
        adjusted[place] = least
    return [replace(each, adjusted=adjusted.get(place)) for place, each in enumerate(family)]


def needed(points: Sequence[PointResult], margin: float, *, samples: int | None = None) -> int:
    """Points that exclude an effect of `margin` (extra looks per 100 requests), or of five where it is wider, with 80 %
    power at one-sided 5 %, if there is none. Planned from answers to originals alone, so that the plan cannot depend on
    what it is to find.

    `samples` are answers per arm; as many as these points have, if it is not said.
    """
    told = [point for point in points if point.original]
    if not told:
        raise ValueError("no point has an answer to the original: ask some before the number of points is planned")
    if not margin > 0:
        raise ValueError(f"a margin of {margin} extra looks per 100 requests cannot be excluded: it must be above zero")
    _check(told)
    margin = min(margin, FOUND_LOOKS)
    answers = samples or max(1, round(sum(len(point.original) for point in told) / len(told)))
    spread = max(_looks_spread(told, answers), _agreement_spread(told, answers))
    weights = [point.weight for point in told]
    unevenness = len(weights) * sum(weight**2 for weight in weights) / sum(weights) ** 2
    reach = NormalDist().inv_cdf(1 - LEVEL) + NormalDist().inv_cdf(PLANNED_POWER)
    told_apart = reach**2 * spread / (margin / 100) ** 2
    return max(LEAST_POINTS, ceil(unevenness * max(told_apart, seen_enough(margin / 100))))


def _looks_spread(points: Sequence[PointResult], answers: int) -> float:
    """Variance of a point's B − A. Two looks and two others are added, as Agresti and Coull do: twenty points without
    any do not mean that there is none."""
    looks = [sample.looks_again for point in points for sample in point.original]
    rate = (sum(looks) + 2) / (len(looks) + 4)
    return 2 * rate * (1 - rate) / answers


def _agreement_spread(points: Sequence[PointResult], answers: int) -> float:
    """Variance of a point's deficit if one action is the usual one and no two others are equal: by how far the arms
    differ in how often it is taken, and by what is left to chance in the pairs."""
    pairs = sum(comb(len(point.original), 2) for point in points)
    if not pairs or answers < 2:
        return 0.0
    equal = sum(
        comb(actions.count(action), 2)
        for point in points
        for actions in [_actions(point.original)]
        for action in set(actions)
    )
    usual = sqrt((equal + 2) / (pairs + 4))
    spread = usual * (1 - usual)
    return 2 * usual**2 * spread / answers + 2 * spread**2 / (answers * (answers - 1)) + spread**2 / answers**2
