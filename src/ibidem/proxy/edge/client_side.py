"""What a client is told, in the bytes that it is given in: a server library would add headers of its own."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web
from multidict import CIMultiDict

from ..commands import StartAnswer
from ..page.pages import Page

LINGER_FORMAT = "hh" if sys.platform == "win32" else "ii"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BEGUN = web.RequestKey("begun", float)
"""When the answer to a request was last written to."""


class ClientDisconnected(Exception):
    """The client went away while it was written to."""


class ClientResponse(web.StreamResponse):
    """Written by hand. For the server there is nothing left to do but to go on with the connection, or not."""

    def __init__(self, request: web.BaseRequest, command: StartAnswer) -> None:
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
        """The head goes out with the first piece, if that is here already."""

    @property
    def keep_alive(self) -> bool | None:
        return not self._last

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None

    def flush(self) -> None:
        """The head, if it has not gone yet."""
        if self._waiting:
            self._write(b"")

    def send(self, data: bytes) -> None:
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunks else data)

    def _write(self, data: bytes) -> None:
        if self._to.is_closing():
            raise ClientDisconnected
        if self._waiting:
            data, self._waiting = self._waiting + data, b""
        self._request[BEGUN] = self._time()
        self._to.write(data)

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._to.get_write_buffer_size()

    async def drain(self) -> None:
        """Until the client has taken enough of it to be sent more."""
        try:
            await self._drain()
        except ConnectionError:
            raise ClientDisconnected from None

    def end(self) -> None:
        self._write(b"0\r\n\r\n") if self._chunks else self.flush()

    def reset(self) -> None:
        """Break off, so that the client can tell it from an end."""
        self._last = True
        with suppress(ClientDisconnected):
            self.flush()
        if not self._sized:  # only an error tells it then
            found = self._to.get_extra_info("socket")
            if found is not None and found.fileno() >= 0:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(LINGER_FORMAT, 1, 0))
            self._to.abort()
        else:
            self._to.close()


class NoResponse(web.StreamResponse):
    """There is nothing left to answer."""

    keep_alive = False

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


def pairs(raw: tuple[tuple[bytes, bytes], ...]) -> list[tuple[str, str]]:
    """Headers as they came: spelling, order, duplicates, and any byte."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]


def page_response(found: Page) -> web.Response:
    """What the proxy itself says."""
    return web.Response(status=found.status, headers=CIMultiDict(found.headers), body=found.body)


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An answer of our own, in a shape that clients of all providers show."""
    body = {"type": "error", "error": {"type": "ibidem_proxy_error", "message": f"ibidem: {message}"}}
    return web.json_response(body, status=status, headers=headers)
