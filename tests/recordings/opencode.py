"""Exports of OpenCode, made up."""

from __future__ import annotations

import json
from typing import Any

from .examples import Example, lines

T0 = 1_700_000_000


def ms(second: float) -> int:
    return int((T0 + second) * 1000)


def text(content: str, second: float = 0, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, "time": {"start": ms(second), "end": ms(second)}, **more}


def tool(name: str, second: float, output: str = "done", **time: int) -> dict[str, Any]:
    when = {"start": ms(second), "end": ms(second + 1), **time}
    state = {"status": "completed", "input": {"command": "ls"}, "output": output, "time": when}
    return {"type": "tool", "callID": name, "tool": "bash", "state": state}


def finish(fresh: int, read: int, written: int, **more: int) -> dict[str, Any]:
    tokens = {"input": fresh, "output": 5, "reasoning": 2, "cache": {"read": read, "write": written}, **more}
    return {"type": "step-finish", "reason": "stop", "cost": 0, "tokens": tokens}


STEP = {"type": "step-start"}
THOUGHT = {"type": "reasoning", "text": "hm", "time": {"start": 1}, "metadata": {"anthropic": {"signature": "sig"}}}
UNSIGNED = {"type": "reasoning", "text": "hm", "time": {"start": 1}}
PICTURE = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,aGk="}


def user(second: float, *parts: Any) -> dict[str, Any]:
    told = [text(part) if isinstance(part, str) else part for part in parts]
    return {"info": {"id": f"m{second}", "role": "user", "time": {"created": ms(second)}}, "parts": told}


def answer(second: float, *parts: Any, **more: Any) -> dict[str, Any]:
    info = {"id": f"m{second}", "role": "assistant", "providerID": "anthropic", "modelID": "model-a", **more}
    info["time"] = {"created": ms(second), "completed": ms(second + 9)}
    told = [text(part, second) if isinstance(part, str) else part for part in parts]
    return {"info": {**info, "path": {"cwd": "/home/me/shop"}}, "parts": told}


def export(*messages: Any, **info: Any) -> dict[str, Any]:
    return {"info": {"id": "ses_1", "directory": "/home/me/shop", **info}, "messages": list(messages)}


EXAMPLES = [
    Example(
        name="two steps in one message, parallel calls, usage and times, and another model, told thoughts as text",
        ids=["ses_1"],
        titles=["Was ist hier? 🦊"],
        data=json.dumps(
            export(
                user(1, "Was ist hier? 🦊", text("never", ignored=True), PICTURE, {"type": "agent", "name": "x"}),
                answer(
                    2,
                    STEP,
                    THOUGHT,
                    UNSIGNED,
                    "Looking.",
                    tool("c1", 3),
                    tool("c2", 3.5, "ключ"),
                    finish(3, 0, 100),
                    STEP,
                    "",
                    text("Two files.", 6),
                    finish(1, 103, 20, total=131),
                ),
                user(20, "Thanks", {"type": "subtask", "prompt": "x"}),
                answer(21, STEP, "Bye.", modelID="model-b", tokens=finish(2, 3, 4)["tokens"]),
            ),
            indent=1,
        ).encode(),
        agent="opencode",
        format="anthropic",
        lengths=[[[1, 3], [5]]],
        causes=[["start", "rewind"]],
        models=[["model-a", "model-b"]],
        projects=["/home/me/shop"],
        inputs=[[103, 124, 9]],
        times=[[T0 + 1, T0 + 4.5, T0 + 20]],
    ),
    Example(
        name="a result that is pruned later, in a chat format",
        data=json.dumps(
            export(
                user(1, "One"),
                answer(2, STEP, tool("c1", 3, "long", compacted=ms(10)), tool("c2", 3), STEP, "1", providerID="other"),
                user(11, "Two"),
                answer(12, STEP, "2", providerID="other"),
            )
        ).encode(),
        agent="opencode",
        format="openai-chat",
        lengths=[[[1, 4], [6]]],
        causes=[["start", "micro-compaction"]],
        inputs=[[None, None, None]],
    ),
    Example(
        name="a result that is pruned later",
        data=json.dumps(
            export(
                user(1, "One"),
                answer(2, STEP, tool("c1", 3, "long", compacted=ms(10))),
                answer(5, STEP, "1"),
                user(11, "Two"),
                answer(12, STEP, "2"),
            )
        ).encode(),
        agent="opencode",
        format="anthropic",
        lengths=[[[1, 3], [5]]],
        causes=[["start", "micro-compaction"]],
    ),
    Example(
        name="compactions: one that failed, one that keeps a tail",
        data=json.dumps(
            export(
                user(1, "One"),
                answer(2, STEP, "1"),
                user(3, "Two"),
                answer(4, STEP, "2"),
                user(5, {"type": "compaction", "auto": True}),
                answer(6, STEP, summary=True, parentID="m5", error={"name": "APIError"}, finish="error"),
                user(7, {"type": "compaction", "auto": True, "tail_start_id": "m3"}),
                answer(8, STEP, "One was said.", summary=True, parentID="m7", finish="stop"),
                user(9, "Go on"),
                answer(10, STEP, "3"),
            )
        ).encode(),
        agent="opencode",
        format="anthropic",
        lengths=[[[1, 3], [5]]],
        causes=[["start", "compaction"]],
    ),
    Example(
        name="answers that failed, were stopped, and calls that never ended",
        data=json.dumps(
            export(
                user(1, "One"),
                answer(2, STEP, error={"name": "APIError"}),
                answer(3, STEP, "On", error={"name": "APIError"}),
                user(4, "Again"),
                answer(
                    5,
                    STEP,
                    {"type": "tool", "callID": "c1", "tool": "bash", "state": {"status": "running", "input": {}}},
                    {
                        "type": "tool",
                        "callID": "c2",
                        "tool": "bash",
                        "state": {
                            "status": "error",
                            "input": {},
                            "error": "no",
                            "time": {"start": ms(5), "end": ms(6)},
                        },
                    },
                    error={"name": "MessageAbortedError"},
                ),
                user(7, "Go on"),
                answer(8, STEP, "1"),
            )
        ).encode(),
        agent="opencode",
        format="anthropic",
        lengths=[[[1], [1, 3]]],
        causes=[["start", "rewind"]],
    ),
    Example(
        name="messages that cannot be used",
        data=json.dumps(
            export(
                user(1, "One"),
                {"info": None, "parts": []},
                answer(2, STEP, {"type": "tool", "callID": "c1"}),
                answer(3, STEP, "1"),
                7,
            )
        ).encode(),
        agent="opencode",
        format="anthropic",
        lengths=[[[1]]],
        skipped=[2, 3, 5],
    ),
    Example(
        name="several sessions, one per line, as they come from the store",
        ids=["ses_1", "ses_2"],
        titles=["One", "Two"],
        data=lines(
            export(user(1, "One"), answer(2, STEP, "1")),
            export(user(1, "Two"), {"info": {}}, answer(2, STEP, "2"), id="ses_2", directory="/home/me/till"),
        ),
        agent="opencode",
        format="anthropic",
        lengths=[[[1]], [[1]]],
        projects=["/home/me/shop", "/home/me/till"],
        skipped=[2],
    ),
]
