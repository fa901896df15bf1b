"""A day of work with `--cache`: what the provider bills is what the books say, what was predicted, and what was
promised."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ibidem.billing.cache_ttl import CREDIT, CacheMode, IdleTimes
from ibidem.billing.prices import Prices
from ibidem.recordings import RecordedRequest, RecordedSegment, Recording
from ibidem.replay.caching_replay import bill_with_caching
from ibidem.replay.replay_bill import Replay, parse_histories
from ibidem.store import MemoryStore, SqliteStore
from ibidem.testing import Answer, Fails, Says, Seen
from ibidem.testing.prompt_cache import PromptCache
from ibidem.tokens import counter_for
from tests.support.proxied import Clock, talk
from tests.support.workday import CLIENTS, MODEL, Client, SentTurn, Task, costs, day, played

pytestmark = pytest.mark.slow


class Played(NamedTuple):
    """A day, and what the books say at its end."""

    turns: list[SentTurn]
    state: dict[str, Any]

    @property
    def cost(self) -> float:
        return sum(costs(self.turns))


@cache
def worked(client: Client, mode: CacheMode, who: str = "") -> Played:
    """All of it, or one conversation that nobody else's cache helps."""
    clock, events = Clock(), [each for each in day() if not who or each.who == who]
    with talk(clock=clock, cache_mode=mode) as found:
        turns = played(events, client, [found], clock)
        return Played(turns, found.state)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mode", ["off", "lifetime", "auto"])
def test_what_was_billed_is_what_the_books_say_was_paid(client: Client, mode: CacheMode) -> None:
    found = worked(client, mode)
    totals = found.state["totals"]
    assert totals["paid"] == pytest.approx(found.cost)
    for name in ("read", "written_1h"):
        assert totals[name] == sum(getattr(each.usage, name) for each in found.turns)
    assert totals["written"] == sum(each.usage.written + each.usage.written_1h for each in found.turns)
    assert totals["failed_open"] == totals["refused"] == 0
    assert found.state["cache"] == mode


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mode", ["lifetime", "auto"])
def test_the_books_know_what_the_clients_own_marks_would_have_cost(client: Client, mode: CacheMode) -> None:
    """The very same day was billed without us."""
    found, without = worked(client, mode), worked(client, "off")
    totals = found.state["totals"]
    assert totals["would_have_paid"] == pytest.approx(without.cost, rel=0.01)
    assert totals["by_marks"] == pytest.approx(totals["would_have_paid"] - totals["paid"])


def test_marks_make_an_agent_that_sets_none_far_cheaper() -> None:
    assert worked("none", "auto").cost < 0.3 * worked("none", "off").cost
    assert worked("none", "lifetime").cost == pytest.approx(worked("none", "off").cost)
    assert worked("none", "auto").cost < 1.1 * worked("5m", "off").cost


@pytest.mark.parametrize("client", ["5m", "1h"])
@pytest.mark.parametrize("mode", ["lifetime", "auto"])
def test_no_conversation_is_ever_dearer_than_with_its_clients_own_choice_by_more_than_the_credit(
    client: Client, mode: CacheMode
) -> None:
    found, without = worked(client, mode), worked(client, "off")
    for who in {each.who for each in found.turns}:
        ours, theirs = (list(accumulate(costs(each.turns, who))) for each in (found, without))
        assert all(one <= (1 + CREDIT) * other for one, other in zip(ours, theirs, strict=True)), who


@pytest.mark.parametrize(("client", "mode"), [("none", "auto"), ("5m", "lifetime"), ("1h", "lifetime"), ("1h", "auto")])
def test_what_was_billed_is_what_a_replay_of_the_day_without_us_predicted(client: Client, mode: CacheMode) -> None:
    """A log of that day is what `ibidem report --caching auto` has."""
    for who in {each.who for each in day()}:
        found, without = worked(client, mode, who), worked(client, "off", who)
        replay = replayed(without.turns)
        assert bill_with_caching(replay, None, "recorded").cost == pytest.approx(without.cost, rel=0.02)
        assert bill_with_caching(replay, None, "auto", start=client).cost == pytest.approx(found.cost, rel=0.05), who


def replayed(turns: Sequence[SentTurn]) -> Replay:
    body = json.loads(turns[-1].came)
    head = {name: body[name] for name in ("tools", "system")}
    sent = [RecordedRequest(each.length, MODEL, each.at, each.at, each.usage) for each in turns]
    session = Recording("agent", "anthropic", [RecordedSegment(body["messages"], sent)], head=head)
    return Replay(session, Prices(), counter_for(), parse_histories(session))


def sees_marks(seen: Seen) -> Answer:
    """A gateway that knows no marks."""
    return Fails(400, message="cache_control: unknown field") if b"cache_control" in seen.body else Says("ok")


def test_a_provider_that_refuses_marks_gets_the_request_without_and_the_conversation_none_after() -> None:
    clock, events = Clock(), [each for each in day() if each.who == "importer"][:8]
    with talk(sees_marks, clock=clock, cache_mode="auto") as found:
        turns = played(events, "none", [found], clock)
        seen, state = found.upstream.seen, found.state
    assert [b"cache_control" in each.body for each in seen] == [True, *[False] * len(turns)]
    assert [each.went for each in turns] == [each.came for each in turns]
    assert (state["totals"]["refused"], state["totals"]["resent"]) == (1, 1)
    assert state["totals"]["unmarked"] == 0, "there is nothing to advise"
    assert (
        state["totals"]["paid"] == pytest.approx(state["totals"]["would_have_paid"]) == pytest.approx(sum(costs(turns)))
    )


def test_lifetimes_that_a_provider_refuses_are_those_of_the_client_again() -> None:
    def refuses(seen: Seen) -> Answer:
        return Fails(400, message="ttl: unknown field") if b'"ttl"' in seen.body else Says("ok")

    clock = Clock()
    with talk(refuses, clock=clock, cache_mode="lifetime", pauses=IdleTimes(spoken=(0, 1000, 0))) as found:
        turns = played(day(), "5m", [found], clock)
    assert all(each.went == each.came for each in turns)


@pytest.mark.parametrize(("client", "mode"), [("none", "auto"), ("5m", "auto"), ("1h", "lifetime")])
def test_a_restart_and_a_second_replica_decide_alike(client: Client, mode: CacheMode, tmp_path: Path) -> None:
    expected = [each.went for each in worked(client, mode).turns]
    clock, kept, found = Clock(), PromptCache(), []
    tasks: dict[str, Task] = {}
    events = day()
    for start in range(0, len(events), 15):
        store = SqliteStore(tmp_path / "store.sqlite")
        with store, talk(clock=clock, cache_mode=mode, store=store, cache=kept) as proxy:
            found += played(events[start : start + 15], client, [proxy], clock, tasks)
    assert [each.went for each in found] == expected
    clock, shared, kept = Clock(), MemoryStore(), PromptCache()
    with ExitStack() as stack:
        opened = [talk(clock=clock, cache_mode=mode, store=shared, cache=kept) for _ in range(2)]
        found = played(events, client, [stack.enter_context(each) for each in opened], clock)
    assert [each.went for each in found] == expected
