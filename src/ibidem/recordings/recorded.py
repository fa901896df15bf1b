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
from ..model import string
from ..wire import Scanned, parse, scan
from ..wire.scan import Known, scan_tolerantly
from .bodies import BodyReader, RequestBodies
from .counts import count, within
from .json_log import dollars_in
from .log import Log, decoded, seconds
from .reader import Reader
from .recording import Json, RecordedRequest, RecordedSegment, Recording
from .requests import entries_in, send, unmarked

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


def knows(row: Json) -> bool:
    return row.get(VERSION_FIELD) == VERSION and isinstance(row.get("came"), dict)


def read(log: Log) -> Iterable[Recording]:
    reading = _RecordingReading()
    for line, row in log.rows:
        if knows(row):
            with log.tolerating(line):
                reading.take(row)
    several = len(reading.sessions) > 1
    for number, session in enumerate(reading.sessions.values(), 1):
        session.name = str(number) if several else ""
        yield session


def bodies(log: Log) -> Iterator[tuple[Json, RequestBodies]]:
    """Yield every row with its exact request bodies. Unusable lines are skipped and added to `log.skipped`."""
    reader = BodyReader()
    for line, row in log.rows:
        if knows(row):
            found = None
            with log.tolerating(line):
                found = reader.take(row)
            if found is not None:
                yield row, found


class _RecordingReading:
    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str], Recording] = {}
        self._bodies = BodyReader()
        self._known: Known | None = None
        self._entries: list[Json] = []
        """Messages of the previous request. The next request reuses these objects for its unchanged prefix."""

    def take(self, row: Json) -> None:
        found = self._bodies.take(row)
        if not 200 <= count(row.get("status")) < 300:
            return
        format_ = string(row.get("format"))
        if format_ not in formats.FORMATS:
            raise ValueError("a format that is not known here")
        try:
            head, entries = self._read(format_, found.came)
        except IbidemError as error:
            raise ValueError(str(error)) from None
        if not entries:
            raise ValueError("a request body without a list of messages")
        conversation = string(row.get("conversation")) or f"alone {len(self.sessions)}"
        id_ = string(row.get("session")) or string(row.get("conversation"))
        fresh = Recording(_agent(row), format_, [RecordedSegment()], id=id_, host=string(row.get("host")))
        session = self.sessions.setdefault((conversation, format_), fresh)
        model = string(head.pop("model", "")) or string(row.get("model"))
        session.head = head
        send(session, entries, _request(row, model, len(entries), rewritten=found.went is not found.came))

    def _read(self, format_: str, body: bytes) -> tuple[Json, list[Json]]:
        """Return the request parameters, and the messages without cache breakpoints."""
        key = formats.named(format_).history_key
        scanned = scan(body, self._known) or scan_tolerantly(body)
        if scanned is None or scanned.key != key:
            value = parse(body)
            return {name: each for name, each in value.items() if name != key}, entries_in(value, format_)
        entries = [*self._kept(scanned)]
        entries += [unmarked(scanned.value(index)) for index in range(len(entries), len(scanned))]
        self._known, self._entries = scanned.known, entries
        return dict(scanned.head), entries

    def _kept(self, scanned: Scanned) -> list[Json]:
        """Return the unchanged messages at the start, as the objects of the previous request."""
        same = scanned.origin is not None and scanned.origin is self._known
        return self._entries[: scanned.unchanged] if same else []


def _request(row: Json, model: str, length: int, *, rewritten: bool) -> RecordedRequest:
    counted = within(row, "usage")
    names = ("fresh", "read", "written", "written_1h", "output", "reasoning")
    usage = Usage(*(count(counted.get(name)) for name in names))
    told = usage if usage.input else None
    return RecordedRequest(
        length,
        model,
        seconds(row.get("at")),
        seconds(row.get("answered")),
        None if rewritten else told,
        _answer_id(within(row, "answer").get("text")),
        told if rewritten else None,
        dollars_in(row.get("would_have_paid")) if told else None,
    )


def _agent(row: Json) -> str:
    client = string(row.get("client")).lower()
    return next((agent for name, agent in CLIENTS if client.startswith(name)), AGENT)


def _answer_id(text: Any) -> str:
    """Return the id of a response, from its JSON or from the first event of its stream.

    With this id, reports count a request only once if the agent's own log is read too.
    """
    if not isinstance(text, str):
        return ""
    if not text.lstrip().startswith("{"):
        text = text[:EVENT_BYTES].partition("data:")[2].partition("\n")[0]
    found = decoded(text.encode("utf-8", "replace"))
    if not isinstance(found, dict):
        return ""
    places = (found, within(found, "message"), within(found, "response"))
    return next((each for place in places if (each := string(place.get("id")))), "")


READER = Reader(AGENT, knows, read)
