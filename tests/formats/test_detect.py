"""Which format a request is of: said when it shows, refused when it could be several, never guessed."""

import json
from typing import Any

import pytest

import ibidem

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic", "openai-chat", "openai-responses", "gemini"


def said(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


Q = {"role": "user", "content": "q"}
MARKED = said({"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}})
ITEM = said({"type": "input_text", "text": "q"}) | {"type": "message"}
TEXTS = said({"type": "text", "text": "q"})
SO = {"role": "assistant", "content": "so"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]}
RESULT: dict[str, Any] = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "out"}]}
CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "x", "arguments": ""}}]}
TOOL = {"role": "tool", "tool_call_id": "a", "content": "out"}
CALL = {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "out"}
CONTENT = {"role": "user", "parts": [{"text": "q"}]}

CLEAR = [
    # whole bodies
    (ANTHROPIC, "a system prompt", {"messages": [Q], "system": "x", "model": "claude-opus-5-5", "max_tokens": 1}),
    (ANTHROPIC, "a system prompt in blocks", {"messages": [Q], "system": [{"type": "text", "text": "x"}]}),
    (ANTHROPIC, "Bedrock and Vertex bodies", {"messages": [Q], "anthropic_version": "bedrock-2023-05-31"}),
    (ANTHROPIC, "a tool with input_schema", {"messages": [Q], "tools": [{"name": "x", "input_schema": {}}]}),
    (ANTHROPIC, "context management", {"messages": [Q], "context_management": {"edits": []}}),
    (ANTHROPIC, "nothing but its blocks", {"messages": [Q, USE, RESULT]}),
    (ANTHROPIC, "an image of its own kind", {"messages": [said({"type": "image", "source": {}})]}),
    (CHAT, "a tool with function", {"messages": [Q], "tools": [{"type": "function", "function": {"name": "x"}}]}),
    (CHAT, "a field of its own", {"messages": [Q], "max_completion_tokens": 1}),
    (CHAT, "a system message", {"messages": [{"role": "system", "content": "x"}, Q], "temperature": 0}),
    (CHAT, "calls", {"messages": [Q, CALLS, TOOL]}),
    (CHAT, "LiteLLM with a cache mark of Anthropic's", {"messages": [MARKED, CALLS, TOOL]}),
    (CHAT, "DeepSeek's reasoning", {"messages": [Q, SO | {"reasoning_content": "Hm."}, Q]}),
    (CHAT, "an image of its own kind", {"messages": [said({"type": "image_url", "image_url": {}})]}),
    (RESPONSES, "a prompt", {"input": "q"}),
    (RESPONSES, "items", {"input": [Q, CALL, OUTPUT]}),
    (RESPONSES, "messages without a type", {"input": [Q, SO, Q]}),
    (RESPONSES, "Codex", {"model": "gpt-5.6-codex", "instructions": "x", "store": False, "input": [ITEM]}),
    (RESPONSES, "nothing but a previous response", {"previous_response_id": "resp_1"}),
    (GEMINI, "contents", {"contents": [CONTENT]}),
    (GEMINI, "contents, in snake case", {"contents": [CONTENT], "generation_config": {}, "system_instruction": {}}),
    (ANTHROPIC, "the name of its model", {"messages": [Q], "model": "claude-opus-4-6", "max_tokens": 5}),
    (ANTHROPIC, "its model behind a gateway", {"messages": [Q], "model": "openrouter/anthropic/claude-sonnet-4.5"}),
    (ANTHROPIC, "its model in a region", {"messages": [Q], "model": "us.anthropic.claude-opus-4-6-v1:0"}),
    (CHAT, "the name of its model", {"messages": [Q], "model": "gpt-5.6"}),
    (CHAT, "a model that reasons", {"messages": [Q], "model": "o3-mini"}),
    (CHAT, "a model of its own", {"messages": [Q], "model": "ft:gpt-4o:house:name:id"}),
    (CHAT, "Gemini's compatible endpoint", {"messages": [Q], "model": "models/gemini-2.5-pro"}),
    (CHAT, "a model of Anthropic's, asked with a system message",
        {"messages": [{"role": "system", "content": "x"}, Q], "model": "claude-opus-4-6"}),
    (CHAT, "a model of Anthropic's, asked with calls", {"messages": [Q, CALLS, TOOL], "model": "claude-opus-4-6"}),
    (ANTHROPIC, "a model of another, asked in its blocks", {"messages": [Q, USE, RESULT], "model": "gpt-5"}),
    (RESPONSES, "a stored prompt", {"model": "gpt-5", "prompt": {"id": "pmpt_1"}}),
    # bare lists
    (ANTHROPIC, "a call", [Q, USE, RESULT]),
    (ANTHROPIC, "a result alone", [RESULT]),
    (ANTHROPIC, "thinking", [Q, said({"type": "thinking", "thinking": "x"}, role="assistant")]),
    (CHAT, "calls", [Q, CALLS]),
    (CHAT, "a tool message", [TOOL]),
    (CHAT, "calls after many words", [*[Q, SO] * 50, CALLS]),
    (RESPONSES, "a function call", [Q, CALL]),
    (RESPONSES, "an output alone", [OUTPUT]),
    (RESPONSES, "reasoning", [Q, {"type": "reasoning", "summary": []}]),
    (RESPONSES, "messages with a type", [{"type": "message", "role": "user", "content": "q"}]),
    (RESPONSES, "input_text", [said({"type": "input_text", "text": "q"})]),
    (GEMINI, "parts", [CONTENT]),
    (GEMINI, "the model's role", [{"role": "user"}, {"role": "model"}]),
]  # fmt: skip
IDS = [f"{format}: {'bare: ' * isinstance(request, list)}{sentence}" for format, sentence, request in CLEAR]


@pytest.mark.parametrize(("format", "sentence", "request_"), CLEAR, ids=IDS)
def test_a_format_that_shows_is_named(format: str, sentence: str, request_: Any) -> None:
    assert ibidem.detect(request_) == format
    assert ibidem.detect(json.dumps(request_)) == format
    assert ibidem.detect(json.dumps(request_, indent=1).encode()) == format
    assert ibidem.compact(request_).format == format


@pytest.mark.parametrize(
    ("request_", "choices"),
    [
        pytest.param({"messages": [Q]}, [ANTHROPIC, CHAT], id="words"),
        pytest.param({"messages": [TEXTS, SO, TEXTS]}, [ANTHROPIC, CHAT], id="words in blocks"),
        pytest.param({"messages": []}, [ANTHROPIC, CHAT], id="no messages"),
        pytest.param({"messages": [Q], "max_tokens": 1, "stream": True}, [ANTHROPIC, CHAT], id="fields that both have"),
        pytest.param({"messages": [Q], "model": "house-model"}, [ANTHROPIC, CHAT], id="a model that nobody knows"),
        pytest.param({"messages": [Q], "model": ["gpt-5"]}, [ANTHROPIC, CHAT], id="a model that is no name"),
        pytest.param({"messages": [7, None, "x", [Q]]}, [ANTHROPIC, CHAT], id="messages that are none"),
        pytest.param({"messages": "q"}, [ANTHROPIC, CHAT], id="messages that are a string"),
        pytest.param({"messages": None}, [ANTHROPIC, CHAT], id="messages that are null"),
        pytest.param([Q, SO, Q], [ANTHROPIC, CHAT, RESPONSES], id="a bare list of words"),
        pytest.param([TEXTS], [ANTHROPIC, CHAT, RESPONSES], id="a bare list of words in blocks"),
        pytest.param([], [ANTHROPIC, CHAT, RESPONSES, GEMINI], id="an empty list"),
        pytest.param([7], [ANTHROPIC, CHAT, RESPONSES, GEMINI], id="a list of a number"),
        pytest.param([{"role": "user"}], [ANTHROPIC, CHAT, RESPONSES, GEMINI], id="a role and nothing else"),
    ],
)  # fmt: skip
def test_what_could_be_several_is_refused_with_the_choices(request_: Any, choices: list[str]) -> None:
    with pytest.raises(ibidem.FormatError) as caught:
        ibidem.detect(request_)
    assert {
        choice for choice in (ANTHROPIC, CHAT, RESPONSES, GEMINI) if f"format={choice!r}" in str(caught.value)
    } == set(choices)


NO_REQUEST = "a request is an object or a list of messages, not "


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        pytest.param({}, "messages, input, contents", id="an empty object"),
        pytest.param({"model": "x"}, "messages, input, contents", id="an object without a history"),
        pytest.param(7, NO_REQUEST, id="a number"),
        pytest.param(None, NO_REQUEST, id="nothing"),
        pytest.param((Q,), NO_REQUEST, id="a tuple"),
        pytest.param("7", NO_REQUEST, id="a number as text"),
        pytest.param('"q"', NO_REQUEST, id="a string as text"),
        pytest.param("null", NO_REQUEST, id="null as text"),
        pytest.param("q", "line 1, column 1: not valid JSON", id="text that is no JSON"),
        pytest.param("", "line 1, column 1: not valid JSON", id="no text"),
        pytest.param(b"{", "line 1, column 2: not valid JSON", id="text that breaks off"),
    ],
)
def test_what_is_no_request_is_refused_with_a_sentence(request_: Any, says: str) -> None:
    for door in (ibidem.detect, ibidem.validate, ibidem.compact):
        with pytest.raises(ibidem.IbidemError, match=says):
            door(request_)


def test_an_empty_history_is_compact_in_any_format() -> None:
    empty: tuple[Any, ...] = ([], "[]", b"[]")
    for request in empty:
        result = ibidem.compact(request)
        assert result.request is request
        assert (result.format, result.reason, result.violations) == ("", "", [])


@pytest.mark.parametrize("format", ["openai", "Anthropic", 7, ["anthropic"]], ids=repr)
def test_an_unknown_name_is_refused_with_the_known_ones(format: Any) -> None:
    with pytest.raises(ibidem.FormatError, match="anthropic, openai-chat, openai-responses, gemini"):
        ibidem.compact([Q], format=format)


@pytest.mark.parametrize(
    ("request_", "format"),
    [
        pytest.param({"messages": [Q]}, GEMINI, id="no contents"),
        pytest.param({"contents": [CONTENT]}, ANTHROPIC, id="no messages"),
        pytest.param({"messages": [Q]}, RESPONSES, id="no input"),
        pytest.param({"messages": {"0": Q}}, CHAT, id="messages that are an object"),
        pytest.param({"messages": None}, CHAT, id="messages that are null"),
        pytest.param({"messages": "q"}, ANTHROPIC, id="only Responses takes a prompt: Anthropic"),
        pytest.param({"messages": "q"}, CHAT, id="only Responses takes a prompt: Chat"),
        pytest.param({"contents": 7}, GEMINI, id="contents that are a number"),
        pytest.param('"q"', ANTHROPIC, id="a string as a whole request"),
        pytest.param(7, ANTHROPIC, id="a number"),
    ],
)
def test_a_history_that_is_no_list_is_refused_with_a_sentence(request_: Any, format: str) -> None:
    for door in (ibidem.validate, ibidem.compact):
        with pytest.raises(ibidem.FormatError):
            door(request_, format=format)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"system": "x", "messages": [Q, CALLS, TOOL]}, id="a system prompt, and calls of Chat"),
        pytest.param({"messages": [Q, USE, RESULT, CALLS, TOOL]}, id="calls of both"),
        pytest.param([Q, USE, RESULT, CALL, OUTPUT], id="calls of two formats in a bare list"),
        pytest.param([{"role": "developer", "content": "x"}, Q], id="a developer may speak to Chat and to Responses"),
    ],
)
def test_evidence_that_contradicts_itself_is_no_evidence(request_: Any) -> None:
    with pytest.raises(ibidem.FormatError, match="format="):
        ibidem.detect(request_)


def test_what_a_tool_wrote_is_no_evidence() -> None:
    """Law 9: a result that holds a request of another format does not make this one of it."""
    quoted = json.dumps({"contents": [CONTENT], "input": [CALL, OUTPUT]})
    assert ibidem.detect([Q, CALLS, TOOL | {"content": quoted}]) == CHAT
    assert (
        ibidem.detect([Q, USE, {"role": "user", "content": [RESULT["content"][0] | {"content": quoted}]}]) == ANTHROPIC
    )
