"""Requests read back from a log stand as the agent sent them. tests_slow compares with what the agents really send."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ibidem import recordings

from . import claude_code, codex, copilot_cli
from .examples import lines


def requests(data: bytes) -> list[dict[str, Any]]:
    return [request.body for session in recordings.read("some.log", data) for request in session.requests()]


class TestCodex:
    def test_a_call_that_was_never_answered_is_followed_by_aborted(self) -> None:
        last = requests(lines(*_codex_rows()))[-1]
        assert last["input"][1:4] == [
            {"type": "function_call", "name": "shell", "arguments": '{"cmd": "ls"}', "call_id": "c1"},
            {"type": "function_call_output", "output": "aborted", "call_id": "c1"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Again"}]},
        ]

    def test_instructions_that_are_sent_as_a_message_are_sent_once(self) -> None:
        s = codex.Script()
        rows = [s.meta(base_instructions={"text": "Be careful."}), s.message("developer", "Be careful.")]
        told = [s.message("user", "Hi"), s.message("assistant", "Hello")]
        assert "instructions" not in requests(lines(*rows, *told))[0]
        assert requests(lines(rows[0], *told))[0]["instructions"] == "Be careful."

    def test_a_sealed_message_of_another_agent_comes_with_the_words_that_codex_adds(self) -> None:
        s = codex.Script()
        sealed = {"author": "/root", "recipient": "/root/a", "content": "", "encrypted_content": "x"}
        rows = [s.meta(), s.row("inter_agent_communication", **sealed, trigger_turn=True), s.message("assistant", "!")]
        [told] = requests(lines(*rows))[0]["input"]
        assert [part["type"] for part in told["content"]] == ["input_text", "encrypted_content"]
        assert told["content"][0]["text"].startswith("Message Type: NEW_TASK\n")


class TestClaudeCode:
    def test_reminders_stand_behind_results_and_before_the_prompt_for_models_without_system_messages(self) -> None:
        first, last = requests(claude_code.reminded())
        assert [block["text"] for block in first["messages"][0]["content"]] == [
            "<system-reminder>\n- tidy: tidies up\n</system-reminder>",
            "Begin",
        ]
        assert [block["type"] for block in last["messages"][2]["content"]] == ["tool_result", "text", "text"]
        assert "Contents of /home/me/shop/CLAUDE.md:\n\nBe careful." in last["messages"][2]["content"][1]["text"]

    def test_reminders_are_one_system_message_for_models_that_take_them(self) -> None:
        for model in ("claude-opus-4-8", "claude-sonnet-5", "claude-fable-5-20260901"):
            last = requests(claude_code.reminded(model))[-1]["messages"]
            assert [message["role"] for message in last] == ["user", "system", "assistant", "user", "system"]
            assert last[4]["content"].endswith("Be careful.\n\nAnd quickly")
        for model in ("claude-opus-4-7", "claude-sonnet-4-20250514", "claude-3-5-haiku-20241022", "glm-5"):
            assert all(message["role"] != "system" for message in requests(claude_code.reminded(model))[-1]["messages"])

    def test_a_file_that_the_user_named_is_shown_with_line_numbers(self) -> None:
        s = claude_code.Script()
        file = {"type": "text", "file": {"filePath": "/a.py", "content": "one\ntwo\n", "startLine": 1}}
        rows = [s.user("Look"), claude_code.attached(s, "file", content=file), s.answer("m1", claude_code.text("Well"))]
        told = requests(lines(*rows))[0]["messages"][0]["content"]
        assert "Result of calling the Read tool:\n1\tone\n2\ttwo\n3\t" in told[1]["text"]

    def test_a_request_that_is_logged_is_taken_from_there(self) -> None:
        s = claude_code.Script()
        asked, answered = s.user("Look"), s.answer("m1", claude_code.call("t1"), requestRef="q1")
        result = s.user([claude_code.result("t1")])
        told = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
        shape = {"system": [claude_code.text("You are careful.")], "tools": [{"name": "Read"}]}
        said = [asked["message"], {"role": "assistant", "content": [claude_code.call("t1")]}, result["message"]]
        rows = [
            asked,
            {"type": "api-request-shape", "shapeHash": "s", "shape": shape},
            {"type": "api-request", "id": "q1", "keep": 0, "tail": [sha(said[0])], "shapeHash": "s"},
            answered,
            result,
            {"type": "api-request-blob", "hash": sha(told), "message": told},
            {"type": "api-request", "id": "q2", "base": "q1", "keep": 1, "tail": [*map(sha, said[1:]), sha(told)]},
            s.answer("m2", claude_code.text("Done"), requestRef="q2"),
        ]
        found = requests(lines(*rows))
        assert [body["messages"] for body in found] == [said[:1], [*said, told]]
        assert all(body["system"] == shape["system"] and body["tools"] == shape["tools"] for body in found)

    def test_a_logged_request_with_a_message_that_is_nowhere_is_put_together_from_lines(self) -> None:
        s = claude_code.Script()
        rows = [
            s.user("Look"),
            {"type": "api-request", "id": "q1", "keep": 0, "tail": ["0" * 64]},
            s.answer("m1", claude_code.text("Done"), requestRef="q1"),
        ]
        assert requests(lines(*rows))[0]["messages"] == [{"role": "user", "content": "Look"}]


class TestCopilot:
    def test_results_are_sent_in_the_order_of_their_calls_with_what_the_provider_counted(self) -> None:
        counted = {"inputTokens": 100, "cacheReadTokens": 60, "cacheWriteTokens": 30, "outputTokens": 5}
        patch = {"toolCallId": "c2", "name": "apply_patch", "arguments": "*** Begin Patch", "type": "custom"}
        data = lines(
            copilot_cli.USER,
            copilot_cli.event(4, "session.usage_record", usage={**counted, "apiCallId": "a1"}),
            copilot_cli.answer(5, "", copilot_cli.call("c1", path="a b"), patch, apiCallId="a1"),
            copilot_cli.result(6, "c2"),
            copilot_cli.result(7, "c1"),
            copilot_cli.answer(8, "Done"),
        )
        [session] = recordings.read("some.log", data)
        (_, first), (body, _) = session.requests()
        assert first.usage
        assert (first.usage.input, first.usage.read, first.usage.written) == (100, 60, 30)
        called, *results = body["messages"][1:]
        assert called["tool_calls"][0]["function"]["arguments"] == '{"path":"a b"}'
        assert called["tool_calls"][1]["custom"] == {"name": "apply_patch", "input": "*** Begin Patch"}
        assert [result["tool_call_id"] for result in results] == ["c1", "c2"]


def sha(message: dict[str, Any]) -> str:
    """The name that Claude Code gives to a message."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    written = json.dumps({"content": blocks, "role": message["role"]}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


def _codex_rows() -> list[dict[str, Any]]:
    s = codex.Script()
    said = [s.message("user", "List"), s.call("c1"), s.message("user", "Again"), s.message("assistant", "Listed")]
    return [s.meta(), *said]
