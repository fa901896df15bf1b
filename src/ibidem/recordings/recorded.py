"""What our own proxy recorded (`--record`): requests as they came and as they were sent, with their answers.

A session is a conversation, and its requests are those that came: what its client sent is what a report asks about.
Where something else was sent, what the provider counted is of that, so it says what was paid (`billed`) and nothing
about the size of what came. A request that no model answered is no request. System prompt, tools and settings are
those of the last request.
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
"""What every row begins with."""
AGENT = "ibidem-recording"
"""Whose it is where the client is no agent that is known."""
CLIENTS = (
    ("claude-cli", "claude-code"),
    ("codex", "codex"),
    ("copilot", "copilot-cli"),
    ("geminicli", "gemini-cli"),
    ("opencode", "opencode"),
)
"""What agents call themselves, and their names in reports."""
EVENT_BYTES = 1 << 16
"""Characters of a stream in which its first event is looked for."""


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
    """Every row, with its bodies to the byte. Lines that cannot be used are named in the log and passed over."""
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
        """Of the request before, by which the beginning of the next is known without being read."""

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
        """What stands beside the messages, and these without their cache marks."""
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
        """Messages that are known to be those of the request before: the very same objects."""
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
    """Of an answer in one piece, or of the first event of a stream: by this a request is counted once, should the
    agent's own log be read beside the recording."""
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
