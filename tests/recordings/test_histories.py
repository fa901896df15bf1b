"""What readers put into histories, where lengths alone would not tell. `tests_slow` holds them against the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ibidem import recordings

from . import gemini_cli, opencode, pi
from .examples import lines


def last(data: bytes) -> Any:
    """The history of the last request."""
    session = recordings.read("some.log", data)[-1]
    body = list(session.requests())[-1].body
    return next(body[key] for key in ("messages", "input", "contents") if key in body)


def test_gemini_cli_sends_neighbours_of_one_role_as_one_and_no_thoughts() -> None:
    [example] = [each for each in gemini_cli.EXAMPLES if "a picture in a result" in each.name]
    opening, called, answered = last(example.data)
    assert [part["text"][:17] for part in opening["parts"]] == ["<session_context>", "One"]
    assert called["parts"] == [
        {"text": "Looking."},
        {"functionCall": {"id": "c1", "name": "read_file", "args": {"file_path": "a.py"}}},
    ]
    assert [next(iter(part)) for part in answered["parts"]] == ["functionResponse", "inlineData"]
    assert answered["parts"][0]["functionResponse"]["id"] == "c1"


def test_gemini_cli_sends_results_twice_when_it_resumed() -> None:
    [example] = [each for each in gemini_cli.EXAMPLES if "resumed" in each.name]
    assert len(last(example.data)[2]["parts"]) == 2


def test_pi_answers_a_call_that_nobody_answered() -> None:
    data = lines(
        pi.HEADER,
        pi.entry(1, None, message=pi.user("One")),
        pi.entry(2, 1, message=pi.answer(pi.call("c1"), pi.call("c2"))),
        pi.entry(3, 2, message=pi.result("c1")),
        pi.entry(4, 3, message=pi.user("Two")),
        pi.entry(5, 4, message=pi.answer("2")),
    )
    assert last(data)[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "done"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "No result provided", "is_error": True},
        {"type": "text", "text": "Two"},
    ]


def test_pi_sends_thoughts_as_text_to_another_model_and_sealed_to_their_own() -> None:
    rows = [
        pi.HEADER,
        pi.entry(1, None, message=pi.user("One")),
        pi.entry(2, 1, message=pi.answer(pi.SEALED, "1", api=pi.API)),
        pi.entry(3, 2, message=pi.user("Two")),
    ]
    same = last(lines(*rows, pi.entry(4, 3, message=pi.answer("2", api=pi.API))))
    assert same[1] == json.loads(pi.SEALED["thinkingSignature"])
    other = last(lines(*rows, pi.entry(4, 3, message=pi.answer("2", api=pi.API, model="model-b"))))
    assert [item["content"][0]["text"] for item in other] == ["One", "hm", "1", "Two"]


def test_pi_puts_an_edited_content_in_the_place_of_another() -> None:
    [example] = [each for each in pi.EXAMPLES if "edit of the context" in each.name]
    assert last(example.data)[2]["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": "short"}]


OPENAI = {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "sealed"}}


@pytest.mark.parametrize(
    ("provider", "metadata", "found"),
    [
        ("anthropic", opencode.THOUGHT["metadata"], {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        ("some-gateway", opencode.THOUGHT["metadata"], {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        ("some-gateway", OPENAI, {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed"}),
    ],
)
def test_what_opencode_says_of_a_thought_tells_the_interface(provider: str, metadata: Any, found: Any) -> None:
    thought = {**opencode.UNSIGNED, "metadata": metadata}
    steps = [
        opencode.user(1, "One"),
        opencode.answer(2, opencode.STEP, thought, thought, "1", providerID=provider),
        opencode.user(3, "Two"),
        opencode.answer(4, opencode.STEP, "2", providerID=provider),
    ]
    history = last(json.dumps(opencode.export(*steps)).encode())
    if "encrypted_content" in found:
        assert history[1] == {**found, "summary": [{"type": "summary_text", "text": "hm"}] * 2}
    else:
        assert history[1]["content"][0] == found


def test_opencode_sends_pictures_of_results_behind_them_in_a_chat_and_thoughts_in_their_field() -> None:
    shown = opencode.tool("c1", 3)
    shown["state"]["attachments"] = [opencode.PICTURE]
    steps = [
        opencode.user(1, "One"),
        opencode.answer(2, opencode.STEP, opencode.UNSIGNED, shown, providerID="other"),
        opencode.answer(5, opencode.STEP, "1", providerID="other"),
    ]
    _, called, result, picture = last(json.dumps(opencode.export(*steps)).encode())
    assert called["reasoning_content"] == "hm"
    assert (result["role"], result["content"]) == ("tool", "done")
    assert [part["type"] for part in picture["content"]] == ["text", "image_url"]


def test_opencode_sends_nothing_of_an_answer_that_failed_at_a_later_step() -> None:
    steps = [
        opencode.user(1, "One"),
        opencode.answer(2, opencode.STEP, opencode.tool("c1", 3), opencode.STEP, "On", error={"name": "APIError"}),
        opencode.user(4, "Two"),
        opencode.answer(5, opencode.STEP, "2"),
    ]
    [session] = recordings.read("some.log", json.dumps(opencode.export(*steps)).encode())
    assert [[sent.length for sent in segment.requests] for segment in session.segments] == [[1, 3], [1]]
    assert [block["text"] for block in last(json.dumps(opencode.export(*steps)).encode())[0]["content"]] == [
        "One",
        "Two",
    ]


def test_a_log_of_which_nothing_can_be_used_may_be_newer_than_we_are() -> None:
    rows = [pi.HEADER, *({"type": "message", "id": f"n{n}", "timestamp": 1, "message": 5} for n in range(3))]
    with pytest.raises(recordings.LogError, match=r"3 lines cannot be used .* newer than this version"):
        recordings.read("some.log", lines(*rows))
    with pytest.raises(recordings.LogError, match="it has no requests"):
        recordings.read("some.log", lines(pi.HEADER, pi.entry(1, None, message=pi.user("One"))))
