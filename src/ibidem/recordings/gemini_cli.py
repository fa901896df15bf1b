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
from .beginnings import shared
from .builders import Segments
from .counts import count
from .log import UNUSABLE, Log, seconds
from .projects import project_of
from .reader import Reader
from .recording import Cause, Json, RecordedRequest, Recording

OPENING = "<session_context>"
BATCH_SECONDS = 0.01
"""Maximum time between results of one batch of calls. The next batch follows another response of the model."""
_FOLDER = re.compile(r"Workspace Directories:\*\*\s+- (\S[^\n]*)")


def knows(row: Json) -> bool:
    match row:
        case {"sessionId": str(), "projectHash": str()}:
            return True
    return False


def read(log: Log) -> Iterable[Recording]:
    reading = _GeminiReading(joined=not _is_whole(log))
    for line, row in _records(log):
        with log.tolerating(line):
            reading.take(row)
    heads = [row for _, row in log.rows if knows(row)]
    project = project_of(reading.folder or _folder(heads))
    id_ = heads[0]["sessionId"] if heads else ""
    segments = reading.turns.segments.done()
    yield Recording("gemini-cli", "gemini", segments, id=id_, title=_summary(log), project=project)


def _summary(log: Log) -> str:
    """Return the title that newer versions log at the end of a session. The last one counts."""
    found = ""
    for _, row in log.rows:
        match row:
            case {"sessionId": str(), "summary": str(summary)} | {"$set": {"summary": str(summary)}}:
                found = summary
    return found


def _records(log: Log) -> Iterator[tuple[int, Any]]:
    """Yield messages and `$` records in order, each message in its last version."""
    last: tuple[int, Any] | None = None
    for line, row in _rows(log):
        if last and not (isinstance(row, dict) and "id" in row and row["id"] == last[1].get("id")):
            yield last
            last = None
        if isinstance(row, dict) and ("id" in row or "$rewindTo" in row or _replaced(row) is not None):
            last = line, row
        elif not isinstance(row, dict):
            yield line, row
    if last:
        yield last


def _rows(log: Log) -> Iterator[tuple[int, Any]]:
    for line, row in log.rows:
        messages = row.get("messages") if knows(row) else None
        if isinstance(messages, list):
            yield from ((number if _is_whole(log) else line, message) for number, message in enumerate(messages, 1))
        elif "$set" not in row or _replaced(row) is not None:
            yield line, row


def _is_whole(log: Log) -> bool:
    return len(log.rows) == 1 and "messages" in log.rows[0][1]


def _replaced(row: Json) -> list[Any] | None:
    match row:
        case {"$set": {"messages": list(messages)}}:
            return messages
    return None


class _Contents:
    """Builder of Gemini contents."""

    def __init__(self, *, joined: bool) -> None:
        self.segments = Segments()
        self.joined = joined
        """True if consecutive messages of one role are sent as one content."""
        self.due: list[Json] = []
        """Results logged with their calls that did not appear in a user message yet."""

    @property
    def history(self) -> list[Json]:
        return self.segments.current.history

    def add(self, role: str, parts: list[Json]) -> None:
        last = self.history[-1]["role"] if self.history else ""
        if parts and last == role and (self.joined or role == "model"):
            parts = [*self.history[-1]["parts"], *parts]
            self.segments.reopen()
        if parts:
            self.history.append({"role": role, "parts": parts})

    def settle(self) -> None:
        due, self.due = self.due, []
        self.add("user", due)


class _Mark(NamedTuple):
    """Snapshot of the contents after a message. Later changes affect only its last entry and new ones."""

    length: int
    last: list[Json]
    due: list[Json]
    at: float | None
    """Time of the last call so far."""


class _GeminiReading:
    def __init__(self, *, joined: bool) -> None:
        self.turns = _Contents(joined=joined)
        self.messages: list[Json] = []
        self.at: float | None = None
        self.folder = ""
        self._again = _Contents(joined=joined)
        """Copy of the contents, rebuilt message by message for a rewind."""
        self._marks = [_Mark(0, [], [], None)]
        """Snapshots of the rebuilt contents, indexed by the number of messages."""

    def take(self, row: Json) -> None:
        if (messages := _replaced(row)) is not None:
            self._again, self._marks = _Contents(joined=self.turns.joined), self._marks[:1]
            self._replace([message for message in messages if isinstance(message, dict)])
        elif "$rewindTo" in row:
            names = [message.get("id") for message in self.messages]
            kept = names.index(row["$rewindTo"]) if row["$rewindTo"] in names else 0
            self._replace(self.messages[:kept])
        else:
            self._say(self.turns, row, told=True)
            self.messages.append(row)

    def _replace(self, messages: list[Json]) -> None:
        fresh = self._tell_again(messages)
        before = self.turns.segments.current
        if not before.requests or shared(before.history, fresh.history) < len(before.history):
            self.turns.segments.begin(fresh.history, _cause(before.history, fresh.history))
        else:
            before.history.extend(fresh.history[len(before.history) :])
        fresh.history[:] = self.turns.history  # equal values, but the objects that segments share
        self.turns.due, self.messages = fresh.due, messages

    def _tell_again(self, messages: list[Json]) -> _Contents:
        """Rebuild the contents of these messages, starting from the last snapshot that is still valid."""
        del self._marks[len(messages) + 1 :]
        again, mark, at = self._again, self._marks[-1], self.at
        again.history[max(0, mark.length - 1) :] = mark.last
        again.due, self.at = mark.due, mark.at
        for message in messages[len(self._marks) - 1 :]:
            with suppress(*UNUSABLE):  # already reported when its line was read, or of an unknown type
                self._say(again, message, told=False)
            self._marks.append(_Mark(len(again.history), again.history[-1:], again.due, self.at))
        self.at = at if self.at is None else self.at
        return again

    def _say(self, turns: _Contents, message: Json, *, told: bool) -> None:
        parts = _parts(message.get("content"))
        match message["type"]:
            case "gemini":
                self._answer(turns, message, parts, told=told)
                return
            case "info" if not any(set(part) - {"text"} for part in parts):
                return
            case "user" | "info":
                if any("functionResponse" in part for part in parts):
                    turns.due = []
                turns.settle()
                turns.add("user", parts)
                self.folder = self.folder or _workspace(parts)
            case _:
                return
        if told:
            self.at = seconds(message.get("timestamp"))

    def _answer(self, turns: _Contents, message: Json, parts: list[Json], *, told: bool) -> None:
        calls = message.get("toolCalls") or []
        if calls and not parts and not message.get("tokens") and _is_open(turns):
            self._call(turns, [], calls)
            return
        batches = [calls] if any("functionCall" in part for part in parts) else list(_batches(calls))
        usage = _usage(message.get("tokens"))
        for number, batch in enumerate(batches or [[]]):
            turns.settle()
            if told and turns.history and (usage or message.get("model")):
                answered = seconds(message.get("timestamp")) if not number else None
                named = message["id"] if not number else ""
                turns.segments.current.requests.append(
                    RecordedRequest(len(turns.history), message.get("model") or "", self.at, answered, usage, named)
                )
            self._call(turns, parts, batch)
            parts, usage = [], None

    def _call(self, turns: _Contents, parts: list[Json], calls: list[Json]) -> None:
        if not any("functionCall" in part for part in parts):
            made = [{"id": call["id"], "name": call["name"], "args": call.get("args") or {}} for call in calls]
            parts = [*parts, *({"functionCall": _bare(call)} for call in made)]
        turns.add("model", parts)
        turns.due = [part for call in calls for part in _results(call)]
        self.at = next((at for call in calls if (at := seconds(call.get("timestamp"))) is not None), self.at)


def _is_open(turns: _Contents) -> bool:
    """Return True if the history ends in a response whose calls may still follow."""
    last = turns.history[-1] if turns.history else {"role": ""}
    return last["role"] == "model" and not any("functionCall" in part for part in last["parts"])


def _batches(calls: list[Json]) -> Iterator[list[Json]]:
    batch: list[Json] = []
    for call in calls:
        now = seconds(call.get("timestamp")) or 0.0
        if batch and now - (seconds(batch[-1].get("timestamp")) or 0.0) > BATCH_SECONDS:
            yield batch
            batch = []
        batch.append(call)
    if batch:
        yield batch


def _parts(content: Any) -> list[Json]:
    """Return parts as they are sent: without the agent's name prefix in ids, without thinking and empty texts."""
    listed = content if isinstance(content, list) else [content] if content else []
    found = [{"text": part} if isinstance(part, str) else part for part in listed]
    return [_part(part) for part in found if not part.get("thought") and part != {"text": ""}]


def _part(part: Json) -> Json:
    named = [key for key in ("functionCall", "functionResponse") if key in part]
    return {**part, **{key: _bare(part[key]) for key in named}} if named else part


def _bare(named: Json) -> Json:
    start = f"{named.get('name')}__"
    return {**named, "id": named["id"].removeprefix(start)} if "id" in named else named


def _results(call: Json) -> list[Json]:
    result = call.get("result")
    if isinstance(result, str):
        return _parts([{"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": result}}}])
    return _parts(result)


def _cause(before: list[Json], after: list[Json]) -> Cause:
    if shared(before, after) == len(after) or len(msgspec.json.encode(after)) >= len(msgspec.json.encode(before)):
        return "rewind"
    return "compaction" if len(after) < len(before) else "micro-compaction"


def _workspace(parts: list[Json]) -> str:
    texts = (part["text"] for part in parts if OPENING in str(part.get("text"))[:100])
    return next((found[1].strip() for each in texts if (found := _FOLDER.search(each))), "")


def _folder(heads: list[Json]) -> str:
    for head in heads:
        match head.get("directories"):
            case [str(folder), *_]:
                return folder
    return ""


def _usage(tokens: Any) -> Usage | None:
    """Convert usage. `input` includes cache reads, but not the input from tools that Google runs."""
    if not isinstance(tokens, dict) or not count(tokens.get("input")):
        return None
    read_, thoughts = count(tokens.get("cached")), count(tokens.get("thoughts"))
    fresh = max(0, count(tokens.get("input")) - read_) + count(tokens.get("tool"))
    return Usage(fresh, read_, output=count(tokens.get("output")) + thoughts, reasoning=thoughts)


READER = Reader("gemini-cli", knows, read)
