"""Reader for Gemini CLI: one JSON object with its messages, or in newer versions one record per line.

A line is one of these:

- A message, or a newer version of the message before, with the results of its calls.
- `$set`: replaces all messages (at the start, after a compression, in a resumed session).
- `$rewindTo`: removes a message and all after it.

A call is in the message that made it, with its result. Newer versions log the result again as a user message, which is
the form that was sent. A resumed session sends results twice, and its log shows that.

Versions that write lines send consecutive messages of one role as one content. Thinking is not sent. Versions that
write one object append the calls of a response without text to the previous message. The times of their results show
where one response ends.

Not in the log: the system prompt, the tools, thinking signatures, and side requests that choose a model or summarize.
The one-object format also lacks the first message about the folder, the ids of calls, and the position where a session
was resumed. After that position, thinking was sent too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from ..billing.usage import Usage
from .history_builders import Segments
from .log_file import UNUSABLE, Log, parse_timestamp
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, Recording
from .shared_prefixes import common_prefix_length
from .usage_fields import token_count

OPENING = "<session_context>"
BATCH_SECONDS = 0.01
"""Maximum time between results of one batch of calls. The next batch follows another response of the model."""
_FOLDER = re.compile(r"Workspace Directories:\*\*\s+- (\S[^\n]*)")


def is_log_row(row: Json) -> bool:
    match row:
        case {"sessionId": str(), "projectHash": str()}:
            return True
    return False


def read_sessions(log: Log) -> Iterable[Recording]:
    session = _GeminiSession(joins_roles=not _is_whole(log))
    for line, row in _latest_records(log):
        with log.skip_bad_line(line):
            session.add_row(row)
    heads = [row for _, row in log.rows if is_log_row(row)]
    project = project_of(session.folder or _first_directory(heads))
    id_ = heads[0]["sessionId"] if heads else ""
    segments = session.contents.segments.sent_segments()
    yield Recording("gemini-cli", "gemini", segments, id=id_, title=_session_title(log), project=project)


def _session_title(log: Log) -> str:
    """Return the title that newer versions log at the end of a session. The last one counts."""
    title = ""
    for _, row in log.rows:
        match row:
            case {"sessionId": str(), "summary": str(summary)} | {"$set": {"summary": str(summary)}}:
                title = summary
    return title


def _latest_records(log: Log) -> Iterator[tuple[int, Any]]:
    """Yield messages and `$` records in order, each message in its last version."""
    last: tuple[int, Any] | None = None
    for line, row in _message_rows(log):
        if last and not (isinstance(row, dict) and "id" in row and row["id"] == last[1].get("id")):
            yield last
            last = None
        if isinstance(row, dict) and ("id" in row or "$rewindTo" in row or _replacement_messages(row) is not None):
            last = line, row
        elif not isinstance(row, dict):
            yield line, row
    if last:
        yield last


def _message_rows(log: Log) -> Iterator[tuple[int, Any]]:
    for line, row in log.rows:
        messages = row.get("messages") if is_log_row(row) else None
        if isinstance(messages, list):
            yield from ((number if _is_whole(log) else line, message) for number, message in enumerate(messages, 1))
        elif "$set" not in row or _replacement_messages(row) is not None:
            yield line, row


def _is_whole(log: Log) -> bool:
    return len(log.rows) == 1 and "messages" in log.rows[0][1]


def _replacement_messages(row: Json) -> list[Any] | None:
    match row:
        case {"$set": {"messages": list(messages)}}:
            return messages
    return None


class _GeminiContents:
    """Builder of Gemini contents."""

    def __init__(self, *, joins_roles: bool) -> None:
        self.segments = Segments()
        self.joins_roles = joins_roles
        """True if consecutive messages of one role are sent as one content."""
        self.pending_results: list[Json] = []
        """Results logged with their calls that did not appear in a user message yet."""

    @property
    def history(self) -> list[Json]:
        return self.segments.current.history

    def add_parts(self, role: str, parts: list[Json]) -> None:
        last = self.history[-1]["role"] if self.history else ""
        if parts and last == role and (self.joins_roles or role == "model"):
            parts = [*self.history[-1]["parts"], *parts]
            self.segments.reopen_last()
        if parts:
            self.history.append({"role": role, "parts": parts})

    def flush_results(self) -> None:
        due, self.pending_results = self.pending_results, []
        self.add_parts("user", due)


class _ContentsCheckpoint(NamedTuple):
    """Snapshot of the contents after a message. Later changes affect only its last entry and new ones."""

    length: int
    last: list[Json]
    pending_results: list[Json]
    at: float | None
    """Time of the last call so far."""


class _GeminiSession:
    def __init__(self, *, joins_roles: bool) -> None:
        self.contents = _GeminiContents(joins_roles=joins_roles)
        self.messages: list[Json] = []
        self.latest_time: float | None = None
        self.folder = ""
        self._rebuilt_contents = _GeminiContents(joins_roles=joins_roles)
        """Copy of the contents, rebuilt message by message for a rewind."""
        self._checkpoints = [_ContentsCheckpoint(0, [], [], None)]
        """Snapshots of the rebuilt contents, indexed by the number of messages."""

    def add_row(self, row: Json) -> None:
        if (messages := _replacement_messages(row)) is not None:
            self._rebuilt_contents, self._checkpoints = (
                _GeminiContents(joins_roles=self.contents.joins_roles),
                self._checkpoints[:1],
            )
            self._replace_messages([message for message in messages if isinstance(message, dict)])
        elif "$rewindTo" in row:
            names = [message.get("id") for message in self.messages]
            length = names.index(row["$rewindTo"]) if row["$rewindTo"] in names else 0
            self._replace_messages(self.messages[:length])
        else:
            self._add_message(self.contents, row, is_new=True)
            self.messages.append(row)

    def _replace_messages(self, messages: list[Json]) -> None:
        rebuilt = self._rebuild_contents(messages)
        before = self.contents.segments.current
        if not before.requests or common_prefix_length(before.history, rebuilt.history) < len(before.history):
            self.contents.segments.start_segment(rebuilt.history, _segment_cause(before.history, rebuilt.history))
        else:
            before.history.extend(rebuilt.history[len(before.history) :])
        rebuilt.history[:] = self.contents.history  # equal values, but the objects that segments share
        self.contents.pending_results, self.messages = rebuilt.pending_results, messages

    def _rebuild_contents(self, messages: list[Json]) -> _GeminiContents:
        """Rebuild the contents of these messages, starting from the last snapshot that is still valid."""
        del self._checkpoints[len(messages) + 1 :]
        contents, checkpoint, at = self._rebuilt_contents, self._checkpoints[-1], self.latest_time
        contents.history[max(0, checkpoint.length - 1) :] = checkpoint.last
        contents.pending_results, self.latest_time = checkpoint.pending_results, checkpoint.at
        for message in messages[len(self._checkpoints) - 1 :]:
            with suppress(*UNUSABLE):  # already reported when its line was read, or of an unknown type
                self._add_message(contents, message, is_new=False)
            self._checkpoints.append(
                _ContentsCheckpoint(
                    len(contents.history), contents.history[-1:], contents.pending_results, self.latest_time
                )
            )
        self.latest_time = at if self.latest_time is None else self.latest_time
        return contents

    def _add_message(self, contents: _GeminiContents, message: Json, *, is_new: bool) -> None:
        parts = _wire_parts(message.get("content"))
        match message["type"]:
            case "gemini":
                self._add_response(contents, message, parts, is_new=is_new)
                return
            case "info" if not any(set(part) - {"text"} for part in parts):
                return
            case "user" | "info":
                if any("functionResponse" in part for part in parts):
                    contents.pending_results = []
                contents.flush_results()
                contents.add_parts("user", parts)
                self.folder = self.folder or _workspace_folder(parts)
            case _:
                return
        if is_new:
            self.latest_time = parse_timestamp(message.get("timestamp"))

    def _add_response(self, contents: _GeminiContents, message: Json, parts: list[Json], *, is_new: bool) -> None:
        calls = message.get("toolCalls") or []
        if calls and not parts and not message.get("tokens") and _is_open(contents):
            self._add_calls(contents, [], calls)
            return
        batches = [calls] if any("functionCall" in part for part in parts) else list(_call_batches(calls))
        usage = _parse_usage(message.get("tokens"))
        for number, batch in enumerate(batches or [[]]):
            contents.flush_results()
            if is_new and contents.history and (usage or message.get("model")):
                answered_at = parse_timestamp(message.get("timestamp")) if not number else None
                response_id = message["id"] if not number else ""
                contents.segments.current.requests.append(
                    RecordedRequest(
                        len(contents.history),
                        message.get("model") or "",
                        self.latest_time,
                        answered_at,
                        usage,
                        response_id,
                    )
                )
            self._add_calls(contents, parts, batch)
            parts, usage = [], None

    def _add_calls(self, contents: _GeminiContents, parts: list[Json], calls: list[Json]) -> None:
        if not any("functionCall" in part for part in parts):
            function_calls = [
                {"id": call["id"], "name": call["name"], "args": call.get("args") or {}} for call in calls
            ]
            parts = [*parts, *({"functionCall": _without_name_prefix(call)} for call in function_calls)]
        contents.add_parts("model", parts)
        contents.pending_results = [part for call in calls for part in _result_parts(call)]
        self.latest_time = next(
            (at for call in calls if (at := parse_timestamp(call.get("timestamp"))) is not None), self.latest_time
        )


def _is_open(contents: _GeminiContents) -> bool:
    """Return True if the history ends in a response whose calls may still follow."""
    last = contents.history[-1] if contents.history else {"role": ""}
    return last["role"] == "model" and not any("functionCall" in part for part in last["parts"])


def _call_batches(calls: list[Json]) -> Iterator[list[Json]]:
    batch: list[Json] = []
    for call in calls:
        now = parse_timestamp(call.get("timestamp")) or 0.0
        if batch and now - (parse_timestamp(batch[-1].get("timestamp")) or 0.0) > BATCH_SECONDS:
            yield batch
            batch = []
        batch.append(call)
    if batch:
        yield batch


def _wire_parts(content: Any) -> list[Json]:
    """Return parts as they are sent: without the agent's name prefix in ids, without thinking and empty texts."""
    items = content if isinstance(content, list) else [content] if content else []
    parts = [{"text": part} if isinstance(part, str) else part for part in items]
    return [_wire_part(part) for part in parts if not part.get("thought") and part != {"text": ""}]


def _wire_part(part: Json) -> Json:
    call_keys = [key for key in ("functionCall", "functionResponse") if key in part]
    return {**part, **{key: _without_name_prefix(part[key]) for key in call_keys}} if call_keys else part


def _without_name_prefix(call: Json) -> Json:
    start = f"{call.get('name')}__"
    return {**call, "id": call["id"].removeprefix(start)} if "id" in call else call


def _result_parts(call: Json) -> list[Json]:
    result = call.get("result")
    if isinstance(result, str):
        return _wire_parts(
            [{"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": result}}}]
        )
    return _wire_parts(result)


def _segment_cause(before: list[Json], after: list[Json]) -> Cause:
    if common_prefix_length(before, after) == len(after) or len(msgspec.json.encode(after)) >= len(
        msgspec.json.encode(before)
    ):
        return "rewind"
    return "compaction" if len(after) < len(before) else "micro-compaction"


def _workspace_folder(parts: list[Json]) -> str:
    texts = (part["text"] for part in parts if OPENING in str(part.get("text"))[:100])
    return next((match[1].strip() for each in texts if (match := _FOLDER.search(each))), "")


def _first_directory(heads: list[Json]) -> str:
    for head in heads:
        match head.get("directories"):
            case [str(folder), *_]:
                return folder
    return ""


def _parse_usage(tokens: Any) -> Usage | None:
    """Convert usage. `input` includes cache reads, but not the input from tools that Google runs."""
    if not isinstance(tokens, dict) or not token_count(tokens.get("input")):
        return None
    read_, thoughts = token_count(tokens.get("cached")), token_count(tokens.get("thoughts"))
    fresh = max(0, token_count(tokens.get("input")) - read_) + token_count(tokens.get("tool"))
    return Usage(fresh, read_, output=token_count(tokens.get("output")) + thoughts, reasoning=thoughts)


READER = Reader("gemini-cli", is_log_row, read_sessions)
