"""Reader for plain request bodies of any format, one per line or file, alone or in a record with the response.

- A body whose history starts with the previous one is the next request of its conversation. If only a prefix is equal,
  it is a rewind.
- A conversation is identified by the request parameters, the leading instructions and the first message. Bodies of
  several conversations can be mixed.
- A file with a single body also shows the requests before it, because each response in the history belongs to one.
- Cache breakpoints are removed from histories, because they move from request to request and are not content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import is_
from typing import Any

import msgspec

from .. import formats
from ..billing.usage import Usage
from ..model import string
from .beginnings import shared
from .counts import count, within
from .log import Log, seconds
from .reader import Reader
from .recording import Json, RecordedRequest, RecordedSegment, Recording, by_model

WRAPPERS = ("request", "body")
"""Fields of a record that can contain the body."""
OTHERS = frozenset(
    {"type", "info", "trajectory", "trajectory_format", "simulations", "traj", "instance_id", "payload", "parts"}
)
"""Fields of agent logs that a request body does not have."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_IN_USER = re.compile(rf"session_(?:id\"\s*:\s*\")?({_UUID.pattern})")


def knows(row: Json) -> bool:
    body = _body(row)
    name = body and (_format(body) or _by_model(body))
    return bool(body and name and entries_in(body, name))


def read(log: Log) -> Iterable[Recording]:
    bodies = [body for _, row in log.rows if knows(row) and (body := _body(row))]
    usual = next((name for tell in (_format, _by_model) for body in bodies if (name := tell(body))), "")
    reading = _RequestsReading(usual)
    for line, row in log.rows:
        if body := _body(row):
            with log.tolerating(line):
                reading.take(row, body)
    if len(log.rows) == 1:
        for session in reading.sessions.values():
            _tell_all(session)
    several = len(reading.sessions) > 1
    for number, session in enumerate(reading.sessions.values(), 1):
        session.name = str(number) if several else ""
        yield session


def _body(row: Json) -> Json | None:
    """Return the body in a row: the row itself, or the object in a wrapper field."""
    for _ in range(3):
        if not OTHERS.isdisjoint(row):
            return None
        if any(known.history_key in row for known in formats.FORMATS.values()):
            return None if "task_id" in row else row  # a log of tau2, whose messages have their own format
        inner = next((row[key] for key in WRAPPERS if isinstance(row.get(key), dict)), None)
        if inner is None:
            return None
        row = inner
    return None


def _format(body: Json) -> str | None:
    """Detect the format without the model name, because a gateway can serve any model in any format."""
    return _by_model({key: value for key, value in body.items() if key != "model"})


def _by_model(body: Json) -> str | None:
    try:
        return formats.detect(body).name
    except formats.FormatError:
        return None


def entries_in(body: Json, format_: str) -> list[Json]:
    """Return the history of a body as a list of messages; empty if it has none."""
    history = body.get(formats.named(format_).history_key)
    if isinstance(history, str) and formats.named(format_).takes_prompt:
        return [{"role": "user", "content": history}]
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        return []
    return history


class _RequestsReading:
    def __init__(self, usual: str) -> None:
        self.usual = usual
        """Format for a body that fits several formats."""
        self.sessions: dict[bytes, Recording] = {}

    def take(self, row: Json, body: Json) -> None:
        format_ = _format(body) or self.usual
        entries = [unmarked(entry) for entry in entries_in(body, format_)]
        if not entries:
            raise ValueError("a request body without a list of messages")
        model = body.get("model")
        key = formats.named(format_).history_key
        head = {name: value for name, value in body.items() if name not in (key, "model")}
        opening = msgspec.json.encode([format_, _unmarked_head(head), entries[: _first(entries)]])
        usage = _usage(row)
        counted = usage if usage and usage.input else None
        sent = RecordedRequest(len(entries), model if isinstance(model, str) else "", _time(row), usage=counted)
        fresh = Recording("requests", format_, [RecordedSegment()], id=_session_id(head), head=head)
        session = self.sessions.setdefault(opening, fresh)
        send(session, entries, sent)


def _session_id(head: Json) -> str:
    """Return the session id that Claude Code and Codex put into request bodies."""
    key, user = string(head.get("prompt_cache_key")), string(within(head, "metadata").get("user_id"))
    found = _UUID.fullmatch(key) or _IN_USER.search(user)
    return found[found.lastindex or 0] if found else ""


def _first(entries: list[Json]) -> int:
    """Return the number of entries that identify a conversation: the instructions and the first message after them."""
    spoken = (n for n, entry in enumerate(entries, 1) if entry.get("role") not in ("system", "developer"))
    return next(spoken, len(entries))


def send(session: Recording, entries: list[Json], sent: RecordedRequest) -> None:
    """Add the next request of a session. If it does not start with the whole previous history, it is a rewind."""
    last = session.segments[-1]
    common = shared(last.history, entries)
    if common < len(last.history):
        last = RecordedSegment(last.history[:common], [], common, "rewind")
        session.segments.append(last)
    last.history.extend(entries[common:])
    last.requests.append(sent)


def _tell_all(session: Recording) -> None:
    """Add the earlier requests of a conversation of which only the last request is known."""
    segment, last = session.segments[-1], session.segments[-1].requests[-1]
    answers = [by_model(entry) for entry in segment.history]
    begun = (n for n in range(1, len(answers)) if answers[n] and not answers[n - 1])
    segment.requests[:0] = [RecordedRequest(length, last.model) for length in begun]


def unmarked(entry: Json) -> Json:
    """Return an entry without cache breakpoints; the same object if it has no cache breakpoints."""
    content = entry.get("content")
    if not isinstance(content, list):
        return entry
    bare = [_bare(block) for block in content]
    return entry if all(map(is_, bare, content)) else entry | {"content": bare}


def _bare(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    if "cache_control" in block:
        block = {key: value for key, value in block.items() if key != "cache_control"}
    return unmarked(block)


def _unmarked_head(head: Json) -> Json:
    return {key: [_bare(one) for one in value] if isinstance(value, list) else value for key, value in head.items()}


def _time(row: Json) -> float | None:
    return next((at for key in ("timestamp", "time", "created_at") if (at := seconds(row.get(key))) is not None), None)


def _usage(row: Json) -> Usage | None:
    """Return the usage in the response next to the body, in the format of any provider. Invalid counts become 0."""
    answer = row
    for key in ("response", "body") if isinstance(row.get("response"), dict) else ():
        answer = answer[key] if isinstance(answer.get(key), dict) else answer
    if isinstance(found := answer.get("usageMetadata"), dict):
        return _counted(found, "promptTokenCount", "candidatesTokenCount", count(found.get("cachedContentTokenCount")))
    if not isinstance(found := answer.get("usage"), dict):
        return None
    if "prompt_tokens" in found:
        return _counted(found, "prompt_tokens", "completion_tokens", _detail(found, "prompt", "cached"))
    if "input_tokens_details" in found:
        return _counted(found, "input_tokens", "output_tokens", _detail(found, "input", "cached"))
    long = count(within(found, "cache_creation").get("ephemeral_1h_input_tokens"))
    written = max(0, count(found.get("cache_creation_input_tokens")) - long)
    read_ = count(found.get("cache_read_input_tokens"))
    return Usage(count(found.get("input_tokens")), read_, written, long, count(found.get("output_tokens")))


def _detail(usage: Json, side: str, what: str) -> int:
    return count(within(usage, f"{side}_tokens_details").get(f"{what}_tokens"))


def _counted(usage: Json, all_input: str, output: str, read_: int) -> Usage:
    """Convert usage whose input count includes cache reads."""
    side = output.partition("_")[0]
    thoughts = count(usage.get("thoughtsTokenCount"))
    reasoning = thoughts or _detail(usage, side, "reasoning")
    fresh = max(0, count(usage.get(all_input)) - read_)
    return Usage(fresh, read_, output=count(usage.get(output)) + thoughts, reasoning=reasoning)


READER = Reader("requests", knows, read)
