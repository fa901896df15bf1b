"""Hooks of Claude Code: what a model was just sent becomes a line, for who was sent it and nobody else."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibidem.cache.json_limits import MAX_PARTS
from ibidem.cache.outputs import MAX_SHOWN_CHARS
from ibidem.proxy.claude_hooks import HOOKS_PATH, MAX_EVENT_BYTES, MAX_SESSIONS, ToolHooks, parse_event
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.store import MemoryStore
from ibidem.testing import Says, Upstream
from tests.support.raw import to

TEXT = "".join(f"line {number} of a file\n" for number in range(40))
FILE = {"filePath": "/a.py", "content": TEXT, "numLines": 40, "startLine": 1, "totalLines": 40}
READ = {"type": "text", "file": FILE}
BASH = {"stdout": TEXT, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
GREP = {"mode": "content", "numFiles": 0, "filenames": [], "content": TEXT, "numLines": 40}
BLOCK = {"type": "text", "text": TEXT}


def event(tool: str = "Read", answer: Any = READ, **more: Any) -> dict[str, Any]:
    asked = {"file_path": "/a.py"} if tool in ("Read", "Edit") else {"command": "cat /a.py"}
    named = {"hook_event_name": "PostToolUse", "session_id": "s", "prompt_id": "p", "tool_name": tool}
    return {**named, "tool_input": asked, "tool_response": answer, **more}


def told(name: str, **more: Any) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": "s", **more}


def replaced(hooks: ToolHooks, *events: Any) -> list[bool]:
    """Whether each of these gets a line, every one in a turn of its own."""
    found = []
    for each in events:
        found.append(hooks.handle_event(each, 0.0) != {})
        hooks.handle_event({**each, "hook_event_name": "PostToolBatch"}, 0.0)
    return found


SHOWN = [
    pytest.param("Read", READ, lambda line: {**READ, "file": {**FILE, "content": line}}, id="Read"),
    pytest.param("Bash", BASH, lambda line: {**BASH, "stdout": line}, id="Bash"),
    pytest.param("Grep", GREP, lambda line: {**GREP, "content": line}, id="Grep"),
    pytest.param("mcp__x__y", TEXT, lambda line: line, id="a server's text"),
    pytest.param("mcp__x__y", [BLOCK], lambda line: [{"type": "text", "text": line}], id="a block"),
    pytest.param("mcp__x__y", [BLOCK, BLOCK], lambda line: [{"type": "text", "text": line}], id="several"),
]


@pytest.mark.parametrize(("tool", "answer", "shape"), SHOWN)
def test_a_repeat_becomes_a_line_in_the_shape_of_its_tool(tool: str, answer: Any, shape: Any) -> None:
    hooks = ToolHooks()
    assert hooks.handle_event(event(tool, answer), 0.0) == {}
    assert hooks.handle_event(told("PostToolBatch"), 0.0) == {}
    found = hooks.handle_event(event(tool, answer), 0.0)["hookSpecificOutput"]
    assert found["hookEventName"] == "PostToolUse"
    line = json.dumps(found["updatedToolOutput"]).partition("[ibidem: ")[2].partition("]")[0]
    assert line.startswith("unchanged, same as the result 1 turn ago, ")
    assert found["updatedToolOutput"] == shape(f"[ibidem: {line}]")
    assert (hooks.outputs, hooks.repeats) == (2, 1)
    assert 0 < hooks.bytes_saved < 3 * len(TEXT)


LEFT = [
    pytest.param("Write", {"content": TEXT}, id="a tool that is not known"),
    pytest.param("Read", {"type": "image", "file": {"base64": TEXT}}, id="an image"),
    pytest.param("Bash", {**BASH, "stderr": "warning"}, id="what also went to standard error"),
    pytest.param("Bash", {**BASH, "interrupted": True}, id="interrupted"),
    pytest.param("Bash", {**BASH, "persistedOutputPath": "/x"}, id="of which the model gets a preview"),
    pytest.param("Bash", {**BASH, "stdout": "x" * (MAX_SHOWN_CHARS + 1)}, id="of which it may get a preview"),
    pytest.param("Grep", {"mode": "files_with_matches", "filenames": [TEXT]}, id="a list of files"),
    pytest.param("mcp__x__y", [BLOCK, {"type": "image"}], id="text and an image"),
    pytest.param("mcp__x__y", [{**BLOCK, "annotations": {}}], id="text with more"),
    pytest.param("mcp__x__y", [], id="nothing"),
]


@pytest.mark.parametrize(("tool", "answer"), LEFT)
def test_what_is_not_surely_shown_in_full_is_left_alone(tool: str, answer: Any) -> None:
    assert replaced(ToolHooks(), *[event(tool, answer)] * 2) == [False, False]


AGENT = {"agent_id": "a1"}
CAT = event("Bash", BASH)
CONTEXTS = [
    pytest.param([event(**AGENT), event()], id="what a subagent read, its parent has not seen"),
    pytest.param([event(), event(**AGENT)], id="nor the other way round"),
    pytest.param([event(), event(session_id="t")], id="nor another session"),
    pytest.param([event(), told("PreCompact"), event()], id="the context is compacted"),
    pytest.param([event(), told("PostCompact"), event()], id="and was"),
    pytest.param([event(**AGENT), told("PreCompact"), event(**AGENT)], id="whose it was is not said"),
    pytest.param([event(**AGENT), told("SubagentStop", **AGENT), event(**AGENT)], id="a subagent that ended"),
    pytest.param([event(), event(prompt_id="q")], id="a new prompt: the user may have gone back before it"),
    pytest.param([event(), event("Edit", {}), event()], id="the file was edited"),
    pytest.param([event(answer={**READ, "file": {**FILE, "startLine": 9}}), event()], id="lines with other numbers"),
    pytest.param([event(), CAT], id="lines without numbers"),
    pytest.param([event(), event("Bash", {**BASH, "stdout": f"1\n{TEXT}"})], id="lines with a number before them"),
    pytest.param([event("mcp__x", [BLOCK, BLOCK]), event("mcp__x", json.dumps([TEXT, TEXT]))], id="texts, and a list"),
]


@pytest.mark.parametrize("events", CONTEXTS)
def test_a_line_goes_only_to_who_was_sent_the_text(events: list[Any]) -> None:
    hooks = ToolHooks()
    assert replaced(hooks, *events) == [False] * len(events)
    assert replaced(hooks, events[-1]) == [True], "which was sent now"


def test_turns_are_counted_and_what_runs_at_once_is_not_named() -> None:
    hooks = ToolHooks()
    assert [hooks.handle_event(event(), 0.0) for _ in range(3)] == [{}] * 3
    for each in ("PostToolBatch", "SubagentStop", "PostToolBatch"):
        hooks.handle_event(told(each, agent_id="" if each == "PostToolBatch" else "other"), 0.0)
    assert "the result 2 turns ago, Read(/a.py)" in json.dumps(hooks.handle_event(event(), 0.0))


def test_what_may_have_gone_by_unheard_is_forgotten() -> None:
    """A session whose requests come through the proxy, a switch, and a client that does not tell its prompts."""
    hooks = ToolHooks()
    assert replaced(hooks, event()) == [False]
    for session in ("s", *map(str, range(MAX_SESSIONS))):  # the first is no longer known to come through the proxy
        hooks.note_proxied_session(session)
    assert replaced(hooks, event()) == [False]
    hooks.clear_memory()
    assert replaced(hooks, event()) == [False]
    assert replaced(hooks, *[event(prompt_id=None)] * 2) == [False, False]
    for other in ({"agent_id": 5}, {"served_call": True}, {"caller_session_id": "t"}):
        assert replaced(hooks, *[event(**other)] * 2) == [False, False], "whoever that is"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None), max_size=20) | st.just(TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FILE, *BASH, "type", "text"]), inner),
    max_leaves=6,
)
EVENTS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "hook_event_name": st.sampled_from(["PostToolUse", "PostToolBatch", "PreCompact", "SubagentStop"]) | JSON,
        "session_id": st.just("s") | JSON,
        "agent_id": JSON,
        "prompt_id": JSON,
        "tool_name": st.sampled_from(["Read", "Bash", "Grep", "Edit", "mcp__x"]) | JSON,
        "tool_input": JSON,
        "tool_response": st.sampled_from([READ, BASH, GREP, TEXT]) | JSON,
    },
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=st.lists(EVENTS, max_size=5))
def test_law_any_event_gets_an_answer(events: list[Any]) -> None:
    hooks = ToolHooks()
    for each in events:
        json.dumps(hooks.handle_event(each, 0.0)).encode()


@pytest.mark.parametrize("part", [b"{},", b"[],", b'"",', b"0,"])
def test_an_event_of_countless_little_parts_is_not_parsed(part: bytes) -> None:
    """One of 30 MB would take a gigabyte."""
    assert parse_event(b"[" + part * 1000 + b"0]") is not None
    assert parse_event(b"[" + part * MAX_PARTS + b"0]") is None
    assert parse_event(json.dumps(event(answer=TEXT * 1000)).encode()) == event(answer=TEXT * 1000)


# ── a proxy that runs ───────────────────────────────────────────────────────────────────────────────────────────────


def posted(url: str, body: bytes, path: str = HOOKS_PATH, **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    asked = urllib.request.Request(f"{url}{path}", body, {"content-type": "application/json", **named}, method="POST")
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_proxy_answers_hooks_of_sessions_that_do_not_come_through_it() -> None:
    event_body = json.dumps(event()).encode()
    with (
        Upstream([Says("ok")]) as upstream,
        BackgroundServer(to(upstream.url, token="secret"), store=MemoryStore()) as proxy,
    ):
        ask = {"x_ibidem_token": "secret"}
        assert posted(proxy.url, event_body)[0] == 401
        assert posted(proxy.url, event_body, origin="http://elsewhere", **ask)[0] == 403
        assert posted(proxy.url, event_body, **ask) == (200, b"{}")
        assert posted(proxy.url, json.dumps(told("PostToolBatch")).encode(), **ask) == (200, b"{}")
        assert b"[ibidem: unchanged" in posted(proxy.url, event_body, **ask)[1]
        assert posted(proxy.url, b"no JSON", **ask) == (200, b"{}")
        assert posted(proxy.url, b"[" * 100_000, **ask) == (200, b"{}")
        assert posted(proxy.url, b" " * (MAX_EVENT_BYTES + 1), **ask) == (200, b"{}")
        asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
        session = {"x_claude_code_session_id": "s", **ask}
        assert posted(proxy.url, json.dumps(asked).encode(), "/v1/messages", **session)[0] == 200
        assert [posted(proxy.url, event_body, **ask) for _ in range(2)] == [(200, b"{}")] * 2, (
            "the request seat does it"
        )


@pytest.mark.parametrize("more", [{"observe": True}, {"reuse_port": True}])
def test_a_proxy_that_must_not_or_cannot_answers_nothing(more: dict[str, Any]) -> None:
    """Several processes of a proxy do not share what they remember, nor that a context was compacted."""
    with BackgroundServer(to("http://127.0.0.1:9", **more), store=MemoryStore()) as proxy:
        assert [posted(proxy.url, json.dumps(event()).encode()) for _ in range(2)] == [(200, b"{}")] * 2
