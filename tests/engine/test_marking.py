"""Marks on requests: every law holds with them, they are taken off again, and what goes wrong costs marks alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import testing
from ibidem.billing.cache_ttl import CacheRequest, IdleTimes, TtlDecision
from ibidem.engine import breakpoint_placement
from ibidem.formats import FORMATS
from ibidem.store import MemoryStore, StoreError
from ibidem.testing import laws
from tests.support.lanes import daily

SLOW = settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
one_format_daily = pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))
lossless_and_more = pytest.mark.parametrize("profile", ["lossless", "recoverable"])

LONG_TEXT = "Be exact, and say where it stands. " * 600
"""More than any model's minimum."""
MODELS = {"anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}
TOOLS = [{"name": "Read", "description": LONG_TEXT, "input_schema": {"type": "object"}}]
SHORT = {"type": "ephemeral"}


def headed(request: dict[str, Any], format: str) -> dict[str, Any]:
    """As an agent sends it: with a model, and tools and a system text where the format has a field for it."""
    head: dict[str, Any] = {"model": MODELS.get(format, "gpt-5")}
    if format == "anthropic":
        head = {**head, "system": LONG_TEXT, "tools": TOOLS}
    return {**request, **head}


def agent(*steps: str) -> dict[str, Any]:
    return headed(testing.conv("u:go", *steps), "anthropic")


LOOP = agent("a>1", "r1:out", "a>2", "r2:more")


def paths(found: ibidem.Compacted) -> list[str]:
    return [".".join(map(str, mark.path)) for mark in found.marks]


def begun(request: dict[str, Any], messages: int) -> dict[str, Any]:
    return {**request, "messages": request["messages"][:messages]}


# ── the laws ────────────────────────────────────────────────────────────────────────────────────────────────────────


@one_format_daily
@lossless_and_more
@given(data=st.data())
@SLOW
def test_the_laws_hold_with_marks(format: str, profile: str, data: st.DataObject) -> None:
    request = headed(data.draw(testing.histories(format)), format)
    store, strategies = MemoryStore(), ibidem.PROFILES[profile]
    run = testing.runner(strategies, format, "auto", store)
    testing.valid_stays_valid(run, request, format)
    testing.idempotent(run, request, format)
    testing.text_and_value_agree(run, request, format)
    laws.breakpoints_change_no_text(run, testing.runner(strategies, format, store=store), request, format)
    laws.breakpoints_touch_nothing_else(run, request, format)
    laws.breakpoints_are_removed(run, request, format, store)


@one_format_daily
@given(data=st.data())
@SLOW
def test_broken_histories_are_no_worse_with_marks(format: str, data: st.DataObject) -> None:
    request = headed(data.draw(testing.broken_histories(format)), format)
    store, strategies = MemoryStore(), ibidem.PROFILES["lossless"]
    run = testing.runner(strategies, format, "auto", store)
    before = len(ibidem.validate(request, format=format))
    assert len(ibidem.validate(run(request).request, format=format)) <= before
    testing.idempotent(run, request, format)
    laws.breakpoints_change_no_text(run, testing.runner(strategies, format), request, format)
    laws.breakpoints_touch_nothing_else(run, request, format)
    laws.breakpoints_are_removed(run, request, format, store)


@one_format_daily
@lossless_and_more
@given(data=st.data())
@SLOW
def test_a_session_marks_as_it_goes(format: str, profile: str, data: st.DataObject) -> None:
    """But for marks it sends what one without sends; what it sent before stays, and all of it comes back."""
    request = headed(data.draw(testing.histories(format, 6)), format)
    key, store = FORMATS[format].history_key, MemoryStore()
    plain = ibidem.Session(profile, format=format, store=MemoryStore())
    session = ibidem.Session(profile, format=format, store=store, cache="auto")
    behind = ibidem.Session(profile, format=format, store=store, cache="auto")
    for length in range(1, len(request[key]) + 1):
        body = json.dumps({**request, key: request[key][:length]}).encode()
        sent = session.compact(body).request
        assert laws.without_breakpoints(json.loads(sent)) == laws.without_breakpoints(
            json.loads(plain.compact(body).request)
        )
        assert session.compact(body).request == sent
        assert behind.compact(sent).request == sent
        assert ibidem.expand(sent, format=format, store=store) == body
        if not ibidem.validate(body, format=format):
            assert not ibidem.validate(sent, format=format)


@given(st.data())
@SLOW
def test_any_lifetime_is_in_order_and_stays(data: st.DataObject) -> None:
    """Whatever is decided: valid, the same when it comes again, and the client's own when it is expanded."""
    request = headed(data.draw(testing.histories("anthropic")), "anthropic")
    asked = data.draw(st.sampled_from([None, SHORT, {**SHORT, "ttl": "1h"}]))
    if asked is not None:
        *rest, last = request["messages"]
        blocks = [{"type": "text", "text": last["content"]}] if isinstance(last["content"], str) else last["content"]
        last = {**last, "content": [*blocks[:-1], {**blocks[-1], "cache_control": asked}]}
        request = {**request, "messages": [*rest, last], "cache_control": asked}
    long, store = data.draw(st.integers(-1, len(request["messages"]) + 1)), MemoryStore()

    def marked(given: Any, long: int = long) -> Any:
        dialect = FORMATS["anthropic"]
        return breakpoint_placement.apply_breakpoints(
            given, dialect, "auto", TtlDecision(long), "claude-sonnet-4-5", KEY, store
        )

    sent = marked(request)
    if sent.additions:  # whoever is behind us decides nothing, whatever it would have decided
        assert marked(sent.request, data.draw(st.integers(-1, len(request["messages"]) + 1))).request == sent.request
    if not ibidem.validate(request):
        assert not ibidem.validate(sent.request)
    assert marked(sent.request).request == sent.request
    assert laws.without_breakpoints(sent.request) == laws.without_breakpoints(request)
    text = json.dumps(request)
    assert ibidem.expand(marked(text).request, store=store) == text


KEY = breakpoint_placement.cache_key_for(
    FORMATS["anthropic"].read_message(0, {"role": "user", "content": "go"}) for _ in range(1)
)


@pytest.mark.parametrize("cache", ["auto", "lifetime"])
def test_replicas_and_those_behind_ask_for_the_same(cache: Any) -> None:
    """Of a user who comes back within the hour, as a rule."""
    pauses = IdleTimes((0, 90, 0), (0, 90, 0), 3)
    request = agent(*(step for n in range(1, 9) for step in (f"a>{n}", f"r{n}:{n} {LONG_TEXT}")))
    if cache == "lifetime":
        request["system"] = [{"type": "text", "text": LONG_TEXT, "cache_control": SHORT}]
    settings: dict[str, Any] = {"cache": cache, "pauses": pauses, "store": MemoryStore()}
    session, behind, state, lasting = ibidem.Session(**settings), ibidem.Session(**settings), None, 0
    for length in range(1, len(request["messages"]) + 1, 2):
        cold = length in (1, 11)  # after two hours, when something was saved that may be spent
        body, at = json.dumps(begun(request, length)).encode(), 60.0 * length + 7200 * (length >= 11)
        sent = session.compact(body, at=at).request
        assert ibidem.Session(**settings, state=state).compact(body, at=at).request == sent
        assert behind.compact(sent, at=at).request == sent
        assert ibidem.expand(sent, store=settings["store"]) == body
        assert not ibidem.validate(sent)
        lasting += b'"1h"' in sent
        for each in (session, behind):
            each.answered(at=at + 1, context=10000 * length, cached=0 if cold else 10000 * (length - 2))
        state = session.state()
    assert lasting or cache == "lifetime"


def test_where_another_decides_nothing_is_decided_from_then_on() -> None:
    """What it leaves as it is for a while looks like a client's own, and is not taken for that."""
    settings, conv = breakpoint_placement.CacheSettings("lifetime"), laws.read(LOOP, "anthropic")
    asked = CacheRequest(len(LOOP["messages"]), context=90_000, cached=0, idle=4000.0)
    rich = TtlDecision(saved=1e9, bill=1e9, size=90_000.0, requests=9, spoken=1, looped_later=8, client=0)

    def after(before: TtlDecision, mark: dict[str, str]) -> TtlDecision:
        system = [{"type": "text", "text": LONG_TEXT, "cache_control": mark}]
        marks = FORMATS["anthropic"].cache_control.all_breakpoints({"system": system}, ())
        return breakpoint_placement.decide_ttl(settings, conv, "claude-sonnet-4-5", asked, before, marks)

    assert after(rich, SHORT).long > 0
    elsewhere = after(rich, {"ttl": "1h", "type": "ephemeral"})
    assert after(elsewhere, SHORT).long < 0
    assert after(after(elsewhere, SHORT), SHORT).long < 0


# ── where nothing is marked ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cache", ["off", "lifetime"])
def test_nothing_is_added_unless_asked_for(cache: Any) -> None:
    assert ibidem.compact(LOOP, cache=cache).request is LOOP
    assert ibidem.Session(cache=cache).compact(LOOP).request is LOOP


@pytest.mark.parametrize(
    "own",
    [
        {"cache_control": SHORT},
        {"cache_control": {}},
        {"system": [{"type": "text", "text": LONG_TEXT, "cache_control": SHORT}]},
        {"tools": [{**TOOLS[0], "cache_control": SHORT}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "go", "cache_control": SHORT}]}]},
    ],
)
def test_who_marks_gets_no_more(own: dict[str, Any]) -> None:
    request = {**LOOP, **own, "messages": [*own.get("messages", LOOP["messages"][:1]), *LOOP["messages"][1:]]}
    for given_as in (request, json.dumps(request), json.dumps(request).encode()):
        assert ibidem.compact(given_as, cache="auto").request is given_as
        assert ibidem.Session(cache="auto").compact(given_as).request is given_as


def test_an_early_mark_is_remembered() -> None:
    """The client's mark is in a message that is not looked at again."""
    first = {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": SHORT}]}
    request = {**LOOP, "messages": [first, *LOOP["messages"][1:]]}
    session = ibidem.Session(cache="auto")
    for length in (1, 3, 5):
        body = json.dumps(begun(request, length)).encode()
        assert session.compact(body).request is body
    plain = json.dumps(LOOP).encode()  # it is gone: the same words, without
    assert session.compact(plain).marks


CHAT = [{"role": "system", "content": LONG_TEXT}, {"role": "user", "content": "go"}]


@pytest.mark.parametrize(
    "request_",
    [
        LOOP["messages"],
        {"messages": [{"role": "user", "content": "go"}]},
        {"model": "gpt-5", "input": "go"},
        {"model": "gpt-5", "previous_response_id": "r1", "input": [{"role": "user", "content": "go"}]},
        {"model": "gemini-2.5-pro", "contents": [{"role": "user", "parts": [{"text": "go"}]}]},
        {"model": "anthropic/claude-sonnet-4.5", "messages": CHAT},
        {"model": "no such model", "input": [{"role": "user", "content": "go"}]},
        {**LOOP, "model": "deepseek-chat"},
        {**LOOP, "messages": []},
    ],
    ids=["bare", "ambiguous", "a text", "kept there", "Gemini", "a gateway", "unknown", "heeds none", "empty"],
)
def test_nothing_is_put_where_nobody_knows_what_becomes_of_it(request_: Any) -> None:
    assert ibidem.compact(request_, cache="auto").request is request_
    assert ibidem.Session(cache="auto").compact(request_).request is request_


def test_a_tool_that_prints_marks_is_not_heeded() -> None:
    quoted = json.dumps({"cache_control": {"type": "ephemeral", "ttl": "1h"}})
    body = json.dumps(agent("a>1", f"r1:{quoted}", "a>2", f"r2:{quoted}")).encode()
    assert paths(ibidem.Session(cache="auto").compact(body)) == paths(ibidem.compact(LOOP, cache="auto"))


# ── what is kept of it ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_added_is_told() -> None:
    found = ibidem.Session(cache="auto").compact(json.dumps(LOOP).encode())
    assert paths(found) == [
        "tools.0.cache_control",
        "system",
        "messages.2.content.0.cache_control",
        "messages.4.content.0.cache_control",
    ]
    assert found.violations == []
    assert found.conversation is not None
    assert found.conversation.messages[4].wire["content"][0]["cache_control"] == {"ttl": "5m", "type": "ephemeral"}


def test_conversations_have_names() -> None:
    request = {"model": "gpt-5", "input": [{"role": "user", "content": "go"}]}
    other = {"model": "gpt-5", "input": [{"role": "user", "content": "stay"}]}
    grown = {**request, "input": [*request["input"], {"role": "assistant", "content": "ok"}, other["input"][0]]}
    names = [ibidem.compact(each, cache="auto").request["prompt_cache_key"] for each in (request, grown, other)]
    assert names[0] == names[1] != names[2]
    assert names[0].startswith(breakpoint_placement.KEY_PREFIX)


def test_without_a_store_marks_stay_and_texts_come_back() -> None:
    text = "\n".join(f"line {n} of the very same output" for n in range(60))
    request = agent("a>1", f"r1:{text}", "a>2", f"r2:{text}")
    sent = ibidem.compact(request, cache="auto").request
    assert ibidem.expand(sent) != request
    assert laws.without_breakpoints(ibidem.expand(sent)) == laws.without_breakpoints(request)


def test_marks_of_the_client_are_not_taken_off() -> None:
    """Another request of a conversation of which the store knows marks."""
    store = MemoryStore()
    sent = ibidem.compact(LOOP, cache="auto", store=store).request
    own = {**sent, "tools": TOOLS}
    assert ibidem.expand(own, store=store) is own
    assert ibidem.expand(sent, store=store) == LOOP


def test_records_that_differ_take_nothing_off() -> None:
    """A text and a list of it are sent alike: which of them came is not known any more."""
    store = MemoryStore()
    listed = {**LOOP, "system": [{"type": "text", "text": LONG_TEXT}]}
    sent = [ibidem.compact(each, cache="auto", store=store).request for each in (LOOP, listed)]
    assert sent[0] == sent[1]
    assert ibidem.expand(sent[0], store=store) is sent[0]


def test_a_record_is_small() -> None:
    store = MemoryStore()
    ibidem.compact(LOOP, cache="auto", store=store)
    assert store.stats().originals == 1
    assert store.stats().bytes_original < 400


def test_no_store_is_opened_for_marks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened() -> Any:
        raise AssertionError("a store was opened")

    monkeypatch.setattr("ibidem.engine.session.default_store", opened)
    monkeypatch.setattr("ibidem.engine.pipeline.default_store", opened)
    assert ibidem.compact(LOOP, cache="auto").marks
    assert ibidem.Session(cache="auto").compact(LOOP).marks


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────────────────────────


class Broken(MemoryStore):
    def put(self, session: str, originals: Mapping[str, str]) -> None:
        raise StoreError("here", "the disk is full")


def test_a_store_that_fails_holds_nothing_up() -> None:
    assert ibidem.compact(LOOP, cache="auto", store=Broken()).marks
    assert ibidem.Session(cache="auto", store=Broken()).compact(LOOP).marks


def test_a_fault_of_ours_costs_marks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("out of order")

    text = "\n".join(f"line {n} of the very same output" for n in range(60))
    request = agent("a>1", f"r1:{text}", "a>2", f"r2:{text}")
    expected = ibidem.compact(request)
    assert expected.plan
    monkeypatch.setattr(breakpoint_placement, "plan_breakpoints", fails)
    for found in (ibidem.compact(request, cache="auto"), ibidem.Session(cache="auto").compact(request)):
        assert found.request == expected.request
        assert found.marks == ()


def test_a_decision_that_fails_is_left_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("out of order")

    monkeypatch.setattr(breakpoint_placement, "choose_ttl", fails)
    session = ibidem.Session(cache="auto")
    for length in (3, 5):
        assert session.compact(begun(LOOP, length)).request == begun(LOOP, length)
        assert session.position is not None
    assert ibidem.compact(LOOP, cache="auto").request is LOOP


def test_keys_that_stand_twice_cost_marks_alone() -> None:
    text = json.dumps(LOOP).replace('"tools": [{', '"tools": [{"cache_control": null, "cache_control": null, ', 1)
    assert ibidem.compact(text, cache="auto").request is text
    assert ibidem.Session(cache="auto").compact(text).request is text


@pytest.mark.parametrize("profile", ["lossless", "recoverable", "codetether"])
def test_after_a_refusal_a_conversation_gets_none(profile: str) -> None:
    session = ibidem.Session(profile, cache="auto", store=MemoryStore())
    body = json.dumps(begun(LOOP, 3)).encode()
    assert session.compact(body).marks
    session.sent_otherwise(body, 0, refused=True)
    assert not session.compact(body).marks
    assert not session.compact(json.dumps(LOOP).encode()).marks
    other = ibidem.Session(profile, cache="auto", store=MemoryStore(), state=session.state())
    assert not other.compact(json.dumps(LOOP).encode()).marks


def test_what_was_sent_without_is_marked_the_next_time() -> None:
    """A time-out is no refusal."""
    session = ibidem.Session(cache="auto")
    body = json.dumps(begun(LOOP, 3)).encode()
    session.sent_otherwise(body, 0)
    assert session.compact(json.dumps(LOOP).encode()).marks


def test_pauses_that_are_none_are_told_at_once() -> None:
    with pytest.raises(ibidem.IbidemError, match="pauses"):
        ibidem.Session(cache="auto", pauses=(1, 2))  # type: ignore[arg-type]


def test_branches_are_marked_each_for_itself() -> None:
    session, store = ibidem.Session(cache="auto"), MemoryStore()
    fork = agent("a>1", "r1:out", "a>3", "r3:other")
    for request in (begun(LOOP, 3), LOOP, fork, begun(LOOP, 3), LOOP):
        expected = ibidem.compact(request, cache="auto", store=store)
        found = session.compact(json.dumps(request).encode())
        assert json.loads(found.request) == expected.request
        assert found.marks == expected.marks
