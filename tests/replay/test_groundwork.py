from __future__ import annotations

import gc
import weakref

import pytest

from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.prices import Price, Prices, Rates
from ibidem.billing.revision_budget import CachePricing
from ibidem.replay.replay_bill import AfterBreak, Replay, parse_histories
from ibidem.replay.shared_arrival import SharedArrival
from ibidem.replay.simulate import Simulation
from ibidem.replay.verify import verify_expansion
from ibidem.strategies import profiles
from ibidem.strategies.arrival.backrefs import BackReferences
from ibidem.strategies.arrival.sent_text import SentText
from ibidem.tokens import counter_for

from .test_promise import recorded

ECONOMY = CachePricing(read=0.1, write=1.25, lifetime=300)
PRICE = Price("m", ((0, Rates(1.0, 0.1, 1.25, 1.25)),), CacheRules(0, 1, 300, 300), "anthropic")
SESSION = recorded(60, 5, 1.0, 20_000)
REPLAY = Replay(SESSION, Prices({"m": PRICE}), counter_for(), parse_histories(SESSION))


def simulated(
    profile: str,
    world: AfterBreak,
    shared: SharedArrival | None = None,
    other: AfterBreak | None = None,
    verify: bool = True,
    at_once: bool = True,
    texts: bool = True,
) -> Simulation:
    told, elsewhere = REPLAY.reported_usage(world), REPLAY.reported_usage(other) if other else None
    strategies, weights = profiles.profile_strategies(profile), REPLAY.weights
    return Simulation(
        SESSION,
        REPLAY.messages,
        strategies,
        weights,
        counter_for(),
        ECONOMY,
        told,
        shared,
        elsewhere,
        verify=verify,
        at_once=at_once,
        texts=texts,
    )


def told(simulation: Simulation) -> tuple[object, ...]:
    charges = REPLAY.bill(simulation.views).charges
    return charges, simulation.spans, simulation.points, simulation.failures


ORDERS = [["aggressive", "recoverable", "lossless"], ["lossless", "recoverable", "aggressive"]]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_what_profiles_share_changes_nothing_for_any_of_them(order: list[str]) -> None:
    shared = SharedArrival(REPLAY.messages)
    for profile in order:
        assert told(simulated(profile, "hit", shared, verify=False)) == told(simulated(profile, "hit"))


@pytest.mark.parametrize("profile", ["recoverable", "aggressive"])
def test_where_both_worlds_decide_alike_all_that_is_sent_is_the_same(profile: str) -> None:
    here, there = simulated(profile, "hit", other="miss"), simulated(profile, "miss")
    assert any(point.rewritten for point in here.points)
    alike = [(point.length, point.first) for point in here.points] == [
        (point.length, point.first) for point in there.points
    ]
    assert here.agrees is alike
    assert (REPLAY.bill(here.views) == REPLAY.bill(there.views)) is alike


@pytest.mark.parametrize("profile", ["recoverable", "aggressive"])
def test_what_is_run_beside_another_world_is_sent_as_if_it_were_run_alone(profile: str) -> None:
    shared = SharedArrival(REPLAY.messages)
    here = simulated(profile, "hit", shared, "miss", at_once=False)
    there = simulated(profile, "miss", shared, at_once=False)
    for number in range(len(REPLAY.messages)):
        here.run_segment(number)
        there.run_alongside(here, number)
        shared.drop_segment()
    alone = simulated(profile, "miss")
    assert REPLAY.bill(there.views) == REPLAY.bill(alone.views)
    assert there.points == alone.points


def test_whoever_lets_go_of_the_same_texts_reads_the_same_branch() -> None:
    shared = SharedArrival(REPLAY.messages)
    tape = shared.get_log(0, BackReferences(), True)
    arrived = next(each for each in map(tape.read_message, range(len(REPLAY.messages[0]))) if each and each.said)
    gone = (arrived.said[0].place.source,)
    branch = tape.get_branch(20, gone)
    assert tape.get_branch(20, gone) is branch
    assert tape.get_branch(20, ()) is not branch


def test_tapes_and_their_branches_go_with_their_segment() -> None:
    shared = SharedArrival(REPLAY.messages)
    folds = [weakref.ref(shared.get_log(0, BackReferences(), True).get_branch(3, ()).fold)]
    folds.append(weakref.ref(shared.get_log(0, BackReferences(), True).fold))
    gc.disable()  # as it is while a log is measured
    try:
        shared.drop_segment()
        assert [fold() for fold in folds] == [None, None]
    finally:
        gc.enable()


def test_without_the_texts_of_edits_all_else_that_is_told_of_them_is_the_same() -> None:
    whole, bare = (simulated("recoverable", "hit", texts=texts).spans for texts in (True, False))
    assert [span[:-1] for span in whole] == [span[:-1] for span in bare]
    assert any(span.edit.added for span in whole)
    assert not any(span.edit.added or span.edit.removed for span in bare)


def test_what_does_not_come_back_is_noticed_in_the_requests_that_are_looked_at() -> None:
    history = REPLAY.messages[0]
    tape = SharedArrival(REPLAY.messages).get_log(0, BackReferences(), True)
    edit = next(edit for edit in tape.edits_before(len(history)) or () if edit.strategy == "spans")
    wrong = [
        (place, [with_a_line_more(said) if place == edit.message else said for said in texts])
        for place, texts in tape.sent_texts()
    ]
    tag, everything = tape.fold.sources.tag, [range(len(history))]
    assert verify_expansion(tape.sent_texts(), tag, everything)
    assert not verify_expansion(wrong, tag, everything)
    assert verify_expansion(wrong, tag, [range(edit.message)])


def with_a_line_more(said: SentText) -> SentText:
    return said._replace(sent=f"{said.sent}\nnobody said this")


def test_a_share_of_the_requests_is_looked_at_and_all_if_asked() -> None:
    requests = len(REPLAY.steps)
    some = simulated("lossless", "hit", verify=False).expanded
    assert requests - 1 in some
    assert len(some) < requests / 4
    assert simulated("lossless", "hit", verify=True).expanded == set(range(requests))
