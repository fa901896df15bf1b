"""Claude Code logs, made up."""

from __future__ import annotations

from itertools import count
from typing import Any

from .examples import Example, lines

OPUS = "claude-opus-4-6"
START = 1767261600  # 2026-01-01T10:00:00Z


class Script:
    """Writes lines that hang below each other, a second apart."""

    def __init__(self, **fields: Any) -> None:
        self.fields = {"sessionId": "s1", "cwd": "/home/me/shop", "isSidechain": False, **fields}
        self.number = count(1)
        self.last: str | None = None

    def row(self, type: str, /, **fields: Any) -> dict[str, Any]:
        n = next(self.number)
        uuid = f"{self.fields.get('agentId', '')}u{n}"
        stamp = f"2026-01-01T10:00:{n:02d}.000Z"
        found = {"parentUuid": self.last, **self.fields, "type": type, "uuid": uuid, "timestamp": stamp, **fields}
        self.last = found["uuid"]
        return found

    def user(self, content: Any, **fields: Any) -> dict[str, Any]:
        return self.row("user", message={"role": "user", "content": content}, **fields)

    def answer(self, id: str, *blocks: dict[str, Any], read: int = 0, **fields: Any) -> dict[str, Any]:
        usage = {
            "input_tokens": 3,
            "cache_creation_input_tokens": 100,
            "cache_read_input_tokens": read,
            "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
            "output_tokens": 7,
        }
        message = {"id": id, "role": "assistant", "model": OPUS, "content": list(blocks), "usage": usage}
        return self.row("assistant", message=message, **fields)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, file: str = "a.py") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": file}}


def result(id: str, content: Any = "one\ntwo\nthree") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def _plain() -> bytes:
    s = Script()
    return lines(
        {"type": "summary", "summary": "An old one", "leafUuid": "x"},
        s.user("Fix the bug"),
        s.answer("m1", {"type": "thinking", "thinking": "Let me look", "signature": "sig"}),
        s.answer("m1", text("\n\n")),
        s.answer("m1", call("t1"), read=5),
        s.user([result("t1")], toolUseResult={"file": "a copy for the screen"}),
        s.row("system", subtype="turn_duration", durationMs=5),
        s.answer("m2", text("Done – größer"), read=103),
        s.user("Thanks"),
    )


def _parallel() -> bytes:
    s = Script()
    rows = [s.user("Look at both"), s.answer("m1", call("t1")), s.answer("m1", call("t2", "b.py"))]
    first = s.user([result("t1")])
    between = s.answer("m1", call("t3", "c.py"))
    rows += [first, between, s.user([result("t2")]), s.user([result("t3")]), s.answer("m2", text("Both are fine"))]
    return lines(*rows, rows[0], first, rows[-1])  # a resumed session repeats lines


def _compaction() -> bytes:
    s = Script()
    return lines(
        s.user("Begin"),
        s.answer("m1", call("t1")),
        s.user([result("t1")]),
        s.answer("m2", text("So far")),
        s.row("system", subtype="compact_boundary", content="Conversation compacted"),
        s.user("This session continues: we read a.py", isCompactSummary=True),
        s.user("Go on"),
        s.answer("m3", text("Going on")),
    )


def _micro() -> bytes:
    s = Script()
    return lines(
        s.user("Begin"),
        s.answer("m1", call("t1")),
        s.user([result("t1", "old " * 50)]),
        s.answer("m2", call("t2")),
        s.user([result("t2")]),
        s.row("system", subtype="microcompact_boundary", microcompactMetadata={"compactedToolIds": ["t1"]}),
        s.answer("m3", text("Done")),
    )


def _rewind() -> bytes:
    s = Script()
    first, second = s.user("Begin"), s.answer("m1", text("Begun"))
    kept = s.last
    rows = [first, second, s.user("Do this"), s.answer("m2", text("Did this"))]
    return lines(*rows, s.user("No, do that", parentUuid=kept), s.answer("m3", text("Did that")))


def _sidechains() -> bytes:
    s, one, two = Script(), Script(isSidechain=True, agentId="left"), Script(isSidechain=True)
    task = {"type": "tool_use", "id": "t1", "name": "Task", "input": {"prompt": "search"}}
    return lines(
        s.user("Begin"),
        s.answer("m1", task),
        one.user("search"),
        two.user("search elsewhere", uuid="r1"),
        one.answer("n1", call("x1")),
        two.answer("o1", text("Nothing here"), uuid="r2"),
        one.user([result("x1")]),
        one.answer("n2", text("Found")),
        s.user([result("t1", [text("Found")])]),
        s.answer("m2", text("Done")),
    )


def attached(s: Script, kind: str, **fields: Any) -> dict[str, Any]:
    return s.row("attachment", attachment={"type": kind, **fields})


def reminded(model: str = OPUS) -> bytes:
    """What the client adds, behind a prompt and behind a result."""
    s = Script()
    memory = {"path": "/home/me/shop/CLAUDE.md", "content": "Be careful."}
    rows = [
        s.user("Begin"),
        attached(s, "skill_listing", content="- tidy: tidies up"),
        attached(s, "prompt_snapshot", systemPrompt=["never sent twice"]),
        s.answer("m1", call("t1")),
        s.user([result("t1")]),
        attached(s, "nested_memory", content=memory),
        attached(s, "queued_command", prompt="And quickly", commandMode="prompt"),
        s.answer("m2", text("Done")),
    ]
    for row in rows:
        if row["type"] == "assistant":
            row["message"]["model"] = model
    return lines(*rows)


def _halves() -> bytes:
    """A log that begins in the middle, an answer of white space, a killed call, and words that the client made up."""
    s = Script()
    made_up = {"id": "x", "model": "<synthetic>", "content": [text("No response requested.")]}
    return lines(
        s.user([result("t0")]),
        s.user("Begin"),
        s.answer("m1", text("\n\n")),
        s.user("[Request interrupted by user]"),
        s.user("Begin again"),
        s.answer("m2", text("I look"), call("t1")),
        s.user("Continue", isMeta=True),
        s.row("assistant", message=made_up, isApiErrorMessage=False),
        s.user("Go on"),
        s.answer("m3", text("Done")),
    )


def _preserved() -> bytes:
    s = Script()
    begun = [s.user("Begin"), s.answer("m1", call("t1")), s.user([result("t1")]), s.answer("m2", text("So far"))]
    kept = {"preservedMessages": {"uuids": [s.last]}}
    return lines(
        *begun,
        s.row("system", subtype="compact_boundary", compactMetadata=kept),
        s.user("This session continues: we read a.py", isCompactSummary=True),
        s.user("Go on"),
        s.answer("m3", text("Going on")),
    )


def _broken() -> bytes:
    s = Script()
    return lines(
        s.user("Begin"),
        b'{"parentUuid": "u1", "type": "assis',
        s.row("user", message={"role": "user"}),
        s.answer("m1", call("t1")),
        s.row(
            "assistant", isApiErrorMessage=True, message={"id": "e", "model": "<synthetic>", "content": [text("no")]}
        ),
        s.row("assistant", message={"content": [text("no id")]}),
        s.user([result("t1")]),
        s.answer("m2", text("Done")),
    )


EXAMPLES = [
    Example(
        name="an answer over several lines, with its usage on the last",
        ids=["s1"],
        titles=["Fix the bug"],
        data=_plain(),
        agent="claude-code",
        format="anthropic",
        lengths=[[[1, 3]]],
        models=[[OPUS]],
        projects=["/home/me/shop"],
        inputs=[[108, 206]],
        times=[[START + 1.0, START + 5.0]],
    ),
    Example(
        name="results between the calls of one answer, and lines told twice",
        data=_parallel(),
        agent="claude-code",
        format="anthropic",
        lengths=[[[1, 3]]],
    ),
    Example(
        name="a compaction begins anew with its summary",
        data=_compaction(),
        agent="claude-code",
        format="anthropic",
        lengths=[[[1, 3], [1]]],
        causes=[["start", "compaction"]],
    ),
    Example(
        name="a micro-compaction clears results",
        data=_micro(),
        agent="claude-code",
        format="anthropic",
        lengths=[[[1, 3], [5]]],
        causes=[["start", "micro-compaction"]],
    ),
    Example(
        name="a rewind drops what came after its parent",
        data=_rewind(),
        agent="claude-code",
        format="anthropic",
        lengths=[[[1, 3], [3]]],
        causes=[["start", "rewind"]],
    ),
    Example(
        name="sub-agents are sessions of their own",
        ids=["s1", "s1", "s1"],
        titles=["Begin", "search", "search elsewhere"],
        data=_sidechains(),
        agent="claude-code",
        format="anthropic",
        lengths=[[[1, 3]], [[1, 3]], [[1]]],
    ),
    Example(
        name="reminders are system messages for a model that takes them",
        data=reminded("claude-opus-4-8"),
        agent="claude-code",
        format="anthropic",
        lengths=[[[2, 5]]],
    ),
    Example(
        name="what has lost its other half is not sent, nor is white space; the client's own words are",
        data=_halves(),
        agent="claude-code",
        format="anthropic",
        lengths=[[[1], [1, 5]]],
        causes=[["start", "rewind"]],
    ),
    Example(
        name="a compaction keeps an answer behind its summary",
        data=_preserved(),
        agent="claude-code",
        format="anthropic",
        lengths=[[[1, 3], [3]]],
        causes=[["start", "compaction"]],
    ),
    Example(
        name="broken lines, an error put into the model's mouth, an answer without an id",
        data=_broken(),
        agent="claude-code",
        format="anthropic",
        lengths=[[[1, 3]]],
        skipped=[2, 3, 6],
    ),
]
