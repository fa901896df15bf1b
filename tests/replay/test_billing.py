"""Replay: what requests cost under a provider's cache, by hand-made sessions whose bills can be worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.prices import Price, Prices, Rates
from ibidem.billing.usage import Usage
from ibidem.recordings import RecordedRequest, RecordedSegment, Recording
from ibidem.replay.replay_bill import Replay, parse_histories
from ibidem.replay.sent_views import MessageChange, SentView

FRESH, READ, WRITE, HOUR = 10.0, 1.0, 12.5, 20.0
RATES = Rates(FRESH, READ, WRITE, HOUR)
PRICE = Price("toy", ((0, RATES),), CacheRules(minimum=0, lifetime=300, lifetime_1h=3600))
PRICES = Prices({"toy": PRICE})
PART = 19
"""What every part costs beside its words, with the weights of a provider that is not known."""


def words(text: str) -> int:
    return len(text.split())


def message(role: str, number: int) -> dict[str, Any]:
    return {"role": role, "content": " ".join(["word"] * number)}


def session(*requests: RecordedRequest, sizes: Sequence[int] = (81,) * 8, **fields: Any) -> Recording:
    """Messages of so many words each, in turns; a part of 81 words has 100 tokens."""
    history = [message("assistant" if place % 2 else "user", size) for place, size in enumerate(sizes)]
    return Recording("test", "openai-chat", [RecordedSegment(history, list(requests))], **fields)


def replay(found: Recording, prices: Prices = PRICES) -> Replay:
    return Replay(found, prices, words, parse_histories(found))


def sent(length: int, at: float | None = None, usage: Usage | None = None, model: str = "toy") -> RecordedRequest:
    return RecordedRequest(length, model, at, None if at is None else at + 1, usage)


# ── by the rules ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_sent_before_is_read_and_the_rest_written() -> None:
    bill = replay(session(sent(1), sent(3), sent(5))).bill()
    assert bill.costs == [100 * WRITE, 100 * READ + 200 * WRITE, 300 * READ + 200 * WRITE]
    assert (bill.tokens, bill.read, bill.peak, bill.breaks) == (900, 400, 500, 0)


def test_a_cold_cache_is_written_anew() -> None:
    bill = replay(session(sent(1, 0.0), sent(3, 301.0), sent(5, 603.0))).bill()
    assert bill.costs == [100 * WRITE, 100 * READ + 200 * WRITE, 500 * WRITE]


def test_another_model_has_its_own_cache() -> None:
    prices = Prices({"toy": PRICE, "other": PRICE})
    bill = replay(session(sent(1), sent(3, model="other")), prices).bill()
    assert bill.costs[1] == 300 * WRITE


def test_a_new_segment_shares_what_is_the_same() -> None:
    found = session(sent(1), sent(3))
    kept = found.segments[0].history[:2]
    found.segments.append(RecordedSegment([*kept, message("user", 31)], [sent(3)], 2, "rewind"))
    found.segments.append(RecordedSegment([message("user", 31)], [sent(1)], 0, "compaction"))
    assert replay(found).bill().costs[2:] == [200 * READ + 50 * WRITE, 50 * WRITE]


def test_a_prefix_is_found_in_steps_and_from_a_minimum_on() -> None:
    """Where the log shows the head; elsewhere tools and instructions are missing, and limits cannot be told."""
    price = replace(PRICE, caching=CacheRules(minimum=250, step=128))
    found = session(sent(1), sent(3), sent(5), head={"instructions": " ".join(["word"] * 60)})
    assert replay(found, Prices({"toy": price})).bill().costs == [
        160 * WRITE,
        360 * WRITE,  # 128 would be found: too short
        256 * READ + 304 * WRITE,
    ]


def test_a_request_beyond_a_tier_pays_it_whole() -> None:
    price = replace(PRICE, tiers=((0, RATES), (250, Rates(2 * FRESH, 2 * READ, 2 * WRITE, 2 * HOUR))))
    assert replay(session(sent(1), sent(3)), Prices({"toy": price})).bill().costs == [
        100 * WRITE,
        2 * (100 * READ + 200 * WRITE),
    ]


# ── by what was recorded ────────────────────────────────────────────────────────────────────────────────────────────


def test_sizes_are_fitted_to_recorded_ones() -> None:
    """What the log does not show stands before the history; growth is what we count, scaled."""
    used = [Usage(written=9000 + 1500 * n, read=0) for n in range(4)]
    found = replay(session(*(sent(2 * n + 1, usage=each) for n, each in enumerate(used)), sizes=(481,) * 8))
    assert [step.size for step in found.steps] == pytest.approx([9000, 10_500, 12_000, 13_500], rel=1e-6)
    assert [step.scale for step in found.steps] == pytest.approx([1.5] * 4)
    assert [step.head for step in found.steps] == pytest.approx([8250] * 4)


def test_growth_that_was_not_logged_does_not_spoil_the_scale() -> None:
    sizes = [1000, 1200, 1400, 31_600, 31_800, 32_000]
    used = [Usage(written=size) for size in sizes]
    found = replay(session(*(sent(2 * n + 1, usage=each) for n, each in enumerate(used)), sizes=(500,) * 12))
    per_turn = 2 * (500 + PART)
    assert found.steps[1].scale == pytest.approx(200 / per_turn, rel=0.05)


def test_the_bill_of_what_was_recorded_is_the_recorded_bill() -> None:
    used = [Usage(3, 0, 97), Usage(3, 100, 197), Usage(3, 300, 100, 97)]
    found = replay(session(*(sent(2 * n + 1, usage=each) for n, each in enumerate(used))))
    assert found.bill().costs == pytest.approx(found.recorded_costs())
    assert found.recorded_costs() == pytest.approx(
        [
            3 * FRESH + 97 * WRITE,
            3 * FRESH + 100 * READ + 197 * WRITE,
            3 * FRESH + 300 * READ + 100 * WRITE + 97 * HOUR,
        ]
    )


def test_a_recorded_miss_happens_again() -> None:
    used = [Usage(written=100), Usage(read=0, written=300), Usage(read=300, written=200)]
    found = replay(session(*(sent(2 * n + 1, usage=each) for n, each in enumerate(used))))
    assert found.bill().costs == pytest.approx([100 * WRITE, 300 * WRITE, 300 * READ + 200 * WRITE])
    assert found.bill(by_rule=True).costs == pytest.approx(
        [100 * WRITE, 100 * READ + 200 * WRITE, 300 * READ + 200 * WRITE]
    )


def test_requests_without_usage_are_computed_from_those_that_have_it() -> None:
    used = [Usage(written=1100), None, Usage(read=1300, written=200)]
    found = replay(session(*(sent(2 * n + 1, usage=each) for n, each in enumerate(used))))
    assert [step.size for step in found.steps] == [1100, 1300, 1500]
    assert found.recorded_costs()[1] is None


# ── under a profile ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_left_out_on_arrival_is_saved_in_every_request() -> None:
    found = replay(session(sent(1), sent(3), sent(5)))
    view = SentView([MessageChange(2, 1, 60.0)])
    bill = found.bill([view] * 3)
    assert bill.costs == [100 * WRITE, 100 * READ + 140 * WRITE, 240 * READ + 200 * WRITE]
    assert bill.breaks == 0


def test_a_revision_is_paid_from_where_it_changes_something() -> None:
    found = replay(session(sent(1), sent(3), sent(5)))
    views = [SentView(), SentView(), SentView([MessageChange(1, 1, 60.0)])]
    assert found.bill(views).costs[2] == 100 * READ + 340 * WRITE
    assert found.bill(views, after_break="miss").costs[2] == 440 * WRITE
    assert found.bill(views).breaks == 1
    assert found.bill(views).rewrites == 140 * (WRITE - READ)
    assert found.bill(views, after_break="miss").rewrites == 240 * (WRITE - READ)
    assert found.bill(views, after_break="free").rewrites == found.bill().rewrites == 0


def test_a_revision_while_the_cache_is_cold_writes_nothing_again() -> None:
    found = replay(session(sent(1, 0.0), sent(3, 10.0), sent(5, 1000.0)))
    bill = found.bill([SentView(), SentView(), SentView([MessageChange(1, 1, 60.0)])], after_break="miss")
    assert (bill.costs[2], bill.breaks, bill.rewrites) == (440 * WRITE, 1, 0)


def test_a_revision_that_is_taken_back_is_paid_again() -> None:
    found = replay(session(sent(1), sent(3), sent(5), sent(7)))
    changed = SentView([MessageChange(1, 1, 60.0)])
    bill = found.bill([SentView(), changed, SentView(), SentView()])
    assert bill.breaks == 1
    assert bill.costs[2] == 100 * READ + 400 * WRITE


def test_a_recorded_miss_happens_at_the_same_place_under_a_profile() -> None:
    used = [Usage(written=100), Usage(read=100, written=200), Usage(read=250, written=250)]
    found = replay(session(*(sent(2 * n + 1, usage=each) for n, each in enumerate(used))))
    view = SentView([MessageChange(1, 1, 60.0)])
    # 250 tokens are half of the third message: 60 of them are no longer there
    assert found.bill([view] * 3).costs[2] == pytest.approx(190 * READ + 250 * WRITE)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.floats(0, 50)), max_size=6), st.booleans())
def test_leaving_out_on_arrival_is_never_dearer(changes: list[tuple[int, float]], usage: bool) -> None:
    used = [Usage(written=100 + 200 * n, read=0) if usage else None for n in range(4)]
    found = replay(session(*(sent(2 * n + 1, usage=each) for n, each in enumerate(used))))
    by_message = {message: MessageChange(message, 1, removed) for message, removed in changes}
    view = SentView([by_message[message] for message in sorted(by_message)])
    bill, before = found.bill([view] * 4), found.bill()
    assert all(ours <= theirs + 1e-6 for ours, theirs in zip(bill.costs, before.costs, strict=True))


VIEWS = {
    "the same": ([(1, 1), (4, 2)], [(1, 1), (4, 2)], 9),
    "one more at the end": ([(1, 1)], [(1, 1), (4, 2)], 4),
    "one less at the end": ([(1, 1), (4, 2)], [(1, 1)], 4),
    "one before all": ([(4, 2)], [(1, 1), (4, 2)], 1),
    "another change of the same message": ([(1, 1)], [(1, 3)], 1),
    "behind what they share": ([(1, 1)], [(1, 1), (12, 2)], 9),
    "nothing at all": ([], [], 9),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_views_part_at_the_first_message_they_send_differently(kind: str) -> None:
    first, second, place = VIEWS[kind]
    views = [SentView([MessageChange(message, key, 1.0) for message, key in each]) for each in (first, second)]
    assert views[0].first_difference(views[1], 9) == views[1].first_difference(views[0], 9) == place
