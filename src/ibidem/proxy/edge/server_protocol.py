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

from .response_writer import CONTINUE, LAST_WRITE

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

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._body: Any = None
        """Body of the last request, possibly incomplete."""
        self._timer: asyncio.TimerHandle | None = None
        self._half_closed_at: float | None = None
        """When the client closed its sending side."""
        self._next_probe = 0.0
        """Time of the next `100 Continue`."""
        self._since = self._loop.time()

    @property
    def is_half_closed(self) -> bool:
        """True if the client has closed its sending side. It may still read, but most such clients are gone."""
        return self._half_closed_at is not None

    def data_received(self, data: bytes) -> None:
        between = self._body is None or self._body.is_eof()
        count = self._request_count
        super().data_received(data)
        if self._request_count > count:
            self._body = self._messages[-1][1]
            self._cancel_timer()
        elif between and self._timer is None and data.strip(b"\r\n") and not self._upgraded:
            self._timer = self._loop.call_later(HEAD_TIME, self._reject_slow_head)

    def _reject_slow_head(self) -> None:
        self._timer = None
        if not self._is_idle:  # a pipelined request, while the response to the previous one is sent
            self._timer = self._loop.call_later(HEAD_TIME, self._reject_slow_head)
        elif self.transport is not None:
            self.transport.write(TOO_SLOW)
            self.force_close()

    @property
    def _is_idle(self) -> bool:
        """True if no request is in progress."""
        return self._waiter is not None and not self._waiter.done() and not self._messages

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def close_when_idle(self) -> None:
        """Accept no more requests: close after the current response, or now if there is none.

        A new connection stays open for its first request, because its client would take the end for an error.
        """
        is_new = not self._request_count and self._loop.time() - self._since < FRESH_SECONDS
        if self._is_idle and not is_new:
            self.force_close()
        else:
            self._close = True

    # ── half-closed connections ─────────────────────────────────────────────────────────────────────────────────────

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the connection stays open for the response."""
        if self._half_closed_at is not None:
            return True
        if self._is_idle or self._upgraded or self._body is None or not self._body.is_eof():
            return False
        self._half_closed_at = self._loop.time()
        self._next_probe = self._half_closed_at + PROBE_SECONDS
        self._close = self._close or not self._messages
        self._cancel_timer()
        self._timer = self._loop.call_later(POLL_SECONDS, self._poll_client)
        return True

    def _poll_client(self) -> None:
        if self.transport is None:
            return
        sock = self.transport.get_extra_info("socket")
        has_error = sock is not None and sock.fileno() >= 0 and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if self._is_idle or has_error or self._is_silent(self._loop.time()):
            self.transport.abort()
            return
        self._timer = self._loop.call_later(POLL_SECONDS, self._poll_client)

    def _is_silent(self, now: float) -> bool:
        """Return whether the client counts as gone, because no write will show it. Otherwise send a probe if due."""
        request, half_closed = self._current_request, self._half_closed_at
        if request is None or half_closed is None or self.transport is None:
            return False
        if last_write := request.get(LAST_WRITE):
            return (
                self._next_probe == half_closed + PROBE_SECONDS
                and last_write <= half_closed
                and now > half_closed + QUIET_SECONDS
            )
        if request.writer.output_size:
            return (
                now > half_closed + QUIET_SECONDS
            )  # a page of the proxy, which is not written through `ClientResponse`
        if now >= self._next_probe and request.version >= (1, 1):  # HTTP/1.0 has no `100 Continue`
            self._next_probe = now + PROBE_AGAIN_SECONDS
            self.transport.write(CONTINUE)
        return False


class Server(web.Server):
    """HTTP server with `ClientProtocol` connections."""

    def close_idle(self) -> bool:
        """Close idle connections, and return whether all are closed. aiohttp's `pre_shutdown` leaves idle ones open."""
        for each in self.connections:
            assert isinstance(each, ClientProtocol)
            each.close_when_idle()
        return not self.connections

    def __call__(self) -> RequestHandler:
        return ClientProtocol(self, loop=self._loop, **self._kwargs)
