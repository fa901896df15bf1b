"""HTTP/1.1 without a library, for the mock provider.

A server library would normalize its output: order and case of headers, wrong lengths, responses that stop in the
middle. Here the script controls every byte.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import socket
import struct
import sys
from http import HTTPStatus

from .answers import Header

HEAD_LIMIT = 1 << 20
LINGER_FORMAT = "hh" if sys.platform == "win32" else "ii"


class PeerDisconnected(Exception):
    """The other side closed the connection."""


class HttpConnection(asyncio.Protocol):
    """One connection. It reads, writes, and notices immediately when the other side disconnects."""

    def __init__(self, new_connections: asyncio.Queue[HttpConnection]) -> None:
        self._new_connections = new_connections
        self._buffer = bytearray()
        self._has_data = asyncio.Event()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self.closed_event = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._new_connections.put_nowait(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._has_data.set()

    def eof_received(self) -> None:
        self._mark_closed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._mark_closed()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def _mark_closed(self) -> None:
        self.closed_event.set()
        self._has_data.set()
        self._can_write.set()

    async def _wait_for_data(self) -> None:
        if self.closed_event.is_set():
            raise PeerDisconnected
        self._has_data.clear()
        await self._has_data.wait()

    async def read_until(self, end: bytes) -> bytes:
        """Read up to and including `end`. Raises if the head is too long or the peer disconnects."""
        start = 0
        while (position := self._buffer.find(end, start)) < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise PeerDisconnected
            start = max(len(self._buffer) - len(end), 0)
            await self._wait_for_data()
        return self.take_buffered(position + len(end))

    async def read_exactly(self, size: int) -> bytes:
        """Read this number of bytes."""
        while len(self._buffer) < size:
            await self._wait_for_data()
        return self.take_buffered(size)

    def take_buffered(self, size: int | None = None) -> bytes:
        """Return up to `size` buffered bytes, or all of them."""
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    async def write(self, data: bytes) -> None:
        if self.closed_event.is_set():
            raise PeerDisconnected
        self.transport.write(data)
        await self._can_write.wait()

    async def wait_seconds(self, seconds: float) -> None:
        """Wait, and raise `PeerDisconnected` early if the other side disconnects."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.closed_event.wait(), seconds)
        else:
            await asyncio.sleep(0)
        if self.closed_event.is_set():
            raise PeerDisconnected

    async def wait_until_flushed(self) -> None:
        """Wait until the system has accepted all written bytes."""
        self.transport.set_write_buffer_limits(0)
        await self._can_write.wait()

    def close(self) -> None:
        self.transport.close()

    def reset_connection(self) -> None:
        """Reset the connection, so that the other side gets an error instead of an end."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(LINGER_FORMAT, 1, 0))
        self.transport.abort()


def parse_head(head: bytes) -> tuple[str, str, list[Header]]:
    """Return method, target, and headers with their order and case."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = []
    for line in lines:
        name, _, value = line.partition(":")
        headers.append((name, value.strip(" \t")))
    return method, target, headers


async def read_body(pipe: HttpConnection, headers: dict[str, str], body: bytearray) -> None:
    """Read a body into `body`, which has the received part if the client disconnects."""
    if headers.get("expect", "").lower() == "100-continue":
        await pipe.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        while size := int((await pipe.read_until(b"\r\n")).split(b";")[0], 16):
            body += await pipe.read_exactly(size)
            await pipe.read_exactly(2)
        while await pipe.read_until(b"\r\n") != b"\r\n":  # trailers after the last chunk
            pass
        return
    content_length = int(headers.get("content-length", 0))
    try:
        body += await pipe.read_exactly(content_length)
    except PeerDisconnected:
        body += pipe.take_buffered()
        raise


def response_head(status: int, headers: list[Header]) -> bytes:
    """Return the head of a response."""
    reason = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def encode_chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


# ── WebSocket ───────────────────────────────────────────────────────────────────────────────────────────────────────

CLOSE, PING, PONG = 8, 9, 10


def websocket_handshake(key: str) -> bytes:
    """Return the response that accepts a WebSocket."""
    digest = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    accept = base64.b64encode(digest).decode()
    return response_head(101, [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)])


async def echo_frames(pipe: HttpConnection, messages: list[bytes]) -> None:
    """Send every frame back until the other side closes. Answers pings."""
    while True:
        first, second = await pipe.read_exactly(2)
        size = second & 127
        if size > 125:
            size = int.from_bytes(await pipe.read_exactly(2 if size == 126 else 8))
        mask = await pipe.read_exactly(4) if second & 128 else bytes(4)
        payload = bytes(byte ^ mask[place & 3] for place, byte in enumerate(await pipe.read_exactly(size)))
        kind = first & 15
        if kind not in (CLOSE, PING, PONG):
            messages.append(payload)
        if kind != PONG:
            await pipe.write(_encode_frame(first & 0xF0 | (PONG if kind == PING else kind), payload))
        if kind == CLOSE:
            return


def _encode_frame(first: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes([first, size]) + payload
    if size < 1 << 16:
        return bytes([first, 126]) + size.to_bytes(2) + payload
    return bytes([first, 127]) + size.to_bytes(8) + payload
