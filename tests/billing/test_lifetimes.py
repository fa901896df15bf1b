"""For how long what is kept: what pays, and that it never costs more than was promised, whatever the pauses are."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.cache_ttl import (
    NOTHING_LONG,
    CacheRequest,
    IdleTimes,
    TtlDecision,
    add_idle_time,
    choose_ttl,
    expected_idle_times,
)
from ibidem.billing.prices import Price, Rates

WINDOW = 200_000
MARKED = CacheRules(minimum=1024, marks=True, hour=True)
PRICES = {
    "list": Rates(1.0, 0.1, 1.25, 2.0),
    "cheap reads": Rates(1.0, 0.025, 1.25, 2.0),
    "no surcharge": Rates(1.0, 0.1, 1.25, 1.25),
    "dear hour": Rates(1.0, 0.5, 1.1, 3.0),
}


def price_of(rates: Rates, window: int | None = WINDOW, caching: CacheRules = MARKED) -> Price:
    return Price("m", ((0, rates),), caching, "anthropic", window)


LIST = price_of(PRICES["list"])
ALWAYS_LATER = IdleTimes((0, 4000, 0), (0, 4000, 0), 10)
NEVER_LATER = IdleTimes((40_000, 0, 0), (40_000, 0, 0), 10)


@dataclass(frozen=True)
class Turn:
    """What is new in a request, in tokens of ours."""

    new: int
    spared: int
    """Of it, not sent at all."""
    pause: float
    spoken: bool
    reports: bool


def turns(reports: st.SearchStrategy[bool], least: int = 0) -> st.SearchStrategy[list[Turn]]:
    one = st.builds(
        Turn,
        new=st.integers(1, 12_000),
        spared=st.sampled_from([0, 0, 500, 6000]),
        pause=st.sampled_from([5.0, 5.0, 5.0, 5.0, 299.0, 301.0, 900.0, 3599.0, 3601.0, 40_000.0]),
        spoken=st.booleans(),
        reports=reports,
    )
    return st.lists(one, min_size=least, max_size=60)


@dataclass
class Provider:
    """A conversation, sent with what was decided; and the same with nothing done, as its client asks for."""

    price: Price
    client: bool | None
    head: int
    density: float
    """Provider tokens for one of ours."""
    phi: float = 0.8
    credit: float = 0.03
    prior: IdleTimes = field(default_factory=IdleTimes)
    shared: bool = False
    """Other conversations keep warm what stands before the messages."""
    kept: TtlDecision | None = None
    standing: float = 0.0
    removed: float = 0.0
    size: float = 0.0
    hour: float = 0.0
    read: float = 0.0
    whole: float = 0.0
    """What the last request would have been with nothing done."""
    messages: int = -1
    told: bool = False
    ours: float = 0.0
    theirs: float = 0.0
    hours: dict[int, float] = field(default_factory=dict)
    """Messages → tokens of a request that ended with them."""

    def send(self, turn: Turn) -> TtlDecision:
        spared = min(turn.spared, turn.new - 1)
        first = not self.size
        self.messages += 2
        asked = CacheRequest(
            self.messages,
            self.client,
            turn.spoken,
            None if first else turn.pause,
            round(self.size) if self.told else None,
            round(self.read) if self.told else None,
            turn.new - spared,
            self.removed,
            head=self.head / self.density,
        )
        before = self.kept.long if self.kept else NOTHING_LONG
        self.kept = choose_ttl(self.price, self.kept, asked, self.prior, self.phi, self.credit)
        self.standing += turn.new - spared
        self.removed += spared
        self._pay(before, first, turn.pause)
        self.told = turn.reports
        return self.kept

    def _pay(self, before: int, first: bool, pause: float) -> None:
        assert self.kept is not None
        rates = self.price.tiers[0][1]
        size = self.head + self.density * self.standing
        whole = size + self.density * self.removed
        least = self.head if self.shared else 0.0
        warm = max(least, 0.0 if first or pause > 3600 else self.hour if pause > 300 else self.size)
        long = self.kept.long
        if pause <= 300 and not first and long > before:
            assert before >= self.messages - 2, "what was warm would have to be written again"
        self.hours[self.messages] = size
        self.hour = 0.0 if long < 0 else self.head if long == 0 else self.hours[long]
        assert self.client is None or long in (NOTHING_LONG, 0, self.messages), "no mark of the client's is there"
        written = max(0.0, self.hour - warm)
        self.ours += rates.read * warm + rates.write_1h * written + rates.write * (size - warm - written)
        lasts = {None: -1.0, False: 300.0, True: 3600.0}[self.client]
        found = max(least if self.client is not None else 0.0, 0.0 if first or pause > lasts else self.whole)
        dear = {None: rates.fresh, False: rates.write, True: rates.write_1h}[self.client]
        self.theirs += rates.read * found + dear * (whole - found)
        self.size, self.read, self.whole = size, warm, whole


# ── the promise ─────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=400, deadline=None)
@example(  # a conversation that was nearly twice as large as it was taken for, until its provider told
    [
        Turn(1, 0, pause, False, told)
        for pause, told in [*[(5.0, False)] * 5, (5.0, True), (3601.0, True), *[(301.0, False)] * 2]
    ],
    *("dear hour", True, 90_000, 1.75, 0.1, IdleTimes(), False),
)
@given(
    turns(st.booleans()) | turns(st.just(True)),
    st.sampled_from(list(PRICES)),
    st.sampled_from([None, False, True]),
    st.sampled_from([1200, 20_000, 90_000]),
    st.floats(0.9, 1.9),
    st.sampled_from([0.0, 0.03, 0.1, 0.2]),
    st.sampled_from([IdleTimes(), ALWAYS_LATER, NEVER_LATER]),
    st.booleans(),
)
def test_the_bill_is_above_what_the_client_asked_for_by_at_most_the_credit(
    sent: list[Turn],
    label: str,
    client: bool | None,
    head: int,
    density: float,
    credit: float,
    prior: IdleTimes,
    shared: bool,
) -> None:
    """At no moment, whatever the pauses, whatever is expected. Marks of ours cost at most what they do once."""
    rates = PRICES[label]
    provider = Provider(price_of(rates), client, head, density, credit=credit, prior=prior, shared=shared)
    most = 1 + credit if client is not None else max(1 + credit, rates.write / rates.fresh)
    for turn in sent:
        if provider.size + 2 * turn.new > WINDOW:
            break
        provider.send(turn)
        assert provider.ours <= provider.theirs * most + 1e-6


@pytest.mark.parametrize("client", [None, False, True])
def test_other_lifetimes_than_the_clients_are_chosen_in_such_sessions(client: bool | None) -> None:
    """Where nothing is chosen, nothing is promised."""
    prior = NEVER_LATER if client else ALWAYS_LATER
    provider = Provider(price_of(PRICES["list"], 60_000), client, 20_000, 1.2, credit=0.2, prior=prior)
    found = []
    for number in range(250):
        pause = 40_000.0 if client and number % 50 == 49 else 400.0 if not client and number % 50 == 49 else 5.0
        found.append(provider.send(Turn(100, 0, pause, False, True)).long >= 1)
    assert (not client) in found
    assert provider.ours < provider.theirs


def test_a_provider_that_tells_nothing_gives_no_credit() -> None:
    provider = Provider(LIST, False, 20_000, 1.2, credit=0.2, prior=ALWAYS_LATER)
    assert {provider.send(Turn(500, 0, 400.0, True, False)).long for _ in range(200)} == {NOTHING_LONG}


def test_what_edits_saved_may_be_spent() -> None:
    def longest(spared: int) -> int:
        provider = Provider(LIST, False, 20_000, 1.0, credit=0.0, prior=ALWAYS_LATER)
        return max(provider.send(Turn(2000, spared, 400.0, True, True)).long for _ in range(40))

    assert longest(0) == NOTHING_LONG
    assert longest(1500) >= 0


def test_what_revisions_spent_is_not_there_to_be_spent() -> None:
    before = TtlDecision(size=50_000.0, bill=10e6, length=21, client=0, requests=200, looped_later=50)
    asked = CacheRequest(23, False, False, 400.0, 50_000, 50_000, 100.0)
    assert choose_ttl(LIST, before, asked).long == 23
    assert choose_ttl(LIST, before, asked._replace(spent=0.03 * 10e6)).long == NOTHING_LONG


def test_what_others_keep_warm_the_client_finds_as_well() -> None:
    """No saving of ours: a first request, and one after a pause for which an hour was chosen."""
    sent = choose_ttl(LIST, None, CacheRequest(1, True, new=50_000.0))
    assert choose_ttl(LIST, sent, CacheRequest(3, True, False, 5.0, 50_000, 20_000)).paid == 0
    after = choose_ttl(LIST, RICH, CacheRequest(23, False, False, 400.0, 50_000, 49_000))
    assert after.long == 23
    cost = choose_ttl(LIST, after, CacheRequest(25, False, False, 5.0, 50_000, 20_000)).paid
    assert cost == pytest.approx((2.0 - 1.25) * 30_000)


def test_what_others_kept_warm_once_is_no_saving_of_an_hour_later() -> None:
    """Of what is kept for an hour, all but that is."""
    provider = Provider(LIST, False, 20_000, 1.0, credit=0.2, prior=ALWAYS_LATER, shared=True)
    for number in range(60):
        provider.send(Turn(500, 0, 400.0 if number % 12 == 11 else 5.0, True, True))
    kept = provider.send(Turn(1, 0, 5.0, True, True))
    assert kept.long >= 0, "an hour was chosen"
    assert kept.paid == pytest.approx(provider.ours - provider.theirs, rel=0.01)


def test_another_model_finds_nothing_and_that_is_known_before() -> None:
    other = replace(LIST, model="n", tiers=((0, Rates(4.0, 0.4, 5.0, 8.0)),))
    kept = RICH_1H._replace(model="m", **QUIET)
    asked = CacheRequest(23, False, False, 5.0, 50_000, 49_000)
    assert choose_ttl(LIST, kept, asked._replace(head=10_000.0)).long == 0
    found = choose_ttl(other, kept, asked._replace(head=10_000.0))
    assert (found.long, found.read, found.due, found.missed) == (NOTHING_LONG, 0, 0, 0)
    assert choose_ttl(other, kept._replace(looped_later=500), asked).long == 23


def test_money_is_counted_in_prices_of_the_model_that_is_asked() -> None:
    """Else what was paid to a cheap one would be room for an hour of a dear one."""
    dear = replace(LIST, model="n", tiers=((0, Rates(100.0, 10.0, 125.0, 200.0)),))
    kept = RICH._replace(model="m", bill=10e6)
    asked = CacheRequest(23, False, False, 400.0, 50_000, 49_000)
    assert choose_ttl(LIST, kept, asked).long == 23
    assert choose_ttl(dear, kept, asked).long == NOTHING_LONG
    assert choose_ttl(dear, kept, asked).bill == pytest.approx(choose_ttl(LIST, kept, asked).bill / 100)


# ── what is decided ─────────────────────────────────────────────────────────────────────────────────────────────────


def kept_after(before: TtlDecision, **asked: object) -> int:
    known: dict[str, object] = {"long": False, "idle": 5.0, "context": round(before.size), "cached": round(before.read)}
    return choose_ttl(LIST, before, CacheRequest(before.length + 2, **{**known, **asked})).long  # type: ignore[arg-type]


RICH = TtlDecision(
    size=50_000.0, read=49_000.0, due=49_000.0, bill=1e9, length=21, client=0, requests=200, looped_later=50
)
"""With room for anything, and reason for an hour."""
RICH_1H = RICH._replace(long=21, hour=50_000.0)


def test_an_hour_begins_at_a_cold_moment_only() -> None:
    assert kept_after(RICH, idle=299.0) == NOTHING_LONG
    assert kept_after(RICH, idle=None) == NOTHING_LONG
    assert kept_after(RICH, idle=301.0) == 23


def test_a_miss_is_known_too_late_to_be_a_cold_moment() -> None:
    assert kept_after(RICH, cached=0) == NOTHING_LONG


QUIET: dict[str, Any] = {"looped_later": 0, "looped": 20_000}
"""With no reason for an hour any more."""


def test_what_is_new_is_kept_as_what_stands_before_it() -> None:
    assert kept_after(RICH_1H) == 23


def test_behind_marks_of_ours_what_is_new_may_be_kept_for_less() -> None:
    assert kept_after(RICH_1H._replace(client=-1, **QUIET), long=None) == 21
    assert kept_after(RICH_1H._replace(client=-1, bill=0.0, paid=1e6), long=None) == 21


def test_marks_of_a_client_leave_only_what_stands_before_the_messages() -> None:
    assert kept_after(RICH_1H._replace(**QUIET), head=10_000.0) == 0
    assert kept_after(RICH_1H._replace(**QUIET)) == NOTHING_LONG
    assert kept_after(RICH_1H._replace(bill=0.0, paid=1e6), head=10_000.0) == 0


def test_the_rest_follows_at_the_next_pause() -> None:
    mixed = RICH_1H._replace(length=31, hour=30_000.0, client=-1)
    assert kept_after(mixed, long=None) == 21
    assert kept_after(mixed, long=None, idle=400.0) == 33
    assert kept_after(mixed._replace(bill=0.0, paid=1e6), long=None, idle=400.0) == 21


def test_there_has_to_be_room_for_what_comes_until_the_next_pause() -> None:
    """Else what was paid for would be lost before it pays: marks of a client move on."""
    some = RICH._replace(bill=1.3e6, looped=3000, requests=100)
    assert kept_after(some, idle=400.0, long=False) == NOTHING_LONG
    assert kept_after(some._replace(bill=13e6), idle=400.0, long=False) == 23


def test_a_provider_that_loses_what_it_keeps_is_not_paid_for_it() -> None:
    assert kept_after(RICH_1H._replace(missed=150, looped=150)) == NOTHING_LONG


def test_where_all_does_not_fit_what_stands_before_the_messages_may() -> None:
    some = RICH._replace(bill=1e6)
    assert kept_after(some, idle=400.0, head=10_000.0) == 0
    assert kept_after(some, idle=400.0) == NOTHING_LONG
    assert kept_after(some, idle=400.0, head=1000.0) == NOTHING_LONG  # too short to be kept


def test_an_hour_of_the_client_stays_where_the_window_is_not_known() -> None:
    quiet = RICH._replace(long=21, hour=50_000.0, client=1, **QUIET)
    asked = CacheRequest(23, True, False, 4000.0, 50_000, 49_000)
    assert choose_ttl(LIST, quiet, asked).long == NOTHING_LONG
    assert choose_ttl(price_of(PRICES["list"], None), quiet, asked).long == 23


def test_a_first_request_is_kept_as_its_client_asks() -> None:
    assert [choose_ttl(LIST, None, CacheRequest(1, long, new=50_000.0)).long for long in (None, False, True)] == [
        -1,
        -1,
        1,
    ]


def test_a_provider_that_keeps_by_itself_is_left_alone() -> None:
    own = price_of(PRICES["no surcharge"], caching=CacheRules(minimum=1024))
    assert choose_ttl(own, RICH, CacheRequest(23, None, idle=400.0)) == TtlDecision()
    brief = price_of(PRICES["list"], caching=CacheRules(minimum=1024, marks=True))
    assert choose_ttl(brief, RICH, CacheRequest(23, False, idle=400.0)) == TtlDecision()


def test_what_was_decided_survives_being_noted() -> None:
    provider = Provider(LIST, False, 20_000, 1.2, credit=0.2, prior=ALWAYS_LATER)
    for number in range(30):
        kept = provider.send(Turn(500, 10, 400.0 if number % 7 == 6 else 5.0, True, True))
        assert TtlDecision(*json.loads(json.dumps(kept))) == kept


# ── pauses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pauses_are_counted_by_kind_and_length() -> None:
    found = IdleTimes()
    for spoken, idle in ((True, 300.0), (True, 301.0), (True, 3601.0), (False, 3600.0), (False, 0.0)):
        found = add_idle_time(found, spoken, idle)
    assert found == IdleTimes((1, 1, 1), (1, 1, 0))
    assert found + IdleTimes((1, 0, 0), (0, 0, 2), 3) == IdleTimes((2, 1, 1), (1, 1, 2), 3)


def test_the_past_counts_until_the_conversation_shows_otherwise() -> None:
    busy, idle = IdleTimes((900, 100, 0), (1000, 0, 0), 20), IdleTimes((990, 10, 0), (1000, 0, 0), 20)
    none = IdleTimes()
    assert expected_idle_times(none, busy)[0] == pytest.approx(0.05)
    assert expected_idle_times(none, busy)[0] > expected_idle_times(none, idle)[0]
    often = IdleTimes((50, 50, 0), (0, 0, 0))
    assert expected_idle_times(often, idle)[0] > 5 * expected_idle_times(none, idle)[0]
    alone = IdleTimes((0, 0, 0), (1000, 0, 0))
    assert expected_idle_times(alone, busy)[0] < 0.1 * expected_idle_times(none, busy)[0]
