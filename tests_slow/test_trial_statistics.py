"""What a trial finds in made-up models, over 400 seeds each: the numbers that `docs/trial-statistics.md` stands on.

Bounds are those that the design asks for. Where a rate is to be 5 %, 8 % of 400 are allowed: more come up in 0.4 % of
cases though nothing is wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.trial_coin import Truth, looked_at
from benchmarks.trial_power import dropped, simulate
from tests.support.reader import FaultyReader

from .conftest import Tally

SEEDS = range(400)
FALSE_ALARMS = 0.08


@pytest.mark.parametrize(
    ("reader", "change"),
    [
        pytest.param(FaultyReader(), (), id="two answers"),
        pytest.param(FaultyReader(samples=4), (), id="four answers"),
        pytest.param(FaultyReader(points=100, samples=4, mixed=True), (), id="strata"),
        pytest.param(FaultyReader(points=100, samples=4, spread=0.2), (), id="sessions that differ"),
        pytest.param(FaultyReader(points=100, samples=3), (dropped,), id="uneven arms"),
    ],
)
def test_no_fault(reader: FaultyReader, change: tuple[Any, ...], tally: Tally) -> None:
    found = simulate(reader, SEEDS, *change)
    covered, weighted = found.covered(), found.covered(weighted=True)
    tally("trial without faults", alarm=found.alarm, early=found.early, covered=covered, weighted=weighted)
    assert found.alarm <= FALSE_ALARMS
    assert found.early <= 0.05
    assert found.either <= 0.1
    assert all(0.92 <= each <= 0.98 for each in (*covered, *weighted))


def test_reading_again(tally: Tally) -> None:
    two = simulate(FaultyReader(fails=0.1), SEEDS)
    four = simulate(FaultyReader(samples=4, fails=0.1), SEEDS)
    tally("trial, reads again", looks_2=two.looks, early_2=two.early, agreement_4=four.agreement, early_4=four.early)
    assert two.looks >= 0.95
    assert four.agreement >= 0.9
    assert four.looks >= 0.99
    for found in (two, four):
        assert all(0.92 <= each <= 0.98 for each in found.covered())


def test_acting_at_random(tally: Tally) -> None:
    found = simulate(FaultyReader(samples=4, fails=0.1, at_random=True), SEEDS)
    tally("trial, acts at random", agreement=found.agreement, looks=found.looks, early=found.early)
    assert found.agreement >= 0.8
    assert found.looks <= 0.05
    assert found.early <= 0.05
    assert all(0.92 <= each <= 0.98 for each in found.covered())


@pytest.mark.parametrize(
    "reader",
    [
        pytest.param(FaultyReader(samples=4, fails=0.05, spread=0.2), id="sometimes"),
        pytest.param(FaultyReader(points=100, samples=4, rereads=0.005, fails=0.05, spread=0.2), id="hardly ever"),
        pytest.param(FaultyReader(samples=4, rereads=0.005, fails=0.03, spread=0.2), id="hardly ever, more points"),
        pytest.param(FaultyReader(samples=4, fails=0.1, spread=0.2), id="more often"),
    ],
)
def test_sessions_that_differ(reader: FaultyReader, tally: Tally) -> None:
    """Looks are in few sessions: trials that drew none of these must not be sure."""
    found = simulate(reader, SEEDS)
    tally("trial, sessions differ", alarm=found.alarm, covered=found.covered())
    assert all(0.92 <= each <= 0.98 for each in found.covered())


def test_more_decided(tally: Tally) -> None:
    found = simulate(FaultyReader(samples=4, decided=0.5), SEEDS)
    tally("trial, more decided", alarm=found.alarm, early=found.early)
    assert found.alarm <= 0.01
    assert found.early <= 0.01


def test_faults_among_other_points(tally: Tally) -> None:
    found = simulate(FaultyReader(samples=4, fails=0.1, mixed=True), SEEDS)
    weighted = found.covered(weighted=True)
    tally("trial, faults in half of the points", alarm=found.alarm, covered=found.covered(), weighted=weighted)
    assert found.alarm >= 0.85
    assert all(0.92 <= each <= 0.98 for each in (*found.covered(), *weighted))


def test_intervals_for_all_looks(tally: Tally) -> None:
    """Forty looks at each of 100 ledgers: the wider interval may be above the truth in 2.5% of them."""
    found = looked_at(100, 200, Truth())
    tally("trial, looks", **{name.replace(" ", "_"): count for name, count in found.items()})
    assert found["interval for one look is above"] >= 8
    assert found["interval for all looks is above"] <= 2
    assert found["interval for all looks misses"] <= 5
