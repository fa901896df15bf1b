"""Bodies of requests in a recording of our own proxy: each row tells only what is new in its request.

Every request of a conversation repeats the one before, so a body is told as the bytes it shares with that one at its
beginning and at its end, and the text between them. It comes back to the byte, whatever the bytes are; what came
compressed comes back as it was before that. A body that shares nothing is told whole.

A row names the checksum of what it builds on: where a line before it is missing, that is found out, and nothing is made
up. `BodyWriter` and `BodyReader` go through a file side by side, each with the last bodies in mind.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from .recording import Json

CHUNK_BYTES = 1 << 16
"""Bytes that are compared at once."""
LEAST_SHARED = 64
"""Bytes that must be shared for a body to be told by another one: naming that takes about as many."""
CAME, LAST = "came", "last"
"""What a body builds on: this very request as it came, or the one before."""


class RequestBodies(NamedTuple):
    """A request, unpacked: as it came, as it was sent, and what was sent before that and refused."""

    came: bytes
    went: bytes
    """The very same object where it was sent as it came."""
    refused: tuple[bytes, ...] = ()


class BodyWriter:
    """Rows of one file, as they are written."""

    def __init__(self) -> None:
        self._came = self._went = b""

    @property
    def held(self) -> int:
        """Bytes that are kept in mind."""
        return len(self._came) + (len(self._went) if self._went is not self._came else 0)

    def forget(self) -> None:
        """The next request is told whole."""
        self._came = self._went = b""

    def tell(self, bodies: RequestBodies) -> Json:
        """The fields of a row that tell them."""
        came, went = bodies.came, bodies.went
        told: Json = {"came": _told(came, ((LAST, self._came),))}
        bases = ((CAME, came), (LAST, self._went))
        if went != came:
            told["went"] = _told(went, bases)
        if bodies.refused:
            told["refused"] = [_told(body, bases) for body in bodies.refused]
        self._came, self._went = came, went
        return told


class BodyReader:
    """Rows of one file, as they are read. What does not fit raises ValueError or TypeError, and changes nothing."""

    def __init__(self) -> None:
        self._came = self._went = b""

    def take(self, row: Json) -> RequestBodies:
        came = _restored(row["came"], {LAST: self._came})
        bases = {CAME: came, LAST: self._went}
        told = row.get("went")
        went = came if told is None else _restored(told, bases)
        refused = tuple(_restored(body, bases) for body in row.get("refused") or ())
        self._came, self._went = came, went
        return RequestBodies(came, went, refused)


def as_line(row: Json) -> bytes:
    """A row as it is written. What is no text in its encoding is escaped, so that it comes back."""
    try:
        return msgspec.json.encode(row) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _told(body: bytes, bases: Sequence[tuple[str, bytes]]) -> Json:
    """By the base with which it shares most."""
    shares = [(_shared(base, body), name, base) for name, base in bases]
    (start, end), name, base = max(shares, key=lambda each: sum(each[0]))
    if start + end < LEAST_SHARED:
        return {"text": body.decode("utf-8", "surrogateescape")}
    text = body[start : len(body) - end].decode("utf-8", "surrogateescape")
    return {"on": name, "sum": zlib.crc32(base), "start": start, "end": end, "text": text}


def _restored(told: Json, bases: dict[str, bytes]) -> bytes:
    text: bytes = told["text"].encode("utf-8", "surrogateescape")
    if "on" not in told:
        return text
    base, start, end = bases[told["on"]], told["start"], told["end"]
    if zlib.crc32(base) != told["sum"]:
        raise ValueError("a line before it is missing, and it tells only what is new")
    if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= len(base) - end <= len(base)):
        raise ValueError("it builds on more than there is")
    view = memoryview(base)
    return b"".join((view[:start], text, view[len(base) - end :]))


def _shared(base: bytes, body: bytes) -> tuple[int, int]:
    """Bytes at the beginning and at the end that both have, with no character cut in two."""
    most = min(len(base), len(body))
    start = _same(base, body, most)
    while 0 < start < len(body) and _continues(body[start]):
        start -= 1
    end = _same_at_end(base, body, most - start)
    while end and _continues(body[len(body) - end]):
        end -= 1
    return start, end


def _continues(byte: int) -> bool:
    """Whether a byte is inside of a character."""
    return byte & 0xC0 == 0x80


def _same(one: bytes, other: bytes, most: int) -> int:
    """Compared in pieces, of which the one that differs is halved until the place is known."""
    for start in range(0, most, CHUNK_BYTES):
        stop = min(most, start + CHUNK_BYTES)
        if one[start:stop] != other[start:stop]:
            while start < stop:
                middle = (start + stop + 1) // 2
                start, stop = (middle, stop) if one[start:middle] == other[start:middle] else (start, middle - 1)
            return start
    return most


def _same_at_end(one: bytes, other: bytes, most: int) -> int:
    """Both turned around, as far as it matters."""
    return _same(one[len(one) - most :][::-1], other[len(other) - most :][::-1], most)
