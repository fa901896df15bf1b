"""Lines and events in bytes that come in pieces: nothing is lost, nothing is held for long, whole is whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.gateway.line_framing import Frame, LineFraming
from ibidem.gateway.sse_framing import EventFraming, event_field, replace_data

MOST = 12
CUTS = st.lists(st.integers(0, 60), max_size=12)


def fed(framing: LineFraming | EventFraming, data: bytes, cuts: list[int]) -> list[Frame]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [piece for start, end in pairwise(places) for piece in framing.feed(data[start:end])]
    return [*pieces, *framing.flush()]


@given(st.lists(st.sampled_from([b"a", b"bcd", b"\n", b"\r\n", b"0123456789abc", b"\xff"]), max_size=20), CUTS)
def test_lines_come_whole_however_they_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    pieces = fed(LineFraming(MOST), data, cuts)
    assert b"".join(piece.data for piece in pieces) == data
    whole = [piece.data for piece in pieces if piece.whole]
    lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
    assert whole == [line for line in lines if len(line) <= MOST]


@given(st.lists(st.sampled_from([b"data: x", b"id: 1", b": ping", b"\n", b"\n\n", b"\r\n", b"\r"]), max_size=20), CUTS)
def test_events_pass_however_they_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    for most in (MOST, 10_000):
        assert b"".join(piece.data for piece in fed(EventFraming(most), data, cuts)) == data


@given(CUTS)
def test_an_event_is_passed_on_when_it_ends(cuts: list[int]) -> None:
    data = b"id: 1\ndata: a\n\n: ping\r\n\r\ndata: much too long to hold\n\ndata: c\n\n"
    whole = [piece.data for piece in fed(EventFraming(17), data, cuts) if piece.whole]
    assert [event_field(event, b"data") for event in whole if b"data" in event] == [b"a", b"c"]


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        (b"data: old\n\n", b"data: new\n\n"),
        (b"event: message\r\nid: 7\r\ndata:old\r\n\r\n", b"event: message\r\nid: 7\r\ndata: new\r\n\r\n"),
        (b"data: o\nid: 7\ndata: ld\n\n", b"data: new\nid: 7\n\n"),
        (b": ping\n\n", b": ping\n\n"),
        (b"id: 7\ndata: \n\n", b"id: 7\ndata: \n\n"),
        (b"data: other\n\n", b"data: other\n\n"),
        (b"\ndata: old\r\r", b"\ndata: new\n\r"),
    ],
)
def test_only_the_data_of_an_event_changes(event: bytes, changed: bytes) -> None:
    assert replace_data(event, lambda data: b"new" if data.replace(b"\n", b"") == b"old" else data) == changed


def test_what_is_held_is_bounded() -> None:
    for framing in (LineFraming(1000), EventFraming(1000)):
        held = 0
        for _ in range(100):
            held += 100 - sum(len(piece.data) for piece in framing.feed(b"x" * 100))
            assert held <= 1000
