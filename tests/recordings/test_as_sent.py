"""Requests read back from a log stand as the agent sent them. tests_slow compares with what the agents really send."""

from __future__ import annotations

from typing import Any

from ibidem import recordings

from . import codex


def requests(data: bytes) -> list[dict[str, Any]]:
    return [request.body for session in recordings.read("some.log", data) for request in session.requests()]


class TestCodex:
    def test_a_call_that_was_never_answered_is_followed_by_aborted(self) -> None:
        last = requests(codex.lines(*_codex_rows()))[-1]
        assert last["input"][1:4] == [
            {"type": "function_call", "name": "shell", "arguments": '{"cmd": "ls"}', "call_id": "c1"},
            {"type": "function_call_output", "output": "aborted", "call_id": "c1"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Again"}]},
        ]

    def test_instructions_that_are_sent_as_a_message_are_sent_once(self) -> None:
        s = codex.Script()
        rows = [s.meta(base_instructions={"text": "Be careful."}), s.message("developer", "Be careful.")]
        told = [s.message("user", "Hi"), s.message("assistant", "Hello")]
        assert "instructions" not in requests(codex.lines(*rows, *told))[0]
        assert requests(codex.lines(rows[0], *told))[0]["instructions"] == "Be careful."

    def test_a_sealed_message_of_another_agent_comes_with_the_words_that_codex_adds(self) -> None:
        s = codex.Script()
        sealed = {"author": "/root", "recipient": "/root/a", "content": "", "encrypted_content": "x"}
        rows = [s.meta(), s.row("inter_agent_communication", **sealed, trigger_turn=True), s.message("assistant", "!")]
        [told] = requests(codex.lines(*rows))[0]["input"]
        assert [part["type"] for part in told["content"]] == ["input_text", "encrypted_content"]
        assert told["content"][0]["text"].startswith("Message Type: NEW_TASK\n")


def _codex_rows() -> list[dict[str, Any]]:
    s = codex.Script()
    said = [s.message("user", "List"), s.call("c1"), s.message("user", "Again"), s.message("assistant", "Listed")]
    return [s.meta(), *said]
