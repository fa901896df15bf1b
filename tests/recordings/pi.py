"""Sessions of pi, made up."""

from __future__ import annotations

from typing import Any

from .examples import Example, lines

T0 = 1_700_000_000


def stamp(second: int) -> str:
    minute, rest = divmod(20 + second, 60)
    return f"2023-11-14T22:{13 + minute:02}:{rest:02}.000Z"


def entry(second: int, parent: int | None, kind: str = "message", **fields: Any) -> dict[str, Any]:
    """The second is the id, too."""
    name = None if parent is None else f"n{parent}"
    return {"type": kind, "id": f"n{second}", "parentId": name, "timestamp": stamp(second), **fields}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def answer(*blocks: Any, api: str = "anthropic-messages", **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {"role": "assistant", "content": content, "api": api, "model": "model-a", "stopReason": "stop", **more}


def call(name: str) -> dict[str, Any]:
    return {"type": "toolCall", "id": name, "name": "bash", "arguments": {"command": "ls"}}


def result(name: str, text: str = "done", **more: Any) -> dict[str, Any]:
    return {
        "role": "toolResult",
        "toolCallId": name,
        "toolName": "bash",
        "content": [{"type": "text", "text": text}],
        **more,
    }


def usage(fresh: int, read: int, written: int) -> dict[str, Any]:
    return {"input": fresh, "output": 5, "cacheRead": read, "cacheWrite": written, "totalTokens": 0}


HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": stamp(0), "cwd": "/home/me/shop"}
THOUGHT = {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"}
API = "openai-codex-responses"
SEALED = {**THOUGHT, "thinkingSignature": '{"type": "reasoning", "summary": [], "encrypted_content": "x"}'}
BROKEN = {**THOUGHT, "thinkingSignature": "x"}
PICTURE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}

EXAMPLES = [
    Example(
        name="thoughts, parallel calls, usage, times and entries that are not sent",
        ids=["s"],
        titles=["Was ist hier? 🦊"],
        data=lines(
            HEADER,
            entry(1, None, "model_change", provider="anthropic", modelId="model-a"),
            entry(2, 1, message=user("Was ist hier? 🦊")),
            entry(3, 2, message=answer(THOUGHT, "", call("c1"), call("c2"), usage=usage(3, 0, 100))),
            entry(4, 3, message=result("c2", "ключ", isError=True)),
            entry(5, 4, message=result("c1", "a b")),
            entry(6, 5, "thinking_level_change", thinkingLevel="low"),
            entry(7, 6, message=answer("Two files.", usage=usage(1, 103, 20))),
            entry(8, 7, message={"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 1}),
            entry(9, 8, message={"role": "bashExecution", "command": "id", "output": "me", "excludeFromContext": True}),
            entry(10, 9, "custom_message", content="Mind the gap.", customType="x", display=True),
            entry(11, 10, "custom", customType="x", data={"some": "state"}),
            entry(12, 11, message={**user("?"), "content": [PICTURE]}),
            entry(13, 12, message=answer("A fox.")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[1, 3, 5]]],
        models=[["model-a"]],
        projects=["/home/me/shop"],
        inputs=[[103, 124, None]],
        times=[[T0 + 2, T0 + 5, T0 + 12]],
    ),
    Example(
        name="branches: back to a prompt, with a summary, to the very beginning; a label is no branch",
        data=lines(
            HEADER,
            entry(1, None, message=user("One")),
            entry(2, 1, message=answer("1")),
            entry(3, 2, message=user("Two")),
            entry(4, 3, message=answer("2", call("c1"))),
            entry(5, 4, message=result("c1")),
            entry(6, 5, message=answer("2!")),
            entry(7, 6, "label", targetId="n2", label="here"),
            entry(8, 2, message=user("Three")),
            entry(9, 8, message=answer("3")),
            entry(10, 2, "branch_summary", fromId="n2", summary="We tried three."),
            entry(11, 10, message=user("Four")),
            entry(12, 11, message=answer("4")),
            entry(13, None, message=user("Five")),
            entry(14, 13, message=answer("5")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[1, 3, 5], [3], [3], [1]]],
        causes=[["start", "rewind", "rewind", "rewind"]],
    ),
    Example(
        name="a prompt that is put to the message of results it hung below is another message",
        data=lines(
            HEADER,
            entry(1, None, message=user("One")),
            entry(2, 1, message=answer(call("c1"))),
            entry(3, 2, message=result("c1")),
            entry(4, 3, message=answer("1")),
            entry(5, 3, message=user("Stop!")),
            entry(6, 5, message=answer("Stopped.")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[1, 3], [3]]],
        causes=[["start", "rewind"]],
    ),
    Example(
        name="another model gets the thoughts of the one before as text",
        data=lines(
            HEADER,
            entry(1, None, message=user("One")),
            entry(2, 1, message=answer(THOUGHT, "1")),
            entry(3, 2, message=user("Two")),
            entry(4, 3, message=answer("2", model="model-b")),
            entry(5, 4, message=user("Three")),
            entry(6, 5, message=answer("3", model="model-b")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[1], [3, 5]]],
        causes=[["start", "rewind"]],
        models=[["model-a", "model-b"]],
    ),
    Example(
        name="an edit of the context: one content is replaced, one goes",
        data=lines(
            HEADER,
            entry(1, None, message=user("One")),
            entry(2, 1, message=answer(call("c1"))),
            entry(3, 2, message=result("c1", "long")),
            entry(4, 3, "custom_message", content="Mind the gap.", customType="x", display=True),
            entry(5, 4, message=answer("1")),
            entry(6, 5, "context_edit", targetId="n3", replacement={"content": "short"}),
            entry(7, 6, "context_edit", targetId="n4", replacement=None),
            entry(8, 7, message=user("Two")),
            entry(9, 8, message=answer("2")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[1, 3], [5]]],
        causes=[["start", "micro-compaction"]],
    ),
    Example(
        name="an answer whose prompt is lost is one with the answer before",
        data=lines(
            HEADER,
            entry(1, None, message=user("One")),
            entry(2, 1, message=answer("1")),
            entry(3, 2, message=answer("2")),
            entry(4, 3, message=user("Three")),
            entry(5, 4, message=answer("3")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[1, 3]]],
    ),
    Example(
        name="a chat, and thoughts in the field that its service has for them",
        data=lines(
            HEADER,
            entry(1, None, message=user("One")),
            entry(2, 1, message=answer({**THOUGHT, "thinkingSignature": "reasoning_content"}, call("c1"), api="chat")),
            entry(3, 2, message=result("c1", "")),
            entry(4, 3, message=answer("1", api="chat")),
        ),
        agent="pi",
        format="openai-chat",
        lengths=[[[1, 3]]],
    ),
    Example(
        name="a compaction that keeps the last exchange",
        data=lines(
            HEADER,
            entry(1, None, message=user("One")),
            entry(2, 1, message=answer("1")),
            entry(3, 2, message=user("Two")),
            entry(4, 3, message=answer("2")),
            entry(5, 4, "compaction", summary="One was said.", firstKeptEntryId="n3", tokensBefore=9),
            entry(6, 5, message=user("Three")),
            entry(7, 6, message=answer("3")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[1, 3], [3]]],
        causes=[["start", "compaction"]],
    ),
    Example(
        name="answers that failed are never sent back, and were requests only if anything came",
        data=lines(
            HEADER,
            entry(1, None, message=user("One")),
            entry(2, 1, message=answer(stopReason="error", errorMessage="overloaded")),
            entry(3, 2, message=answer("On", call("c1"), stopReason="aborted", usage=usage(9, 0, 0))),
            entry(4, 3, message=user("Again")),
            entry(5, 4, message=answer("1")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[1], [1]]],
        causes=[["start", "rewind"]],
        inputs=[[9, None]],
    ),
    Example(
        name="a fork: what it copied was sent elsewhere",
        data=lines(
            {**HEADER, "timestamp": stamp(10), "parentSession": "/other.jsonl"},
            entry(1, None, message=user("One")),
            entry(2, 1, message=answer("1")),
            entry(11, 2, message=user("Two")),
            entry(12, 11, message=answer("2")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[3]]],
    ),
    Example(
        name="the first version, through another interface: no ids, sealed thoughts, and what is said before a result",
        data=lines(
            {"type": "session", "id": "s", "timestamp": stamp(0), "cwd": "/x", "provider": "openai"},
            {"type": "message", "timestamp": stamp(1), "message": {"role": "user", "content": "Hi"}},
            {"type": "message", "timestamp": stamp(2), "message": answer(SEALED, BROKEN, call("c1|fc_1"), api=API)},
            {"type": "message", "timestamp": stamp(3), "message": {**user("!"), "content": [PICTURE]}},
            {"type": "message", "timestamp": stamp(4), "message": result("c1|fc_1")},
            {"type": "message", "timestamp": stamp(5), "message": answer("Well.", api=API)},
        ),
        agent="pi",
        format="openai-responses",
        lengths=[[[1, 5]]],
        times=[[T0 + 1, T0 + 4]],
    ),
    Example(
        name="malformed entries, a lost line and a call that was never answered, so that an answer is made up",
        data=lines(
            HEADER,
            entry(1, None, message=user("One")),
            entry(2, 1, message={"role": "user", "content": 5}),
            entry(3, 2, message=None),
            entry(4, 99, message=answer(call("c1"))),
            entry(5, 4, message=user("Two")),
            entry(6, 5, message=answer("2")),
            entry(7, 4, message=user("Three")),
            entry(8, 7, message=answer("3")),
        ),
        agent="pi",
        format="anthropic",
        lengths=[[[1, 3], [3]]],
        causes=[["start", "rewind"]],
        skipped=[3, 4],
    ),
]
