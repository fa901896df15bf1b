"""Codex rollouts, made up."""

from __future__ import annotations

from itertools import count
from typing import Any

from .examples import Example, lines

START = 1767261600  # 2026-01-01T10:00:00Z


class Script:
    """Writes rows a second apart."""

    def __init__(self) -> None:
        self.number = count(1)

    def row(self, kind: str, /, **payload: Any) -> dict[str, Any]:
        return {"timestamp": f"2026-01-01T10:00:{next(self.number):02d}.000Z", "type": kind, "payload": payload}

    def meta(self, **fields: Any) -> dict[str, Any]:
        return self.row("session_meta", id="r1", cwd="/home/me/shop", cli_version="0.140.0", **fields)

    def model(self, name: str) -> dict[str, Any]:
        return self.row("turn_context", model=name, cwd="/home/me/shop")

    def message(self, role: str, words: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return self.row("response_item", type="message", role=role, content=[{"type": kind, "text": words}])

    def reasoning(self) -> dict[str, Any]:
        return self.row("response_item", type="reasoning", summary=[], encrypted_content="sealed")

    def call(self, id: str) -> dict[str, Any]:
        return self.row("response_item", type="function_call", name="shell", arguments='{"cmd": "ls"}', call_id=id)

    def output(self, id: str) -> dict[str, Any]:
        return self.row("response_item", type="function_call_output", call_id=id, output="Output:\na.py\nb.py")

    def tokens(self, input: int, read: int, total: int | None = None) -> dict[str, Any]:
        last = {"input_tokens": input, "cached_input_tokens": read, "output_tokens": 9, "reasoning_output_tokens": 4}
        info = {"last_token_usage": last} | ({"total_token_usage": {"input_tokens": total}} if total else {})
        return self.row("event_msg", type="token_count", info=info)


def _plain() -> bytes:
    s = Script()
    return lines(
        s.meta(base_instructions={"text": "You are a careful engineer."}),
        s.model("gpt-5.5"),
        s.message("user", "Fix the bug"),
        s.reasoning(),
        s.call("c1"),
        s.call("c2"),
        s.output("c1"),
        s.output("c2"),
        s.tokens(500, 0),
        s.row("event_msg", type="agent_message", message="a copy for the screen"),
        s.reasoning(),
        s.message("assistant", "Done – größer"),
        s.tokens(700, 500),
        s.model("gpt-5.4"),
        s.message("user", "And now?"),
        s.message("assistant", "Nothing"),
    )


def _compaction() -> bytes:
    s = Script()
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summary: we listed"}]}]
    return lines(
        s.meta(),
        s.message("user", "List"),
        s.call("c1"),
        s.output("c1"),
        s.tokens(500, 0),
        s.message("assistant", "Listed"),
        s.tokens(600, 500),
        s.row("compacted", message="", replacement_history=kept),
        s.row("event_msg", type="context_compacted"),
        s.tokens(650, 500),
        s.message("user", "Go on"),
        s.message("assistant", "Going on"),
        s.row("compacted", message="Summary: went on"),
        s.message("assistant", "Done"),
    )


def _rolled_back() -> bytes:
    s = Script()
    return lines(
        s.meta(),
        s.message("user", "One"),
        s.message("assistant", "First"),
        s.message("user", "Two"),
        s.message("assistant", "Second"),
        s.row("event_msg", type="thread_rolled_back", num_turns=1),
        s.message("user", "Three"),
        s.message("assistant", "Third"),
    )


def _rolled_back_over_context() -> bytes:
    """What Codex itself says in the user's place is nobody's turn, and goes with the turn it was said for."""
    s = Script()
    return lines(
        s.meta(),
        s.message("user", "<environment_context>\n  <cwd>/home</cwd>\n</environment_context>"),
        s.message("user", "One"),
        s.message("assistant", "First"),
        s.message("developer", "<permissions instructions>now you may write</permissions instructions>"),
        s.message("user", "Two"),
        s.message("assistant", "Second"),
        s.message("user", "<turn_aborted>\nby the user\n</turn_aborted>"),
        s.row("event_msg", type="thread_rolled_back", num_turns=1),
        s.message("user", "Three"),
        s.message("assistant", "Third"),
    )


def _killed() -> bytes:
    s = Script()
    return lines(
        s.meta(),
        s.message("user", "List"),
        s.call("c1"),
        s.call("c2"),
        s.output("c2"),
        s.output("c7"),
        s.message("user", "Again"),
        s.message("assistant", "Listed"),
    )


def interrupted() -> bytes:
    s = Script()
    return lines(
        s.meta(),
        s.message("user", "Think"),
        s.call("c1"),
        s.output("c1"),
        s.tokens(500, 0, total=500),
        s.reasoning(),
        s.tokens(500, 0, total=500),
        s.message("user", "<turn_aborted>\nby the user\n</turn_aborted>"),
        s.message("user", "Go on"),
        s.message("assistant", "Going"),
        s.tokens(600, 500, total=1100),
        s.call("c2"),
        s.tokens(600, 500, total=1100),
        s.call("c3"),
        s.output("c2"),
        s.output("c3"),
    )


def _forked() -> bytes:
    s = Script()
    first = s.meta(forked_from_id="r0")
    copied = [s.meta(), s.message("user", "One"), s.call("c0"), s.output("c0"), s.message("assistant", "First")]
    return lines(
        first,
        *({**row, "timestamp": first["timestamp"]} for row in copied),
        s.row("inter_agent_communication", author="/root", recipient="/root/sub", content="Two", trigger_turn=True),
        s.message("assistant", "Second"),
    )


def _broken() -> bytes:
    s = Script()
    return lines(
        s.meta(),
        s.message("user", "List"),
        b'{"timestamp": "2026-01-01T',
        s.row("event_msg", type="token_count", info=None),
        s.call("c1"),
        s.row("something_new", type="x"),
        s.output("c1"),
        s.row("event_msg", type="token_count", info={"last_token_usage": {"input_tokens": "many"}}),
        s.message("assistant", "Done"),
        s.row("compacted", message="", replacement_history="of another type"),
        s.message("user", "Go on"),
        s.message("assistant", "Done again"),
    )


EXAMPLES = [
    Example(
        name="calls, reasoning, usage, and a change of model",
        ids=["r1"],
        titles=["Fix the bug"],
        data=_plain(),
        agent="codex",
        format="openai-responses",
        lengths=[[[1, 6, 9]]],
        models=[["gpt-5.5", "gpt-5.4"]],
        projects=["/home/me/shop"],
        inputs=[[500, 700, None]],
        times=[[START + 3.0, START + 8.0, START + 15.0]],
    ),
    Example(
        name="compactions, with a history of their own or only a summary",
        data=_compaction(),
        agent="codex",
        format="openai-responses",
        lengths=[[[1, 3], [2], [1]]],
        causes=[["start", "compaction", "compaction"]],
        inputs=[[500, 600, None, None]],
    ),
    Example(
        name="turns that the user took back",
        data=_rolled_back(),
        agent="codex",
        format="openai-responses",
        lengths=[[[1, 3], [3]]],
        causes=[["start", "rewind"]],
    ),
    Example(
        name="turns that were taken back with what Codex said for them",
        data=_rolled_back_over_context(),
        agent="codex",
        format="openai-responses",
        lengths=[[[2, 5], [4]]],
        causes=[["start", "rewind"]],
    ),
    Example(
        name="a call that nothing answered is answered, a result without its call is left out",
        data=_killed(),
        agent="codex",
        format="openai-responses",
        lengths=[[[1, 6]]],
    ),
    Example(
        name="an interruption leaves reasoning behind, and its usage is not known",
        data=interrupted(),
        agent="codex",
        format="openai-responses",
        lengths=[[[1, 3, 6, 7]]],
        inputs=[[500, None, 600, None]],
        invalid=True,
    ),
    Example(
        name="a forked session does not tell the other one's requests again",
        ids=["r1"],
        titles=["Two"],
        data=_forked(),
        agent="codex",
        format="openai-responses",
        lengths=[[[5]]],
    ),
    Example(
        name="broken and unknown rows",
        data=_broken(),
        agent="codex",
        format="openai-responses",
        lengths=[[[1, 3, 5]]],
        skipped=[3, 8, 10],
    ),
]
