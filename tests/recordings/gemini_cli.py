"""Chats of Gemini CLI, made up."""

from __future__ import annotations

import json
from typing import Any

from .examples import Example, lines

T0 = 1_700_000_000


def stamp(second: float) -> str:
    minute, rest = divmod(20 + second, 60)
    return f"2023-11-14T22:{13 + int(minute):02}:{rest:06.3f}Z"


HEAD = {"sessionId": "5e551011-0000", "projectHash": "40fc80", "startTime": stamp(0), "kind": "main"}
CONTEXT = (
    "<session_context>\n- **Workspace Directories:**\n  - /home/me/shop\n- **Directory Structure:**\n</session_context>"
)
TOUCH = {"$set": {"lastUpdated": stamp(0)}}


def user(second: float, *parts: Any) -> dict[str, Any]:
    told = [{"text": part} if isinstance(part, str) else part for part in parts]
    return {"id": f"m{second}", "timestamp": stamp(second), "type": "user", "content": told}


def tokens(fresh: int, cached: int, **more: int) -> dict[str, int]:
    return {"input": fresh + cached, "cached": cached, "output": 5, "thoughts": 2, "tool": 0, "total": 0, **more}


def call(name: str, second: float, output: str = "done", **more: Any) -> dict[str, Any]:
    result = [{"functionResponse": {"id": name, "name": "read_file", "response": {"output": output}}}]
    made = {"id": name, "name": "read_file", "args": {"file_path": "a.py"}, "result": result, "status": "success"}
    return {**made, "timestamp": stamp(second), **more}


def answer(second: float, content: Any = "", *calls: Any, **more: Any) -> dict[str, Any]:
    made = {"toolCalls": list(calls)} if calls else {}
    thought = [{"subject": "Hm", "description": "hm", "timestamp": stamp(second)}]
    told = {"id": f"m{second}", "timestamp": stamp(second), "type": "gemini", "content": content, "thoughts": thought}
    return {**told, "tokens": None, "model": "gemini-a", **made, **more}


def info(second: float, content: Any, kind: str = "info") -> dict[str, Any]:
    return {"id": f"m{second}", "timestamp": stamp(second), "type": kind, "content": content}


def chat(*messages: Any, **more: Any) -> bytes:
    return json.dumps({**HEAD, "messages": list(messages), **more}, indent=2).encode()


def put(*messages: Any) -> dict[str, Any]:
    return {"$set": {"messages": list(messages)}}


RESULT = call("read_file__c1", 3, "ключ")["result"]
SENT = {"functionCall": {"id": "read_file__c1", "name": "read_file", "args": {}}, "thoughtSignature": "sig"}
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}

EXAMPLES = [
    Example(
        name="one object: parallel calls, results with their calls, usage and times",
        ids=["5e551011-0000"],
        titles=["Was ist hier? 🦊"],
        data=chat(
            user(1, "Was ist hier? 🦊"),
            answer(2, "Looking.", call("c1", 4), call("c2", 4, "ключ"), tokens=tokens(100, 3)),
            answer(6, "", call("c3", 7, result="text alone"), tokens=tokens(1, 110, tool=9)),
            info(7.5, "Something was updated."),
            answer(8, "Two files.", tokens={"input": "?"}, model="gemini-b"),
            user(20, "Thanks"),
            info(21, "Quota exceeded", "error"),
        ),
        agent="gemini-cli",
        format="gemini",
        lengths=[[[1, 3, 5]]],
        models=[["gemini-a", "gemini-b"]],
        inputs=[[103, 120, None]],
        times=[[T0 + 1, T0 + 4, T0 + 7]],
    ),
    Example(
        name="one object: calls that were written behind a note, or to the answer before; a prompt without an answer",
        data=chat(
            user(1, "Never answered"),
            info(1.5, "Request cancelled."),
            user(2, "One"),
            answer(3, "Let me.", tokens=tokens(9, 0)),
            info(4, "Request cancelled."),
            answer(5, "", call("c1", 5, status="cancelled")),
            user(6, "Go on"),
            answer(7, "1", call("c2", 8), call("c3", 8.001), call("c4", 12)),
            answer(14, "2"),
            directories=["/home/me/shop"],
        ),
        agent="gemini-cli",
        format="gemini",
        lengths=[[[2, 5, 7, 9]]],
        projects=["/home/me/shop"],
        inputs=[[9, None, None, None]],
        times=[[T0 + 2, T0 + 6, T0 + 8, T0 + 12]],
    ),
    Example(
        name="lines: a message again when its calls are done, results as messages, a picture in a result",
        ids=["5e551011-0000"],
        titles=["One"],
        data=lines(
            HEAD,
            put(user(0, CONTEXT)),
            user(1, "One"),
            TOUCH,
            answer(2, "Looking.", tokens=tokens(100, 0)),
            TOUCH,
            answer(2, "Looking.", call("read_file__c1", 3, "ключ"), tokens=tokens(100, 0)),
            user(4, *RESULT),
            {**answer(4.5, [{"text": "Received.", "thought": True}]), "model": None},
            info(4.6, [PICTURE]),
            answer(5, "1", tokens=tokens(5, 100)),
        ),
        agent="gemini-cli",
        format="gemini",
        lengths=[[[1, 3]]],
        projects=["/home/me/shop"],
        inputs=[[100, 105]],
        times=[[T0 + 1, T0 + 4.6]],
    ),
    Example(
        name="lines: resumed, with every result sent twice, as this agent does",
        data=lines(
            HEAD,
            put(user(0, CONTEXT)),
            user(1, "One"),
            answer(2, "", call("read_file__c1", 3, "ключ")),
            user(4, *RESULT),
            answer(5, "1"),
            HEAD,
            put(user(0, CONTEXT)),
            put(
                user(0, CONTEXT),
                user(1, "One"),
                answer(2, [{"text": "**Hm** hm", "thought": True}, SENT], call("read_file__c1", 3, "ключ")),
                {**user(4, *RESULT), "id": "m2_response"},
                user(4, *RESULT),
                answer(5, [{"text": "1"}]),
            ),
            user(6, "Two"),
            answer(7, "2"),
        ),
        agent="gemini-cli",
        format="gemini",
        lengths=[[[1, 3], [5]]],
        causes=[["start", "rewind"]],
        invalid=True,
    ),
    Example(
        name="lines: a rewind, a compression, results that were masked",
        data=lines(
            HEAD,
            user(1, "One"),
            answer(2, "1"),
            user(3, "Two"),
            answer(4, "2"),
            {"$rewindTo": "m3"},
            user(5, "Three"),
            answer(6, "", call("read_file__c1", 7, "ключ" * 9)),
            user(8, *call("read_file__c1", 7, "ключ" * 9)["result"]),
            answer(9, "3"),
            put(user(1, "One"), answer(2, "1"), user(5, "Three"), answer(6, [SENT]), user(8, *RESULT), answer(9, "3")),
            user(10, "Four"),
            answer(11, "4"),
            put(user(12, "All was said."), {**answer(13, [{"text": "Got it."}]), "model": None}),
            user(14, "Five"),
            answer(15, "5"),
        ),
        agent="gemini-cli",
        format="gemini",
        lengths=[[[1, 3], [3, 5], [7], [3]]],
        causes=[["start", "rewind", "micro-compaction", "compaction"]],
    ),
    Example(
        name="an answer without a word, and the next prompt is put to the one before",
        data=lines(HEAD, user(1, "One"), answer(2), user(3, "Two"), answer(4, "2")),
        agent="gemini-cli",
        format="gemini",
        lengths=[[[1], [1]]],
        causes=[["start", "rewind"]],
    ),
    Example(
        name="messages that cannot be used",
        data=chat(user(1, "One"), 7, {"id": "x"}, answer(2, "1", {"name": "no id"}), answer(3, "1")),
        agent="gemini-cli",
        format="gemini",
        lengths=[[[1, 1]]],
        skipped=[2, 3, 4],
    ),
]
