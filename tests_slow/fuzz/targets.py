"""The harnesses: each takes any bytes, and raises if an invariant does not hold.

A byte 0xff, which no UTF-8 text has, ends the text of an input. The bytes behind it choose what is done with the text.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from ibidem import recordings
from ibidem.errors import IbidemError
from ibidem.gateway.jsonrpc import read_message
from ibidem.gateway.line_framing import LineFraming
from ibidem.gateway.mcp_session import GatewaySettings, GatewayTotals, McpSession
from ibidem.gateway.sse_framing import EventFraming, event_field, replace_data
from ibidem.markers import backref, breakpoint_records, eviction_markers, layout, layout_codecs, restore
from ibidem.providers.rejections import ERROR_NAME, Rejection
from ibidem.recordings import proxy_recordings
from ibidem.recordings.body_store import BodyReader, BodyWriter, RequestBodies, encode_line
from ibidem.recordings.log_file import Log, decode_row, read_log
from ibidem.recordings.proxy_json_log import read_usage_log
from ibidem.recordings.titles import TITLE_LENGTH
from ibidem.wire import JsonChange, apply_changes, open_document, parse, scan, splice, zstd
from ibidem.wire.json_style import STRING_ENCODERS, encode_like
from ibidem.wire.request_scan import scan_continuation, scan_tolerantly

TEXTS = ["", "a", "[ibidem 123: x]", "é→😀", "\ud800", "é\udfff", 'a"\\\n\x00', "<&>\u2028", "x" * 600]
VALUES = [*TEXTS, None, True, 1.5, 10**30, [], {"\ud800": "é"}, [{"type": "text", "text": "<é"}]]
MARKERS = ["[ibidem 123: lines 1-2 of result 3]", "[ibidem 123: lines 1-2 of result 3, Read(é\ud800<&>)]"]
OPS = ("set", "set", "drop", "before", "after")
TAG = re.compile(r"\[ibidem ([0-9]{3})", re.ASCII)


def parted(data: bytes) -> tuple[bytes, Iterator[int]]:
    """The text of an input, and an endless supply of choices."""
    body, _, choices = data.partition(b"\xff")

    def numbers() -> Iterator[int]:
        state = zlib.crc32(choices)
        yield from choices
        while True:
            state = zlib.crc32(state.to_bytes(4, "big"))
            yield state

    return body, numbers()


def check_error(error: Exception, words: str) -> None:
    """The error is the documented one."""
    if words not in str(error):
        raise error


# --- wire ------------------------------------------------------------------------------------------


def exact(value: Any) -> str:
    """A value as text in which 1 and 1.0 differ."""
    return json.dumps(value)


def wire(data: bytes) -> None:
    body, choices = parted(data)
    try:
        value = parse(body)
    except IbidemError:
        assert_not_json(body)
        return
    assert exact(value) == exact(json.loads(body.decode("utf-8-sig"))), "parsed values"
    document = open_document(body)
    assert document.write([]) is body, "no changes"
    scanned = scan(body)
    if scanned is not None:
        check_scanned(body, value, scanned, choices)
    tolerant = scan_tolerantly(body)
    for each in (scanned, tolerant):
        check_message_changes(value, each, choices)
    check_spelling(value, choices)
    places = list(places_in(value))
    if not places:
        return
    changes = some_changes(places, choices)
    try:
        expected = exact(apply_changes(value, changes))
        spliced = splice(body, value, changes)
    except IbidemError as error:
        check_error(error, "appears twice")
        return
    assert exact(json.loads(spliced.decode("utf-8-sig"))) == expected, "changed values"
    text = body.decode()
    written = open_document(text).write(changes)
    assert written.encode() == spliced, "text and bytes"


def assert_not_json(body: bytes) -> None:
    try:
        json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return
    raise AssertionError("JSON was not parsed")


def check_scanned(body: bytes, value: Any, scanned: Any, choices: Iterator[int]) -> None:
    history = value[scanned.key] if scanned.key else value
    assert len(scanned) == len(history)
    assert [exact(scanned.value(index)) for index in range(len(scanned))] == list(map(exact, history))
    assert exact(dict(scanned.head)) == exact(
        {k: v for k, v in value.items() if k != scanned.key} if scanned.key else {}
    )
    assert scanned.write({}, {}) is body
    last = scanned.last()
    assert last is not None
    spans = last.known.spans
    assert all(exact(parse(body[start:end])) == exact(each) for (start, end), each in zip(spans, history, strict=True))
    count = 1 + next(choices) % len(spans)
    shorter = body[: spans[count - 1][1]] + body[spans[-1][1] :]
    before = scan(shorter)
    assert before is not None, "a request with fewer messages is scanned too"
    held = before.make_last_request()
    assert held is not None
    for again in (scan_continuation(body, held.scan_state, held), scan_continuation(body, held.scan_state)):
        assert again is not None or count == len(spans)
        if again is not None:
            assert again.scan_state is not None
            assert again.scan_state.spans == spans
            assert again.unchanged_count == count
            assert exact(dict(again.params)) == exact(dict(scanned.head))


def check_spelling(value: Any, choices: Iterator[int]) -> None:
    """The marker that replaces a string is spelled so that the old bytes come back when the string is restored."""
    marker = MARKERS[next(choices) % len(MARKERS)]
    old = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    for way in STRING_ENCODERS:
        token = way(old)
        assert encode_like(encode_like(token, old, marker), marker, old) == token, way.__name__


def check_message_changes(value: Any, scanned: Any, choices: Iterator[int]) -> None:
    """Changes by message, by a scanned request, are those of the whole value."""
    if scanned is None:
        return
    index = next(choices) % len(scanned)
    places = [place for place in places_in(scanned.value(index)) if place[0]]
    if not places:
        return
    changes = some_changes(places, choices)
    prefix = (scanned.key,) if scanned.key else ()
    whole = [JsonChange((*prefix, index, *one.path), one.op, one.value) for one in changes]
    try:
        expected = exact(apply_changes(value, whole))
        written = scanned.write({index: changes}, {})
    except IbidemError as error:
        check_error(error, "appears twice")
        return
    assert exact(json.loads(written.decode("utf-8-sig"))) == expected, "changed message"


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool, bool]]:
    """Every place inside of containers, whether that is in a list, and whether in JSON that a string holds."""
    held = isinstance(value, str) and bool(path)
    if held:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
        if exact(value) != exact(json.loads(exact(value))):
            return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(items)[:12]:
        yield (*path, key), isinstance(value, list), held
        if len(path) < 8:
            yield from ((found, listed, held or below) for found, listed, below in places_in(each, (*path, key)))


def some_changes(places: list[Any], choices: Iterator[int]) -> list[JsonChange]:
    """Up to three changes at places of which none is inside of another."""
    changes: list[JsonChange] = []
    for _ in range(1 + next(choices) % 3):
        path, in_list, in_text = places[next(choices) % len(places)]
        if any(path[: len(one.path)] == one.path or one.path[: len(path)] == path for one in changes):
            continue
        op = OPS[next(choices) % len(OPS)] if in_list else ("set", "drop")[next(choices) % 5 == 0]
        values = TEXTS if in_text else VALUES
        changes.append(JsonChange(path, op, None if op == "drop" else values[next(choices) % len(values)]))  # type: ignore[arg-type]
    return changes


# --- markers ---------------------------------------------------------------------------------------


def markers(data: bytes) -> None:
    body, choices = parted(data)
    text = body.decode("utf-8", "surrogatepass" if next(choices) % 2 else "replace") if is_text(body) else ""
    tag = match[1] if (match := TAG.search(text)) else "123"
    before: backref.Marker | None = None
    for line in text.split("\n"):
        marker = backref.parse_marker(line, tag, before)
        if marker is not None:
            assert str(marker) == line
            assert backref.parse_marker(str(marker), tag, before) == marker
            before = marker
        eviction_markers.evicted_line_count(line, tag)
    laid = layout.parse_layout(text, tag)
    assert laid.has_markers or laid.separator.join(laid.units) == text
    stub = eviction_markers.parse_stub(text, tag)
    assert stub is None or (text.count(backref.marker_prefix(tag)) == len(stub.gaps) and stub.ref in text)
    folded = layout_codecs.encode_layout(text)
    assert layout_codecs.decode_layout(folded.text, folded.flags, len(text)) == text
    source = layout.VisibleText.from_text("\n".join(f"{number}\tline" for number in range(1, 40)), tag)
    budget = restore.ExpansionBudget(len(text))
    room = budget.remaining
    restored = restore.restore_text(text, tag, lambda _: source, budget)
    if restored is not None:
        assert len(restored.original) <= room
        found = layout.parse_marked(text, tag)
        assert found is not None
        assert backref.digest_of(restored.original) == found.head.digest
    restore.is_remainder_of(text, folded.text, tag)
    breakpoint_records.breakpoint_removals(1, {"messages": [{"role": "user", "content": "Hi"}]}, [text])


def is_text(body: bytes) -> bool:
    try:
        return bool(body.decode("utf-8", "surrogatepass")) or True
    except UnicodeDecodeError:
        return False


# --- logs ------------------------------------------------------------------------------------------


def logs(data: bytes) -> None:
    try:
        sessions = recordings.read("some.log", data)
    except recordings.LogError as error:
        check_error(error, "some.log: ")
        return
    assert sessions
    assert recordings.agent_in(data) or data.count(b"\n") > recordings.PROBED_ROWS
    for session in sessions:
        check_session(session)
    if not data.startswith((b"\x28\xb5\x2f\xfd", b"\x1f\x8b")):
        again = recordings.read("some.log", zstd.compress(data))
        assert repr(again) == repr(sessions), "a compressed log"


def check_session(session: recordings.Recording) -> None:
    assert session.length == sum(1 for _ in session.requests()) > 0
    assert session.title == " ".join(session.title.split())
    assert len(session.title) <= TITLE_LENGTH
    for segment in session.segments:
        assert 0 <= segment.inherited <= len(segment.history)
        lengths = [sent.length for sent in segment.requests]
        assert all(0 < length <= len(segment.history) for length in lengths), lengths
        for sent in segment.requests:
            assert all(isinstance(each, str) for each in (sent.model, sent.answer))
            for usage in (sent.usage, sent.billed):
                assert usage is None or all(isinstance(each, int) and each >= 0 for each in usage.counts)
    for request in session.requests():
        json.dumps(request.body)


# --- rejections ------------------------------------------------------------------------------------

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}
ENCODINGS = ("", "gzip", "deflate", "zstd", "br", " X-GZIP ", "identity", "other")


def rejections(data: bytes) -> None:
    """The first byte names an encoding; the others are a body in that encoding, and one to be encoded."""
    encoding, body = ENCODINGS[data[0] % len(ENCODINGS) if data else 0], data[1:]
    read_refusal(body, encoding)
    outcomes = {name: read_refusal(pack(body), name) for name, pack in PACKERS.items()}
    assert len({*outcomes.values()}) == 1, outcomes


def read_refusal(body: bytes, encoding: str) -> tuple[str | None, bool]:
    refusal = Rejection(400, "Bad Request", [("Content-Encoding", encoding)], bytearray(body))
    kind = refusal.error_kind
    assert kind is None or ERROR_NAME.fullmatch(kind)
    return kind, refusal.is_about_thinking


# --- recordings of the proxy -----------------------------------------------------------------------


def recorded_files(data: bytes) -> None:
    """The input is read as a file. Its pieces between bytes 0xfe are also bodies, which are written and read back."""
    try:
        log = read_log("some.log", data)
    except recordings.LogError as error:
        check_error(error, "some.log: ")
    else:
        for row, bodies in proxy_recordings.read_bodies(log):
            assert proxy_recordings.is_log_row(row)
            assert isinstance(bodies.client_body, bytes)
            assert isinstance(bodies.sent_body, bytes)
        for session in proxy_recordings.read_sessions(log):
            if session.length:
                check_session(session)
        read_usage_log("some.log", data)
    pieces = data.split(b"\xfe")[:12]
    written = [
        RequestBodies(came, came if came == went else went, (came + went,) if number % 2 else ())
        for number, (came, went) in enumerate(pairwise([*pieces, pieces[0]]))
    ]
    writer, reader = BodyWriter(), BodyReader()
    rows = [encode_line({"ibidem_recording": 1, **writer.encode_bodies(bodies)}) for bodies in written]
    assert [reader.read_bodies(decode_row(row)) for row in rows] == written
    log = Log("some.log", list(enumerate(map(decode_row, rows))))
    assert [bodies for _, bodies in proxy_recordings.read_bodies(log)] == written
    assert not log.skipped


# --- framing of the gateway ------------------------------------------------------------------------


def framing(data: bytes) -> None:
    body, choices = parted(data)
    cuts = [next(choices) % (len(body) + 1) for _ in range(1 + next(choices) % 6)]
    for most in (16, 1 << 20):
        pieces = cut_up(LineFraming(most), body, cuts)
        assert b"".join(piece.data for piece in pieces) == body
        lines = [line + b"\n" for line in body.split(b"\n")[:-1] if len(line) < most]
        assert [piece.data for piece in pieces if piece.whole] == lines, "lines"
        pieces = cut_up(EventFraming(most), body, cuts)
        assert b"".join(piece.data for piece in pieces) == body
        events = [piece.data for piece in pieces if piece.whole]
        assert all(len(event) <= most for event in events)
        for event in events:
            check_event(event)
    messages = [found for event in events if (found := event_field(event, b"data")) is not None]
    assert messages == messages_in(body), "events"
    check_session_passes(body)


def cut_up(framing: LineFraming | EventFraming, body: bytes, cuts: list[int]) -> list[Any]:
    ends = [0, *sorted(cuts), len(body)]
    return [*(piece for start, end in pairwise(ends) for piece in framing.feed(body[start:end])), *framing.flush()]


def messages_in(body: bytes) -> list[bytes]:
    """Data of the complete events of a stream, read by the letter of the specification."""
    messages: list[bytes] = []
    data: list[bytes] = []
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif not line and data:
            messages.append(b"\n".join(data))
            data = []
    return messages


def check_event(event: bytes) -> None:
    data = event_field(event, b"data")
    assert replace_data(event, lambda old: old) is event
    changed = replace_data(event, lambda old: b'{"new":\n1}')
    assert event_field(changed, b"data") == (b'{"new":\n1}' if data else data)
    others = [event_field(each, b"id") for each in (event, changed)]
    assert others[0] == others[1]


def check_session_passes(body: bytes) -> None:
    """Every line passes a session, in both directions: unchanged, or as JSON with the same id."""
    said: list[str] = []
    settings = GatewaySettings(strip_schema=True, offers_forget=True, codex=True, no_subagents=True)
    session = McpSession(settings, GatewayTotals(), said.append)
    for now, line in enumerate(body.splitlines(keepends=True)):
        value = read_message(line)
        sent = session.from_client(line, now)
        assert sent.to_server == line or (sent.to_client and not sent.to_server)
        passed = session.from_server(line, now)
        if passed != line:
            new = json.loads(passed)
            assert {**new, "result": 0} == {**value, "result": 0}
    assert not [line for line in said if "fault" in line], said


TARGETS = {
    "wire": wire,
    "markers": markers,
    "logs": logs,
    "rejections": rejections,
    "recorded": recorded_files,
    "framing": framing,
}
