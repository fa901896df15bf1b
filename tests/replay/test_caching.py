"""A recorded session under another caching, by hand-made sessions whose bills can be worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.cache_ttl import IdleTimes
from ibidem.billing.prices import Prices
from ibidem.billing.usage import Usage
from ibidem.recordings import RecordedRequest, RecordedSegment, Recording
from ibidem.replay.caching_replay import (
    CACHING_NAMES,
    CachePolicyRun,
    CachingName,
    bill_with_caching,
    count_idle_times,
    recorded_caching,
)
from ibidem.replay.replay_bill import Replay, parse_histories
from ibidem.replay.sent_views import MessageChange, SentView
from tests.replay.test_billing import FRESH, HOUR, PRICE, READ, WRITE, message, sent, session, words

MARKED = replace(
    PRICE, caching=CacheRules(minimum=0, lifetime=300, lifetime_1h=3600, marks=True, hour=True), window=100_000
)
OTHER = replace(MARKED, model="other")
FIXED: tuple[CachingName, ...] = ("none", "5m", "1h")


def replayed(found: Recording, price: Any = MARKED) -> Replay:
    return Replay(found, Prices({"toy": price, "other": replace(price, model="other")}), words, parse_histories(found))


def costs(found: Recording, caching: CachingName, price: Any = MARKED, **settings: Any) -> list[float]:
    return bill_with_caching(replayed(found, price), None, caching, **settings).costs


PAUSED = (sent(1, 0.0), sent(3, 100.0), sent(5, 1000.0), sent(7, 9000.0))
"""With pauses of 99 s, 15 min and two hours; 100, 300, 500 and 700 tokens."""


# ── by the rules ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pause_decides_what_each_lifetime_finds() -> None:
    found = session(*PAUSED)
    assert costs(found, "none") == [100 * FRESH, 300 * FRESH, 500 * FRESH, 700 * FRESH]
    assert costs(found, "5m") == [100 * WRITE, 100 * READ + 200 * WRITE, 500 * WRITE, 700 * WRITE]
    assert costs(found, "1h") == [100 * HOUR, 100 * READ + 200 * HOUR, 300 * READ + 200 * HOUR, 700 * HOUR]


def test_what_was_kept_for_an_hour_is_found_after_a_pause_and_the_rest_is_not() -> None:
    keeping = CachePolicyRun(replayed(session(*PAUSED)), "5m")
    for number, long in enumerate((1, 1, 1, -1)):
        kept = keeping.decide_ttl(number)
        keeping.decisions[-1] = kept._replace(long=long)
        keeping.serve_request(number, SentView())
    expected = [100 * HOUR, 100 * READ + 200 * WRITE, 100 * READ + 400 * WRITE, 700 * WRITE]
    assert keeping.bill.costs == expected


def test_what_a_profile_changes_is_written_again_under_every_lifetime() -> None:
    found = replayed(session(sent(1), sent(3), sent(5)))
    views = [SentView(), SentView(), SentView([MessageChange(1, 7, 50.0)])]
    for caching, dear in (("5m", WRITE), ("1h", HOUR)):
        assert bill_with_caching(found, views, caching).costs[2] == 100 * READ + 350 * dear  # type: ignore[arg-type]
        missed = bill_with_caching(found, views, caching, after_break="miss")  # type: ignore[arg-type]
        assert missed.costs[2] == 450 * dear
        assert (missed.breaks, missed.rewrites) == (1, 300 * (dear - READ) - 50 * (dear - READ))


def test_what_is_too_short_is_not_cached() -> None:
    price = replace(MARKED, caching=replace(MARKED.caching, minimum=400))
    found = session(*PAUSED[:3], head={"instructions": " ".join(["word"] * 60)})
    assert costs(found, "1h", price) == [160 * FRESH, 360 * FRESH, 560 * HOUR]


# ── by what was recorded ────────────────────────────────────────────────────────────────────────────────────────────


def used(*usages: Usage, ats: Sequence[float] = (0.0, 100.0, 1000.0, 9000.0), models: Sequence[str] = ()) -> Recording:
    names = models or ["toy"] * len(usages)
    requests = [
        sent(2 * number + 1, at, usage, model)
        for number, (usage, at, model) in enumerate(zip(usages, ats, names, strict=False))
    ]
    return session(*requests)


FIVE = used(
    Usage(written=100),
    Usage(read=100, written=200),
    Usage(written=500),
    Usage(written=700),
)
ONE_HOUR = used(
    Usage(written_1h=100),
    Usage(read=100, written_1h=200),
    Usage(read=300, written_1h=200),
    Usage(written_1h=700),
)


def test_the_lifetime_that_was_recorded_costs_what_was_recorded() -> None:
    for found, caching in ((FIVE, "5m"), (ONE_HOUR, "1h")):
        assert recorded_caching(replayed(found)) == caching
        assert costs(found, caching) == pytest.approx(costs(found, "recorded"))


@pytest.mark.parametrize("caching", FIXED)
def test_both_recordings_of_the_same_requests_cost_the_same(caching: CachingName) -> None:
    assert costs(FIVE, caching) == pytest.approx(costs(ONE_HOUR, caching))


def test_a_miss_that_no_pause_explains_happens_under_every_lifetime() -> None:
    found = used(Usage(written=100), Usage(read=100, written=200), Usage(written=500), ats=(0.0, 5.0, 10.0))
    assert costs(found, "1h")[2] == pytest.approx(500 * HOUR)


def test_what_was_read_although_the_pause_was_long_was_short_enough() -> None:
    found = used(Usage(written=100), Usage(read=100, written=200), ats=(0.0, 400.0))
    assert costs(found, "5m")[1] == pytest.approx(100 * READ + 200 * WRITE)


def test_another_model_finds_nothing() -> None:
    found = used(Usage(written=100), Usage(written=300), ats=(0.0, 5.0), models=("toy", "other"))
    assert costs(found, "1h")[1] == pytest.approx(300 * HOUR)


def test_a_log_without_caching_says_nothing_about_caches() -> None:
    found = used(Usage(fresh=100), Usage(fresh=300), Usage(fresh=500), Usage(fresh=700))
    assert recorded_caching(replayed(found)) == "none"
    assert costs(found, "none") == pytest.approx(costs(found, "recorded"))
    assert costs(found, "5m") == pytest.approx(costs(session(*PAUSED), "5m"))


def test_what_was_sent_behind_the_last_mark_stays_fresh() -> None:
    found = used(Usage(written=90, fresh=10), Usage(read=90, written=200, fresh=10), ats=(0.0, 5.0))
    assert costs(found, "1h")[0] == pytest.approx(90 * HOUR + 10 * FRESH)


def test_a_client_that_changes_its_lifetime_is_taken_as_it_was() -> None:
    found = used(Usage(written_1h=100), Usage(read=100, written_1h=200), Usage(read=300, written=200))
    asked = [CachePolicyRun(replayed(found), "auto")._cache_request(number, None, 0.0).long for number in range(3)]
    assert asked == [True, True, False]


# ── decided ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_room_it_is_as_the_client_asks() -> None:
    for start in ("5m", "1h"):
        assert costs(session(*PAUSED), "auto", start=start, credit=0.0) == costs(session(*PAUSED), start)


@pytest.mark.parametrize("start", FIXED)
def test_with_room_for_anything_pauses_decide(start: CachingName) -> None:
    often, never = IdleTimes((50, 50, 0), (50, 50, 0), 2), IdleTimes((9000, 0, 0), (9000, 0, 0), 200)
    found = session(*PAUSED, sizes=(2000,) * 8)
    assert costs(found, "auto", prior=often, start=start, credit=1e9) == costs(found, "1h")
    quick = session(*(sent(2 * number + 1, 5.0 * number) for number in range(4)), sizes=(2000,) * 8)
    assert (
        costs(quick, "auto", prior=never, start=start, credit=1e9)[1:]
        == costs(quick, "1h" if start == "1h" else "5m")[1:]
    )


def test_a_history_that_was_rewritten_is_decided_anew() -> None:
    found = session(*PAUSED)
    found.segments.append(RecordedSegment([message("user", 31)], [sent(1, 9100.0)], 0, "compaction"))
    keeping = CachePolicyRun(replayed(found), "auto", start="5m")
    keeping.serve_rest(())
    assert [kept.requests for kept in keeping.decisions] == [1, 2, 3, 4, 1]


def test_a_history_that_went_back_goes_on_from_where_it_was() -> None:
    found = session(*PAUSED)
    kept = found.segments[0].history[:4]
    found.segments.append(RecordedSegment([*kept, message("user", 31)], [sent(5, 9100.0)], 4, "rewind"))
    keeping = CachePolicyRun(replayed(found), "auto", start="5m")
    keeping.serve_rest(())
    assert [kept.requests for kept in keeping.decisions] == [1, 2, 3, 4, 3]


# ── providers that keep by themselves ───────────────────────────────────────────────────────────────────────────────


def test_a_provider_that_keeps_by_itself_is_billed_as_recorded() -> None:
    found = replayed(FIVE, PRICE)
    bills = [bill_with_caching(found, None, caching).costs for caching in CACHING_NAMES]
    assert bills == [bills[0]] * len(CACHING_NAMES)


# ── pauses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pauses_are_those_between_an_answer_and_the_next_request() -> None:
    found = session(*PAUSED)
    assert count_idle_times(found) == IdleTimes((1, 1, 1), (0, 0, 0), 1)
    assert count_idle_times(session(sent(1), sent(3))) == IdleTimes(conversations=1)


def test_a_loop_of_tools_is_told_from_the_user() -> None:
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "c", "content": "found"},
    ]
    requests = [RecordedRequest(1, "toy", 0.0, 1.0), RecordedRequest(3, "toy", 400.0, 401.0)]
    found = Recording("test", "openai-chat", [RecordedSegment(history, requests)])
    assert count_idle_times(found) == IdleTimes((0, 0, 0), (0, 1, 0), 1)
