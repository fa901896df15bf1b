"""Tunnel after an upgrade from HTTP: forward bytes in both directions."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web
from aiohttp.base_protocol import BaseProtocol

from .upstreams import UpstreamConnection


class _Pipe:
    """One direction of a tunnel. aiohttp gets it in place of its reader for WebSocket messages."""

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
                self._waiting = asyncio.ensure_future(self._resume_when_drained(self._source))
        return False, b""

    def feed_eof(self) -> None:
        self._over.set()

    async def _resume_when_drained(self, source: asyncio.Transport) -> None:
        """Stop reading from one side while the other side reads slowly."""
        with suppress(ConnectionError):
            await self._sink._drain_helper()
        self._waiting = None
        if not source.is_closing():
            source.resume_reading()

    def stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()


async def run_tunnel(request: web.BaseRequest, link: UpstreamConnection) -> None:
    """Forward bytes until one side closes. Data on its way to the other side is still sent."""
    client, upstream = request.protocol, link.protocol
    over = asyncio.Event()
    to_upstream, to_client = _Pipe(client, upstream, over), _Pipe(upstream, client, over)
    upstream.set_parser(to_client, None)  # also passes the bytes that arrived right after the handshake
    client.set_parser(to_upstream)  # type: ignore[arg-type]  # it has the same methods
    try:
        if upstream.is_connected() and client.transport is not None:
            await over.wait()
    finally:
        to_upstream.stop_waiting()
        to_client.stop_waiting()
        link.close()
        if client.transport is not None:
            client.transport.close()
