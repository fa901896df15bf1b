"""Why a provider read less than it could: every cause, which one comes first, and what it cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ibidem.billing.cache_misses import (
    MISS_CAUSES,
    CachedRequest,
    PrefixOverlap,
    breakpoint_savings,
    cache_shares,
    explain_miss,
    lacks_breakpoints,
    paid_per_token,
)
from ibidem.billing.cache_rules import CACHING, CacheRules
from ibidem.billing.prices import Rates
from ibidem.billing.usage import Usage

Json = dict[str, Any]

MARKED = CACHING["anthropic"]
RATES = Rates(fresh=1.0, read=0.1, write=1.25, write_1h=2.0)
SIZE = 40 * MARKED.minimum

BEFORE = CachedRequest("m", Usage(written=SIZE), messages=11, at=0.0, answered=10.0, tools="t", system="s")
MISSED = CachedRequest("m", Usage(written=SIZE + 100), messages=13, at=20.0, answered=30.0, tools="t", system="s")
GROWN = PrefixOverlap(shared=11, blocks=2)


def test_what_was_read_whole_is_no_miss() -> None:
    hit = MISSED._replace(usage=Usage(read=SIZE, written=100))
    nearly = MISSED._replace(usage=Usage(read=round(SIZE * 0.98), written=100))
    assert explain_miss(BEFORE, hit, GROWN, MARKED, RATES) is None
    assert explain_miss(BEFORE, nearly, GROWN, MARKED, RATES) is None
    less = explain_miss(BEFORE, MISSED._replace(usage=Usage(read=round(SIZE * 0.9))), GROWN, MARKED, RATES)
    assert less is None  # it became shorter itself, and all of it was read


def test_a_provider_that_counts_in_steps_may_read_one_less() -> None:
    steps = CacheRules(minimum=1024, step=128)
    before = BEFORE._replace(usage=Usage(fresh=1280))
    for short, missed in ((128, False), (129, True)):
        sent = MISSED._replace(usage=Usage(fresh=500, read=1280 - short))
        assert (explain_miss(before, sent, GROWN, steps, RATES) is not None) is missed


def test_the_first_request_is_no_miss() -> None:
    assert explain_miss(None, MISSED, PrefixOverlap(-1), MARKED, RATES) is None


@pytest.mark.parametrize(
    ("cause", "where", "before", "sent", "since"),
    [
        ("unexplained", "from the start", {}, {}, {}),
        ("look-back", "21 blocks", {}, {}, {"blocks": 21}),
        ("unexplained", "from the start", {}, {}, {"blocks": 20}),
        ("unexplained", "from the start", {}, {}, {"blocks": None}),
        ("history", "message 4 of 13", {}, {}, {"shared": 3, "blocks": 30}),
        ("system", "system", {}, {"system": "x"}, {"shared": 3}),
        ("tools", "tools", {}, {"tools": "x", "system": "x"}, {}),
        ("unexplained", "from the start", {"tools": None}, {"tools": "x"}, {}),
        ("pause", "5 min", {}, {"at": 311.0, "tools": "x"}, {}),
        ("tools", "tools", {}, {"at": 310.0, "tools": "x"}, {}),
        ("unexplained", "from the start", {}, {"at": 311.0}, {"long": True}),
        ("pause", "60 min", {}, {"at": 3611.0}, {"long": True}),
        ("pause", "3 h", {}, {"at": 3 * 3600.0}, {"long": True}),
        ("unexplained", "from the start", {"at": None, "answered": None}, {"at": 1e6}, {}),
        ("pause", "5 min", {"answered": None}, {"at": 301.0}, {}),
        ("model", "m → n", {}, {"model": "n", "at": 1e6}, {}),
        ("unmarked", "", {"usage": Usage(fresh=SIZE)}, {"usage": Usage(fresh=SIZE + 100)}, {}),
        (
            "unmarked",
            "",
            {"usage": Usage(fresh=SIZE // 2, written=SIZE // 2)},
            {"usage": Usage(fresh=SIZE // 2, read=SIZE // 2)},
            {},
        ),
        ("minimum", f"9 of {MARKED.minimum:,} tokens", {"usage": Usage(fresh=9)}, {"usage": Usage(fresh=99)}, {}),
    ],
)
def test_the_first_cause_that_holds(cause: str, where: str, before: Json, sent: Json, since: Json) -> None:
    found = explain_miss(BEFORE._replace(**before), MISSED._replace(**sent), GROWN._replace(**since), MARKED, RATES)
    assert found is not None
    assert (found.cause, found.where) == (cause, where)
    assert found.cause in MISS_CAUSES


def test_where_a_provider_keeps_unasked_nothing_is_unmarked_and_no_look_back_counts() -> None:
    unasked = replace(MARKED, marks=False, look_back=None)
    before, sent = BEFORE._replace(usage=Usage(fresh=SIZE)), MISSED._replace(usage=Usage(fresh=SIZE + 100))
    found = explain_miss(before, sent, GROWN._replace(blocks=99), unasked, RATES)
    assert found is not None
    assert found.cause == "unexplained"


def test_dollars_are_what_was_paid_above_reading() -> None:
    head = SIZE // 4
    long = explain_miss(BEFORE, MISSED._replace(usage=Usage(read=head, written_1h=SIZE - head)), GROWN, MARKED, RATES)
    short = explain_miss(BEFORE, MISSED._replace(usage=Usage(read=head, written=SIZE - head)), GROWN, MARKED, RATES)
    assert long is not None
    assert short is not None
    assert long.tokens == short.tokens == SIZE - head
    assert long.dollars == pytest.approx((SIZE - head) * (2.0 - 0.1))
    assert short.dollars == pytest.approx((SIZE - head) * (1.25 - 0.1))


def test_paid_per_token_is_the_mean_of_what_was_not_read() -> None:
    assert paid_per_token(Usage(fresh=50, read=900, written=50), RATES) == pytest.approx((1.0 + 1.25) / 2)
    assert paid_per_token(Usage(read=900), RATES) == RATES.write


def test_a_history_that_went_back_could_only_read_what_is_left_of_it() -> None:
    back = MISSED._replace(messages=5, usage=Usage(written=SIZE // 2))
    since = PrefixOverlap(shared=4, tokens=SIZE // 4)
    found = explain_miss(BEFORE, back, since, MARKED, RATES)
    assert found is not None
    assert (found.cause, found.where, found.tokens) == ("history", "message 5 of 5", SIZE // 4)
    assert explain_miss(BEFORE, back, since._replace(tokens=None), MARKED, RATES) is None
    assert (
        explain_miss(BEFORE, back._replace(usage=Usage(read=SIZE // 4, written=SIZE // 4)), since, MARKED, RATES)
        is None
    )


def test_a_history_that_was_edited_and_grew_loses_all_after_the_edit() -> None:
    found = explain_miss(BEFORE, MISSED._replace(usage=Usage(read=5000, written=SIZE)), PrefixOverlap(3), MARKED, RATES)
    assert found is not None
    assert found.tokens == SIZE - 5000


def test_shares_add_up_to_one() -> None:
    found = cache_shares([Usage(fresh=1, read=2), Usage(written=3), Usage(written_1h=4)])
    assert found == (0.2, 0.3, 0.4, 0.1)
    assert sum(found) == pytest.approx(1.0)
    assert cache_shares([]) is cache_shares([Usage(output=7)]) is None


def test_unmarked_is_who_could_have_marked() -> None:
    plain = [Usage(fresh=SIZE)] * 2
    assert lacks_breakpoints(plain, MARKED)
    assert not lacks_breakpoints(plain, CACHING["openai"])
    assert not lacks_breakpoints([*plain, Usage(fresh=1, read=1)], MARKED)
    assert not lacks_breakpoints([*plain, Usage(written_1h=1)], MARKED)
    assert not lacks_breakpoints(plain[:1], MARKED)
    assert not lacks_breakpoints([Usage(fresh=MARKED.minimum - 1)] * 9, MARKED)


def test_what_marks_would_have_saved() -> None:
    first = BEFORE._replace(usage=Usage(fresh=SIZE))
    next_ = MISSED._replace(usage=Usage(fresh=SIZE + 100))
    assert breakpoint_savings(None, first, PrefixOverlap(-1), MARKED, RATES) == pytest.approx(-0.25 * SIZE)
    hit = breakpoint_savings(first, next_, GROWN, MARKED, RATES)
    assert hit == pytest.approx((SIZE + 100) - 0.1 * SIZE - 1.25 * 100)
    for change in ({"at": 311.0}, {"model": "n"}, {"tools": "x"}, {"system": "x"}):
        late = breakpoint_savings(first, next_._replace(**change), GROWN, MARKED, RATES)
        assert late == pytest.approx(-0.25 * (SIZE + 100))
    small = first._replace(usage=Usage(fresh=MARKED.minimum - 1))
    assert breakpoint_savings(None, small, PrefixOverlap(-1), MARKED, RATES) == 0.0
