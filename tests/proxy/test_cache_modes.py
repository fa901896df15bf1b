"""`--cache`: what is marked and what never is, what the books tell of it, and a store that is in the way."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ibidem.billing.cache_directives import read_directives
from ibidem.billing.cache_ttl import CacheMode
from ibidem.store import MemoryStore, StoreError
from ibidem.store.store import JournalPage
from ibidem.testing.laws import without_breakpoints
from ibidem.wire import scan
from tests.support.proxied import Clock, Talk, dumped, growing, talk, waited_for
from tests.support.workday import MINUTE, Client, Task, costs, day, played, settled, turn

MARK = b'"cache_control"'
ALONE = [each for each in day() if each.who == "importer"]


@contextmanager
def agent(client: Client = "5m", **settings: Any) -> Iterator[tuple[Talk, Callable[..., dict[str, Any]]]]:
    """One that goes on when it is told to; what the books say of its request is returned."""
    clock, task = Clock(), Task("importer", client)
    with talk(clock=clock, **settings) as found:

        def go_on(after: float = 20.0, what: str = "answers", change: Callable[[Task], None] | None = None) -> Any:
            clock.now += after
            task.go_on(what if task.messages else "speaks")
            if change is not None:
                change(task)
            assert found.send("anthropic", task.body)[0] == 200
            waited_for(lambda: settled([found]))
            newest = found.state["conversations"][0]["id"]
            return found.page(f"conversation/{newest}")["exchanges"][-1]

        yield found, go_on


# ── what is marked ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_marked_while_observing() -> None:
    clock = Clock()
    with talk(clock=clock, cache_mode="auto", observe=True) as found:
        turns = played(ALONE[:6], "none", [found], clock)
        assert [each.went for each in turns] == [each.came for each in turns]
        assert found.state["cache"] == "off"
        assert found.state["totals"]["by_marks"] == 0


def test_what_is_only_counted_has_no_marks_and_all_edits() -> None:
    task = Task("importer", "none", repeats=True)
    with talk(cache_mode="auto") as found:
        for event in turn(0, "importer", 12):
            task.go_on(event.what)
            found.ask("POST", "/v1/messages/count_tokens", task.body)
            found.send("anthropic", task.body)
            counted, sent = (each.body for each in found.upstream.seen[-2:])
            assert MARK in sent
            assert MARK not in counted
        assert b"[ibidem " in counted
        assert found.settled(26)["totals"]["failed_open"] == 0


def test_a_client_that_marks_keeps_its_marks_where_they_are() -> None:
    clock = Clock()
    with talk(clock=clock, cache_mode="auto") as found:
        for each in played(ALONE, "5m", [found], clock):
            assert each.went.count(MARK) == each.came.count(MARK)
            assert each.went.replace(b'"ttl":"1h",', b"") == each.came


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses"])
def test_a_cache_that_keeps_by_itself_is_told_which_conversation_it_is(format: str) -> None:
    """What that is worth nobody can say, so nothing is claimed for it."""
    clock = Clock()
    with talk(clock=clock, cache_mode="auto") as found:
        bodies = [[*growing(format, 4, seed=seed, first=f"job {seed}")] for seed in (1, 2)]
        for both in zip(*bodies, strict=True):
            for body in both:
                clock.now += 2 * MINUTE
                assert found.send(format, body)[0] == 200
        totals = found.settled(10)["totals"]
        keys = [seen.json["prompt_cache_key"] for seen in found.upstream.seen]
    assert len(set(keys)) == 2
    assert keys == keys[:2] * 5
    assert totals["read"] > 0
    assert totals["by_marks"] == totals["unmarked"] == totals["refused"] == 0


# ── a store that is in the way ──────────────────────────────────────────────────────────────────────────────────────


class BrokenStore(MemoryStore):
    def load(self, session: str) -> bytes | None:
        raise StoreError("memory:", "the disk is gone")

    def note(self, *_: Any) -> JournalPage:
        raise StoreError("memory:", "the disk is gone")

    def put(self, *_: Any) -> None:
        raise StoreError("memory:", "the disk is gone")

    def notes(self, *_: Any) -> JournalPage:
        raise StoreError("memory:", "the disk is gone")


@pytest.mark.parametrize("client", ["none", "5m"])
def test_a_store_that_fails_fails_no_request(client: Client) -> None:
    clock = Clock()
    with talk(clock=clock, cache_mode="auto", store=BrokenStore()) as found:
        turns = played(ALONE[:12], client, [found], clock)
        totals = found.state["totals"]
    assert all(MARK in each.went for each in turns)
    assert totals["failed_open"] == 0
    assert totals["hits"] == len(turns) - 1


def test_a_store_that_hangs_is_not_waited_for() -> None:
    class Hangs(MemoryStore):
        go = threading.Event()

        def notes(self, *given: Any) -> JournalPage:
            assert self.go.wait(60)
            return super().notes(*given)

    store, task = Hangs(), Task("importer", "none")
    task.go_on("speaks")
    with talk(cache_mode="auto", store=store, budget_ms=50) as found:
        for _ in range(3):
            assert found.send("anthropic", task.body)[0] == 200
            # The first request fails open. After it the breaker is open, so breakpoints are added without the store.
            sent, given = (json.loads(body)["messages"] for body in (found.upstream.seen[-1].body, task.body))
            assert without_breakpoints(sent) == without_breakpoints(given)
        store.go.set()


# ── what the books tell ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_agent_that_asks_for_no_cache_is_told_what_that_costs() -> None:
    clock, other = Clock(), Clock()
    with talk(clock=clock) as found, talk(clock=other) as marked:
        turns = played(ALONE[:20], "none", [found], clock)
        state, line = found.state, found.service.stats.summary_line
        theirs = played(ALONE[:20], "5m", [marked], other)
        assert not marked.state["totals"]["unmarked"]
        assert "--cache" not in marked.service.stats.summary_line
    spared = sum(costs(turns)) - sum(costs(theirs))
    assert state["totals"]["unmarked"] == 1
    assert state["totals"]["marks_would_save"] == pytest.approx(spared, rel=0.05)
    assert state["conversations"][0]["unmarked"]
    assert list(state["totals"]["missed"]) == ["unmarked"]
    assert "; 1 conversation uses no prompt caching: --cache auto would save about $0." in line


@pytest.mark.parametrize("mode", ["lifetime", "auto"])
def test_a_client_that_marks_only_its_first_message_is_not_one_that_marks_nothing(mode: CacheMode) -> None:
    """Nothing is saved that it had itself."""

    def first(task: Task) -> None:
        task.messages[0]["content"][0]["cache_control"] = {"type": "ephemeral"}

    with agent("none", cache_mode=mode) as (found, go_on):
        for _ in range(6):
            go_on(change=first)
        totals = found.state["totals"]
    assert totals["read"] > 0
    assert totals["by_marks"] == pytest.approx(0)
    assert totals["would_have_paid"] == pytest.approx(totals["paid"])


@pytest.mark.parametrize("printed", ["cache_control", '{"cache_control": {"type": "ephemeral"}}'])
def test_a_tool_that_prints_marks_makes_nobody_read_all_of_a_history(
    printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [{"role": role, "content": printed} for role in ("user", "assistant") * 40]
    scanned, looked_at = scan(dumped({"messages": turns, "max_tokens": 9})), set[int]()
    assert scanned is not None
    value = scanned.message_at

    def looked(index: int) -> Any:
        looked_at.add(index)
        return value(index)

    monkeypatch.setattr(scanned, "message_at", looked)
    assert not read_directives(scanned, "anthropic", len(turns) - 2, closely=True).marks
    assert looked_at == {len(turns) - 2, len(turns) - 1}


def test_with_marks_of_ours_there_is_nothing_to_tell() -> None:
    clock = Clock()
    with talk(clock=clock, cache_mode="auto") as found:
        played(ALONE[:20], "none", [found], clock)
        assert found.state["totals"]["unmarked"] == 0
        assert "keep nothing" not in found.service.stats.summary_line
        assert set(found.state["totals"]["missed"]) <= {"pause"}, "thirty blocks at once are looked back over"


def _tools(task: Task) -> None:
    task.tools = [*task.tools, {"name": "Write", "input_schema": {"type": "object"}}]


def _system(task: Task) -> None:
    task.system += " Today is another day."


def _model(task: Task) -> None:
    task.model = "claude-opus-4-1"


def _history(task: Task) -> None:
    """As clients do that clear old results."""
    task.messages[4]["content"][0]["content"] = "cleared"


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (_tools, "tools"),
        (_system, "system"),
        (_model, "model: claude-sonnet-4-5 → claude-opus-4-1"),
        (_history, "history: message 5 of 19"),
    ],
    ids=["tools", "system", "model", "history"],
)
def test_a_miss_has_a_cause_and_a_price(change: Callable[[Task], None], cause: str) -> None:
    with agent() as (found, go_on):
        for _ in range(9):
            assert go_on()["miss"] is None
        found_row = go_on(change=change)
        assert found_row["miss"] == cause
        assert found_row["missed"] > 0
        totals = found.state["totals"]
        assert totals["missed"] == {cause.partition(":")[0]: pytest.approx(found_row["missed"])}
        assert go_on()["miss"] is None


def test_a_pause_is_the_cause_of_a_miss_until_it_is_asked_for_longer() -> None:
    with agent() as (_, go_on):
        for _ in range(3):
            go_on()
        assert go_on(20 * MINUTE)["miss"] == "pause: 20 min"
    with agent("1h") as (_, go_on):
        for _ in range(3):
            go_on()
        assert go_on(20 * MINUTE)["miss"] is None
        assert go_on(90 * MINUTE)["miss"] == "pause: 90 min"


def test_shares_add_up() -> None:
    with agent("1h") as (found, go_on):
        rows = [go_on() for _ in range(4)]
        totals = found.state["totals"]
    for row in (*rows, totals):
        assert row["written_1h"] == row["written"] > 0
    assert all(row["read"] + row["written"] + row["fresh"] == row["input"] for row in rows)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
@pytest.mark.parametrize("client", ["none", "5m", "1h"])
def test_savings_of_texts_and_of_marks_are_told_apart(profile: str, client: Client) -> None:
    """Beside the bill of the very same requests as they came."""
    clock, other = Clock(), Clock()
    tasks = {"importer": Task("importer", client, repeats=True)}
    with talk(clock=clock, cache_mode="auto", profile=profile) as found:
        turns = played(ALONE, client, [found], clock, tasks)
        totals = found.state["totals"]
    tasks = {"importer": Task("importer", client, repeats=True)}
    with talk(clock=other, observe=True) as plain:
        theirs = played(ALONE, client, [plain], other, tasks)
    assert totals["paid"] == pytest.approx(sum(costs(turns)))
    assert totals["would_have_paid"] == pytest.approx(sum(costs(theirs)), rel=0.03)
    assert totals["would_have_paid"] - totals["paid"] - totals["by_marks"] > 0, "texts alone"


def test_metrics_know_it() -> None:
    with agent("none", cache_mode="auto") as (found, go_on):
        for _ in range(4):
            go_on()
        go_on(90 * MINUTE)
        metrics = found.ask("GET", "/ibidem/metrics")[1].decode()
        totals = found.state["totals"]
    assert 'cache="auto"' in metrics
    assert f"ibidem_saved_by_marks_dollars {totals['by_marks']!r}" in metrics
    assert f'ibidem_cache_missed_dollars_total{{cause="pause"}} {totals["missed"]["pause"]!r}' in metrics
    assert "ibidem_unmarked_conversations 0" in metrics
