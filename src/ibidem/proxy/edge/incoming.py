"""One connection of a client: how long its head may take, and what it means when it says that it will say no more.

The end of what a client sends looks the same whether it still listens or is gone. Only what is written to it tells: who
is gone refuses that. So a client whose request is complete stays, and is written to now and then: a sign of life as
long as there is no answer, which every client skips, and then the answer.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from .client_side import BEGUN, CONTINUE

HEAD_TIME = 30.0
"""Seconds that the head of a request may take, from its first byte."""
FRESH_SECONDS = 5.0
"""Seconds that who has connected has for a first request, where no more are taken."""
POLL_SECONDS = 0.25
"""Seconds between two looks at a client that sends no more."""
PROBE_SECONDS, PROBE_AGAIN_SECONDS = 1.0, 10.0
"""Seconds after which it gets a sign of life, and after which it gets the next."""
QUIET_SECONDS = 2.0
"""Seconds after which it is taken for gone if its answer has begun and nothing more of that came."""

TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 48\r\n\r\n"
    b"ibidem: the head of the request did not complete"
)


class ClientProtocol(RequestHandler):
    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._body: Any = None
        """Of the last request; it may still be on its way."""
        self._clock: asyncio.TimerHandle | None = None
        self._ended: float | None = None
        """When the client said that it sends no more."""
        self._next = 0.0
        """When it gets a sign of life."""
        self._since = self._loop.time()

    @property
    def sends_no_more(self) -> bool:
        """The client closed its side: it may still listen, but most that do so are gone."""
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
        if not self._idle:  # it sends the next one while the one before is answered
            self._clock = self._loop.call_later(HEAD_TIME, self._too_slow)
        elif self.transport is not None:
            self.transport.write(TOO_SLOW)
            self.force_close()

    @property
    def _idle(self) -> bool:
        """Nothing is worked on."""
        return self._waiter is not None and not self._waiter.done() and not self._messages

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def let_go(self) -> None:
        """No more requests are taken: it is closed behind the answer that is under way, or now if there is none. Who
        has only just connected is about to ask, and would take that for an error."""
        fresh = not self._request_count and self._loop.time() - self._since < FRESH_SECONDS
        if self._idle and not fresh:
            self.force_close()
        else:
            self._close = True

    # ── a client that sends no more ─────────────────────────────────────────────────────────────────────────────────

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open in the other direction."""
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
        """Whether nothing will tell that it is gone, so that it is taken for that."""
        request, ended = self._current_request, self._ended
        if request is None or ended is None or self.transport is None:
            return False
        if written := request.get(BEGUN):
            return self._next == ended + PROBE_SECONDS and written <= ended and now > ended + QUIET_SECONDS
        if request.writer.output_size:
            return now > ended + QUIET_SECONDS  # a page
        if now >= self._next and request.version >= (1, 1):  # older ones know no signs of life
            self._next = now + PROBE_AGAIN_SECONDS
            self.transport.write(CONTINUE)
        return False


class Server(web.Server):
    """Listens for connections of this kind."""

    def drain(self) -> bool:
        """Whether all of them are closed. `pre_shutdown` would leave those open on which nothing is asked."""
        for each in self.connections:
            assert isinstance(each, ClientProtocol)
            each.let_go()
        return not self.connections

    def __call__(self) -> RequestHandler:
        return ClientProtocol(self, loop=self._loop, **self._kwargs)
