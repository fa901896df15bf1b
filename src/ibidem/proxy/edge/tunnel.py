"""What is not HTTP any more: after an upgrade, bytes pass both ways as they come."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web
from aiohttp.base_protocol import BaseProtocol

from .upstreams import Link


class _Pipe:
    """One direction. It stands in the place where aiohttp has its reader of WebSocket messages, and reads nothing."""

    def __init__(self, source: BaseProtocol, sink: BaseProtocol, over: asyncio.Event) -> None:
        self._source = source.transport
        self._sink = sink
        self._over = over
        self._waiting: asyncio.Task[None] | None = None

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        sink = self._sink.transport
        if sink is not None and not sink.is_closing():
            sink.write(data)
            if self._waiting is None and self._sink.writing_paused and self._source is not None:
                self._source.pause_reading()
                self._waiting = asyncio.ensure_future(self._wait(self._source))
        return False, b""

    def feed_eof(self) -> None:
        self._over.set()

    async def _wait(self, source: asyncio.Transport) -> None:
        """A side that takes slowly is not sent more than it takes."""
        with suppress(ConnectionError):
            await self._sink._drain_helper()
        self._waiting = None
        if not source.is_closing():
            source.resume_reading()

    def stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()


async def tunnel(request: web.BaseRequest, link: Link) -> None:
    """Until one side ends it. Then what is on its way to the other is still sent."""
    client, upstream = request.protocol, link.protocol
    over = asyncio.Event()
    there, back = _Pipe(client, upstream, over), _Pipe(upstream, client, over)
    upstream.set_parser(back, None)  # bytes that came right behind a handshake are the first that a pipe gets
    client.set_parser(there)  # type: ignore[arg-type]  # it is fed in the same way
    try:
        if upstream.is_connected() and client.transport is not None:
            await over.wait()
    finally:
        there.stop()
        back.stop()
        link.close()
        if client.transport is not None:
            client.transport.close()
