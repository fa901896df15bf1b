"""Reader for recordings of Ibidem's proxy (`--record`), which have the client's requests, the sent ones and responses.

A session is one conversation with the requests of its client, because a report compares profiles for these. If a
request was rewritten, the provider's usage is of the rewritten one. It then shows the cost (`billed`) but not the size
of the original. A request without a successful response is omitted. System prompt, tools and settings are those of the
last request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .. import formats
from ..billing.usage import Usage
from ..errors import IbidemError
from ..model import string_or_empty
from ..wire import ScannedRequest, parse, scan
from ..wire.request_scan import ScanState, scan_tolerantly
from .body_store import BodyReader, RequestBodies
from .log_file import Log, decode_row, parse_timestamp
from .proxy_json_log import valid_dollars
from .reader import Reader
from .recording import Json, RecordedRequest, RecordedSegment, Recording
from .request_bodies import add_request, history_entries, without_breakpoints
from .usage_fields import object_at, token_count

VERSION_FIELD, VERSION = "ibidem_recording", 1
"""Field of every row that identifies the format, and its current value."""
AGENT = "ibidem-recording"
"""Agent name if the client is unknown."""
CLIENTS = (
    ("claude-cli", "claude-code"),
    ("codex", "codex"),
    ("copilot", "copilot-cli"),
    ("geminicli", "gemini-cli"),
    ("opencode", "opencode"),
)
"""Prefixes of the clients' own names, and agent names in reports."""
EVENT_BYTES = 1 << 16
"""Characters of a stream that are searched for its first event."""


def is_log_row(row: Json) -> bool:
    return row.get(VERSION_FIELD) == VERSION and isinstance(row.get("came"), dict)


def read_sessions(log: Log) -> Iterable[Recording]:
    recording = _ProxyRecording()
    for line, row in log.rows:
        if is_log_row(row):
            with log.skip_bad_line(line):
                recording.add_row(row)
    has_several = len(recording.sessions) > 1
    for number, session in enumerate(recording.sessions.values(), 1):
        session.name = str(number) if has_several else ""
        yield session


def read_bodies(log: Log) -> Iterator[tuple[Json, RequestBodies]]:
    """Yield every row with its exact request bodies. Unusable lines are skipped and added to `log.skipped`."""
    reader = BodyReader()
    for line, row in log.rows:
        if is_log_row(row):
            row_bodies = None
            with log.skip_bad_line(line):
                row_bodies = reader.read_bodies(row)
            if row_bodies is not None:
                yield row, row_bodies


class _ProxyRecording:
    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str], Recording] = {}
        self._bodies = BodyReader()
        self._scan_state: ScanState | None = None
        self._last_entries: list[Json] = []
        """Messages of the previous request. The next request reuses these objects for its unchanged prefix."""

    def add_row(self, row: Json) -> None:
        bodies_of_row = self._bodies.read_bodies(row)
        if not 200 <= token_count(row.get("status")) < 300:
            return
        format_ = string_or_empty(row.get("format"))
        if format_ not in formats.FORMATS:
            raise ValueError("a format that is not known here")
        try:
            head, entries = self._read_body(format_, bodies_of_row.client_body)
        except IbidemError as error:
            raise ValueError(str(error)) from None
        if not entries:
            raise ValueError("a request body without a list of messages")
        conversation = string_or_empty(row.get("conversation")) or f"alone {len(self.sessions)}"
        id_ = string_or_empty(row.get("session")) or string_or_empty(row.get("conversation"))
        new_session = Recording(
            _agent_of_client(row), format_, [RecordedSegment()], id=id_, host=string_or_empty(row.get("host"))
        )
        session = self.sessions.setdefault((conversation, format_), new_session)
        model = string_or_empty(head.pop("model", "")) or string_or_empty(row.get("model"))
        session.head = head
        add_request(
            session,
            entries,
            _parse_request(
                row, model, len(entries), is_rewritten=bodies_of_row.sent_body is not bodies_of_row.client_body
            ),
        )

    def _read_body(self, format_: str, body: bytes) -> tuple[Json, list[Json]]:
        """Return the request parameters, and the messages without cache breakpoints."""
        key = formats.format_named(format_).history_key
        request = scan(body, self._scan_state) or scan_tolerantly(body)
        if request is None or request.key != key:
            value = parse(body)
            return {name: each for name, each in value.items() if name != key}, history_entries(value, format_)
        entries = [*self._unchanged_entries(request)]
        entries += [without_breakpoints(request.message_at(index)) for index in range(len(entries), len(request))]
        self._scan_state, self._last_entries = request.scan_state, entries
        return dict(request.params), entries

    def _unchanged_entries(self, request: ScannedRequest) -> list[Json]:
        """Return the unchanged messages at the start, as the objects of the previous request."""
        same = request.matched_state is not None and request.matched_state is self._scan_state
        return self._last_entries[: request.unchanged_count] if same else []


def _parse_request(row: Json, model: str, length: int, *, is_rewritten: bool) -> RecordedRequest:
    counts = object_at(row, "usage")
    names = ("fresh", "read", "written", "written_1h", "output", "reasoning")
    usage = Usage(*(token_count(counts.get(name)) for name in names))
    known_usage = usage if usage.input else None
    return RecordedRequest(
        length,
        model,
        parse_timestamp(row.get("at")),
        parse_timestamp(row.get("answered")),
        None if is_rewritten else known_usage,
        _response_id(object_at(row, "answer").get("text")),
        known_usage if is_rewritten else None,
        valid_dollars(row.get("would_have_paid")) if known_usage else None,
    )


def _agent_of_client(row: Json) -> str:
    client = string_or_empty(row.get("client")).lower()
    return next((agent for name, agent in CLIENTS if client.startswith(name)), AGENT)


def _response_id(text: Any) -> str:
    """Return the id of a response, from its JSON or from the first event of its stream.

    With this id, reports count a request only once if the agent's own log is read too.
    """
    if not isinstance(text, str):
        return ""
    if not text.lstrip().startswith("{"):
        text = text[:EVENT_BYTES].partition("data:")[2].partition("\n")[0]
    value = decode_row(text.encode("utf-8", "replace"))
    if not isinstance(value, dict):
        return ""
    places = (value, object_at(value, "message"), object_at(value, "response"))
    return next((each for place in places if (each := string_or_empty(place.get("id")))), "")


READER = Reader(AGENT, is_log_row, read_sessions)
