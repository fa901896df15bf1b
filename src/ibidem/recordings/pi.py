"""Reader for the coding agent pi: one JSON entry per line. The entries form a tree.

- The parent of an entry is usually the previous one. Otherwise it is a rewind, and the path from the root to the entry
  is the new context. Entries of the first log version have no ids and form a single path.
- A compaction replaces all entries before its first retained one by a summary. A context edit replaces the content of
  an entry.
- A failed or aborted response is not sent in later requests. It counts as a request if it has content or usage.
- A call without a result gets a placeholder result before the next message.
- Thinking is sent with its signature to the model that wrote it, and as text to another model.
- A forked session starts with a copy of another log. Entries older than the header count only in the other log.
- If a response directly follows another one, its prompt is missing in the log, and the request is omitted.

Logs of older versions lack the system prompt and the tools. Newer versions log them at each change, but this reader
ignores them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from ..billing.usage import Usage
from ..model import string
from .builders import ANTHROPIC, BUILDERS, CHAT, CHAT_THOUGHTS, RESPONSES, State, image, text
from .counts import count
from .log import UNUSABLE, Log, seconds
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, Recording

COMPACTED = "The conversation history before this point was compacted into the following summary:"
CAME_BACK = "The following is a summary of a branch that this conversation came back from:"
UNANSWERED = "No result provided"
PICTURE_ONLY, NOTHING = "(see attached image)", "(no tool output)"
Model = tuple[Any, ...]


def knows(row: Json) -> bool:
    match row:
        case {"type": "session", "id": str(), "timestamp": str(), "cwd": str()}:
            return True
        case {"type": "message", "message": {"role": str()}, "timestamp": _}:
            return "sessionId" not in row
    return False


def read(log: Log) -> Iterable[Recording]:
    header = next((row for _, row in log.rows if row.get("type") == "session"), {})
    format_ = _format(_mostly(log))
    tree = _Tree(_Sent(format_, (), frozenset(_answered(log))), header)
    for line, row in log.rows:
        with log.tolerating(line):
            tree.take(row)
    tree.sent.turns.done()
    segments, project = tree.sent.turns.segments.done(), project_of(string(header.get("cwd")))
    yield Recording("pi", format_, segments, id=string(header.get("id")), title=_name(log), project=project)


def _name(log: Log) -> str:
    """Return the name that the user gave the session. The last one counts."""
    names = (row.get("name") for _, row in log.rows if row.get("type") == "session_info")
    return next((name for name in reversed(list(names)) if isinstance(name, str) and name), "")


def _mostly(log: Log) -> str:
    """Return the API of most responses, because the user may have tried another one."""
    used: Counter[str] = Counter()
    for _, row in log.rows:
        match row.get("message"):
            case {"role": "assistant", "content": [_, *_], "api": str(api)}:
                used[api] += 1
    return max(used, key=used.__getitem__, default="")


def _format(api: str) -> str:
    if api.endswith("-responses"):
        return RESPONSES
    return ANTHROPIC if api == "anthropic-messages" else CHAT


def _answered(log: Log) -> Iterator[str]:
    for _, row in log.rows:
        match row.get("message"):
            case {"role": "toolResult", "toolCallId": str(call)}:
                yield _bare(call)


class _Sent:
    """Context as it is sent to one model."""

    def __init__(self, format_: str, model: Model, answered: frozenset[str]) -> None:
        self.format, self.model = format_, model
        self.answered = answered
        """Ids of calls that have a result anywhere in the log."""
        self.turns = BUILDERS[format_]()
        self.due: list[str] = []
        """Ids of calls that have no result yet."""
        self.marked: _Mark | None = None
        """Latest snapshot. It is current unless something was added after it."""

    def mark(self) -> _Mark:
        self.marked = _Mark(self, self.turns.state(), list(self.due))
        return self.marked

    def settle(self, calls: list[str]) -> None:
        self.due = [call for call in self.due if call not in calls]
        for call in calls:
            self.turns.result(call, [text(UNANSWERED)], failed=True)

    def say(self, blocks: list[Json]) -> None:
        self.settle([call for call in self.due if call not in self.answered])
        if said := [block for block in blocks if block["type"] != "text" or block["text"].strip()]:
            self.turns.say(said)

    def result(self, message: Json) -> None:
        call, content = _bare(message["toolCallId"]), _blocks(message["content"])
        if call in self.due:
            self.due.remove(call)
        if not any(block["type"] == "text" and block["text"] for block in content):
            content = [text(PICTURE_ONLY if content and content[0]["type"] == "image" else NOTHING), *content]
        self.turns.result(call, content, failed=bool(message.get("isError")))

    def answer(self, message: Json, sent: RecordedRequest | None) -> None:
        self.settle(self.due)
        history = self.turns.done()
        lost = bool(history) and history[-1].get("role") == "assistant"
        blocks = [block for one in message["content"] for block in self._answered(one, _model(message) == self.model)]
        if message.get("stopReason") in ("error", "aborted"):
            blocks = []
        self.turns.answer(blocks, None if lost else sent)
        self.due = [block["id"] for block in blocks if block["type"] == "tool_use"]

    def _answered(self, block: Json, own: bool) -> list[Json]:
        """Return the blocks of a response as they are sent: without blank texts, and with unsigned thinking as text."""
        match block["type"]:
            case "toolCall":
                call = {"type": "tool_use", "id": _bare(block["id"]), "name": block["name"]}
                return [{**call, "input": block["arguments"]}]
            case "thinking" if block.get("redacted"):
                return [{"type": "redacted_thinking", "data": block["thinkingSignature"]}] if own else []
            case "thinking" if own and (signature := block.get("thinkingSignature")):
                return self._thought(block["thinking"], signature)
            case "text" | "thinking" as kind if block[kind].strip():
                return [text(block[kind])] if kind == "text" or not own or self.format == ANTHROPIC else []
        return []

    def _thought(self, thinking: str, signature: str) -> list[Json]:
        """Convert signed thinking. Depending on the API, the signature is Anthropic's, an item or a field name."""
        if self.format == ANTHROPIC or (self.format == CHAT and signature in CHAT_THOUGHTS and thinking.strip()):
            return [{"type": "thinking", "thinking": thinking, "signature": signature}]
        item = _object(signature) if self.format == RESPONSES else {}
        return [item] if item.get("type") == "reasoning" else []


class _Mark(NamedTuple):
    """Snapshot of a context. To continue from it, the context itself is used if unchanged, otherwise a copy."""

    sent: _Sent
    state: State
    due: list[str]

    def resumed(self) -> _Sent:
        if self.sent.marked is self:
            return self.sent
        copy = _Sent(self.sent.format, self.sent.model, self.sent.answered)
        copy.turns.resume(self.state)
        copy.due = list(self.due)
        return copy


class _Tree:
    def __init__(self, sent: _Sent, header: Json) -> None:
        self.sent = sent
        self.entries: dict[str, Json] = {}
        self.parents: dict[str, str | None] = {}
        self.order: list[str] = []
        self.leaf: str | None = None
        self.at: float | None = None
        self._marks: dict[tuple[str, Model], _Mark] = {}
        """Snapshots of the context, by entry and model."""
        self._edits: set[str] = set()
        """Ids of entries that are replaced by a context edit."""
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
            parent = self.leaf  # the parent's line is missing: use the order of the file
        self.entries[name], self.parents[name] = row, parent
        before, self.leaf = self.leaf, name
        if row["type"] == "context_edit":
            self._edits.add(str(row.get("targetId")))
        if row["type"] in ("compaction", "context_edit"):
            self._go_to(name, "compaction" if row["type"] == "compaction" else "micro-compaction")
            self.at = seconds(row["timestamp"])
            return
        if parent != before:
            self._go_to(parent, "rewind")
        if (model := _model(row.get("message"))) and model != self.sent.model:
            self.sent.model = model
            self._go_to(parent, "rewind")
        self._add(self.sent, row, told=True)

    def _go_to(self, name: str | None, cause: Cause) -> None:
        fresh = self._sent_at(name)
        self.sent.turns.restart(fresh.turns.whole(), cause)
        own = fresh.turns.history
        own[:] = self.sent.turns.history[: len(own)]  # equal values, but the objects that segments share
        self.sent.due = list(fresh.due)

    def _sent_at(self, name: str | None) -> _Sent:
        """Return the context of the model at an entry, built from the nearest snapshot on the path to the root."""
        model, way = self.sent.model, list[str]()
        while name is not None and (name, model) not in self._marks and not self._rewrites(name):
            way.append(name)
            name = self.parents[name]
        fresh = _Sent(self.sent.format, model, self.sent.answered)
        if name is not None and (name, model) in self._marks:
            fresh = self._marks[name, model].resumed()
        elif name is not None:
            self._tell_again(fresh, self._context(name))
            self._marks[name, model] = fresh.mark()
        for each in reversed(way):
            self._tell_again(fresh, [self.entries[each]])
            self._marks[each, model] = fresh.mark()
        return fresh

    def _rewrites(self, name: str) -> bool:
        """Return True if the context at this entry is not just its parent's context plus the entry."""
        return self.entries[name]["type"] in ("compaction", "context_edit") or name in self._edits

    def _tell_again(self, sent: _Sent, rows: list[Json]) -> None:
        for row in rows:
            with suppress(*UNUSABLE):  # already reported when its line was read
                self._add(sent, row, told=False)

    def _context(self, name: str | None) -> list[Json]:
        way: list[str] = []
        while name is not None:
            way.append(name)
            name = self.parents[name]
        way.reverse()
        last = max((n for n, name in enumerate(way) if self.entries[name]["type"] == "compaction"), default=None)
        if last is not None:
            summary = self.entries[way[last]]
            first = summary.get("firstKeptEntryId")
            if first is None and isinstance(index := summary.get("firstKeptEntryIndex"), int):
                first = self.order[index]
            kept = way[way.index(first) : last] if first in way[:last] else []
            way = [way[last], *kept, *way[last + 1 :]]
        return self._edited(way)

    def _edited(self, way: list[str]) -> list[Json]:
        """Return the entries of a path, each with its last edited content."""
        rows = [self.entries[name] for name in way]
        edits = {row.get("targetId"): row.get("replacement") for row in rows if row["type"] == "context_edit"}
        found = [_edit(row, edits[name]) if name in edits else row for name, row in zip(way, rows, strict=True)]
        return [row for number, row in enumerate(found) if row and (not number or row["type"] != "compaction")]

    def _add(self, sent: _Sent, row: Json, *, told: bool) -> None:
        match row["type"]:
            case "message" if row["message"]["role"] == "assistant":
                sent.answer(row["message"], self._request(row, row["message"]) if told else None)
                return
            case "message":
                _tell(sent, row["message"])
            case "custom_message":
                sent.say(_blocks(row["content"]))
            case "branch_summary" if row["summary"]:
                sent.say([text(f"{CAME_BACK}\n\n<summary>\n{row['summary']}</summary>")])
            case "compaction":
                sent.say([text(f"{COMPACTED}\n\n<summary>\n{row['summary']}\n</summary>")])
            case _:
                return
        if told:
            self.at = seconds(row.get("timestamp"))

    def _request(self, row: Json, message: Json) -> RecordedRequest | None:
        answered, usage = seconds(row.get("timestamp")), _usage(message.get("usage"))
        copied = self.born is not None and answered is not None and answered < self.born
        if copied or not (message["content"] or usage):
            return None
        return RecordedRequest(0, message.get("model") or "", self.at, answered, usage)


def _model(message: Any) -> Model:
    match message:
        case {"role": "assistant"}:
            return tuple(str(message.get(key)) for key in ("provider", "api", "model"))
    return ()


def _edit(row: Json, replacement: Any) -> Json | None:
    if replacement is None:
        return None
    content = replacement["content"]
    if row["type"] == "message":
        told = [text(content)] if isinstance(content, str) else content
        return {**row, "message": {**row["message"], "content": told}}
    return {**row, "content": content}


def _object(written: str) -> Json:
    try:
        found = json.loads(written)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _bare(call: str) -> str:
    """Return the id of a call without the item id that may follow it."""
    return call.partition("|")[0]


def _tell(sent: _Sent, message: Json) -> None:
    match message["role"]:
        case "toolResult":
            sent.result(message)
        case "user" | "custom" | "hookMessage":
            sent.say(_blocks(message["content"]))
        case "bashExecution" if not message.get("excludeFromContext"):
            sent.say([text(_ran(message))])


def _ran(message: Json) -> str:
    """Return the text that the model gets for a command of the user."""
    output = f"```\n{message['output']}\n```" if message.get("output") else "(no output)"
    ending = ""
    if message.get("cancelled"):
        ending = "\n\n(command cancelled)"
    elif message.get("exitCode"):
        ending = f"\n\nCommand exited with code {message['exitCode']}"
    if message.get("truncated") and message.get("fullOutputPath"):
        ending += f"\n\n[Output truncated. Full output: {message['fullOutputPath']}]"
    return f"Ran `{message['command']}`\n{output}{ending}"


def _blocks(content: str | list[Json]) -> list[Json]:
    if isinstance(content, str):
        return [text(content)]
    return [
        image(block["mimeType"], block["data"]) if block["type"] == "image" else text(block["text"])
        for block in content
    ]


def _usage(usage: Any) -> Usage | None:
    """Convert usage; None if the response was cut off before any usage was reported."""
    if not isinstance(usage, dict):
        return None
    long = min(count(usage.get("cacheWrite1h")), count(usage.get("cacheWrite")))
    found = Usage(
        count(usage.get("input")),
        count(usage.get("cacheRead")),
        count(usage.get("cacheWrite")) - long,
        long,
        count(usage.get("output")),
        count(usage.get("reasoning")),
    )
    return found if found.input else None


READER = Reader("pi", knows, read)
