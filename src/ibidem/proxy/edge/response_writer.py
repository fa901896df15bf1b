"""Write responses to a client byte for byte, because a server library would add its own headers."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web
from multidict import CIMultiDict

from ..commands import StartResponse
from ..page.admin_pages import AdminPage

LINGER_FORMAT = "hh" if sys.platform == "win32" else "ii"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_WRITE = web.RequestKey("begun", float)
"""Time of the last write of a response."""


class ClientDisconnected(Exception):
    """The client has disconnected during a write."""


class ClientResponse(web.StreamResponse):
    """Response that writes its own bytes. aiohttp's server only decides whether the connection stays open."""

    def __init__(self, request: web.BaseRequest, command: StartResponse) -> None:
        super().__init__(status=command.status)
        transport = request.transport
        if transport is None:
            raise ClientDisconnected
        self._to: asyncio.Transport = transport
        self._request = request
        self._time = asyncio.get_running_loop().time
        self._drain = request.writer.drain
        self._chunks = command.chunked
        self._sized = command.chunked or "content-length" in [name.lower() for name, _ in command.headers]
        self._last = command.last
        line = f"HTTP/{request.version[0]}.{request.version[1]} {command.status} {command.reason}\r\n"
        head = "\r\n".join([*[f"{name}: {value}" for name, value in command.headers], "", ""])
        self._waiting = line.encode("utf-8", "surrogateescape") + head.encode("latin-1")
        """Unsent head. It is sent with the first part of the body."""

    @property
    def keep_alive(self) -> bool | None:
        return not self._last

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None

    def flush_head(self) -> None:
        """Send the head, if it is not sent yet."""
        if self._waiting:
            self._write_bytes(b"")

    def send_chunk(self, data: bytes) -> None:
        """Send a part of the body."""
        if data:
            self._write_bytes(b"%x\r\n%b\r\n" % (len(data), data) if self._chunks else data)

    def _write_bytes(self, data: bytes) -> None:
        if self._to.is_closing():
            raise ClientDisconnected
        if self._waiting:
            data, self._waiting = self._waiting + data, b""
        self._request[LAST_WRITE] = self._time()
        self._to.write(data)

    @property
    def unsent_bytes(self) -> int:
        """Bytes in the send buffer."""
        return self._to.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until the client has read enough to be sent more."""
        try:
            await self._drain()
        except ConnectionError:
            raise ClientDisconnected from None

    def end_body(self) -> None:
        """End the body."""
        self._write_bytes(b"0\r\n\r\n") if self._chunks else self.flush_head()

    def abort_response(self) -> None:
        """Abort the response in a way that the client can distinguish from its end."""
        self._last = True
        with suppress(ClientDisconnected):
            self.flush_head()
        if not self._sized:  # the end of the connection would be the normal end, so cause a TCP reset
            sock = self._to.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(LINGER_FORMAT, 1, 0))
            self._to.abort()
        else:
            self._to.close()


class NoResponse(web.StreamResponse):
    """Response for a request that has already ended without one. It writes nothing."""

    keep_alive = False

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


def decode_headers(raw: tuple[tuple[bytes, bytes], ...]) -> list[tuple[str, str]]:
    """Decode headers. Spelling, order, duplicates and all bytes are preserved."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]


def page_response(page: AdminPage) -> web.Response:
    """Return an admin page as an aiohttp response."""
    return web.Response(status=page.status, headers=CIMultiDict(page.headers), body=page.body)


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an error response of the proxy, in a format whose message clients of all providers show."""
    body = {"type": "error", "error": {"type": "ibidem_proxy_error", "message": f"ibidem: {message}"}}
    return web.json_response(body, status=status, headers=headers)
