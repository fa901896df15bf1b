"""Bodies come back to the byte, whatever they are, and what cannot be restored is named."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.formats import FORMATS, format_named
from ibidem.recordings import LogError, proxy_recordings, read
from ibidem.recordings.body_store import CHUNK_BYTES, BodyReader, BodyWriter, RequestBodies, encode_line
from ibidem.recordings.log_file import decode_row, read_log
from ibidem.testing import histories
from tests.support.proxied import dumped, growing
from tests.support.timed import best

from .ibidem_recording import ID, Tape
from .requests import A, a

PIECES = st.sampled_from(["🦊 ключ ", "\\u00e9\n", '{"role":"user"}', "x" * 300, "ibidem " * 20]).map(str.encode)
BYTES = st.lists(PIECES | st.binary(max_size=40), max_size=6).map(b"".join)


def told(bodies: list[RequestBodies]) -> bytes:
    writer = BodyWriter()
    return b"".join(encode_line({"n": number, **writer.encode_bodies(each)}) for number, each in enumerate(bodies))


@settings(deadline=None)
@given(st.lists(st.tuples(BYTES, st.none() | BYTES, st.lists(BYTES, max_size=2)), max_size=5))
def test_whatever_the_bytes_they_come_back(requests: list[tuple[bytes, bytes | None, list[bytes]]]) -> None:
    bodies = [RequestBodies(came, came if went is None else went, tuple(refused)) for came, went, refused in requests]
    reader = BodyReader()
    found = [reader.read_bodies(decode_row(line)) for line in told(bodies).splitlines()]
    assert found == bodies
    assert all((each.sent_body is each.client_body) is (each.sent_body == each.client_body) for each in found)


@pytest.mark.parametrize("at", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES - 1])
def test_long_bodies_differ_where_they_do(at: int) -> None:
    body = b"0123456789abcdef" * (3 * CHUNK_BYTES // 16)
    bodies = [
        RequestBodies(each, each) for each in (body, body[:at] + b"!" + body[at + 1 :], body[:at], body[at:], body)
    ]
    reader = BodyReader()
    lines = told(bodies).splitlines()
    assert [reader.read_bodies(decode_row(line)) for line in lines] == bodies
    assert len(lines[1]) < 200


@pytest.mark.parametrize("format", FORMATS)
@settings(deadline=None)
@given(data=st.data())
def test_requests_of_a_conversation_come_back(format: str, data: st.DataObject) -> None:
    body = data.draw(histories(format))
    key = format_named(format).history_key
    whole = [dumped({**body, key: body[key][:length]}) for length in range(1, len(body[key]) + 1)]
    reader = BodyReader()
    lines = told([RequestBodies(each, each) for each in whole])
    assert [reader.read_bodies(decode_row(line)).client_body for line in lines.splitlines()] == whole


def test_a_conversation_takes_no_more_than_its_last_request_a_few_times() -> None:
    bodies = [dumped(body) for body in growing("anthropic", 60, marks=True)]
    size = len(told([RequestBodies(each, each) for each in bodies]))
    assert size < 3 * len(bodies[-1])  # marks move, so the last turn is told once more
    assert sum(map(len, bodies)) > 20 * len(bodies[-1])


@pytest.mark.slow  # it compares processor times, which a coverage tracer changes
def test_only_what_is_new_in_a_request_is_parsed() -> None:
    tape, bodies = Tape(), [dumped(body) for body in growing("anthropic", 120)]
    log = b"".join(encode_line(tape.row(number, body)) for number, body in enumerate(bodies))
    ours, whole = best([lambda: read("some.log", log), lambda: [json.loads(body) for body in bodies]], rounds=2)
    assert ours < 0.7 * whole


def test_what_a_cut_file_has_whole_is_read() -> None:
    tape = Tape()
    members = [gzip.compress(encode_line(tape.row(at, a(*A[: 2 * at + 1]))), mtime=0) for at in range(3)]
    whole = b"".join(members)
    for size in range(len(members[0]), len(whole) + 1):
        written = sum(len(b"".join(members[: count + 1])) <= size for count in range(3))
        log = read_log("some.log", whole[:size])
        found = [row["at"] for row, _ in proxy_recordings.read_bodies(log)]
        assert len(found) in (written, written + 1), size  # a member may be whole but for its checksum
        [session] = read("some.log", whole[:size])
        assert (session.length, session.id) == (len(found), ID)
    for size in range(1, len(members[0]) - 20):
        with pytest.raises(LogError):
            read("some.log", whole[:size])


@pytest.mark.parametrize(
    "change", [{"start": -1}, {"end": 10**9}, {"start": "1"}, {"sum": 0}, {"on": "x"}, {"text": 1}]
)
def test_what_does_not_fit_is_named_and_the_rest_is_read(change: dict[str, Any]) -> None:
    tape, again = Tape(), Tape()
    first, second, third = tape.row(0, a(A[0])), tape.row(1, a(*A[:3])), again.row(2, a(*A))
    second["came"] |= change
    log = read_log("some.log", b"".join(json.dumps(each).encode() + b"\n" for each in (first, second, third)))
    assert [json.loads(found.client_body) for _, found in proxy_recordings.read_bodies(log)] == [a(A[0]), a(*A)]
    assert [each.line for each in log.skipped] == [2]


def test_what_was_paid_for_a_rewritten_request_says_nothing_of_its_size() -> None:
    tape = Tape()
    rows = [tape.row(0, a(A[0])), tape.row(1, a(*A[:3]), went=a(A[0]))]
    [session] = read("some.log", b"".join(map(encode_line, rows)))
    one, other = session.segments[0].requests
    assert one.usage is not None
    assert (one.billed, other.usage) == (None, None)
    assert other.billed == one.usage
    assert (one.answer, other.answer) == ("msg_0", "msg_1")
