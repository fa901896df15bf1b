"""Shuffled labels: the quick way against going through every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import comb
from random import Random

import pytest

from ibidem.trial import permutation
from ibidem.trial.permutation import PointTest, make_agreement_test, make_rate_test, one_sided_p

Arms = tuple[str, str]
"""Answers of both arms, a letter each; a capital one has what is counted."""


def agreement(original: Sequence[str], rewritten: Sequence[str]) -> Fraction:
    pairs = list(combinations(original, 2))
    across = list(product(original, rewritten))
    return Fraction(sum(a == b for a, b in pairs), len(pairs)) - Fraction(sum(a == b for a, b in across), len(across))


def share(original: Sequence[str], rewritten: Sequence[str]) -> Fraction:
    return Fraction(sum(each.isupper() for each in rewritten), len(rewritten)) - Fraction(
        sum(each.isupper() for each in original), len(original)
    )


def relabelled(arms: Arms) -> list[Arms]:
    both = arms[0] + arms[1]
    ways = combinations(range(len(both)), len(arms[0]))
    return [
        ("".join(both[each] for each in way), "".join(both[each] for each in range(len(both)) if each not in way))
        for way in ways
    ]


def by_hand(points: Sequence[Arms], statistic: Callable[[str, str], Fraction], strengths: Sequence[int]) -> float:
    observed = sum(strength * statistic(*arms) for arms, strength in zip(points, strengths, strict=True))
    sums = [
        sum(strength * statistic(*arms) for arms, strength in zip(way, strengths, strict=True))
        for way in product(*(relabelled(arms) for arms in points))
    ]
    return sum(each >= observed for each in sums) / len(sums)


POINTS: list[list[Arms]] = [
    [("aa", "bb")],
    [("aa", "ab"), ("ab", "cc"), ("Aa", "bB")],
    [("aab", "BB"), ("ab", "aabc"), ("AB", "B")],  # uneven arms
    [("aaaa", "aabb"), ("aBBc", "BBBd")],
    [("aa", "aa"), ("bb", "bb")],  # nothing that labels could change
    [("ab", "cd")],  # all answers differ
]


def asked(points: Sequence[Arms], strengths: Sequence[int]) -> tuple[list[PointTest], list[PointTest]]:
    both = [
        (
            make_agreement_test(*arms)._replace(strength=strength),
            make_rate_test(*([each.isupper() for each in arm] for arm in arms))._replace(strength=strength),
        )
        for arms, strength in zip(points, strengths, strict=True)
    ]
    return [each for each, _ in both], [each for _, each in both]


@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("strengths", [(1, 1, 1), (4, 2, 1)])
def test_p_is_that_of_all_labels(points: list[Arms], strengths: tuple[int, ...]) -> None:
    given = strengths[: len(points)]
    for quick, statistic in zip(asked(points, given), (agreement, share), strict=True):
        assert one_sided_p(quick, Random(1)) == pytest.approx(by_hand(points, statistic, given))
        assert one_sided_p(quick[::-1], Random(1)) == one_sided_p(quick, Random(1))


def test_one_answer_per_arm_is_the_exact_test_of_mcnemar() -> None:
    more, fewer, neither = ([False], [True]), ([True], [False]), ([True], [True])
    points = [make_rate_test(*each) for each in [more] * 15 + [fewer] * 6 + [neither] * 200]
    binomial = sum(comb(21, wins) for wins in range(15, 22)) / 2**21
    assert one_sided_p(points, Random(1)) == pytest.approx(binomial)


def test_draws_come_close_to_all_labels_and_never_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(4)
    points = [("".join(rng.choices("aaabc", k=3)), "".join(rng.choices("aabbc", k=3))) for _ in range(40)]
    quick, _ = asked(points, [1] * 40)
    exact = one_sided_p(quick, Random(1))
    sure = [make_agreement_test("aaaa", "bbbb")] * 30
    monkeypatch.setattr(permutation, "EXACT_WORK", 2)
    assert 0.01 < exact < 0.5
    assert one_sided_p(quick, Random(1), 20_000) == pytest.approx(exact, abs=0.012)  # 3.4 standard errors at most
    assert one_sided_p(sure, Random(1), 99) == 1 / 100
    tied = [make_rate_test([False], [True])] * 5 + [
        make_rate_test([True], [False])
    ] * 4  # one more: half of all, with ties
    assert one_sided_p(tied, Random(1), 20_000) == pytest.approx(0.5, abs=0.012)
