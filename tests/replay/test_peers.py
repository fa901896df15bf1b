"""Others on the same sessions: what a worker says of a session is billed as a replay of it would be."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.peers.pricing import priced
from benchmarks.peers.sessions import Sampled, handed_over
from ibidem.recordings import RecordedRequest, RecordedSegment, Recording
from ibidem.replay.sent_views import MessageChange, SentView

pytest.importorskip("resource", reason="workers are limited by it")

from benchmarks.peers.inside.libraries import Door, Json
from benchmarks.peers.inside.worker import carried_through, gives_back

LONG = "a line of output that is said at length\n" * 150
SHORT = "as above"


def sampled() -> Sampled:
    """Three requests: of one, three and five messages, with a system prompt."""
    history: list[dict[str, Any]] = [{"role": "user", "content": LONG}]
    for number in range(2):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": "a"}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": LONG}
        history += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    requests = [RecordedRequest(length, "claude-sonnet-4-5") for length in (1, 3, 5)]
    segments = [RecordedSegment(history, requests)]
    return Sampled("one", Recording("claude-code", "anthropic", segments, head={"system": LONG}))


class Shortening(Door):
    """Says one result in fewer words, from so many messages on."""

    def __init__(self, since: int, gives: list[str] | None = None) -> None:
        self.since, self.gives = since, gives

    def send(self, body: Json, request: Json) -> Json:
        if len(body["messages"]) >= self.since:
            body["messages"][2]["content"][0]["content"] = SHORT
        return body

    def recover(self, text: str) -> list[str] | None:
        return self.gives


class Dropping(Door):
    """Leaves out the first message of the last request."""

    def send(self, body: Json, request: Json) -> Json:
        return {**body, "messages": body["messages"][1:] if len(body["messages"]) == 5 else body["messages"]}


class Hinting(Door):
    """Adds to the system prompt of the second request, or puts another in its place."""

    def __init__(self, keeps: bool) -> None:
        self.keeps = keeps

    def send(self, body: Json, request: Json) -> Json:
        if len(body["messages"]) == 3:
            body["system"] = [*(body["system"] if self.keeps else []), {"type": "text", "text": "Be brief."}]
        return body


def outcome(door: Door) -> Any:
    one = sampled()
    return priced(one, carried_through(door, handed_over(one, parts=False)), 1.0)


def bill(*views: SentView) -> float:
    return sampled().replay.bill(views).cost


def shortened() -> SentView:
    one = sampled()
    removed = one.replay.weights.result * (one.count(LONG) - one.count(SHORT))
    return SentView([MessageChange(2, 1, removed)])


def test_what_is_sent_as_it_came_costs_what_was_recorded() -> None:
    found = outcome(Door())
    assert found.hit == found.miss == found.base == bill(SentView(), SentView(), SentView())
    assert (found.turns, found.changed_turns, found.texts, found.marks_lost) == (3, 0, 0, 0)


def test_a_change_on_arrival_is_no_change_of_history() -> None:
    found = outcome(Shortening(3))
    assert found.hit == found.miss == pytest.approx(bill(SentView(), shortened(), shortened()))
    assert (found.changed_turns, found.texts, found.restored) == (0, 1, None)


def test_a_later_change_is_one_and_is_billed_as_the_replay_bills_it() -> None:
    found = outcome(Shortening(5, [LONG]))
    assert found.hit == pytest.approx(bill(SentView(), SentView(), shortened()))
    assert found.hit < found.miss
    assert (found.changed_turns, found.texts, found.restored) == (1, 1, 1)


def test_messages_that_are_dropped_take_what_follows_out_of_the_cache() -> None:
    found = outcome(Dropping())
    assert (found.changed_turns, found.base < found.hit) == (1, True)


def test_a_system_prompt_that_is_added_to_is_still_found() -> None:
    added, replaced = outcome(Hinting(keeps=True)), outcome(Hinting(keeps=False))
    assert added.changed_turns == replaced.changed_turns == 2
    assert added.base < added.hit < replaced.hit


def test_a_text_is_back_if_nothing_of_it_is_missing() -> None:
    assert gives_back("a\nb", "[2 lines]", ["a\nb"])
    assert gives_back('{"a": 1}', "a=1", ['{"a":1}'])
    assert gives_back("a\nb\nc", "a\n[1 line]\nc", ["b"])
    assert not gives_back("a\nb", "a", ["[gone]"])
    assert not gives_back("a\nb", "a\nb ", [])
