"""Means and their intervals: sessions are what varies, and nothing seen is not nothing there."""

from __future__ import annotations

from statistics import fmean, stdev

import pytest

from ibidem.trial.estimates import Contrast, Estimate, estimate
from ibidem.trial.outcomes import PointResult, Stratum
from ibidem.trial.student_t import t_quantile, unseen_share
from tests.support.reader import FaultyReader


def contrast(session: object, difference: float, weight: float = 1.0) -> Contrast:
    return Contrast(str(session), Stratum.ANY, weight, 0.5, 0.5 + difference, difference)


def made(*contrasts: Contrast, weighted: bool = True) -> Estimate:
    found = estimate(contrasts, weighted=weighted)
    assert found
    return found


def test_equal_sessions_have_the_usual_error_of_their_means() -> None:
    sessions = [[0.01 * place + off for off in (-0.03, -0.01, 0.01, 0.03)] for place in range(12)]
    found = made(*(contrast(name, each) for name, values in enumerate(sessions) for each in values))
    means = [fmean(values) for values in sessions]
    half = t_quantile(0.975, 11) * stdev(means) / 12**0.5
    assert found.value == pytest.approx(fmean(means))
    assert [found.low, found.high] == pytest.approx([fmean(means) - half, fmean(means) + half])
    assert [found.points, found.sessions, found.effective] == pytest.approx([48, 12, 48])


def test_points_that_repeat_their_session_say_no_more_than_one() -> None:
    values = [0.1, -0.2, 0.3, 0.05, 0.0, -0.1, 0.2, 0.15]
    once = made(*(contrast(name, value) for name, value in enumerate(values)))
    often = made(*(contrast(name, value) for name, value in enumerate(values) for _ in range(9)))
    assert [often.low, often.high] == pytest.approx([once.low, once.high])


def test_weights_are_as_good_as_repetitions() -> None:
    values = [(0.2, 1), (-0.1, 3), (0.4, 2), (0.0, 5), (0.3, 1), (0.1, 2), (-0.2, 1), (0.1, 1)] * 4
    weighted = made(*(contrast(name, value, weight) for name, (value, weight) in enumerate(values)))
    repeated = made(*(contrast(name, value) for name, (value, weight) in enumerate(values) for _ in range(weight)))
    assert weighted.value == pytest.approx(repeated.value)
    assert weighted.low == pytest.approx(repeated.low)
    unweighted = made(*(contrast(name, value, weight) for name, (value, weight) in enumerate(values)), weighted=False)
    assert unweighted.value == pytest.approx(fmean(value for value, _ in values))
    assert weighted.effective == pytest.approx(64**2 / 184)


def test_a_session_that_weighs_all_is_not_believed() -> None:
    """Its own points agree, and so do the others: the error is that of two, not of eleven."""
    points = [*(contrast("large", 0.5) for _ in range(100)), *(contrast(name, 0.0) for name in range(10))]
    found = made(*points)
    assert found.low == -1.0


def widths(*differences: float) -> tuple[float, float]:
    """Of one point for each session: from the mean to either end."""
    found = made(*(contrast(name, each) for name, each in enumerate(differences)))
    assert found.low is not None
    assert found.high is not None
    return found.value - found.low, found.high - found.value


def test_an_interval_reaches_further_where_the_long_tail_is() -> None:
    tail = [0.5, 0.3, 0.1, *[0.01, -0.01] * 8]
    below, above = widths(*tail)
    assert above > 1.3 * below
    assert widths(*(-each for each in tail)) == pytest.approx((above, below))
    assert widths(*[0.1, -0.1] * 10) == pytest.approx((t_quantile(0.975, 19) * 0.1 / 19**0.5,) * 2), "there is none"


def test_a_spread_that_few_sessions_carry_is_known_as_badly_as_theirs() -> None:
    many = [0.1, -0.1] * 10
    few = [0.3, -0.3, *[0.1 / 3, -0.1 / 3] * 9]
    assert stdev(few) == pytest.approx(stdev(many), rel=0.1)
    assert min(widths(*few)) > 1.2 * max(widths(*many))


def test_one_session_has_no_interval() -> None:
    found = made(contrast("one", 0.1), contrast("one", 0.3))
    assert found.value == pytest.approx(0.2)
    assert (found.low, found.high, found.above_zero) == (None, None, None)
    assert estimate([], weighted=True) is None


@pytest.mark.parametrize("differing", [0, 1, 5])
def test_where_hardly_a_point_differs_the_interval_is_what_so_many_can_miss(differing: int) -> None:
    points = [contrast(place // 5, 0.25 * (place < differing)) for place in range(100)]
    found = made(*points)
    assert found.high is not None
    assert found.high - found.value >= unseen_share(100) > 0.036


def test_points_of_a_session_that_differ_together_are_one_where_hardly_any_does() -> None:
    together = made(*(contrast(place // 5, 0.25 * (place < 5)) for place in range(100)))
    apart = made(*(contrast(place // 5, 0.25 * (place % 20 == 0)) for place in range(100)))
    assert together.high is not None
    assert apart.high is not None
    assert together.high - together.value >= unseen_share(100 / 4.9) > 0.16
    assert apart.high - apart.value < 0.05


@pytest.mark.slow
def test_intervals_hold_the_truth_where_few_sessions_have_most_of_the_looks() -> None:
    """With Student's t alone, 88 of 100 did."""
    reader = FaultyReader(points=100, samples=4, rereads=0.005, fails=0.05, spread=0.2)
    truth = 0.05 * (1 - 0.005)
    found = [made(*map(looks, reader.draw(seed))) for seed in range(200)]
    assert 0.92 <= fmean((each.low or 0) <= truth <= (each.high or 0) for each in found) <= 0.98


def looks(point: PointResult) -> Contrast:
    before, after = (fmean(each.looks_again for each in arm) for arm in (point.original, point.rewritten))
    return Contrast(point.session, point.stratum, point.weight, before, after, after - before)


def test_light_points_that_differ_do_not_vouch_for_heavy_ones() -> None:
    points = [contrast(place % 20, 0.1 * (-1) ** place * (place < 50), 1 + 99 * (place >= 50)) for place in range(98)]
    found = made(*points)
    assert found.high is not None
    assert found.high - found.value >= unseen_share(50) > 0.07


def test_shares_end_at_one_and_tokens_do_not() -> None:
    points = [contrast("a", 1.0), contrast("b", -1.0), contrast("a", 1.0)]
    assert (made(*points).low, made(*points).high) == (-1.0, 1.0)
    tokens = estimate(points, weighted=True, share=False)
    assert tokens
    assert tokens.high is not None
    assert tokens.high > 1
