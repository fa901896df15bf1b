"""Request bodies in a recording of Ibidem's proxy. Each row stores only the part of its body that is new.

A request repeats most of the previous one. So a row stores how many bytes at the start and at the end are equal to a
base body, and the text between them. Bodies are restored byte for byte, after decompression. A body with no common
bytes is stored completely.

A row has the checksum of its base body, so a missing earlier line is detected. `BodyWriter` and `BodyReader` keep the
last bodies as bases while they write or read a file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from .recording import Json

CHUNK_BYTES = 1 << 16
"""Bytes that are compared in one step."""
LEAST_SHARED = 64
"""Minimum number of common bytes to use a base body. The reference to it takes about as many bytes."""
CAME, LAST = "came", "last"
"""Names of base bodies: the client's body of the same request, or the body of the previous request."""


class RequestBodies(NamedTuple):
    """All bodies of one request, decompressed."""

    came: bytes
    """Body from the client."""
    went: bytes
    """Body that was sent to the provider; the same object as `client_body` if it was forwarded unchanged."""
    refused: tuple[bytes, ...] = ()
    """Bodies that were sent earlier for the same request and rejected."""


class BodyWriter:
    """Encoder for the bodies of one recording file."""

    def __init__(self) -> None:
        self._came = self._went = b""

    @property
    def held(self) -> int:
        """Memory held by the base bodies, in bytes."""
        return len(self._came) + (len(self._went) if self._went is not self._came else 0)

    def forget(self) -> None:
        """Drop the base bodies, so that the next request is stored completely."""
        self._came = self._went = b""

    def tell(self, bodies: RequestBodies) -> Json:
        """Return the fields of a row for these bodies."""
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
    """Decoder for the bodies of one recording file. After an invalid row, it can read the next one."""

    def __init__(self) -> None:
        self._came = self._went = b""

    def take(self, row: Json) -> RequestBodies:
        """Return the bodies of the next row. Raises KeyError, TypeError or ValueError if the row is invalid."""
        came = _restored(row["came"], {LAST: self._came})
        bases = {CAME: came, LAST: self._went}
        told = row.get("went")
        went = came if told is None else _restored(told, bases)
        refused = tuple(_restored(body, bases) for body in row.get("refused") or ())
        self._came, self._went = came, went
        return RequestBodies(came, went, refused)


def as_line(row: Json) -> bytes:
    """Encode a row as a JSON line. Bytes that are not valid UTF-8 are escaped, so they can be restored."""
    try:
        return msgspec.json.encode(row) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _told(body: bytes, bases: Sequence[tuple[str, bytes]]) -> Json:
    """Encode a body relative to the base with the most common bytes."""
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
        raise ValueError("an earlier line is missing, and this line has only the new part of the request")
    if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= len(base) - end <= len(base)):
        raise ValueError("it refers to more bytes than the request before has")
    view = memoryview(base)
    return b"".join((view[:start], text, view[len(base) - end :]))


def _shared(base: bytes, body: bytes) -> tuple[int, int]:
    """Return the number of common bytes at the start and at the end, without splitting a UTF-8 character."""
    most = min(len(base), len(body))
    start = _same(base, body, most)
    while 0 < start < len(body) and _continues(body[start]):
        start -= 1
    end = _same_at_end(base, body, most - start)
    while end and _continues(body[len(body) - end]):
        end -= 1
    return start, end


def _continues(byte: int) -> bool:
    """Return True for a UTF-8 continuation byte."""
    return byte & 0xC0 == 0x80


def _same(one: bytes, other: bytes, most: int) -> int:
    """Return the length of the common prefix. Compares chunks, then bisects the first one that differs."""
    for start in range(0, most, CHUNK_BYTES):
        stop = min(most, start + CHUNK_BYTES)
        if one[start:stop] != other[start:stop]:
            while start < stop:
                middle = (start + stop + 1) // 2
                start, stop = (middle, stop) if one[start:middle] == other[start:middle] else (start, middle - 1)
            return start
    return most


def _same_at_end(one: bytes, other: bytes, most: int) -> int:
    """Return the length of the common suffix."""
    return _same(one[len(one) - most :][::-1], other[len(other) - most :][::-1], most)
