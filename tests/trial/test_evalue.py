"""The bet that may stop a trial early: fair, exact for any number of points, and not to be won by a dropped answer."""

from __future__ import annotations

import pytest

from ibidem.trial.evalue import bet_payoff, harm_evalue
from ibidem.trial.outcomes import PointResult, Sample, Stratum


def integral(wins: int, losses: int, steps: int = 20_000) -> float:
    """By Simpson's rule, with the power of two inside, so that it stays of a size."""
    width = 0.5 / steps
    values = [2 * (2 * (0.5 + k * width)) ** wins * (2 * (0.5 - k * width)) ** losses for k in range(steps + 1)]
    return width / 3 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (0, 1), (7, 2), (30, 30), (60, 41), (5, 90), (400, 300)])
def test_it_is_the_integral(wins: int, losses: int) -> None:
    assert bet_payoff(wins, losses) == pytest.approx(integral(wins, losses), rel=1e-6)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (3, 1), (40, 55), (600, 400)])
def test_it_is_fair(wins: int, losses: int) -> None:
    """What is expected after the next point, if that is a toss of a coin, is what there is now."""
    assert (bet_payoff(wins + 1, losses) + bet_payoff(wins, losses + 1)) / 2 == pytest.approx(
        bet_payoff(wins, losses), rel=1e-12
    )


def test_thousands_of_points_neither_overflow_nor_vanish() -> None:
    assert bet_payoff(5000, 0) > 1e300
    assert 0 < bet_payoff(0, 5000) < 1e-3


def point(original: str, rewritten: str) -> PointResult:
    arms = (tuple(Sample("x", each == "1") for each in arm) for arm in (original, rewritten))
    return PointResult("p", "s", Stratum.ANY, 1.0, "x", *arms)


@pytest.mark.parametrize(
    ("original", "rewritten", "known"),
    [
        pytest.param("00", "01", bet_payoff(1, 0), id="B looks more often"),
        pytest.param("01", "00", bet_payoff(0, 1), id="A looks more often"),
        pytest.param("01", "10", 1.0, id="as often"),
        pytest.param("", "11", 1.0, id="nothing to compare with"),
        pytest.param("0", "0111", 1.0, id="more answers are not more votes"),
    ],
)
def test_who_wins(original: str, rewritten: str, known: float) -> None:
    assert harm_evalue([point(original, rewritten)]) == known


def test_uneven_arms_are_no_advantage() -> None:
    """Every way that five equally likely answers can fall: over all of them B wins as often as it loses."""
    falls = [f"{number:05b}" for number in range(32)]
    found = [harm_evalue([point(each[:2], each[2:])]) for each in falls]
    assert found.count(bet_payoff(1, 0)) == found.count(bet_payoff(0, 1)) > 0
