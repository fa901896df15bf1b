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


class PeerGone(Exception):
    """The other side closed the connection."""


class Pipe(asyncio.Protocol):
    """One connection. It reads, writes, and notices immediately when the other side disconnects."""

    def __init__(self, opened: asyncio.Queue[Pipe]) -> None:
        self._opened = opened
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._opened.put_nowait(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._arrived.set()

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _end(self) -> None:
        self.gone.set()
        self._arrived.set()
        self._writable.set()

    async def _more(self) -> None:
        if self.gone.is_set():
            raise PeerGone
        self._arrived.clear()
        await self._arrived.wait()

    async def until(self, end: bytes) -> bytes:
        """Read up to and including `end`. Raises if the head is too long or the peer disconnects."""
        start = 0
        while (found := self._buffer.find(end, start)) < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise PeerGone
            start = max(len(self._buffer) - len(end), 0)
            await self._more()
        return self.take(found + len(end))

    async def exactly(self, size: int) -> bytes:
        """Read this number of bytes."""
        while len(self._buffer) < size:
            await self._more()
        return self.take(size)

    def take(self, size: int | None = None) -> bytes:
        """Return up to `size` buffered bytes, or all of them."""
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def write(self, data: bytes) -> None:
        if self.gone.is_set():
            raise PeerGone
        self.transport.write(data)
        await self._writable.wait()

    async def pause(self, seconds: float) -> None:
        """Wait, and raise `PeerDisconnected` early if the other side disconnects."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.gone.wait(), seconds)
        else:
            await asyncio.sleep(0)
        if self.gone.is_set():
            raise PeerGone

    async def flushed(self) -> None:
        """Wait until the system has accepted all written bytes."""
        self.transport.set_write_buffer_limits(0)
        await self._writable.wait()

    def close(self) -> None:
        self.transport.close()

    def reset(self) -> None:
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


async def read_body(pipe: Pipe, headers: dict[str, str], body: bytearray) -> None:
    """Read a body into `body`, which has the received part if the client disconnects."""
    if headers.get("expect", "").lower() == "100-continue":
        await pipe.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        while size := int((await pipe.until(b"\r\n")).split(b";")[0], 16):
            body += await pipe.exactly(size)
            await pipe.exactly(2)
        while await pipe.until(b"\r\n") != b"\r\n":  # trailers after the last chunk
            pass
        return
    left = int(headers.get("content-length", 0))
    try:
        body += await pipe.exactly(left)
    except PeerGone:
        body += pipe.take()
        raise


def head(status: int, headers: list[Header]) -> bytes:
    """Return the head of a response."""
    reason = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


# ── WebSocket ───────────────────────────────────────────────────────────────────────────────────────────────────────

CLOSE, PING, PONG = 8, 9, 10


def handshake(key: str) -> bytes:
    """Return the response that accepts a WebSocket."""
    digest = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    accept = base64.b64encode(digest).decode()
    return head(101, [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)])


async def echo(pipe: Pipe, messages: list[bytes]) -> None:
    """Send every frame back until the other side closes. Answers pings."""
    while True:
        first, second = await pipe.exactly(2)
        size = second & 127
        if size > 125:
            size = int.from_bytes(await pipe.exactly(2 if size == 126 else 8))
        mask = await pipe.exactly(4) if second & 128 else bytes(4)
        payload = bytes(byte ^ mask[place & 3] for place, byte in enumerate(await pipe.exactly(size)))
        kind = first & 15
        if kind not in (CLOSE, PING, PONG):
            messages.append(payload)
        if kind != PONG:
            await pipe.write(_frame(first & 0xF0 | (PONG if kind == PING else kind), payload))
        if kind == CLOSE:
            return


def _frame(first: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes([first, size]) + payload
    if size < 1 << 16:
        return bytes([first, 126]) + size.to_bytes(2) + payload
    return bytes([first, 127]) + size.to_bytes(8) + payload
