"""Two sides of a coin whose share was changed, and that are looked at again and again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from math import ceil, floor

import pytest

from benchmarks.trial_coin import Truth, Work, looked_at, made_up
from ibidem.trial.ab_comparison import VariantDifference, compare_variants
from ibidem.trial.student_t import anytime_quantile, t_quantile
from ibidem.usage_db import AssignedConversation

CHANGED = Work(shares=(0.2, 0.8), drift=8.0)
"""First few conversations are rewritten, then most; meanwhile files come to be read again nine times as often."""


def sides(
    share: float, measured: Iterable[int], rewritten: Iterable[int], first: float = 0.0
) -> list[AssignedConversation]:
    """One conversation of 100 requests for each number of files that are read again."""
    [known] = made_up(1, Truth(), 1)
    return [
        known._replace(unit=f"{first}{arm}{place}", first=first, share=share, arm=arm, rereads=again, requests=100)
        for arm, numbers in (("measure", measured), ("rewrite", rewritten))
        for place, again in enumerate(numbers)
    ]


def rereads(units: list[AssignedConversation]) -> VariantDifference:
    found = compare_variants(units).reread_difference
    assert found is not None
    assert found.value is not None
    return found


def holds(found: VariantDifference, truth: float) -> bool:
    return (found.low or 0.0) <= truth <= (found.high or 0.0)


# --- shares -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_share_that_is_changed_while_work_changes_makes_no_difference() -> None:
    ledgers = [made_up(160, Truth(), seed, CHANGED) for seed in range(40)]
    assert sum(holds(rereads(units), 0.0) for units in ledgers) >= 34, "of 40; fewer in 0.3 % of cases at 95 %"
    mixed = ([each._replace(share=0.5) for each in units] for units in ledgers)
    assert sum(holds(rereads(units), 0.0) for units in mixed) <= 10, "as if it had not been changed"


def test_shares_are_averaged_by_their_pairs() -> None:
    early = sides(0.2, [2, 4] * 30, [5, 7] * 10)
    late = sides(0.5, [12, 14] * 10, [16, 18] * 10, first=1.0)
    assert rereads(early).value == pytest.approx(3)
    assert rereads(late).value == pytest.approx(4)
    both = rereads(early + late)
    assert both.value == pytest.approx((30 * 3 + 20 * 4) / 50), "60 and 20 tell as much as 30 and 30"
    assert both.measured == pytest.approx((30 * 3 + 20 * 13) / 50)
    assert both.rewritten == pytest.approx((both.measured or 0) + (both.value or 0))
    assert [each.share for each in compare_variants(early + late).shares] == [0.5, 0.2], "the newest first"


def test_a_share_that_is_taken_up_again_is_one() -> None:
    often = [*sides(0.5, [2] * 9, [4] * 9), *sides(0.9, [1] * 3, [9] * 30, 1.0), *sides(0.5, [2] * 9, [4] * 9, 2.0)]
    compared = compare_variants(often)
    assert [(each.share, each.conversation_count, each.has_enough) for each in compared.shares] == [
        (0.5, 36, True),
        (0.9, 33, False),
    ]
    assert (len(compared.measured_units), len(compared.rewritten_units)) == (18, 18)


def test_a_small_side_without_anything_rare_does_not_vouch_for_it() -> None:
    """Its own conversations are all alike; those of the other side tell how much they may differ."""
    other = [0, 0, 0, 0, 0, 0, 5, 0, 0, 15] * 10
    found = rereads(sides(0.9, [0] * 10, other))
    assert found.spread is not None
    mean = 2.0
    spread = (sum((each - mean) ** 2 for each in other) / 108 * (1 / 10 + 1 / 100)) ** 0.5
    assert found.spread.error == pytest.approx(spread, rel=0.02)
    assert found.spread.freedom == 108


def test_a_share_without_edits_leaves_that_to_the_others() -> None:
    edits = cycle([(10, 1), (12, 3), (8, 0)])
    early = [each._replace(edits=0, failed_edits=0) for each in sides(0.2, [2, 3] * 10, [2, 3] * 10)]
    late = [
        each._replace(edits=many, failed_edits=failed)
        for each, (many, failed) in zip(sides(0.5, [2, 3] * 10, [2, 3] * 10, 1.0), edits, strict=False)
    ]
    told = {each.ratio.key: each for each in compare_variants(early + late).differences}["failed_edits_per_100_edits"]
    alone = {each.ratio.key: each for each in compare_variants(late).differences}["failed_edits_per_100_edits"]
    assert told == alone
    none = {each.ratio.key: each for each in compare_variants(early).differences}["failed_edits_per_100_edits"]
    assert (none.measured, none.problem) == (None, "no edits yet")


# --- looks --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_who_looks_often_is_not_told_of_what_is_not_there() -> None:
    """Twenty-four looks at each of 60 ledgers: the wider interval may be above the truth in 2.5% of them."""
    found = looked_at(60, 120, Truth())
    assert found["interval for one look is above"] >= 4
    assert found["interval for all looks is above"] <= 1
    assert found["interval for all looks misses"] <= 3


def test_what_is_there_is_found_nevertheless() -> None:
    for seed in range(10):
        found = rereads(made_up(200, Truth(extra=3.0), seed))
        assert found.ever_low is not None
        assert found.ever_low > 0


def test_the_interval_for_all_looks_holds_that_for_one() -> None:
    for each in compare_variants(made_up(60, Truth(extra=3.0), 1)).differences:
        ends = [each.ever_low, each.low, each.value, each.high, each.ever_high]
        assert ends == sorted(ends, key=lambda end: end or 0.0)
        assert each.spread is not None
        once, ever = t_quantile(0.975, 50), anytime_quantile(0.95, 30, 50)
        assert each.spread.anytime_half_width() / each.spread.fixed_half_width == pytest.approx(ever / once, rel=0.02)


def test_as_many_more_as_it_says_are_enough() -> None:
    units = made_up(60, Truth(extra=3.0), 1)
    now = rereads(units)
    assert now.value is not None
    assert now.ever_high is not None
    target = now.value + (now.ever_high - now.value) / 3
    more = compare_variants(units).missing_for_rereads(target)
    assert more is not None
    times = 1 + more / len(units)
    assert 7 < times < 10, "about nine times as many for a third of the interval"
    assert (compare_variants((floor(times) - 1) * units).missing_for_rereads(target) or 0) > 0
    assert compare_variants((ceil(times) + 1) * units).missing_for_rereads(target) == 0
    assert compare_variants(units).missing_for_rereads(now.value / 2) is None, "what is seen is above it"
    assert compare_variants(units).missing_for_rereads(now.value + 1e-9) is None, (
        "what is seen is there, and nobody lives so long"
    )
