"""Anthropic Messages as Amazon streams them: each event in a binary frame of its own."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from zlib import crc32

from . import anthropic
from .dialect import Reply

HEADERS = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
STRING = 7
"""The type of a header's value."""


def frame(event: bytes) -> bytes:
    """A server-sent event, framed: lengths, their checksum, headers, content, the checksum of all."""
    data = event.partition(b"data: ")[2].strip()
    content = json.dumps({"bytes": b64encode(data).decode()}).encode()
    headers = b"".join(
        struct.pack(f">B{len(name)}sBH{len(value)}s", len(name), name.encode(), STRING, len(value), value.encode())
        for name, value in HEADERS.items()
    )
    lengths = struct.pack(">II", 16 + len(headers) + len(content), len(headers))
    whole = lengths + struct.pack(">I", crc32(lengths)) + headers + content
    return whole + struct.pack(">I", crc32(whole))


def events(reply: Reply) -> Iterator[bytes]:
    return map(frame, anthropic.events(reply))


DIALECT = replace(
    anthropic.DIALECT,
    events=events,
    ping=frame(anthropic.PING),
    stream_type="application/vnd.amazon.eventstream",
)
