"""Protocol of a client's connection: a time limit for the request head, and half-closed connections.

If a client closes its sending side, it may still read, or be gone. Only a write shows the difference: a client that is
gone rejects it. So the connection stays open after a complete request, and the proxy sends `100 Continue` from time to
time, which every client ignores, until the response starts.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from .client_side import BEGUN, CONTINUE

HEAD_TIME = 30.0
"""Time limit for a request head, from its first byte."""
FRESH_SECONDS = 5.0
"""While the proxy stops: time for a new connection to send its first request."""
POLL_SECONDS = 0.25
"""Time between two checks of a half-closed connection."""
PROBE_SECONDS, PROBE_AGAIN_SECONDS = 1.0, 10.0
"""Time until the first `100 Continue` on a half-closed connection, and between further ones."""
QUIET_SECONDS = 2.0
"""Time without new data of a started response, after which a half-closed connection counts as closed."""

TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 48\r\n\r\n"
    b"ibidem: the head of the request did not complete"
)


class ClientProtocol(RequestHandler):
    """Connection of a client."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._body: Any = None
        """Body of the last request, possibly incomplete."""
        self._clock: asyncio.TimerHandle | None = None
        self._ended: float | None = None
        """When the client closed its sending side."""
        self._next = 0.0
        """Time of the next `100 Continue`."""
        self._since = self._loop.time()

    @property
    def sends_no_more(self) -> bool:
        """True if the client has closed its sending side. It may still read, but most such clients are gone."""
        return self._ended is not None

    def data_received(self, data: bytes) -> None:
        between = self._body is None or self._body.is_eof()
        count = self._request_count
        super().data_received(data)
        if self._request_count > count:
            self._body = self._messages[-1][1]
            self._stop()
        elif between and self._clock is None and data.strip(b"\r\n") and not self._upgraded:
            self._clock = self._loop.call_later(HEAD_TIME, self._too_slow)

    def _too_slow(self) -> None:
        self._clock = None
        if not self._idle:  # a pipelined request, while the response to the previous one is sent
            self._clock = self._loop.call_later(HEAD_TIME, self._too_slow)
        elif self.transport is not None:
            self.transport.write(TOO_SLOW)
            self.force_close()

    @property
    def _idle(self) -> bool:
        """True if no request is in progress."""
        return self._waiter is not None and not self._waiter.done() and not self._messages

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def let_go(self) -> None:
        """Accept no more requests: close after the current response, or now if there is none.

        A new connection stays open for its first request, because its client would take the end for an error.
        """
        fresh = not self._request_count and self._loop.time() - self._since < FRESH_SECONDS
        if self._idle and not fresh:
            self.force_close()
        else:
            self._close = True

    # ── half-closed connections ─────────────────────────────────────────────────────────────────────────────────────

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the connection stays open for the response."""
        if self._ended is not None:
            return True
        if self._idle or self._upgraded or self._body is None or not self._body.is_eof():
            return False
        self._ended = self._loop.time()
        self._next = self._ended + PROBE_SECONDS
        self._close = self._close or not self._messages
        self._stop()
        self._clock = self._loop.call_later(POLL_SECONDS, self._look)
        return True

    def _look(self) -> None:
        if self.transport is None:
            return
        found = self.transport.get_extra_info("socket")
        refused = found is not None and found.fileno() >= 0 and found.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if self._idle or refused or self._silent(self._loop.time()):
            self.transport.abort()
            return
        self._clock = self._loop.call_later(POLL_SECONDS, self._look)

    def _silent(self, now: float) -> bool:
        """Return whether the client counts as gone, because no write will show it. Otherwise send a probe if due."""
        request, ended = self._current_request, self._ended
        if request is None or ended is None or self.transport is None:
            return False
        if written := request.get(BEGUN):
            return self._next == ended + PROBE_SECONDS and written <= ended and now > ended + QUIET_SECONDS
        if request.writer.output_size:
            return now > ended + QUIET_SECONDS  # a page of the proxy, which is not written through `ClientResponse`
        if now >= self._next and request.version >= (1, 1):  # HTTP/1.0 has no `100 Continue`
            self._next = now + PROBE_AGAIN_SECONDS
            self.transport.write(CONTINUE)
        return False


class Server(web.Server):
    """HTTP server with `ClientProtocol` connections."""

    def drain(self) -> bool:
        """Close idle connections, and return whether all are closed. aiohttp's `pre_shutdown` leaves idle ones open."""
        for each in self.connections:
            assert isinstance(each, ClientProtocol)
            each.let_go()
        return not self.connections

    def __call__(self) -> RequestHandler:
        return ClientProtocol(self, loop=self._loop, **self._kwargs)
