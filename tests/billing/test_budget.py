"""When looking back pays: the bank never spends what was not saved, whatever a provider counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.billing.revision_budget import CachePricing, RequestContext, RevisionOffer, SavingsBalance

ECONOMIES = (
    CachePricing(),
    CachePricing(write=2.0, lifetime=3600),
    CachePricing(read=0.025),
    CachePricing(write=1.0, lifetime=600),
    CachePricing(read=1.0, write=1.0, lifetime=0),
    CachePricing(write=1.0, lifetime=600, forgotten=math.inf),  # an unknown TTL
    CachePricing(tiers=((100_000, 5.0),)),
    CachePricing(write=2.0, lifetime=3600, tiers=((50_000, 2.0), (100_000, 5.0))),
)


@dataclass(frozen=True)
class Turn:
    """What is new in a request, in tokens of ours."""

    new: int
    spared: int
    """Of it, not sent at all."""
    outdated: float
    """The share of what stands that need not stand any longer, from now on."""
    before: float
    """The share of the rest that stands before all of that."""
    pause: float
    reports: bool


TURNS = st.lists(
    st.builds(
        Turn,
        new=st.integers(1, 20_000),
        spared=st.integers(0, 10_000),
        outdated=st.sampled_from([0.0, 0.0, 0.1, 0.5, 0.9]),
        before=st.sampled_from([0.0, 0.5, 0.95]),
        pause=st.sampled_from([5.0, 5.0, 5.0, 400.0, 4000.0]),
        reports=st.booleans(),
    ),
    max_size=60,
)


@dataclass
class Sent:
    """A conversation, sent to a provider; and the same with nothing done."""

    bank: SavingsBalance
    density: float
    """Provider tokens for one of ours."""
    head: int
    hits: bool
    """It finds what stands before a change; else it misses all of the conversation."""
    standing: float = 0.0
    removed: float = 0.0
    waiting: float = 0.0
    waited: float = 0.0
    read: float = 0.0
    """Of the last request, in its tokens."""
    ours: float = 0.0
    theirs: float = 0.0
    changes: int = 0
    lifetime: float | None = None
    """For how long the provider really caches; as documented if None."""
    mistaken: int = 0
    mistaken_price: float = 0.0
    """Changes that were taken for free while the cache was still warm, and their price."""

    def send(self, turn: Turn) -> None:
        economy = self.bank.economy
        told = turn.reports and self.standing > 0
        context = round(self.head + self.density * self.standing) if told else None
        self.bank.add_usage(context, self.standing, round(self.read) if told else None)
        self.bank.set_ttl(RequestContext(idle=turn.pause, context=context))
        cold = not self.standing or turn.pause > (economy.lifetime if self.lifetime is None else self.lifetime)
        forgotten = not self.standing or self.bank.is_expired(turn.pause)
        self.waiting += turn.outdated * (self.standing - self.waiting)
        spared = min(turn.spared, turn.new - 1)
        behind = self.standing - turn.before * (self.standing - self.waiting)
        kept = self.standing
        offer = RevisionOffer(self.waiting, self.waited, behind)
        moment, fresh = RequestContext(idle=turn.pause, context=context), turn.new - spared
        if (reason := self.bank.decide_revision(self.standing, offer, moment, fresh)) is not None:
            self.bank.record_revision(self.standing, offer, reason, fresh)
            kept = self.standing - behind if self.hits else 0.0
            if reason == "cold cache" and not cold:
                self.mistaken += 1
                self.mistaken_price += 1.9 * (economy.write - economy.read) * self.standing
            self.standing -= self.waiting
            self.removed += self.waiting
            self.waiting = self.waited = 0.0
            self.changes += reason == "it pays"
        self.bank.record_request(self.removed, spared, forgotten, self.standing + fresh)
        self._pay(turn, spared, 0.0 if cold else min(kept, self.standing), cold)

    def _pay(self, turn: Turn, spared: int, kept: float, cold: bool) -> None:
        read, write = self.bank.economy.read, self.bank.economy.write
        again, fresh = write if cold else read, turn.new - spared
        self.read = 0.0 if cold else self.head + self.density * kept
        size = self.head + self.density * (self.standing + fresh)
        self.ours += self.bank.economy.tier_factor(size) * (read * self.read + write * (size - self.read))
        before = self.head + self.density * (self.standing + self.removed)
        factor = self.bank.economy.tier_factor(before + self.density * turn.new)
        self.theirs += factor * (again * before + write * self.density * turn.new)
        self.standing += fresh
        self.removed += spared
        self.waited += self.waiting


@settings(max_examples=400, deadline=None)
@given(
    TURNS,
    st.sampled_from(ECONOMIES),
    st.floats(0.9, 1.9),
    st.sampled_from([0, 5000, 40_000]),
    st.floats(0.1, 0.9),
    st.sampled_from([0.0, 0.01, 0.03, 0.05, 0.2]),
    st.booleans(),
)
def test_the_bill_is_above_that_of_doing_nothing_by_at_most_the_credit(
    turns: list[Turn], economy: CachePricing, density: float, head: int, phi: float, credit: float, hits: bool
) -> None:
    """At no moment, however many tokens the provider finds in ours, however much stands before them, hit or miss."""
    sent = Sent(SavingsBalance(economy, phi, credit), density, head, hits)
    for turn in turns:
        sent.send(turn)
        assert sent.ours <= (1 + credit) * sent.theirs * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(TURNS, st.floats(0.9, 1.9), st.sampled_from([0, 40_000]), st.sampled_from([0.0, 0.03]))
def test_a_cache_that_lives_longer_than_documented_costs_what_was_changed_before_that_showed(
    turns: list[Turn], density: float, head: int, credit: float
) -> None:
    sent = Sent(SavingsBalance(CachePricing(), 0.8, credit), density, head, hits=True, lifetime=math.inf)
    for turn in turns:
        sent.send(turn)
        assert sent.ours <= (1 + credit) * sent.theirs * (1 + 1e-9) + sent.mistaken_price


def test_a_cache_that_lived_longer_than_documented_once_is_not_taken_for_cold_again() -> None:
    sent = Sent(SavingsBalance(CachePricing(), 0.8, 0.0), 1.0, 0, hits=True, lifetime=math.inf)
    for _ in range(10):
        sent.send(Turn(new=5000, spared=0, outdated=0.0, before=0.5, pause=400.0, reports=True))
    sent.send(Turn(new=5000, spared=0, outdated=0.9, before=0.5, pause=399.0, reports=True))
    assert sent.mistaken == 0
    told_nothing = Sent(SavingsBalance(CachePricing(), 0.8, 0.0), 1.0, 0, hits=True, lifetime=math.inf)
    for outdated in (0.0, 0.0, 0.9, 0.0, 0.9):
        told_nothing.send(Turn(new=5000, spared=0, outdated=outdated, before=0.5, pause=400.0, reports=False))
    assert told_nothing.mistaken == 2


def test_a_pause_proves_nothing_if_the_ttl_is_unknown() -> None:
    economy = CachePricing(write=1.0, lifetime=600, forgotten=math.inf)
    assert not economy.forgets(10**9)
    assert (
        SavingsBalance(economy, 0.5).decide_revision(1000, RevisionOffer(900, 0, 1000), RequestContext(idle=9008.0))
        is None
    )


def test_new_settings_make_a_change_free_if_a_return_to_the_old_ones_is_affordable() -> None:
    bank, offer = SavingsBalance(CachePricing(), 0.8), RevisionOffer(1000, 0, 20_000)
    assert bank.decide_revision(20_000, offer, RequestContext(idle=5.0, new_settings=True)) is None
    bank.record_request(0, 40_000, cold=False)
    assert bank.decide_revision(20_000, offer, RequestContext(idle=5.0)) is None
    assert bank.decide_revision(20_000, offer, RequestContext(idle=5.0, new_settings=True)) == "new settings"
    assert bank.record_revision(20_000, offer, "new settings") == (0.0, 0.0)
    assert bank.spent == 0.0
    bank.set_ttl(RequestContext(new_settings=True))  # the client may have returned to the old ones
    assert bank.spent == pytest.approx(1.15 * 19_000)


def test_a_price_tier_is_worth_a_change() -> None:
    """Haiku 5.5 costs five times as much above 100,000 tokens, for the whole request."""
    reasons = {}
    for tiers in ((), ((100_000, 5.0),)):
        bank = SavingsBalance(CachePricing(tiers=tiers), 0.8)
        bank.record_request(0, 60_000, cold=False)
        bank.add_usage(98_000, 98_000, 0)
        reasons[tiers] = bank.decide_revision(
            98_000, RevisionOffer(8000, 0, 20_000), RequestContext(idle=5.0), new=4000
        )
    assert reasons == {(): None, ((100_000, 5.0),): "price tier"}


@pytest.mark.parametrize("density", [0.9, 1.0, 1.5])
@pytest.mark.parametrize("head", [0, 20_000])
@pytest.mark.parametrize("credit", [0.0, 0.03])
@pytest.mark.parametrize("hits", [False, True])
def test_a_change_that_has_been_earned_is_made(density: float, head: int, credit: float, hits: bool) -> None:
    """The test above would hold for a bank that never spends."""
    sent = Sent(SavingsBalance(CachePricing(), 0.6, credit), density, head, hits)
    for _ in range(60):
        sent.send(Turn(new=2000, spared=400, outdated=0.1, before=0.5, pause=5.0, reports=True))
    assert sent.changes > 0
    assert sent.bank.hits is hits
    assert sent.ours < 0.85 * sent.theirs


@pytest.mark.parametrize("cached", [0, None])
def test_a_provider_that_finds_nothing_any_more_is_planned_for_as_one_that_misses(cached: int | None) -> None:
    bank = SavingsBalance(CachePricing(), 0.8)
    bank.add_usage(50_000, 50_000, 0)
    bank.record_request(100_000, 0, cold=True)
    offer = RevisionOffer(freed=1000, waited=99_000, behind=5000)
    bank.record_revision(50_000, offer, "it pays")
    bank.add_usage(49_000, 49_000, 45_000)
    assert bank.hits
    spent = bank.spent
    bank.record_revision(49_000, offer, "it pays")
    bank.add_usage(48_000, 48_000, cached)
    assert not bank.hits
    assert bank.spent - spent == pytest.approx(1.15 * 48_000)


@pytest.mark.parametrize(("context", "cached"), [(1000, -(10**9)), (1000, 10**9), (-1000, 0), (0, None)])
def test_what_cannot_be_true_of_a_request_gives_no_credit(context: int, cached: int | None) -> None:
    bank = SavingsBalance(CachePricing(), 0.8, credit=1.0)
    bank.add_usage(context, 1000, cached)
    assert 0 <= bank.bill <= 1250


def test_credit_pays_for_a_change_that_nothing_was_saved_for_yet() -> None:
    changes = []
    for credit in (0.0, 0.03):
        sent = Sent(SavingsBalance(CachePricing(write=2.0, lifetime=3600), 0.8, credit), 1.0, 20_000, False)
        for number in range(120):
            sent.send(Turn(new=1000, spared=0, outdated=0.85 * (number == 100), before=0.0, pause=5.0, reports=True))
        changes.append(sent.changes)
    assert changes[0] == 0 < changes[1]


def test_what_was_spent_cannot_be_spent_again() -> None:
    bank = SavingsBalance(CachePricing(), 0.5)
    bank.record_request(before=0, new=1000, cold=False)
    assert bank.decide_revision(1000, RevisionOffer(600, 0, 1000), RequestContext()) == "it pays"
    bank.record_revision(1000, RevisionOffer(600, 0, 1000), "it pays")
    assert bank.decide_revision(1000, RevisionOffer(600, 0, 1000), RequestContext()) is None
    bank.record_request(before=1600, new=600, cold=False)
    assert bank.decide_revision(1000, RevisionOffer(600, 0, 1000), RequestContext()) == "it pays"


def test_what_stands_before_the_conversation_is_not_counted_in_its_price() -> None:
    """With reports of 30,000 tokens more than we count, and with none at all, the same is rewritten."""
    rewritten = []
    for head in (0, 30_000):
        bank = SavingsBalance(CachePricing(), 0.5)
        for ours in range(1000, 41_000, 4000):
            bank.add_usage(head + ours, ours)
        rewritten.append(bank.record_revision(37_000, RevisionOffer(20_000, 0, 37_000), "it pays")[0])
    assert rewritten == pytest.approx([17_000, 17_000], rel=0.06)
    assert rewritten[1] >= 17_000


def test_what_we_cannot_see_is_written_again_too() -> None:
    """A provider that counts half as much again as we do, although what goes is counted as we count it."""
    bank = SavingsBalance(CachePricing(), 0.5)
    for turn in range(1, 20):
        bank.add_usage(3000 * turn, 2000 * turn)
    assert bank.scale == bank.kappa == 1.5
    bank.add_usage(90_000, 40_000)  # 30,000 more, and 2,000 that we know of
    assert bank.scale <= 1.6
    assert (
        bank.record_revision(40_000, RevisionOffer(10_000, 0, 40_000), "it pays")[0] >= 80_000 - 1.6 * 10_000
    )  # 10,000 may stand before all


def test_growth_across_a_change_tells_nothing_about_the_scale() -> None:
    bank = SavingsBalance(CachePricing(), 0.5)
    for turn in range(1, 10):
        bank.add_usage(5000 + 2000 * turn, 2000 * turn)
    assert bank.scale == 1.0
    bank.record_revision(18_000, RevisionOffer(9000, 0, 18_000), "cold cache")
    bank.add_usage(60_000, 20_000)
    assert bank.scale == 1.0


def test_a_limit_counts_all_of_a_request() -> None:
    """The window holds what stands before the conversation as well."""
    bank = SavingsBalance(CachePricing(read=0.001, window=100_000), 0.5)
    bank.record_request(0, 200_000, cold=False)
    assert bank.decide_revision(40_000, RevisionOffer(5000, 0, 40_000), RequestContext()) is None
    bank.add_usage(91_000, 1000)
    bank.add_usage(130_000, 40_000)
    assert bank.decide_revision(40_000, RevisionOffer(5000, 0, 40_000), RequestContext()) == "window"


def test_a_cache_that_may_still_know_is_not_taken_for_a_cold_one() -> None:
    """Where a provider promises no exact lifetime, a change is free only after all of it is gone for sure."""
    exact, loose = CachePricing(lifetime=300), CachePricing(lifetime=600, forgotten=3600)
    assert [exact.forgets(idle) for idle in (None, 299.0, 301.0)] == [False, False, True]
    assert [loose.forgets(idle) for idle in (None, 601.0, 3599.0, 3601.0)] == [False, False, False, True]
    assert (
        SavingsBalance(loose, 0.5).decide_revision(1000, RevisionOffer(900, 0, 1000), RequestContext(idle=601.0))
        is None
    )
    assert (
        SavingsBalance(loose, 0.5).decide_revision(1000, RevisionOffer(900, 0, 1000), RequestContext(idle=3601.0))
        == "cold cache"
    )
