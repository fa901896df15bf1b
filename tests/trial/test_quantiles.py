"""Student's t and the beta distribution, against printed tables and against sums that are exact."""

from __future__ import annotations

from math import comb, inf, log, sqrt
from random import Random

import pytest

from ibidem.trial.student_t import anytime_quantile, beta_below, t_above, t_quantile, unseen_share

TABLE = [
    (0.975, 1, 12.7062),
    (0.975, 2, 4.30265),
    (0.975, 5, 2.57058),
    (0.975, 10, 2.22814),
    (0.975, 19, 2.09302),
    (0.975, 39, 2.02269),
    (0.975, 120, 1.97993),
    (0.95, 10, 1.81246),
    (0.95, 39, 1.68488),
    (0.995, 20, 2.84534),
    (0.9995, 4, 8.61030),
    (0.975, 1_000_000, 1.95997),
]


@pytest.mark.parametrize(("share", "df", "known"), TABLE)
def test_quantiles_are_those_of_the_tables(share: float, df: int, known: float) -> None:
    assert t_quantile(share, df) == pytest.approx(known, abs=1e-5 * known)
    assert t_quantile(1 - share, df) == pytest.approx(-known, abs=1e-5 * known)
    assert t_above(t_quantile(share, df), df) == pytest.approx(1 - share, rel=1e-9)


@pytest.mark.parametrize(("tries", "least"), [(1, 1), (5, 2), (40, 7), (400, 33), (400, 399)])
@pytest.mark.parametrize("chance", [0.001, 0.05, 0.5, 0.93])
def test_the_beta_distribution_sums_up_the_binomial(tries: int, least: int, chance: float) -> None:
    exact = sum(comb(tries, k) * chance**k * (1 - chance) ** (tries - k) for k in range(least, tries + 1))
    assert beta_below(chance, least, tries - least + 1) == pytest.approx(exact, rel=1e-10, abs=1e-300)


def test_ends() -> None:
    assert (beta_below(0, 2, 3), beta_below(1, 2, 3)) == (0, 1)
    assert (t_above(0, 7), t_above(inf, 7), t_above(-inf, 7)) == (0.5, 0, 1)
    for wrong in ((0.0, 5), (1.0, 5), (0.9, 0)):
        with pytest.raises(ValueError, match="no quantile"):
            t_quantile(*wrong)


def test_what_points_can_miss() -> None:
    for points in (1, 20, 100, 1000):
        assert (1 - unseen_share(points)) ** points == pytest.approx(0.025)
    assert unseen_share(0) == 1


def test_who_looks_often_has_to_be_further_out() -> None:
    assert anytime_quantile(0.95, 80, 1e9) == pytest.approx(sqrt(1.125 * (log(9) + 2 * log(20))), rel=1e-6)
    for pairs in (10, 30, 100, 10_000):
        assert t_quantile(0.975, 20) * 1.5 < anytime_quantile(0.95, pairs, 20) < anytime_quantile(0.99, pairs, 20)
        assert anytime_quantile(0.95, pairs, 200) < anytime_quantile(0.95, pairs, 20)


def test_means_of_nothing_rarely_get_there_at_any_time() -> None:
    """In 5 % of walks at most, however long; 1.96 is passed at some time by half of them."""
    rng, often, ever = Random(1), 0, 0
    for _ in range(400):
        total, out = 0.0, set[str]()
        for pairs in range(1, 301):
            total += rng.gauss(0, 1)
            size = abs(total) / sqrt(pairs)
            out |= {"often"} if size > 1.96 else set()
            if size > 2.9 and size > anytime_quantile(0.95, pairs, 1e6):
                out.add("ever")
        often, ever = often + ("often" in out), ever + ("ever" in out)
    assert often > 400 / 4
    assert 0 < ever <= 400 / 20
