"""Where marks stand, where ours are put, and what other lifetimes are written as."""

from __future__ import annotations

from typing import Any

import pytest

from ibidem.formats import FORMATS
from ibidem.formats.cache_control import CacheOffer, FieldAddition, ParsedMessages
from ibidem.wire import JsonChange, apply_changes

ANTHROPIC = FORMATS["anthropic"]
SHORT, LONG = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
OURS = {"ttl": "5m", "type": "ephemeral"}
BLOCK = [{"type": "text", "text": ..., "cache_control": OURS}]
FREE = CacheOffer(accepts_breakpoints=True, accepts_ttl=True)
TOOL = {"name": "read", "input_schema": {}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def said(content: Any = "well") -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


ASK = {"role": "user", "content": "go"}
CALL = said([{"type": "tool_use", "id": "a", "name": "read", "input": {}}])
RESULT = user({"type": "tool_result", "tool_use_id": "a", "content": "out"})
LOOP = [ASK, CALL, RESULT]


def added(messages: list[Any], long: int = -1, offer: CacheOffer = FREE, **head: Any) -> dict[str, Any]:
    """What is put where, by the path as people write it."""
    found = ANTHROPIC.cache_control.additions_for(head, ParsedMessages(messages), long, offer)
    return {".".join(map(str, addition.path)): addition.value for addition in found}


def test_what_stands_in_a_request_is_found_in_the_order_of_the_prefix() -> None:
    head = {
        "cache_control": SHORT,
        "system": [text("a"), text("b", cache_control=LONG)],
        "tools": [{**TOOL, "cache_control": LONG}, {**TOOL, "cache_control": None}],
    }
    inner = {"type": "tool_result", "tool_use_id": "a", "content": [text("x", cache_control={**SHORT, "ttl": "5m"})]}
    found = ANTHROPIC.cache_control.all_breakpoints(head, [ASK, CALL, user(inner, text("y", cache_control=SHORT))])
    assert [(mark.path, mark.message, mark.long) for mark in found] == [
        (("tools", 0), -1, True),
        (("system", 1), -1, True),
        (("messages", 2, "content", 0, "content", 0), 2, False),
        (("messages", 2, "content", 1), 2, False),
        ((), 2, False),
    ]


@pytest.mark.parametrize("value", [None, 5, "cache_control", [], {}, [[]], [{"type": []}], {"role": [], "content": {}}])
def test_what_no_client_sends_has_no_marks_and_gets_none(value: Any) -> None:
    marks = ANTHROPIC.cache_control
    assert marks.all_breakpoints({"tools": value, "system": value}, [value]) == []
    assert marks.additions_for({"tools": value, "tool_choice": value}, ParsedMessages([value, value]), 1, FREE) == []


def test_a_loop_is_marked_at_the_end_of_tools_system_the_request_before_and_itself() -> None:
    assert added(LOOP, tools=[TOOL], system="be kind") == {
        "tools.0.cache_control": OURS,
        "system": BLOCK,
        "messages.0.content": BLOCK,
        "messages.2.content.0.cache_control": OURS,
    }


def test_without_a_system_text_only_tools_stand_before_the_messages() -> None:
    assert next(iter(added(LOOP, tools=[TOOL]))) == "tools.0.cache_control"
    assert next(iter(added(LOOP, system=[text("a"), text("b")]))) == "system.1.cache_control"


@pytest.mark.parametrize(
    ("long", "lasting"),
    [(-1, []), (0, ["tools.0.cache_control", "system.0.cache_control"]), (3, None), (99, None)],
)
def test_lifetimes(long: int, lasting: list[str] | None) -> None:
    found = added(LOOP, long, tools=[TOOL], system=[text("x")])
    for path, value in found.items():
        mark = value if path.endswith("cache_control") else value[0]["cache_control"]
        assert mark == (LONG if lasting is None or path in lasting else OURS)


def test_where_an_hour_ends_among_the_messages_a_mark_stands() -> None:
    history = [*LOOP, said(), ASK, said(), ASK]
    found = added(history, 3, tools=[TOOL], system=[text("x")])
    assert found["messages.2.content.0.cache_control"] == LONG
    assert found["messages.4.content"] == found["messages.6.content"] == BLOCK
    assert found["system.0.cache_control"] == LONG
    assert len(found) == 4


def test_answers_in_several_messages_are_one() -> None:
    assert "messages.0.content" in added([ASK, said(), CALL, RESULT])


@pytest.mark.parametrize(
    "last",
    [
        user(text("x"), text(" ")),
        user(text("x"), {"type": "thinking", "thinking": "hm", "signature": "x"}),
        user(text("x"), {"type": "tool_reference", "tool_name": "read"}),
        user(text("x"), {"type": "what is to come"}),
        user(text("x"), {"type": "tool_result", "tool_use_id": "a", "content": ""}),
        user(text("x"), "no block"),
    ],
)
def test_what_cannot_carry_a_mark_is_passed_over(last: Any) -> None:
    assert [*added([ASK, said(), last])][-1] == "messages.2.content.0.cache_control"


def test_messages_that_cannot_carry_one_are_passed_over() -> None:
    instructions = {"role": "system", "content": "from now on"}
    assert [*added([ASK, said(), ASK, instructions])] == ["messages.0.content", "messages.2.content"]
    assert [*added([ASK, said(), {"role": "user", "content": "  "}])] == ["messages.0.content", "messages.1.content"]


def test_tools_that_are_loaded_later_carry_none() -> None:
    later = {**TOOL, "defer_loading": True}
    assert "tools.0.cache_control" in added(LOOP, tools=[TOOL, later])
    assert not [path for path in added(LOOP, tools=[later]) if path.startswith("tools")]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ({}, False),
        ({"tools": [TOOL]}, True),
        ({"tools": [TOOL], "tool_choice": {"type": "auto"}}, True),
        ({"tools": [TOOL], "tool_choice": {"type": "any"}}, False),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "read"}}, False),
    ],
)
def test_a_first_request_is_marked_if_it_is_an_agents(head: dict[str, Any], expected: bool) -> None:
    assert bool(added([ASK], **head)) is expected
    assert added(LOOP, **head)


def test_nothing_is_marked_before_there_is_enough_of_it() -> None:
    long = text("word " * 4000)
    offer = CacheOffer(accepts_breakpoints=True, min_tokens=4096)
    assert added(LOOP, offer=offer, tools=[TOOL], system="short") == {}
    assert [*added([ASK, said(), user(long)], offer=offer, tools=[TOOL])] == ["messages.2.content.0.cache_control"]
    assert "system.0.cache_control" in added(LOOP, offer=offer, tools=[TOOL], system=[long])
    assert "tools.0.cache_control" not in added(LOOP, offer=offer, tools=[TOOL], system=[long])


def test_providers_that_heed_no_marks_get_none() -> None:
    assert added(LOOP, offer=CacheOffer(accepts_breakpoints=False), tools=[TOOL]) == {}


def test_where_a_mark_cannot_say_for_how_long_it_does_not() -> None:
    found = added(LOOP, 3, CacheOffer(accepts_breakpoints=True), tools=[TOOL])
    assert found["tools.0.cache_control"] == SHORT


@pytest.mark.parametrize("long", [-1, 0, 2, 3])
def test_ours_are_left_as_they_are(long: int) -> None:
    """By those behind us, who may think otherwise."""
    head: dict[str, Any] = {"tools": [TOOL]}
    body = apply_changes(
        {**head, "messages": LOOP},
        [
            JsonChange(path, "set", value)
            for path, value in ANTHROPIC.cache_control.additions_for(head, ParsedMessages(LOOP), long, FREE)
        ],
    )
    found = ANTHROPIC.cache_control.all_breakpoints({"tools": body["tools"]}, body["messages"])
    assert found
    assert all(mark.is_ours for mark in found)
    assert not any(ANTHROPIC.cache_control.ttl_changes(found, other) for other in (-1, 0, 2, 3))


# ── lifetimes of the client's own ───────────────────────────────────────────────────────────────────────────────────


def changed(long: int, *marks: Any, top: Any = None) -> dict[str, Any]:
    messages = [user(text("x", cache_control=mark)) for mark in marks[1:]]
    head = {"system": [text("s", cache_control=marks[0])], "cache_control": top}
    found = ANTHROPIC.cache_control.ttl_changes(ANTHROPIC.cache_control.all_breakpoints(head, messages), long)
    assert all(addition.value.position == 0 for addition in found), "it is known as ours by what stands first"
    return {".".join(map(str, addition.path)): addition.value.value for addition in found}


SAID = {**SHORT, "ttl": "5m"}


@pytest.mark.parametrize("short", [SHORT, SAID, {**SHORT, "ttl": None}])
def test_five_minutes_become_an_hour_where_that_is_wanted(short: Any) -> None:
    places = ("system.0", "messages.0.content.0", "messages.1.content.0")
    system, first, second = (f"{place}.cache_control.ttl" for place in places)
    assert changed(-1, short, short, short) == {}
    assert changed(0, short, short, short) == {system: "1h"}
    assert changed(1, short, short, short) == {system: "1h", first: "1h"}
    everywhere = dict.fromkeys([system, first, second, "cache_control.ttl"], "1h")
    assert changed(2, short, short, short, top=short) == everywhere


def test_an_hour_becomes_five_minutes() -> None:
    assert changed(5, LONG, LONG) == {}
    assert set(changed(-1, LONG, LONG).values()) == {"5m"}
    assert changed(0, LONG, LONG) == {"messages.0.content.0.cache_control.ttl": "5m"}


@pytest.mark.parametrize("odd", [{"type": "lasting"}, {**SHORT, "ttl": "2h"}, "yes", ["ephemeral"]])
def test_marks_that_say_something_else_are_left_alone(odd: Any) -> None:
    assert changed(2, SHORT, odd) == {}


@pytest.mark.parametrize("long", [-1, 0, 1, 2])
def test_a_client_with_both_lifetimes_is_left_alone(long: int) -> None:
    assert changed(long, LONG, SHORT) == {}


# ── the other formats ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses"])
def test_conversations_are_named_for_providers_that_want_it(format: str) -> None:
    marks, history = FORMATS[format].cache_control, ParsedMessages([{"role": "user", "content": "go"}])
    assert marks.additions_for({}, history, -1, CacheOffer(key="c1")) == [FieldAddition(("prompt_cache_key",), "c1")]
    assert marks.additions_for({}, history, -1, FREE) == []
    assert marks.has_directives({"prompt_cache_key": "mine"}, [])
    assert marks.has_directives({"prompt_cache_retention": "in_memory"}, [])
    assert not marks.has_directives({"prompt_cache_key": None}, [])


def test_gemini_is_asked_for_nothing() -> None:
    marks = FORMATS["gemini"].cache_control
    assert marks.additions_for({}, ParsedMessages([{"role": "user"}]), 5, CacheOffer(True, 0, True, "c1")) == []
    assert marks.ttl_changes([], 5) == []
