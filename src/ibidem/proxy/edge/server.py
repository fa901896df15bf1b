"""Listen for connections and run the proxy until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

from aiohttp import web

from ...billing.cache_ttl import IdleTimes
from ...live.types import SYSTEM_CLOCK, Clock
from ...store import Store
from ..accounting.usage_writer import UsageWriter
from ..listen_address import ListenAddress as ListenAddress
from ..listen_address import RunSummary as RunSummary
from ..settings import Settings
from .acceptor import Acceptor, open_sockets
from .app import Proxy
from .server_protocol import Server
from .upstreams import READING

T = TypeVar("T")

GRACE_SECONDS = 1.0
"""Time for responses in progress when the proxy is stopped."""
DRAIN_SECONDS, DRAIN_POLL = 600.0, 0.1
"""Time for responses in progress when the proxy is drained, and time between two checks."""

quiet = logging.getLogger("ibidem.http")
quiet.disabled = True  # aiohttp's server would log requests that it cannot parse, including API keys


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run like `asyncio.run`, but with uvloop if it is installed.

    uvloop aborts the process if it closes a socket with the number of a standard stream. A process that was started
    without one of these streams reuses its number, so such a process gets asyncio's own loop.
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


async def serve_proxy(
    settings: Settings,
    *,
    ready: Callable[[ListenAddress], None] | None = None,
    stop: asyncio.Event | None = None,
    store: Store | None = None,
    clock: Clock = SYSTEM_CLOCK,
    pauses: IdleTimes | None = None,
    gains: UsageWriter | None = None,
    drain: asyncio.Event | None = None,
) -> RunSummary:
    """Listen until `stop` is set. Raises OSError if the address cannot be listened on.

    If `drain` is set, accept no more connections, and end when every response has been sent.
    """
    stop, drain = stop or asyncio.Event(), drain or asyncio.Event()
    async with Proxy(settings, store, clock, pauses, gains) as proxy:
        server = Server(proxy.handle, handler_cancellation=True, access_log=None, logger=quiet, **READING)
        runner = web.ServerRunner(server, shutdown_timeout=GRACE_SECONDS)
        await runner.setup()
        acceptor: Acceptor | None = None
        try:
            port = settings.port
            if os.name == "nt":  # the Windows loop has no `add_reader`, and file descriptors are not scarce there
                await web.TCPSite(runner, settings.host, port).start()
                port = int(runner.addresses[0][1])
            else:
                sockets = await open_sockets(settings.host, port, settings.reuse_port)
                port, acceptor = sockets[0].getsockname()[1], Acceptor(sockets, server)
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            proxy.start_background()
            if ready is not None:
                ready(ListenAddress(f"http://{host}:{port}", port, proxy.egress.proxy_names, proxy.telemetry.trouble))
            await _until_either(stop, drain)
            proxy.stopping.set()
            if acceptor is not None:
                acceptor.close()
            await _wait_until_drained(server, stop)
        finally:
            proxy.stopping.set()
            if acceptor is not None:
                acceptor.close()
            await runner.cleanup()
            if gains is not None:
                await asyncio.to_thread(gains.close)
        return RunSummary(proxy.stats.summary_line, proxy.pages.state())


async def _until_either(*events: asyncio.Event) -> None:
    waiters = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiters:
            each.cancel()


async def _wait_until_drained(server: Server, stop: asyncio.Event) -> None:
    """Wait until all responses are sent and all connections closed, or until `stop` is set."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DRAIN_SECONDS
    while not stop.is_set() and loop.time() < end:
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), DRAIN_POLL)
        if server.close_idle():  # repeated, because the last accepted connections may be set up only now
            return


class BackgroundServer:
    """Proxy in a thread of this process, for tests and benchmarks.

    Use it as `with BackgroundServer(settings) as proxy: proxy.url`.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        runner: Callable[[Any], Any] = asyncio.run,
        clock: Clock = SYSTEM_CLOCK,
        pauses: IdleTimes | None = None,
        gains: UsageWriter | None = None,
    ) -> None:
        self._serving = partial(serve_proxy, settings, store=store, clock=clock, pauses=pauses, gains=gains)
        self._runner = runner
        self._address: Future[ListenAddress] = Future()
        self._summary: Future[RunSummary] = Future()
        self._thread = threading.Thread(target=self._run_thread, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._address.result(30).url
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> RunSummary:
        """Stop the proxy and return its summary."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        return self._summary.result(30)

    def _run_thread(self) -> None:
        try:
            self._summary.set_result(self._runner(self._serve_async()))
        except BaseException as error:
            for future in (self._address, self._summary):
                if not future.done():
                    future.set_exception(error)

    async def _serve_async(self) -> RunSummary:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        return await self._serving(ready=self._address.set_result, stop=self._stop)
