"""Reader for Claude Code: `~/.claude/projects/<project>/<session>.jsonl`, one content block per line.

- Lines with the same message id are one response, at any position. Results logged between them follow it.
- Lines with the same uuid are duplicates. Consecutive user lines are one message, results first.
- Reminders (`claude_attachments`) are a system message after the user message if the model supports that. Otherwise
  they are in the user message, after the results.
- Sidechain lines belong to separate conversations, identified by the agent id or by the parent line.
- `toolUseResult` is a copy for the screen and is never sent.
- If the log has the requests themselves (`claude_requests`), these are used.

Like the client, the reader drops calls without a result, results without a call, responses of only whitespace, and API
errors logged as responses. Other texts that the client logged as responses are sent.

Older logs lack the system prompt, the tools, the fixed sentences of reminders and the request for a summary. They also
do not show which thinking the provider drops.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..billing.usage import Usage
from ..model import string
from .beginnings import shared
from .claude_attachments import reminders
from .claude_requests import SentRequests
from .log import Log, seconds
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, RecordedSegment, Recording

CLEARED_RESULT = "[Old tool result content cleared]"
"""Text that replaces a result after a micro-compaction."""
SYNTHETIC = "<synthetic>"
"""Model name of a response that the client wrote."""
NO_SYSTEM_MESSAGES = re.compile(r"(?!claude-)|claude-3|claude-\w+-4(-[0-7])?(-\d{8})?(?![\d-])")
"""Models whose reminders are in user messages: Claude before Opus 4.8, and all other models."""
TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""Types of lines with a session title, and the field with the title. Later types take precedence: the user's title
replaces the others."""


def _knows(row: Json) -> bool:
    return "parentUuid" in row and "sessionId" in row


def _blocks(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


class _Thread:
    """One conversation of a log. Messages are replaced, never modified, because segments share them."""

    def __init__(self, name: str, sent: SentRequests, paired: Collection[str]) -> None:
        self.name = name
        self.segments = [RecordedSegment()]
        self.project = ""
        self.head: Json = {}
        self._sent = sent
        self._paired = paired
        """Ids of calls that have a result anywhere in the log."""
        self._answers: dict[str, int] = {}
        """Response id → index in the history."""
        self._requests: dict[str, int] = {}
        """Response id → index of its request in the segment."""
        self._marks: dict[str, int] = {}
        """Line id → length of the history after this line."""
        self._pending: list[str] = []
        """Reminders for the next request."""
        self._preserved: list[Json] = []
        """Messages that follow the summary of a compaction."""
        self._latest: float | None = None

    @property
    def history(self) -> list[Json]:
        return self.segments[-1].history

    def line(self, row: Json) -> None:
        self.project = self.project or project_of(string(row.get("cwd")))
        message = row.get("message") or {}
        match row.get("type"), row.get("subtype"):
            case "system", "compact_boundary":
                self._compact(row.get("compactMetadata") or {})
            case "system", "microcompact_boundary":
                self._clear(row["microcompactMetadata"]["compactedToolIds"])
            case "system", "local_command" if isinstance(row.get("content"), str):
                self._say(row["content"])
            case "assistant", _ if not row.get("isApiErrorMessage"):
                self._answer(row, message, seconds(row.get("timestamp")))
            case "user", _ if message:
                self._user(row, message["content"])
                self._latest = seconds(row.get("timestamp")) or self._latest
            case "attachment", _:
                self._pending += reminders(row["attachment"])
        self._marks[row["uuid"]] = len(self.history)

    def _user(self, row: Json, content: str | list[Json]) -> None:
        if row.get("isCompactSummary") and self.history:
            self._restart("compaction")
        elif all(block.get("type") != "tool_result" for block in _blocks(content)):
            self._rewind(row.get("parentUuid"))
        if isinstance(content, list):
            content = [block for block in content if self._is_sent(block)]
        if content:
            self._say(content)
        if row.get("isCompactSummary"):
            self.history.extend(self._preserved)
            self._preserved = []

    def _say(self, content: str | list[Json]) -> None:
        if self.history and self.history[-1]["role"] == "user":
            content = _merged(_blocks(self.history[-1]["content"]), _blocks(content))
            self._reopen()
        self.history.append({"role": "user", "content": content})

    def _reopen(self) -> None:
        """Remove the last message, so that it can be replaced. If it was already sent, start a new segment."""
        requests = self.segments[-1].requests
        if requests and requests[-1].length == len(self.history):
            self._restart("rewind", self.history[:-1])
        else:
            self._cut(len(self.history) - 1)

    def _cut(self, length: int) -> None:
        del self.history[length:]
        self.segments[-1].inherited = min(self.segments[-1].inherited, length)

    def _answer(self, row: Json, message: Json, at: float | None) -> None:
        key, model = message["id"], message.get("model") or ""
        usage = _usage(message.get("usage") or {})
        if key not in self._answers:
            self._settle(row.get("requestRef"), model)
            self._answers[key] = len(self.history)
            if self.history and model != SYNTHETIC:
                requests = self.segments[-1].requests
                self._requests[key] = len(requests)
                effort = str(row.get("effort") or "")
                requests.append(RecordedRequest(len(self.history), model, self._latest, at, usage, key, effort=effort))
        elif key in self._requests:  # usage is repeated on every line and complete on the last
            requests = self.segments[-1].requests
            known = requests[self._requests[key]]
            requests[self._requests[key]] = replace(known, answered=at or known.answered, usage=usage or known.usage)
        said = [block for block in _blocks(message["content"]) if self._is_sent(block)]
        place = self._answers[key]
        joined = [*(block for known in self.history[place : place + 1] for block in known["content"]), *said]
        if joined:
            self.history[place : place + 1] = [{"role": "assistant", "content": joined}]

    def _is_sent(self, block: Json) -> bool:
        """Return False for blocks that the client drops. Providers reject blank texts, which models sometimes write."""
        match block.get("type"):
            case "text":
                return bool(block["text"].strip())
            case "tool_use":
                return block["id"] in self._paired
            case "tool_result":
                return block["tool_use_id"] in self._paired
        return True

    def _settle(self, request: str | None, model: str) -> None:
        """Complete the history before a new response: with the logged request, or else with the pending reminders."""
        requests = self.segments[-1].requests
        start = requests[-1].length if requests else 0
        if exact := self._sent.messages(request, self.history[start:]):
            self.head = self._sent.head(request) or self.head
            common = shared(self.history, exact)
            if common < start:
                self._restart("rewind", self.history[:common])
            self._cut(common)
            self.history.extend(exact[common:])
        elif self._pending and not NO_SYSTEM_MESSAGES.match(model) and self.history:
            self.history.append({"role": "system", "content": "\n\n".join(self._pending)})
        elif self._pending:
            self._remind()
        self._pending = []

    def _remind(self) -> None:
        told = [{"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"} for text in self._pending]
        said: list[Json] = []
        if self.history and self.history[-1]["role"] == "user":
            said = _blocks(self.history[-1]["content"])
            self._reopen()
        results = [block for block in said if _is_result(block)]
        self.history.append({"role": "user", "content": [*results, *told, *said[len(results) :]]})

    def _compact(self, about: Json) -> None:
        kept = (about.get("preservedMessages") or {}).get("uuids") or ()
        places = sorted({self._marks[uuid] - 1 for uuid in kept if self._marks.get(uuid)})
        preserved = [self.history[place] for place in places if place < len(self.history)]
        self._restart("compaction")
        self._preserved = preserved

    def _restart(self, cause: Cause, kept: Iterable[Json] = ()) -> None:
        """Start a new segment that inherits `prefix`."""
        history = list(kept)
        if self.segments[-1].requests:
            self.segments.append(RecordedSegment(history, [], len(history), cause))
        else:
            self.segments[-1].history = history
        self._answers = {key: at for key, at in self._answers.items() if at < len(history)}
        self._requests = {}
        self._marks = {uuid: length for uuid, length in self._marks.items() if length <= len(history)}

    def _clear(self, ids: Iterable[str]) -> None:
        """Micro-compaction: replace the results of these calls by a short note in later requests."""
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
        """Drop the history after the prompt's parent line, if there is a response in it.

        Without a response it is not a rewind, because the lines of parallel calls have each other as parents in any
        order. A parent outside this segment is ignored.
        """
        kept = self._marks.get(parent or "")
        if kept is not None and any(place >= kept for place in self._answers.values()):
            self._restart("rewind", self.history[:kept])


def _is_result(block: Json) -> bool:
    return block.get("type") == "tool_result"


def _merged(before: list[Json], after: list[Json]) -> list[Json]:
    """Join two user lines into one message: results first, and a line break between two texts."""
    if before and after and before[-1].get("type") == after[0].get("type") == "text":
        before = [*before[:-1], {**before[-1], "text": before[-1]["text"] + "\n"}]
    return sorted([*before, *after], key=lambda block: not _is_result(block))


def _usage(found: Json) -> Usage | None:
    fresh, read = found.get("input_tokens") or 0, found.get("cache_read_input_tokens") or 0
    written = found.get("cache_creation_input_tokens") or 0
    hour = (found.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
    if not fresh + read + written:
        return None
    return Usage(fresh, read, written - hour, hour, found.get("output_tokens") or 0)


def _pairs(log: Log) -> set[str]:
    """Return the ids of calls with a result. The whole log is read, because a result can precede its call."""
    asked: set[str] = set()
    answered: set[str] = set()
    for _, row in log.rows:
        match row:
            case {"message": {"content": list(blocks)}}:
                known = [block for block in blocks if isinstance(block, dict)]
                asked.update(str(block.get("id")) for block in known if block.get("type") == "tool_use")
                answered.update(str(block.get("tool_use_id")) for block in known if _is_result(block))
    return asked & answered


def _read(log: Log) -> Iterator[Recording]:
    sent, paired = SentRequests(), _pairs(log)
    threads = {"": _Thread("", sent, paired)}
    chain: dict[str, str] = {}
    """Line id → key of its thread."""
    for line, row in log.rows:
        uuid, parent = row.get("uuid"), row.get("parentUuid")
        with log.tolerating(line):
            if sent.take(row) or not uuid or uuid in chain:
                continue
            key = ""
            if row.get("isSidechain"):
                stray = next(reversed(threads)) if parent and parent not in chain else ""
                key = row.get("agentId") or chain.get(parent or "") or stray or uuid
            chain[uuid] = key
            if key not in threads:
                threads[key] = _Thread(row.get("agentId") or f"sidechain {len(threads)}", sent, paired)
            threads[key].line(row)
    id_ = _id(log)
    for thread in threads.values():
        session = Recording("claude-code", "anthropic", [each for each in thread.segments if each.requests])
        session.name, session.id, session.project, session.head = thread.name, id_, thread.project, thread.head
        session.title = _title(log, id_) if not thread.name else ""
        yield session


def _id(log: Log) -> str:
    """Return the session id of the file.

    The file name counts if a line has this id: a resumed session can start with lines of another one. The file of a
    subagent has another name, so the id in its last line counts.
    """
    ids = [id_ for _, row in log.rows if isinstance(id_ := row.get("sessionId"), str)]
    stem = re.split(r"[\\/]", log.path)[-1].partition(".")[0]
    return stem if stem in ids else ids[-1] if ids else ""


def _title(log: Log, session: str) -> str:
    """Return the session's title from its log. Summaries of other sessions in the file have a foreign `leafUuid`."""
    rows = [row for _, row in log.rows if string(row.get("type")) in TITLES]
    lines = {string(row.get("uuid")) for _, row in log.rows} if rows else set()
    own = [
        row
        for row in rows
        if row.get("sessionId", session) == session
        and (row["type"] != "summary" or string(row.get("leafUuid")) in lines - {""})
    ]
    latest = {row["type"]: string(row.get(TITLES[row["type"]])) for row in own}
    return next((latest[kind] for kind in reversed(TITLES) if latest.get(kind)), "")


READER = Reader("claude-code", _knows, _read)
