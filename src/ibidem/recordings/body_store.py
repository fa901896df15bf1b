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
MIN_SHARED_BYTES = 64
"""Minimum number of common bytes to use a base body. The reference to it takes about as many bytes."""
FROM_CLIENT, LAST_REQUEST = "came", "last"
"""Names of base bodies: the client's body of the same request, or the body of the previous request."""


class RequestBodies(NamedTuple):
    """All bodies of one request, decompressed."""

    client_body: bytes
    """Body from the client."""
    sent_body: bytes
    """Body that was sent to the provider; the same object as `client_body` if it was forwarded unchanged."""
    rejected_bodies: tuple[bytes, ...] = ()
    """Bodies that were sent earlier for the same request and rejected."""


class BodyWriter:
    """Encoder for the bodies of one recording file."""

    def __init__(self) -> None:
        self._last_client_body = self._last_sent_body = b""

    @property
    def held_bytes(self) -> int:
        """Memory held by the base bodies, in bytes."""
        return len(self._last_client_body) + (
            len(self._last_sent_body) if self._last_sent_body is not self._last_client_body else 0
        )

    def drop_bases(self) -> None:
        """Drop the base bodies, so that the next request is stored completely."""
        self._last_client_body = self._last_sent_body = b""

    def encode_bodies(self, bodies: RequestBodies) -> Json:
        """Return the fields of a row for these bodies."""
        came, went = bodies.client_body, bodies.sent_body
        fields: Json = {"came": _encode_body(came, ((LAST_REQUEST, self._last_client_body),))}
        bases = ((FROM_CLIENT, came), (LAST_REQUEST, self._last_sent_body))
        if went != came:
            fields["went"] = _encode_body(went, bases)
        if bodies.rejected_bodies:
            fields["refused"] = [_encode_body(body, bases) for body in bodies.rejected_bodies]
        self._last_client_body, self._last_sent_body = came, went
        return fields


class BodyReader:
    """Decoder for the bodies of one recording file. After an invalid row, it can read the next one."""

    def __init__(self) -> None:
        self._last_client_body = self._last_sent_body = b""

    def read_bodies(self, row: Json) -> RequestBodies:
        """Return the bodies of the next row. Raises KeyError, TypeError or ValueError if the row is invalid."""
        came = _decode_body(row["came"], {LAST_REQUEST: self._last_client_body})
        bases = {FROM_CLIENT: came, LAST_REQUEST: self._last_sent_body}
        encoded_body = row.get("went")
        went = came if encoded_body is None else _decode_body(encoded_body, bases)
        rejected_bodies = tuple(_decode_body(body, bases) for body in row.get("refused") or ())
        self._last_client_body, self._last_sent_body = came, went
        return RequestBodies(came, went, rejected_bodies)


def encode_line(row: Json) -> bytes:
    """Encode a row as a JSON line. Bytes that are not valid UTF-8 are escaped, so they can be restored."""
    try:
        return msgspec.json.encode(row) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _encode_body(body: bytes, bases: Sequence[tuple[str, bytes]]) -> Json:
    """Encode a body relative to the base with the most common bytes."""
    shares = [(_common_ends(base, body), name, base) for name, base in bases]
    (start, end), name, base = max(shares, key=lambda each: sum(each[0]))
    if start + end < MIN_SHARED_BYTES:
        return {"text": body.decode("utf-8", "surrogateescape")}
    text = body[start : len(body) - end].decode("utf-8", "surrogateescape")
    return {"on": name, "sum": zlib.crc32(base), "start": start, "end": end, "text": text}


def _decode_body(encoded_body: Json, bases: dict[str, bytes]) -> bytes:
    text: bytes = encoded_body["text"].encode("utf-8", "surrogateescape")
    if "on" not in encoded_body:
        return text
    base, start, end = bases[encoded_body["on"]], encoded_body["start"], encoded_body["end"]
    if zlib.crc32(base) != encoded_body["sum"]:
        raise ValueError("an earlier line is missing, and this line has only the new part of the request")
    if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= len(base) - end <= len(base)):
        raise ValueError("it refers to more bytes than the request before has")
    view = memoryview(base)
    return b"".join((view[:start], text, view[len(base) - end :]))


def _common_ends(base: bytes, body: bytes) -> tuple[int, int]:
    """Return the number of common bytes at the start and at the end, without splitting a UTF-8 character."""
    most = min(len(base), len(body))
    start = _common_prefix_length(base, body, most)
    while 0 < start < len(body) and _is_continuation_byte(body[start]):
        start -= 1
    end = _common_suffix_length(base, body, most - start)
    while end and _is_continuation_byte(body[len(body) - end]):
        end -= 1
    return start, end


def _is_continuation_byte(byte: int) -> bool:
    """Return True for a UTF-8 continuation byte."""
    return byte & 0xC0 == 0x80


def _common_prefix_length(one: bytes, other: bytes, most: int) -> int:
    """Return the length of the common prefix. Compares chunks, then bisects the first one that differs."""
    for start in range(0, most, CHUNK_BYTES):
        stop = min(most, start + CHUNK_BYTES)
        if one[start:stop] != other[start:stop]:
            while start < stop:
                middle = (start + stop + 1) // 2
                start, stop = (middle, stop) if one[start:middle] == other[start:middle] else (start, middle - 1)
            return start
    return most


def _common_suffix_length(one: bytes, other: bytes, most: int) -> int:
    """Return the length of the common suffix."""
    return _common_prefix_length(one[len(one) - most :][::-1], other[len(other) - most :][::-1], most)
