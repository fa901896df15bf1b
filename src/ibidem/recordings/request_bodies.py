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
from ..model import string_or_empty
from .log_file import Log, parse_timestamp
from .reader import Reader
from .recording import Json, RecordedRequest, RecordedSegment, Recording, is_model_entry
from .shared_prefixes import common_prefix_length
from .usage_fields import object_at, token_count

WRAPPERS = ("request", "body")
"""Fields of a record that can contain the body."""
FOREIGN_FIELDS = frozenset(
    {"type", "info", "trajectory", "trajectory_format", "simulations", "traj", "instance_id", "payload", "parts"}
)
"""Fields of agent logs that a request body does not have."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_IN_USER = re.compile(rf"session_(?:id\"\s*:\s*\")?({_UUID.pattern})")


def is_log_row(row: Json) -> bool:
    body = _find_body(row)
    name = body and (_format_by_structure(body) or _detect_format(body))
    return bool(body and name and history_entries(body, name))


def read_sessions(log: Log) -> Iterable[Recording]:
    bodies = [body for _, row in log.rows if is_log_row(row) and (body := _find_body(row))]
    default_format = next(
        (name for detect in (_format_by_structure, _detect_format) for body in bodies if (name := detect(body))), ""
    )
    groups = _RequestGroups(default_format)
    for line, row in log.rows:
        if body := _find_body(row):
            with log.skip_bad_line(line):
                groups.add_row(row, body)
    if len(log.rows) == 1:
        for session in groups.sessions.values():
            _add_earlier_requests(session)
    has_several = len(groups.sessions) > 1
    for number, session in enumerate(groups.sessions.values(), 1):
        session.name = str(number) if has_several else ""
        yield session


def _find_body(row: Json) -> Json | None:
    """Return the body in a row: the row itself, or the object in a wrapper field."""
    for _ in range(3):
        if not FOREIGN_FIELDS.isdisjoint(row):
            return None
        if any(wire_format.history_key in row for wire_format in formats.FORMATS.values()):
            return None if "task_id" in row else row  # a log of tau2, whose messages have their own format
        inner = next((row[key] for key in WRAPPERS if isinstance(row.get(key), dict)), None)
        if inner is None:
            return None
        row = inner
    return None


def _format_by_structure(body: Json) -> str | None:
    """Detect the format without the model name, because a gateway can serve any model in any format."""
    return _detect_format({key: value for key, value in body.items() if key != "model"})


def _detect_format(body: Json) -> str | None:
    try:
        return formats.detect_format(body).name
    except formats.FormatError:
        return None


def history_entries(body: Json, format_: str) -> list[Json]:
    """Return the history of a body as a list of messages; empty if it has none."""
    history = body.get(formats.format_named(format_).history_key)
    if isinstance(history, str) and formats.format_named(format_).takes_prompt:
        return [{"role": "user", "content": history}]
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        return []
    return history


class _RequestGroups:
    def __init__(self, default_format: str) -> None:
        self.default_format = default_format
        """Format for a body that fits several formats."""
        self.sessions: dict[bytes, Recording] = {}

    def add_row(self, row: Json, body: Json) -> None:
        format_ = _format_by_structure(body) or self.default_format
        entries = [without_breakpoints(entry) for entry in history_entries(body, format_)]
        if not entries:
            raise ValueError("a request body without a list of messages")
        model = body.get("model")
        key = formats.format_named(format_).history_key
        head = {name: value for name, value in body.items() if name not in (key, "model")}
        opening = msgspec.json.encode([format_, _params_without_breakpoints(head), entries[: _opening_length(entries)]])
        usage = _parse_usage(row)
        known_usage = usage if usage and usage.input else None
        request = RecordedRequest(
            len(entries), model if isinstance(model, str) else "", _request_time(row), usage=known_usage
        )
        new_session = Recording("requests", format_, [RecordedSegment()], id=_session_id(head), head=head)
        session = self.sessions.setdefault(opening, new_session)
        add_request(session, entries, request)


def _session_id(head: Json) -> str:
    """Return the session id that Claude Code and Codex put into request bodies."""
    key, user = (
        string_or_empty(head.get("prompt_cache_key")),
        string_or_empty(object_at(head, "metadata").get("user_id")),
    )
    match = _UUID.fullmatch(key) or _IN_USER.search(user)
    return match[match.lastindex or 0] if match else ""


def _opening_length(entries: list[Json]) -> int:
    """Return the number of entries that identify a conversation: the instructions and the first message after them."""
    lengths = (n for n, entry in enumerate(entries, 1) if entry.get("role") not in ("system", "developer"))
    return next(lengths, len(entries))


def add_request(session: Recording, entries: list[Json], request: RecordedRequest) -> None:
    """Add the next request of a session. If it does not start with the whole previous history, it is a rewind."""
    last = session.segments[-1]
    common = common_prefix_length(last.history, entries)
    if common < len(last.history):
        last = RecordedSegment(last.history[:common], [], common, "rewind")
        session.segments.append(last)
    last.history.extend(entries[common:])
    last.requests.append(request)


def _add_earlier_requests(session: Recording) -> None:
    """Add the earlier requests of a conversation of which only the last request is known."""
    segment, last = session.segments[-1], session.segments[-1].requests[-1]
    is_response = [is_model_entry(entry) for entry in segment.history]
    lengths = (n for n in range(1, len(is_response)) if is_response[n] and not is_response[n - 1])
    segment.requests[:0] = [RecordedRequest(length, last.model) for length in lengths]


def without_breakpoints(entry: Json) -> Json:
    """Return an entry without cache breakpoints; the same object if it has no cache breakpoints."""
    content = entry.get("content")
    if not isinstance(content, list):
        return entry
    bare = [_without_cache_control(block) for block in content]
    return entry if all(map(is_, bare, content)) else entry | {"content": bare}


def _without_cache_control(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    if "cache_control" in block:
        block = {key: value for key, value in block.items() if key != "cache_control"}
    return without_breakpoints(block)


def _params_without_breakpoints(head: Json) -> Json:
    return {
        key: [_without_cache_control(one) for one in value] if isinstance(value, list) else value
        for key, value in head.items()
    }


def _request_time(row: Json) -> float | None:
    return next(
        (at for key in ("timestamp", "time", "created_at") if (at := parse_timestamp(row.get(key))) is not None), None
    )


def _parse_usage(row: Json) -> Usage | None:
    """Return the usage in the response next to the body, in the format of any provider. Invalid counts become 0."""
    answer = row
    for key in ("response", "body") if isinstance(row.get("response"), dict) else ():
        answer = answer[key] if isinstance(answer.get(key), dict) else answer
    if isinstance(counts := answer.get("usageMetadata"), dict):
        return _usage_with_cached_input(
            counts, "promptTokenCount", "candidatesTokenCount", token_count(counts.get("cachedContentTokenCount"))
        )
    if not isinstance(counts := answer.get("usage"), dict):
        return None
    if "prompt_tokens" in counts:
        return _usage_with_cached_input(
            counts, "prompt_tokens", "completion_tokens", _token_detail(counts, "prompt", "cached")
        )
    if "input_tokens_details" in counts:
        return _usage_with_cached_input(
            counts, "input_tokens", "output_tokens", _token_detail(counts, "input", "cached")
        )
    long = token_count(object_at(counts, "cache_creation").get("ephemeral_1h_input_tokens"))
    write_tokens = max(0, token_count(counts.get("cache_creation_input_tokens")) - long)
    read_ = token_count(counts.get("cache_read_input_tokens"))
    return Usage(
        token_count(counts.get("input_tokens")), read_, write_tokens, long, token_count(counts.get("output_tokens"))
    )


def _token_detail(usage: Json, side: str, what: str) -> int:
    return token_count(object_at(usage, f"{side}_tokens_details").get(f"{what}_tokens"))


def _usage_with_cached_input(usage: Json, all_input: str, output: str, read_: int) -> Usage:
    """Convert usage whose input count includes cache reads."""
    side = output.partition("_")[0]
    thoughts = token_count(usage.get("thoughtsTokenCount"))
    reasoning = thoughts or _token_detail(usage, side, "reasoning")
    fresh = max(0, token_count(usage.get(all_input)) - read_)
    return Usage(fresh, read_, output=token_count(usage.get(output)) + thoughts, reasoning=reasoning)


READER = Reader("requests", is_log_row, read_sessions)
