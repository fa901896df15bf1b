"""The first line that people write: no request that a provider would take raises, and a mistake is told at the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import testing
from ibidem.cli import main
from ibidem.errors import UsageError
from ibidem.formats import FORMATS
from ibidem.formats import format_named as format_named
from ibidem.store import MemoryStore, SqliteStore
from tests.support.lanes import daily

ANTHROPIC, CHAT, RESPONSES, GEMINI = FORMATS
HI = {"role": "user", "content": "hi"}
BLOCKS = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
PNG = "iVBORw0KGgo="

PLAIN: dict[str, tuple[str, Any]] = {
    # Anthropic
    "a first turn": (ANTHROPIC, {"model": "claude-opus-4-6", "max_tokens": 5, "messages": [HI]}),
    "a first turn in blocks": (ANTHROPIC, {"model": "claude-opus-4-6", "max_tokens": 5, "messages": [BLOCKS]}),
    "a model of a gateway": (ANTHROPIC, {"model": "anthropic/claude-opus-4-6", "max_tokens": 5, "messages": [HI]}),
    "a model in a region": (ANTHROPIC, {"model": "us.anthropic.claude-opus-4-6-v1:0", "messages": [HI]}),
    "a model nobody knows": ("", {"model": "house-model", "max_tokens": 5, "messages": [HI]}),
    "no model": ("", {"messages": [HI]}),
    "no model, a conversation": ("", {"messages": [HI, {"role": "assistant", "content": "Hello."}, HI]}),
    "tools of Anthropic": (ANTHROPIC, {"messages": [HI], "tools": [{"name": "ls", "input_schema": {}}]}),
    "an image for Anthropic": (
        ANTHROPIC,
        {
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x/y"}}]}
            ]
        },
    ),
    # Chat
    "a first turn of Chat": (CHAT, {"model": "gpt-5.6", "messages": [HI]}),
    "only a system message": (CHAT, {"model": "gpt-5.6", "messages": [{"role": "system", "content": "x"}]}),
    "a developer's message": (CHAT, {"messages": [{"role": "developer", "content": "x"}, HI]}),
    "tools of Chat": (CHAT, {"messages": [HI], "tools": [{"type": "function", "function": {"name": "ls"}}]}),
    "an image for Chat": (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]}]},
    ),
    # Responses
    "a prompt": (RESPONSES, {"model": "gpt-5.6", "input": "hi"}),
    "a message of Responses": (RESPONSES, {"model": "gpt-5.6", "input": [HI]}),
    "items of Responses": (
        RESPONSES,
        {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
    ),
    "a response that goes on": (RESPONSES, {"model": "gpt-5.6", "previous_response_id": "resp_1", "input": "go on"}),
    "a stored prompt": (RESPONSES, {"model": "gpt-5.6", "prompt": {"id": "pmpt_1"}}),
    "a stored prompt and no input": (RESPONSES, {"model": "gpt-5.6", "input": None, "prompt": {"id": "pmpt_1"}}),
    "a history that the server has": (RESPONSES, {"model": "gpt-5.6", "input": None, "previous_response_id": "r"}),
    "tools of Responses": (RESPONSES, {"input": "hi", "tools": [{"type": "function", "name": "ls", "parameters": {}}]}),
    # Gemini
    "contents": (GEMINI, {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
    "contents without a role": (GEMINI, {"contents": [{"parts": [{"text": "hi"}]}]}),
    "contents that its SDK makes a list of": (GEMINI, {"model": "gemini-2.5-pro", "contents": "hi"}),
    "one content": (GEMINI, {"contents": {"parts": [{"text": "hi"}]}}),
    "tools of Gemini": (
        GEMINI,
        {"contents": [{"parts": [{"text": "hi"}]}], "tools": [{"functionDeclarations": [{"name": "ls"}]}]},
    ),
    "an image for Gemini": (
        GEMINI,
        {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}]}]},
    ),
    # bare lists
    "a bare message": ("", [HI]),
    "a bare message in blocks": ("", [BLOCKS]),
    "a bare conversation": ("", [HI, {"role": "assistant", "content": "Hello."}, HI]),
    "a bare content": (GEMINI, [{"role": "user", "parts": [{"text": "hi"}]}]),
    "bare items": (RESPONSES, [{"type": "message", "role": "user", "content": "hi"}]),
}
plain = pytest.mark.parametrize(("format", "body"), PLAIN.values(), ids=PLAIN)


def spellings(body: Any) -> list[Any]:
    text = json.dumps(body)
    return [body, text, text.encode(), json.dumps(body, indent=1).encode()]


@plain
@pytest.mark.parametrize("profile", ibidem.PROFILES)
def test_a_plain_request_comes_back_as_it_came(format: str, body: Any, profile: str) -> None:
    for request in spellings(body):
        for result in (
            ibidem.compact(request, profile=profile, store=MemoryStore()),
            ibidem.Session(profile, store=MemoryStore()).compact(request),
        ):
            assert result.request is request
            assert (result.format, result.reason, result.violations) == (format, "", [])
            assert (len(result.plan), result.stats.total_bytes_saved) == (0, 0)


@plain
def test_nothing_is_wrong_with_a_plain_request_and_there_is_nothing_to_bring_back(format: str, body: Any) -> None:
    for request in spellings(body):
        assert ibidem.validate(request) == []
        assert ibidem.expand(request) is request
        if format:
            assert ibidem.detect(request) == format
        else:
            with pytest.raises(ibidem.FormatError, match="could be of more than one format"):
                ibidem.detect(request)


@plain
def test_commands_take_a_plain_request(format: str, body: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "request.json", tmp_path / "out.json"
    path.write_text(json.dumps(body, indent=2))
    for command in (["compact", "-o", str(out)], ["expand", "-o", str(out)], ["validate"], ["show"], ["compact"]):
        result = CliRunner().invoke(main, [command[0], str(path), *command[1:]])
        assert result.exit_code == 0, result.output
        if out.exists():
            assert out.read_bytes() == path.read_bytes()
            out.unlink()
    shown = json.loads(CliRunner().invoke(main, ["compact", str(path), "--json"]).stdout)
    assert (shown["format"], shown["left_as_it_came"]) == (format or None, [])


def test_the_model_that_is_passed_counts_too() -> None:
    assert ibidem.compact([HI], model="claude-opus-4-6").format == ANTHROPIC
    assert ibidem.Session(model="claude-opus-4-6").compact([HI]).format == ANTHROPIC
    assert ibidem.compact([HI], model="gpt-5").format == "", "Chat or Responses"


USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls", "input": {}}]}
LONG = "\n".join(f"{number}: a line that says something" for number in range(60))


def call(ident: str) -> dict[str, Any]:
    made = {"id": ident, "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def mixed(text: str, again: str) -> list[dict[str, Any]]:
    """Calls of two formats in one conversation: a provider would hardly take it, and nobody can tell whose it is."""
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": text}]}
    tools = [{"role": "tool", "tool_call_id": ident, "content": said} for ident, said in (("b", text), ("c", again))]
    return [HI, USE, result, call("b"), tools[0], call("c"), tools[1]]


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_could_be_rewritten_in_one_of_several_formats_is_left_with_the_reason(wrapped: bool) -> None:
    messages = mixed(LONG, LONG)
    body: Any = {"messages": messages} if wrapped else messages
    for request in spellings(body):
        for result in (ibidem.compact(request), ibidem.Session().compact(request)):
            assert result.request is request
            assert result.reason.startswith("this request could be of more than one format: pass format='anthropic' or")
            assert result.stats.failures == (result.reason,)
        assert ibidem.expand(request) is request
    assert ibidem.compact(body, format=CHAT).plan, "told which it is, it is rewritten"
    assert ibidem.compact(mixed("short", "other")).reason == ""


def test_a_command_names_the_option_that_would_help(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"messages": mixed(LONG, LONG)}))
    shown = CliRunner().invoke(main, ["compact", str(path), "--json"])
    (left,) = json.loads(shown.stdout)["left_as_it_came"]
    assert shown.exit_code == 0
    assert "pass --format anthropic or --format openai-chat" in left["reason"]


def test_what_every_format_refuses_is_said_without_knowing_which_it_is() -> None:
    assert [found.rule for found in ibidem.validate({"messages": []})] == ["history-not-empty"]
    assert [found.rule for found in ibidem.validate([7])] == ["shape"]


SLOW = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))
@SLOW
@given(data=st.data())
def test_a_history_of_any_length_never_raises(format: str, data: st.DataObject) -> None:
    """Nor does a session that sees it grow, and what comes back is a request that can be expanded."""
    whole = data.draw(testing.histories(format, 6))
    key = format_named(format).history_key
    head = {name: value for name, value in whole.items() if name not in (key, "model", "system", "instructions")}
    model = data.draw(st.sampled_from([None, "claude-x", "gpt-5", "gemini-2.5-pro", "mine", ""]))
    head |= {} if model is None else {"model": model}
    bare = data.draw(st.booleans())
    growing = ibidem.Session()
    for length in range(1, len(whole[key]) + 1):
        history = whole[key][:length]
        request = history if bare else {**head, key: history}
        result = ibidem.compact(request)
        assert result.format in ("", format) or not result.plan
        assert result.reason == ""
        assert ibidem.expand(result.request) == request
        assert growing.compact(request).request == result.request
        ibidem.validate(request)


# --- mistakes -----------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a name for a strategy": (
        {"strategies": ["dedup"]},
        "'dedup' is not a strategy: pass instances such as ibidem.Dedup()",
    ),
    "a name for the strategies": ({"strategies": "dedup"}, "strategies must be a list, not 'dedup'"),
    "a bare strategy": ({"strategies": ibidem.Dedup()}, "must be a list, not Dedup("),
    "a class": ({"strategies": [ibidem.Dedup]}, "Dedup is a class: pass an instance, Dedup()"),
    "a class alone": ({"strategies": ibidem.Dedup}, "strategies must be a list"),
    "nothing for a strategy": ({"strategies": [None]}, "None is not a strategy"),
    "an unknown format": ({"format": "openai"}, "unknown format 'openai': use one of anthropic, openai-chat"),
    "an empty format": ({"format": ""}, "unknown format ''"),
    "a format that is no name": ({"format": 7}, "unknown format 7"),
    "an unknown profile": ({"profile": "lossles"}, "unknown profile 'lossles': use one of lossless"),
    "a profile that is no name": ({"profile": ["lossless"]}, "unknown profile ['lossless']"),
    "a model that is no name": ({"model": 7}, "model: 7 is not a string"),
    "a path for a store": ({"store": "store.db"}, "pass ibidem.store.open_store('store.db')"),
    "a Path for a store": ({"store": Path("store.db")}, "pass ibidem.store.open_store('store.db')"),
    "a class for a store": ({"store": SqliteStore}, "is not a store: pass ibidem.store.open_store('PATH')"),
}


@pytest.mark.parametrize(("settings_", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_of_the_program_is_told_at_the_door(settings_: dict[str, Any], words: str) -> None:
    for door in (lambda: ibidem.compact([HI], **settings_), lambda: ibidem.Session(**settings_)):
        with pytest.raises(ibidem.IbidemError) as caught:
            door()
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
        if not {"format", "profile"} & set(settings_):
            assert isinstance(caught.value, UsageError)
            assert isinstance(caught.value, TypeError)


doors: Any = ibidem
"""Called with what their types do not allow."""


@pytest.mark.parametrize(
    ("door", "words"),
    [
        pytest.param(lambda: doors.expand([HI], store="x.db"), "open_store('x.db')", id="expand from a path"),
        pytest.param(lambda: doors.recall("0" * 12, store="x.db"), "open_store('x.db')", id="recall from a path"),
        pytest.param(lambda: doors.recall(7), "7: not a reference", id="recall a number"),
        pytest.param(lambda: doors.expand([HI], format="openai"), "unknown format", id="expand in an unknown format"),
        pytest.param(lambda: doors.validate([HI], format="openai"), "unknown format", id="validate in one"),
        pytest.param(lambda: doors.Session(state="x"), "not a state of a session", id="a state that is none"),
    ],
)
def test_other_doors_tell_a_mistake_too(door: Any, words: str) -> None:
    with pytest.raises(ibidem.IbidemError) as caught:
        door()
    assert words in str(caught.value)


def test_strategies_may_be_any_sequence() -> None:
    each: tuple[Any, ...] = ([], (), (ibidem.Dedup(),), iter([ibidem.Dedup()]))
    for strategies in each:
        assert ibidem.Session(strategies=strategies).compact([HI]).request == [HI]


def test_arguments_that_are_nested_very_deeply_come_back_as_they_came() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"a": deep}
    request = testing.conv("u:go", "a>1", "r1:done", format="anthropic")
    request["messages"][1]["content"][0]["input"] = deep
    for door in (ibidem.compact, ibidem.Session().compact):
        assert door(request).request is request
    assert ibidem.expand(request) is request
