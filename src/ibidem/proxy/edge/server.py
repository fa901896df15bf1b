"""Listens, and runs the proxy until it is told to stop.

Sockets are known to this folder alone; what is said through them is decided elsewhere, by `exchange`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

from aiohttp import web

from ...billing.lifetimes import Pauses
from ...store import Store
from ..address import Address as Address
from ..address import Summary as Summary
from ..books.gains import GainsWriter
from ..clock import SYSTEM_CLOCK, Clock
from ..settings import Settings
from .app import Proxy
from .dealing import Taker
from .incoming import Server
from .peers import ALONE, Alone
from .upstreams import READING

T = TypeVar("T")

GRACE_SECONDS = 1.0
"""Seconds that answers which are under way have left when the proxy is stopped."""
DRAIN_SECONDS, DRAIN_POLL = 600.0, 0.1
"""Seconds that they have in a process whose place another has taken, and between two looks whether there are any."""

quiet = logging.getLogger("ibidem.http")
quiet.disabled = True  # the server would quote what it cannot parse, keys and all


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, with the faster loop where it is installed.

    That one ends the whole process when it closes a file whose number is that of a standard stream, and such numbers
    are given out where a process was started without one of them.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    if not all(map(_is_open, range(3))):
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


async def serve(
    settings: Settings,
    *,
    ready: Callable[[Address], None] | None = None,
    stop: asyncio.Event | None = None,
    store: Store | None = None,
    clock: Clock = SYSTEM_CLOCK,
    pauses: Pauses | None = None,
    gains: GainsWriter | None = None,
    peers: Alone = ALONE,
    hand: socket.socket | None = None,
) -> Summary:
    """Listen until `stop` is set. Raises OSError if the address cannot be listened on.

    `peers` are the other processes of the same proxy, and `hand` is where connections come from then.
    """
    stop = stop or asyncio.Event()
    async with Proxy(settings, store, clock, pauses, gains, peers) as proxy:
        server = Server(proxy.handle, handler_cancellation=True, access_log=None, logger=quiet, **READING)
        runner = web.ServerRunner(server, shutdown_timeout=GRACE_SECONDS)
        await runner.setup()
        end: Callable[[], None] | None = None
        try:
            port = settings.port if hand is not None else await _listen(runner, settings)
            if hand is not None:
                end = Taker(hand, server).end
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            proxy.warm()
            peers.begin(proxy.answer_peer, proxy.news, stop)
            if ready is not None:
                ready(Address(f"http://{host}:{port}", port, proxy.egress.shown, proxy.telemetry.trouble))
            await _until_either(stop, peers.retired)
            proxy.stopping.set()
            await _drained(server, stop)
        finally:
            proxy.stopping.set()
            if end is not None:
                end()
            await runner.cleanup()
            if gains is not None:
                await asyncio.to_thread(gains.close)
        await peers.end(proxy.figures())
        return Summary(proxy.records.line, proxy.pages.state())


async def _until_either(stop: asyncio.Event, retired: asyncio.Event | None) -> None:
    waiting = [asyncio.ensure_future(each.wait()) for each in (stop, retired) if each is not None]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


async def _drained(server: Server, stop: asyncio.Event) -> None:
    """Until what is under way is answered, and each connection closed behind it; at once where it is to stop."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DRAIN_SECONDS
    while not stop.is_set() and loop.time() < end:
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), DRAIN_POLL)
        if server.drain():  # again and again: what was handed over last may have come only now
            return


async def _listen(runner: web.ServerRunner, settings: Settings) -> int:
    """The port."""
    await web.TCPSite(runner, settings.host, settings.port).start()
    return int(runner.addresses[0][1])


class Running:
    """A proxy in a thread of this process, for tests and benchmarks: `with Running(settings) as proxy: proxy.url`."""

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        runner: Callable[[Any], Any] = asyncio.run,
        clock: Clock = SYSTEM_CLOCK,
        pauses: Pauses | None = None,
        gains: GainsWriter | None = None,
    ) -> None:
        self._serving = partial(serve, settings, store=store, clock=clock, pauses=pauses, gains=gains)
        self._runner = runner
        self._address: Future[Address] = Future()
        self._summary: Future[Summary] = Future()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._address.result(30).url
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> Summary:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        return self._summary.result(30)

    def _run(self) -> None:
        try:
            self._summary.set_result(self._runner(self._serve()))
        except BaseException as error:
            for future in (self._address, self._summary):
                if not future.done():
                    future.set_exception(error)

    async def _serve(self) -> Summary:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        return await self._serving(ready=self._address.set_result, stop=self._stop)
