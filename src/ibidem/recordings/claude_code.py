"""Claude Code: `~/.claude/projects/<project>/<session>.jsonl`, one content block per line.

Lines that share a message id are one answer, wherever they stand; results logged between them come after it. Lines
that share a uuid are one line. User lines that follow each other are one message, results first. Sidechain lines are
conversations of their own, told apart by their agent id or by the line they descend from. `toolUseResult` is a copy for
the screen and was never sent.

What the log does not tell: the system prompt, the tools, reminders that were added on the way, and what becomes of
thinking that the provider drops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..billing.usage import Usage
from .log import Log, seconds
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, RecordedSegment, Recording

CLEARED_RESULT = "[Old tool result content cleared]"
"""What is sent in place of a result that a micro-compaction cleared."""


def _knows(row: Json) -> bool:
    return "parentUuid" in row and "sessionId" in row


def _blocks(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


class _Thread:
    """One chain of messages. Messages are replaced, never changed: segments share them."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.segments = [RecordedSegment()]
        self.project = ""
        self._answers: dict[str, int] = {}
        """Answer id → where it stands in the history."""
        self._requests: dict[str, int] = {}
        """Answer id → which request of the segment it answers."""
        self._marks: dict[str, int] = {}
        """Line → how long the history was after it."""
        self._latest: float | None = None

    @property
    def history(self) -> list[Json]:
        return self.segments[-1].history

    def line(self, row: Json) -> None:
        self.project = self.project or row.get("cwd") or ""
        message = row.get("message") or {}
        match row.get("type"), row.get("subtype"):
            case "system", "compact_boundary":
                self._restart("compaction")
            case "system", "microcompact_boundary":
                self._clear(row["microcompactMetadata"]["compactedToolIds"])
            case "assistant", _ if not _placeholder(row):
                self._answer(message, seconds(row.get("timestamp")))
            case "user", _ if message:
                self._user(row, message["content"])
                self._latest = seconds(row.get("timestamp")) or self._latest
        self._marks[row["uuid"]] = len(self.history)

    def _user(self, row: Json, content: str | list[Json]) -> None:
        if row.get("isCompactSummary") and self.history:
            self._restart("compaction")
        elif all(block.get("type") != "tool_result" for block in _blocks(content)):
            self._rewind(row.get("parentUuid"))
        if self.history and self.history[-1]["role"] == "user":
            content = [*_blocks(self.history.pop()["content"]), *_blocks(content)]
            content.sort(key=lambda block: block.get("type") != "tool_result")
        self.history.append({"role": "user", "content": content})

    def _answer(self, message: Json, at: float | None) -> None:
        key, requests = message["id"], self.segments[-1].requests
        usage = _usage(message.get("usage") or {})
        place = self._answers.setdefault(key, len(self.history))
        if place == len(self.history):
            if place:
                self._requests[key] = len(requests)
                requests.append(RecordedRequest(place, message.get("model") or "", self._latest, at, usage, key))
            self.history.append({"role": "assistant", "content": []})
        elif key in self._requests:  # usage is repeated on every line and complete on the last
            known = requests[self._requests[key]]
            requests[self._requests[key]] = replace(known, answered=at or known.answered, usage=usage or known.usage)
        said = [block for block in _blocks(message["content"]) if not _blank(block)]
        joined = [*self.history[place]["content"], *said]
        self.history[place] = {"role": "assistant", "content": joined}

    def _restart(self, cause: Cause, kept: Iterable[Json] = ()) -> None:
        """Go on in a new segment that inherits `kept`."""
        history = list(kept)
        if self.segments[-1].requests:
            self.segments.append(RecordedSegment(history, [], len(history), cause))
        else:
            self.segments[-1].history = history
        self._answers = {key: at for key, at in self._answers.items() if at < len(history)}
        self._requests = {}
        self._marks = {uuid: length for uuid, length in self._marks.items() if length <= len(history)}

    def _clear(self, ids: Iterable[str]) -> None:
        """Micro-compaction: from here on the results of these calls are sent as a short note."""
        cleared = set(ids)
        self._restart("micro-compaction", self.history)
        for place, message in enumerate(self.history):
            blocks = _blocks(message["content"])
            if any(block.get("tool_use_id") in cleared for block in blocks):
                self.history[place] = {
                    **message,
                    "content": [
                        {**block, "content": CLEARED_RESULT} if block.get("tool_use_id") in cleared else block
                        for block in blocks
                    ],
                }

    def _rewind(self, parent: str | None) -> None:
        """A prompt that hangs below an earlier answer drops all that came after its parent.

        Only a parent in this segment counts, and only if an answer has begun since: the lines of one parallel batch
        hang below each other in any order. A parent that is not in the file tells nothing; then its order holds.
        """
        kept = self._marks.get(parent or "")
        if kept is not None and any(place >= kept for place in self._answers.values()):
            self._restart("rewind", self.history[:kept])


def _blank(block: Json) -> bool:
    """The model sometimes begins with line breaks alone; providers refuse such a text, and it is not sent back."""
    return block.get("type") == "text" and not block["text"].strip()


def _placeholder(row: Json) -> bool:
    """An error that the client put into the model's mouth."""
    return bool(row.get("isApiErrorMessage")) or row["message"].get("model") == "<synthetic>"


def _usage(found: Json) -> Usage | None:
    fresh, read = found.get("input_tokens") or 0, found.get("cache_read_input_tokens") or 0
    written = found.get("cache_creation_input_tokens") or 0
    hour = (found.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
    if not fresh + read + written:
        return None
    return Usage(fresh, read, written - hour, hour, found.get("output_tokens") or 0)


def _read(log: Log) -> Iterator[Recording]:
    threads = {"": _Thread()}
    chain: dict[str, str] = {}
    """Line → the thread it belongs to."""
    for line, row in log.rows:
        uuid, parent = row.get("uuid"), row.get("parentUuid")
        with log.tolerating(line):
            if not uuid or uuid in chain:
                continue
            key = ""
            if row.get("isSidechain"):
                stray = next(reversed(threads)) if parent and parent not in chain else ""
                key = row.get("agentId") or chain.get(parent or "") or stray or uuid
            chain[uuid] = key
            name = row.get("agentId") or f"sidechain {len(threads)}"
            threads.setdefault(key, _Thread(name)).line(row)
    for thread in threads.values():
        segments = [segment for segment in thread.segments if segment.requests]
        yield Recording("claude-code", "anthropic", segments, name=thread.name, project=thread.project)


READER = Reader("claude-code", _knows, _read)
