"""Marks on requests that an adapter sends as values, and `cache=` of those that see the wire."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

import ibidem
from ibidem.adapters._breakpoints import SYSTEM, TOOLS, FrameworkBreakpoint, breakpoint_positions, with_breakpoints
from ibidem.adapters._request_rewriter import RequestRewriter
from ibidem.adapters.httpx import Transport
from ibidem.billing.cache_ttl import CACHE_MODES, TtlDecision
from ibidem.engine.session import Session
from ibidem.errors import UsageError
from ibidem.formats.cache_control import FieldAddition
from ibidem.store import MemoryStore
from ibidem.testing import Answer, Fails, Says, Seen, Upstream, conv

MODEL = "claude-sonnet-4-5"
LONG = "\n".join(f"Rule {number}: whatever has the number {number * 37} is read first." for number in range(400))
TOOL = {"name": "read", "description": "Reads a file.", "input_schema": {"type": "object"}}
HEAD = {"system": LONG, "tools": [TOOL], "max_tokens": 9}
LINES = ("u:look", "a:let me see >1", "r1:it is there", "a:and >2", "r2:so is the other")
MARK = {"type": "ephemeral"}


def request(lines: int = len(LINES), **more: Any) -> dict[str, Any]:
    return {**conv(*LINES[:lines], format="anthropic"), **HEAD, "model": MODEL, **more}


def marks_in(value: Any) -> list[Any]:
    if isinstance(value, dict):
        own = [value["cache_control"]] if "cache_control" in value else []
        return own + [mark for each in value.values() for mark in marks_in(each)]
    return [mark for each in value for mark in marks_in(each)] if isinstance(value, list) else []


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as found:
        yield found


def posted(client: httpx.Client, body: Any) -> int:
    answer = client.post("/v1/messages", content=json.dumps(body), headers={"x-api-key": "k"})
    return int(answer.status_code)


def test_a_program_that_marks_nothing_has_its_cache_read_from_the_second_request_on(upstream: Upstream) -> None:
    told: list[Any] = []
    transport = Transport(cache="auto", store=MemoryStore(), on_usage=told.append)
    with httpx.Client(transport=transport, base_url=upstream.url) as client:
        for lines in (1, 3, 5):
            assert posted(client, request(lines)) == 200
    bodies = [seen.json for seen in upstream.seen]
    assert all(0 < len(marks_in(body)) <= 4 for body in bodies)
    assert all(not ibidem.validate(body, format="anthropic") for body in bodies)
    assert [answer.usage.read > 0 for answer in told] == [False, True, True]


@pytest.mark.parametrize("mode", ["off", "lifetime"])
def test_marks_are_put_only_where_they_were_asked_for(upstream: Upstream, mode: Any) -> None:
    with httpx.Client(transport=Transport(cache=mode, store=MemoryStore()), base_url=upstream.url) as client:
        posted(client, request())
    assert upstream.seen[0].json == request()


def test_who_marks_something_keeps_it_and_gets_no_more(upstream: Upstream) -> None:
    marked = request(system=[{"type": "text", "text": LONG, "cache_control": MARK}])
    with httpx.Client(transport=Transport(cache="auto", store=MemoryStore()), base_url=upstream.url) as client:
        posted(client, marked)
    assert upstream.seen[0].json == marked


def test_what_is_refused_goes_without_marks_and_so_do_later_requests() -> None:
    def picky(seen: Seen) -> Answer:
        return Fails(400) if b"cache_control" in seen.text else Says("taken")

    with Upstream(picky) as upstream:
        with httpx.Client(transport=Transport(cache="auto", store=MemoryStore()), base_url=upstream.url) as client:
            assert [posted(client, request(lines)) for lines in (1, 3)] == [200, 200]
        assert [bool(marks_in(seen.json)) for seen in upstream.seen] == [True, False, False]
        assert upstream.seen[1].json == request(1)


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_turn_has_the_history_and_the_head_with_marks_and_leaves_what_was_given() -> None:
    given = request()
    history, before = given["messages"], copy.deepcopy(given)
    turn = RequestRewriter(cache="auto", store=MemoryStore()).rewrite("anthropic", history, model=MODEL, head=HEAD)
    assert given == before
    assert turn.has_directives
    assert set(turn.params) <= {"system", "tools"}
    assert marks_in(turn.history)
    assert marks_in([*turn.params.values()])
    assert turn.ttl_decision is not None
    off = RequestRewriter().rewrite("anthropic", history, model=MODEL, head=HEAD)
    assert (off.history is history, off.params, off.ttl_decision, off.is_changed) == (True, {}, None, False)


class Block(BaseModel):
    type: str = "text"
    text: str
    citations: None = None


def test_objects_of_a_framework_become_values_only_where_a_mark_stands() -> None:
    history = [{"role": "assistant", "content": [Block(type="text", text="one")]} for _ in range(2)]
    marks = [
        FieldAddition(("messages", 1, "content", 0, "cache_control"), MARK),
        FieldAddition(("prompt_cache_key",), "k"),
    ]
    found, head = with_breakpoints(history, {"max_tokens": 1}, "messages", marks)
    assert found[0] is history[0]
    assert found[1]["content"] == [{"type": "text", "text": "one", "cache_control": MARK}]  # what was not set is not
    assert head == {"prompt_cache_key": "k"}


def test_spots_stand_behind_system_and_the_last_message() -> None:
    blocks = [{"type": "text", "text": LONG}]
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}]}]
    found = breakpoint_positions(TtlDecision(), MODEL, {"system": blocks, "tools": [TOOL]}, messages)
    assert [(spot.message, spot.block) for spot in found if spot.message != TOOLS] == [(SYSTEM, 0), (0, 0)]
    assert not any(spot.is_one_hour for spot in found)
    assert breakpoint_positions(None, MODEL, {"system": blocks}, messages) == []


@pytest.mark.parametrize(("model", "long"), [(MODEL, True), ("us.anthropic.claude-opus-4-6-v1", False)])
def test_an_hour_is_asked_for_only_where_it_is_taken(model: str, long: bool) -> None:
    blocks = [{"type": "text", "text": LONG * 3}]
    messages = [{"role": "user", "content": blocks}]
    found = breakpoint_positions(TtlDecision(long=1), model, {"system": blocks, "tools": [TOOL]}, messages)
    assert found[-1] == FrameworkBreakpoint(0, 0, long)


# ── settings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_settings_that_cannot_be_meant_are_told_at_once() -> None:
    with pytest.raises(UsageError, match="cache: 'always' is unknown"):
        Transport(cache="always")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"ibidem\.Session\(cache=…\)"):
        RequestRewriter(session=Session(), cache="auto")
    assert all(Transport(cache=mode, store=MemoryStore()) for mode in CACHE_MODES)


def test_a_session_of_ones_own_brings_its_own_setting(upstream: Upstream) -> None:
    session = Session(cache="auto", store=MemoryStore())
    with httpx.Client(transport=Transport(session=session), base_url=upstream.url) as client:
        posted(client, request())
    assert marks_in(upstream.seen[0].json)


def test_a_refusal_that_is_heard_later_keeps_later_requests_without_marks() -> None:
    seat = RequestRewriter(cache="auto", store=MemoryStore())
    first = seat.rewrite("anthropic", request(1)["messages"], model=MODEL, head=HEAD)
    seat.record_rejection(first.outcome)
    assert first.has_directives
    assert not seat.rewrite("anthropic", request(3)["messages"], model=MODEL, head=HEAD).has_directives
