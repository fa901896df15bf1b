"""Sessions of the coding agent pi: one JSON entry per line, a tree.

An entry hangs below the one before it; one that hangs elsewhere is a rewind, and the way from the root to it is the new
context. Entries of the first version have no ids: they follow each other. A compaction puts a summary in the place of
all before its first kept entry. An answer that failed or was aborted is never sent back; it was a request if anything
came, or was counted. A forked session begins with a copy of another file, whose requests count there: they are older
than its header.

The log has neither the system prompt nor the tools. Thoughts are told as they were signed, though another model gets
them as text; chat formats get none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..billing.usage import Usage
from .builders import ANTHROPIC, BUILDERS, CHAT, Builder, image, text
from .log import UNUSABLE, Log, seconds
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, Recording

COMPACTED = "The conversation history before this point was compacted into the following summary:"
CAME_BACK = "The following is a summary of a branch that this conversation came back from:"
ANTHROPIC_API = "anthropic-messages"


def knows(row: Json) -> bool:
    match row:
        case {"type": "session", "id": str(), "timestamp": str(), "cwd": str()}:
            return True
        case {"type": "message", "message": {"role": str()}, "timestamp": _}:
            return "sessionId" not in row
    return False


def read(log: Log) -> Iterable[Recording]:
    header = next((row for _, row in log.rows if row.get("type") == "session"), {})
    format_ = ANTHROPIC if _mostly(log) == ANTHROPIC_API else CHAT
    tree = _Tree(format_, header)
    for line, row in log.rows:
        with log.tolerating(line):
            tree.take(row)
    tree.turns.done()
    project = header.get("cwd")
    yield Recording("pi", format_, tree.turns.segments.done(), project=project if isinstance(project, str) else "")


def _mostly(log: Log) -> str:
    """The interface that most answers came through; another may have been tried."""
    used: Counter[str] = Counter()
    for _, row in log.rows:
        match row.get("message"):
            case {"role": "assistant", "content": [_, *_], "api": str(api)}:
                used[api] += 1
    return max(used, key=used.__getitem__, default="")


class _Tree:
    def __init__(self, format_: str, header: Json) -> None:
        self.format = format_
        self.turns = BUILDERS[format_]()
        self.entries: dict[str, Json] = {}
        self.parents: dict[str, str | None] = {}
        self.order: list[str] = []
        self.leaf: str | None = None
        self.at: float | None = None
        forked = header.get("parentSession") or header.get("branchedFrom")
        self.born = seconds(header.get("timestamp")) if forked else None

    def take(self, row: Json) -> None:
        name = row.get("id")
        name = name if isinstance(name, str) else f"#{len(self.order)}"
        self.order.append(name)
        nameless = "id" not in row and "timestamp" not in row
        if row.get("type") == "session" or nameless or name in self.entries:
            return
        parent = row.get("parentId", self.leaf)
        if parent is not None and parent not in self.entries:
            parent = self.leaf  # its line is lost: the order of the file holds
        self.entries[name], self.parents[name] = row, parent
        before, self.leaf = self.leaf, name
        if row["type"] == "compaction":
            self._go_to(name, "compaction")
            self.at = seconds(row["timestamp"])
            return
        if parent != before:
            self._go_to(parent, "rewind")
        self._add(self.turns, row, told=True)

    def _go_to(self, name: str | None, cause: Cause) -> None:
        turns = BUILDERS[self.format]()
        for row in self._context(name):
            try:
                self._add(turns, row, told=False)
            except UNUSABLE:
                continue  # it was named when its line was read
        self.turns.restart(turns.done(), cause)

    def _context(self, name: str | None) -> list[Json]:
        way: list[str] = []
        while name is not None:
            way.append(name)
            name = self.parents[name]
        way.reverse()
        last = max((n for n, name in enumerate(way) if self.entries[name]["type"] == "compaction"), default=None)
        if last is None:
            return [self.entries[name] for name in way]
        summary = self.entries[way[last]]
        first = summary.get("firstKeptEntryId")
        if first is None and isinstance(index := summary.get("firstKeptEntryIndex"), int):
            first = self.order[index]
        kept = way[way.index(first) : last] if first in way[:last] else []
        return [summary, *(self.entries[name] for name in (*kept, *way[last + 1 :]))]

    def _add(self, turns: Builder, row: Json, *, told: bool) -> None:
        match row["type"]:
            case "message" if row["message"]["role"] == "assistant":
                self._answer(turns, row, row["message"], told=told)
                return
            case "message":
                _tell(turns, row["message"])
            case "custom_message":
                turns.say(_blocks(row["content"]))
            case "branch_summary" if row["summary"]:
                turns.say([text(f"{CAME_BACK}\n\n<summary>\n{row['summary']}</summary>")])
            case "compaction":
                turns.say([text(f"{COMPACTED}\n\n<summary>\n{row['summary']}\n</summary>")])
            case _:
                return
        if told:
            self.at = seconds(row.get("timestamp"))

    def _answer(self, turns: Builder, row: Json, message: Json, *, told: bool) -> None:
        answered, usage = seconds(row.get("timestamp")), _usage(message.get("usage"))
        blocks = [block for one in message["content"] for block in _answered(one)]
        copied = self.born is not None and answered is not None and answered < self.born
        sent = None
        if told and not copied and (message["content"] or usage):
            sent = RecordedRequest(0, message.get("model") or "", self.at, answered, usage)
        dropped = message.get("stopReason") in ("error", "aborted")
        turns.answer([] if dropped else blocks, sent)


def _tell(turns: Builder, message: Json) -> None:
    match message["role"]:
        case "toolResult":
            turns.result(message["toolCallId"], _blocks(message["content"]), failed=bool(message.get("isError")))
        case "user" | "custom" | "hookMessage":
            turns.say(_blocks(message["content"]))
        case "bashExecution" if not message.get("excludeFromContext"):
            turns.say([text(_ran(message))])


def _ran(message: Json) -> str:
    """What the model is told of a command that the user ran."""
    output = f"```\n{message['output']}\n```" if message.get("output") else "(no output)"
    ending = ""
    if message.get("cancelled"):
        ending = "\n\n(command cancelled)"
    elif message.get("exitCode"):
        ending = f"\n\nCommand exited with code {message['exitCode']}"
    return f"Ran `{message['command']}`\n{output}{ending}"


def _blocks(content: str | list[Json]) -> list[Json]:
    if isinstance(content, str):
        return [text(content)]
    return [
        image(block["mimeType"], block["data"]) if block["type"] == "image" else text(block["text"])
        for block in content
    ]


def _answered(block: Json) -> list[Json]:
    """Blank texts are not sent back, and a thought that nobody signed is sent as text."""
    match block["type"]:
        case "toolCall":
            return [{"type": "tool_use", "id": block["id"], "name": block["name"], "input": block["arguments"]}]
        case "thinking" if block.get("redacted"):
            return [{"type": "redacted_thinking", "data": block["thinkingSignature"]}]
        case "thinking" if signature := block.get("thinkingSignature"):
            return [{"type": "thinking", "thinking": block["thinking"], "signature": signature}]
        case "text" | "thinking" as kind if block[kind].strip():
            return [text(block[kind])]
    return []


def _usage(usage: Any) -> Usage | None:
    """None where nothing was counted: the answer was cut off before that."""
    if not isinstance(usage, dict):
        return None
    found = Usage(
        usage.get("input") or 0,
        usage.get("cacheRead") or 0,
        usage.get("cacheWrite") or 0,
        output=usage.get("output") or 0,
    )
    return found if found.input else None


READER = Reader("pi", knows, read)
