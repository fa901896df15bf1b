"""Objects of an SDK in a history are read as their JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from unittest.mock import MagicMock

import pytest

import ibidem
from ibidem.store import MemoryStore
from ibidem.wire import JsonChange, apply_changes, scan
from tests.engine.test_session import file_of

anthropic_types = pytest.importorskip("anthropic.types")
chat_types = pytest.importorskip("openai.types.chat")
response_types = pytest.importorskip("openai.types.responses")

pytestmark = pytest.mark.slow  # the SDKs take seconds to import

OUTPUTS = [file_of(60), file_of(60), file_of(60, 1), file_of(60)]


def chat_history() -> tuple[list[Any], list[Any]]:
    """The history with SDK objects, and the same history as JSON."""
    objects: list[Any] = [{"role": "user", "content": "Look around"}]
    plain: list[Any] = [*objects]
    for number, output in enumerate(OUTPUTS):
        function = {"name": "Read", "arguments": json.dumps({"file_path": f"{number}.py"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": f"c{number}", "content": output}
        objects += [chat_types.ChatCompletionMessage.model_validate(answer), result]
        plain += [answer, result]
    return objects, plain


def responses_history() -> tuple[list[Any], list[Any]]:
    objects: list[Any] = [{"role": "user", "content": "Look around"}]
    plain: list[Any] = [*objects]
    for number, output in enumerate(OUTPUTS):
        text = {"type": "output_text", "text": f"Step {number}", "annotations": []}
        said = {"type": "message", "id": f"m{number}", "role": "assistant", "status": "completed", "content": [text]}
        call = {"type": "function_call", "id": f"f{number}", "call_id": f"c{number}", "name": "Read", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": f"c{number}", "output": output}
        message = response_types.ResponseOutputMessage.model_validate(said)
        objects += [message, response_types.ResponseFunctionToolCall.model_validate(call), result]
        plain += [said, call, result]
    return objects, plain


def anthropic_history() -> tuple[list[Any], list[Any]]:
    objects: list[Any] = [{"role": "user", "content": "Look around"}]
    plain: list[Any] = [*objects]
    for number, output in enumerate(OUTPUTS):
        thinking = {"type": "thinking", "thinking": f"Step {number}", "signature": "c2lnbmVk"}
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {"file_path": f"{number}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": output}
        blocks = [
            anthropic_types.ThinkingBlock.model_validate(thinking),
            anthropic_types.ToolUseBlock.model_validate(call),
        ]
        user = {"role": "user", "content": [result]}
        objects += [{"role": "assistant", "content": blocks}, user]
        plain += [{"role": "assistant", "content": [thinking, call]}, user]
    return objects, plain


HISTORIES = {
    "openai-chat": ("gpt-5", "messages", chat_history),
    "openai-responses": ("gpt-5", "input", responses_history),
    "anthropic": ("claude-opus-4-6", "messages", anthropic_history),
}


def requests(format: str) -> tuple[dict[str, Any], dict[str, Any]]:
    model, key, build = HISTORIES[format]
    objects, plain = build()
    return {"model": model, key: objects}, {"model": model, key: plain}


def as_json(request: Any) -> Any:
    return json.loads(json.dumps(request, default=lambda value: value.to_dict()))


@pytest.mark.parametrize("format", HISTORIES)
def test_sdk_objects_are_rewritten_as_their_json(format: str) -> None:
    objects, plain = requests(format)
    assert ibidem.validate(objects) == []
    assert ibidem.detect(objects) == format
    compacted, expected = ibidem.compact(objects), ibidem.compact(plain)
    assert compacted.plan.edits == expected.plan.edits != ()
    assert as_json(compacted.request) == expected.request
    assert as_json(ibidem.expand(compacted.request)) == plain


@pytest.mark.parametrize("format", HISTORIES)
def test_messages_without_edits_stay_the_objects_that_were_given(format: str) -> None:
    objects, _ = requests(format)
    key = HISTORIES[format][1]
    compacted = ibidem.compact(objects)
    edited = {edit.message for edit in compacted.plan}
    for index, message in enumerate(objects[key]):
        assert (compacted.request[key][index] is message) == (index not in edited)
    first = {**objects, key: objects[key][:2]}
    assert ibidem.compact(first).request is first


@pytest.mark.parametrize("format", HISTORIES)
@pytest.mark.parametrize("profile", ["lossless", "recoverable"])
def test_session_continues_if_an_object_comes_back_as_json(format: str, profile: str) -> None:
    objects, plain = requests(format)
    key = HISTORIES[format][1]
    session = ibidem.Session(profile, store=MemoryStore())
    length = len(objects[key]) - len(objects[key]) // 4
    session.compact({**objects, key: objects[key][:length]})
    for later in (plain, objects):
        scanned = scan(later)
        assert scanned is not None
        assert session.shares(scanned) == (length, length)
    expected = ibidem.compact(plain, profile=profile, store=MemoryStore()).request
    assert as_json(session.compact(objects).request) == expected


def test_edit_inside_an_object_is_sent_as_json() -> None:
    objects, plain = requests("anthropic")
    changes = [
        JsonChange(("messages", 1, "content", 0), "drop"),
        JsonChange(("messages", 3, "content", 1, "name"), "set", "View"),
    ]
    written = apply_changes(objects, changes)
    assert as_json(written) == apply_changes(plain, changes)
    assert written["messages"][5] is objects["messages"][5]


@dataclass
class Answer:
    role: str
    content: str


class Broken:
    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError


def test_dataclasses_are_read_by_their_fields() -> None:
    messages: list[Any] = [{"role": "user", "content": "Hello"}, Answer("assistant", "Hi"), Answer("user", "Bye")]
    assert ibidem.validate({"model": "gpt-5", "messages": messages}, format="openai-chat") == []


@pytest.mark.parametrize("message", [Broken(), MagicMock(), object(), b"text"], ids=lambda value: type(value).__name__)
def test_other_objects_are_reported_as_before(message: Any) -> None:
    request = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello"}, message]}
    assert [each.rule for each in ibidem.validate(request, format="openai-chat")] == ["shape"]
    assert ibidem.compact(request, format="openai-chat").request is request
