"""What is judged of answers whose truth is known: made-up models with known faults, and small cases by hand.

Twenty seeds each. They are fixed, so a test fails only if code changes what is drawn or found; every bound says how
often other seeds would fail it though nothing is wrong. `tests_slow/test_trial_statistics.py` has 400.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb

import pytest

from benchmarks.trial_power import dropped, simulate
from ibidem.trial.outcomes import PointResult, Sample, Stratum
from ibidem.trial.trial_statistics import Comparison, compute_statistics, harm_evalue, required_points
from tests.support.reader import FaultyReader, swapped

SEEDS = range(20)

# --- made-up models -----------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("reader", "change"),
    [
        pytest.param(FaultyReader(), None, id="two answers"),
        pytest.param(FaultyReader(points=100, samples=4, mixed=True), None, id="strata"),
        pytest.param(FaultyReader(points=100, samples=3), dropped, id="uneven arms"),
    ],
)
def test_a_model_without_faults_is_rarely_accused(reader: FaultyReader, change: None) -> None:
    """At 5 %, 5 of 20 and more come up in 0.3 % of cases; intervals that cover 95 % miss so often as rarely."""
    found = simulate(reader, SEEDS, change) if change else simulate(reader, SEEDS)
    assert found.alarm <= 4 / 20
    assert found.early <= 4 / 20
    assert min(*found.covered(), *found.covered(weighted=True)) >= 16 / 20


def test_reading_again_is_found_with_two_answers() -> None:
    """Found in 98 % of trials: fewer than 17 of 20 in 0.1 % of cases."""
    found = simulate(FaultyReader(fails=0.1), SEEDS)
    assert found.looks >= 17 / 20
    assert found.early >= 14 / 20
    assert min(found.covered()) >= 16 / 20


@pytest.mark.slow
def test_with_four_answers_the_next_action_gives_it_away_too() -> None:
    found = simulate(FaultyReader(samples=4, fails=0.1), SEEDS)
    assert found.agreement >= 17 / 20
    assert found.looks == 1


@pytest.mark.slow
def test_acting_at_random_is_seen_in_the_next_action_alone() -> None:
    """Found in 87 % of trials: fewer than 13 of 20 in 0.2 % of cases."""
    found = simulate(FaultyReader(samples=4, fails=0.1, at_random=True), SEEDS)
    assert found.agreement >= 13 / 20
    assert found.looks <= 2 / 20
    assert found.early <= 4 / 20


def test_a_model_that_is_more_decided_is_not_harmed() -> None:
    found = simulate(FaultyReader(points=100, samples=4, decided=0.5), SEEDS)
    assert found.alarm == 0
    assert all(
        run.judgement.agreement.unweighted.value < 0.05 for run in found.runs if run.judgement.agreement.unweighted
    )


@pytest.mark.slow
def test_harm_where_references_are_followed_is_not_drowned_by_other_points() -> None:
    """Half of the points cannot show it. Found in 95 % of trials: fewer than 16 of 20 in 0.3 % of cases."""
    found = simulate(FaultyReader(samples=4, fails=0.1, mixed=True), SEEDS)
    assert found.alarm >= 16 / 20


def value(told: Comparison, weighted: bool = True) -> float:
    found = told.weighted if weighted else told.unweighted
    assert found
    return found.value


def test_arms_that_are_swapped_change_every_sign() -> None:
    points = FaultyReader(points=60, samples=3, fails=0.2, mixed=True, broken=0.2).draw(5)
    there, back = compute_statistics(points, seed=1), compute_statistics(swapped(points), seed=1)
    for key in ("looks", "edits", "matches", "tokens"):
        one, other = getattr(there, key), getattr(back, key)
        assert value(one) == -value(other) != 0
        for mine, its in ((one.weighted, other.weighted), (one.unweighted, other.unweighted)):
            assert (mine.low, mine.high) == (-its.high, -its.low)
            assert (mine.original, mine.rewritten) == (its.rewritten, its.original)
    assert there.looks.p < 0.05 < 0.95 < (back.looks.p or 0)  # type: ignore[operator]


# --- small cases --------------------------------------------------------------------------------


def point(
    original: str, rewritten: str, *, session: str = "s", stratum: Stratum = Stratum.ANY, weight: float = 1.0
) -> PointResult:
    """Answers are letters; `r` reads again, and `x` is an edit of what is not shown."""
    arms = (tuple(Sample(each, each == "r", each == "x" or None, 10) for each in arm) for arm in (original, rewritten))
    return PointResult("p", session, stratum, weight, "a", *arms)


def test_every_outcome_by_hand() -> None:
    points = [point("aab", "arr", session="1", weight=3.0), point("ax", "ar", session="2")]
    found = compute_statistics(points, seed=1)
    assert value(found.agreement) == pytest.approx((3 * (1 / 3 - 2 / 9) + (0 - 1 / 4)) / 4)
    assert value(found.agreement, False) == pytest.approx((1 / 9 - 1 / 4) / 2)
    assert value(found.looks) == pytest.approx((3 * 2 / 3 + 1 / 2) / 4)
    assert value(found.edits) == pytest.approx(-1 / 8)
    assert value(found.matches) == pytest.approx((3 * -1 / 3 + 0) / 4)
    assert value(found.tokens) == 0
    assert (found.points, found.sessions, found.samples) == (2, 2, (5, 5))


def against_the_recorded(original: str, rewritten: str, *, session: str) -> PointResult:
    """Answers are digits: tenths of an edit that are as recorded, on the same file from 1 on; `-` where none was."""
    arms = (
        tuple(
            Sample("a", False, None, 10, None, None)
            if each == "-"
            else Sample("a", False, None, 10, each != "0", int(each) / 10)
            for each in arm
        )
        for arm in (original, rewritten)
    )
    return PointResult("p", session, Stratum.ANY, 1.0, "a", *arms)


def test_files_and_edits_are_compared_where_the_recording_has_some() -> None:
    points = [against_the_recorded("99", "90", session="1"), against_the_recorded("55", "55", session="2")]
    points += [against_the_recorded("--", "--", session="3"), against_the_recorded("9-", "90", session="4")]
    found = compute_statistics(points, seed=1)
    assert value(found.files) == pytest.approx((-1 / 2 + 0) / 2)
    assert value(found.likeness) == pytest.approx((-0.9 / 2 + 0) / 2)
    assert [told.weighted and told.weighted.points for told in (found.files, found.likeness)] == [2, 2]
    assert found.files.adjusted is found.likeness.adjusted is None
    told = compute_statistics([against_the_recorded("--", "--", session="1")], seed=1)
    assert (told.files.weighted, told.files.problem) == (None, "no recorded action is on a file")
    assert (told.likeness.weighted, told.likeness.problem) == (None, "no recorded action edits a text")


def test_files_and_edits_that_are_lost_are_harm() -> None:
    worse = [against_the_recorded("9988", "9000", session=str(each)) for each in range(10)]
    worse += [against_the_recorded("99", "87", session=str(each)) for each in range(5)]
    for found, expected in (
        (compute_statistics(worse, seed=1), True),
        (compute_statistics(swapped(worse), seed=1), False),
    ):
        assert [(told.p or 1.0) < 0.01 for told in (found.files, found.likeness)] == [expected] * 2


def test_one_answer_per_arm_cannot_tell_the_noise() -> None:
    found = compute_statistics([point("a", "r", session=str(each)) for each in range(12)], seed=1)
    assert (found.agreement.p, found.agreement.weighted, found.agreement.has_alarm) == (None, None, False)
    assert "at least 2" in found.agreement.problem
    assert found.looks.p == found.looks.adjusted == 0.5**12  # one test is not corrected for two


def test_holm_takes_the_smaller_twice_and_the_other_once() -> None:
    found = compute_statistics([point("aa", "ar", session=str(each)) for each in range(5)], seed=1)
    agreement, looks = found.agreement, found.looks
    assert agreement.p == looks.p == 0.5**5
    assert agreement.adjusted == looks.adjusted == 2 * 0.5**5
    assert not found.has_alarm
    both = compute_statistics([point("aa", "rr", session=str(each)) for each in range(3)], seed=1)
    assert both.has_alarm
    assert both.looks.adjusted == pytest.approx(2 * (1 / 6) ** 3)


def test_points_count_the_more_in_a_test_the_more_a_reference_has_to_do_with_them() -> None:
    worse = [point("a", "r", stratum=Stratum.FOLLOWS) for _ in range(5)]
    better = [point("r", "a", stratum=stratum) for stratum in (Stratum.TOUCHES, Stratum.ANY) for _ in range(3)]
    found = compute_statistics(worse + better, seed=1)
    # 4 × 5 against 2 × 3 + 1 × 3, of all ways that eleven coins fall
    ways = [4 * (2 * a - 5) + 2 * (2 * b - 3) + (2 * c - 3) for a, b, c in product(range(6), range(4), range(4))]
    counts = [comb(5, a) * comb(3, b) * comb(3, c) for a, b, c in product(range(6), range(4), range(4))]
    assert found.looks.p == pytest.approx(
        sum(many for way, many in zip(ways, counts, strict=True) if way >= 20 - 9) / 2**11
    )


def test_every_p_is_for_harm() -> None:
    found = compute_statistics([point("aa", "rx", session=str(each)) for each in range(10)], seed=1)
    assert all((each.p or 1.0) < 0.01 for each in (found.agreement, found.looks, found.edits, found.matches))


def test_points_without_answers_say_nothing() -> None:
    full = [point("aab", "ara", session=str(each % 3)) for each in range(9)]
    empty = [point("", "rrr"), point("rrr", ""), point("", "")]
    assert compute_statistics(full + empty, seed=1) == compute_statistics(full, seed=1)
    nothing = compute_statistics(empty, seed=1)
    assert (nothing.points, nothing.has_alarm, nothing.harm, nothing.looks.weighted) == (0, False, 1.0, None)
    assert nothing.looks.problem
    assert nothing.tokens.problem


def test_a_single_session_has_no_interval_but_a_test() -> None:
    found = compute_statistics([point("aa", "rr") for _ in range(10)], seed=1)
    assert found.looks.weighted
    assert found.looks.weighted.low is None
    assert found.has_alarm
    assert "one session" in found.tokens.problem


def test_the_order_of_points_changes_nothing() -> None:
    points = FaultyReader(points=100, samples=4, mixed=True).draw(1)
    there, back = compute_statistics(points, seed=1), compute_statistics(points[::-1], seed=1)
    assert (there.agreement.p, there.looks.p) == (back.agreement.p, back.looks.p)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_named(weight: float) -> None:
    with pytest.raises(ValueError, match="point 'p': its weight is"):
        compute_statistics([point("a", "a", weight=weight)], seed=1)


# --- models that are scripted -------------------------------------------------------------------


def scripted(missed: int) -> list[PointResult]:
    """A hundred points of twenty sessions, the same answers always; `missed` of them are read again."""
    return [
        point("aaaa", "rrrr" if each < missed else "aaaa", session=str(each % 20), stratum=Stratum.FOLLOWS)
        for each in range(100)
    ]


def test_a_model_that_never_fails_is_not_called_worse_nor_perfect() -> None:
    found = compute_statistics(scripted(0), seed=1)
    assert not found.has_alarm
    assert found.harm == 1
    for told in (found.agreement.weighted, found.looks.weighted):
        assert told
        assert told.high is not None
        assert told.high > 0.03


def test_a_model_that_misses_a_tenth_of_the_references_is_found() -> None:
    found = compute_statistics(scripted(10), seed=1)
    assert found.agreement.has_alarm
    assert found.looks.has_alarm
    assert harm_evalue(scripted(10)) > 20


# --- planning -----------------------------------------------------------------------------------


def test_the_plan_is_blind_to_b() -> None:
    points = FaultyReader(points=20, samples=4, fails=0.5).draw(1)
    blind = [replace(each, rewritten=()) for each in points]
    assert required_points(blind, 11.2) == required_points(points, 11.2)


def test_the_plan_is_what_the_simulation_says_it_is() -> None:
    """If there is no harm, the upper bound at one-sided 95 % stays below the margin in about 80 % of trials."""
    plan = sorted(required_points(FaultyReader(points=20, samples=4).draw(seed), 5.0) for seed in range(21))[10]
    found = simulate(FaultyReader(points=plan, samples=4), SEEDS)
    looks = [run.judgement.looks.unweighted for run in found.runs]
    half = [1.68 / 2.02 * ((each.high or 1) - each.value) for each in looks if each]
    excluded = sum(each.value + width < 0.05 for each, width in zip(filter(None, looks), half, strict=True))
    assert 100 < plan < 400
    assert excluded >= 13


def test_as_many_points_are_planned_as_can_exclude_the_margin_if_nothing_is_seen() -> None:
    calm = FaultyReader(points=20, samples=4).draw(1)
    same = tuple(replace(each, looks_again=False, action="says") for each in calm[0].original)
    for margin in (4.0, 11.0):
        plan = required_points([replace(each, original=same, rewritten=()) for each in calm], margin)
        points = [replace(each, original=same, rewritten=same) for each in FaultyReader(points=plan, samples=4).draw(1)]
        looks = compute_statistics(points, seed=0).looks.weighted
        assert looks is not None
        assert looks.high is not None
        assert 100 * looks.high <= margin


def test_the_plan_grows_as_it_should() -> None:
    points = [replace(each, rewritten=()) for each in FaultyReader(points=20, samples=2).draw(1)]
    assert required_points(points, 2.5) == pytest.approx(4 * required_points(points, 5.0), abs=4)
    assert required_points(points, 5.0, samples=4) < required_points(points, 5.0)
    uneven = [replace(each, weight=1.0 + 9 * (place < 2)) for place, each in enumerate(points)]
    assert required_points(uneven, 5.0) > 2 * required_points(points, 5.0)
    assert required_points(points, 1000.0) == required_points(points, 5.0), "harm is to be found, however much is saved"
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="margin"):
            required_points(points, wrong)
    with pytest.raises(ValueError, match="no point"):
        required_points([], 5.0)
