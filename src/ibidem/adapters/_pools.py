"""Connection pools of a `Transport` without `inner`, from the client's own library: httpx or httpx2, sync or async.

Several clients can share a pool, and each client closes its transport. So a pool is closed only after the last response
from it was read, and a later client gets a new pool. An async pool belongs to one event loop and is dropped with it,
because many programs use one client with a new event loop for every call.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

LIMITS = {"max_connections": 1000, "max_keepalive_connections": 100, "keepalive_expiry": 600.0}
"""Connection limits, the same as in the providers' SDKs."""

FAMILIES = ("httpx", "httpx2")

Key = tuple[str, bool, object]


class Pool:
    """A transport with the number of requests that use it."""

    def __init__(self, inner: Any, lasting: bool = False) -> None:
        """With `is_external`, the owner of `inner` closes it."""
        self.inner = inner
        self._lasting = lasting
        self._lock = threading.Lock()
        self._used = 0
        self._left = False

    def take(self) -> None:
        with self._lock:
            self._used += 1

    def _unused(self, used: int, left: bool) -> bool:
        """Update the counters. Return True if the pool is abandoned and no request uses it."""
        with self._lock:
            self._used -= used
            self._left = self._left or left
            return self._left and not self._used and not self._lasting

    def lend(self, response: Any) -> Any:
        """Return the response, which releases the pool when it is closed."""
        if response.is_closed:  # already read
            self.end()
        elif not self._lasting:
            response.stream = watched(response, False, closed=self.end)
        return response

    async def alend(self, response: Any) -> Any:
        if response.is_closed:
            await self.aend()
        elif not self._lasting:
            response.stream = watched(response, True, closed=self.aend)
        return response

    def end(self) -> None:
        if self._unused(1, False):
            self.inner.close()

    async def aend(self) -> None:
        if self._unused(1, False):
            await self.inner.aclose()

    def close(self) -> None:
        if self._unused(0, True):
            self.inner.close()

    async def aclose(self) -> None:
        if self._unused(0, True):
            await self.inner.aclose()


class Pools:
    """Pools by library, mode and event loop."""

    def __init__(self) -> None:
        self._all: dict[Key, Pool] = {}
        self._lock = threading.Lock()

    def taken(self, family: str, asynchronous: bool) -> Pool:
        with self._lock:
            key = family, asynchronous, _loop() if asynchronous else None
            if key not in self._all:
                module = import_module(family)
                made = module.AsyncHTTPTransport if asynchronous else module.HTTPTransport
                self._all = {each: pool for each, pool in self._all.items() if not _is_over(each[2])}
                self._all[key] = Pool(made(limits=module.Limits(**LIMITS)))
            self._all[key].take()
            return self._all[key]

    def left(self, asynchronous: bool) -> list[Pool]:
        """Remove and return the pools of a client that is being closed. A later client gets a new pool."""
        here = _loop() if asynchronous else None
        with self._lock:
            keys = [key for key in self._all if key[1:] == (asynchronous, here)]
            return [self._all.pop(key) for key in keys]


def _loop() -> Any:
    """Return the owner of async connections: the event loop, or the token of a trio run."""
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    with suppress(RuntimeError):
        return sys.modules["trio"].lowlevel.current_trio_token() if "trio" in sys.modules else None
    return None


def _is_over(loop: Any) -> bool:
    """Return True if the event loop or trio run is over. Its connections cannot be closed with `await`.

    They are closed when they are garbage collected.
    """
    if loop is None or isinstance(loop, asyncio.AbstractEventLoop):
        return loop is not None and loop.is_closed()
    try:
        loop.run_sync_soon(int)
    except sys.modules["trio"].RunFinishedError:
        return True
    return False


def family_of(message: Any) -> str:
    """Return the library of a request or response, `httpx` or `httpx2`, also for subclasses in other packages."""
    packages = (base.__module__.partition(".")[0] for base in type(message).__mro__)
    return next((each for each in packages if each in FAMILIES), FAMILIES[0])


def held(response: Any) -> tuple[Any, bytes]:
    """Read a response. Return an unread copy for the client, and the bytes."""
    if hasattr(response, "_content"):  # the transport returned a complete response
        return response, response.content
    raw = b"".join(response.iter_raw())
    return _unread(response, raw), raw


async def aheld(response: Any) -> tuple[Any, bytes]:
    if hasattr(response, "_content"):
        return response, response.content
    raw = b"".join([piece async for piece in response.aiter_raw()])
    return _unread(response, raw), raw


def _unread(response: Any, raw: bytes) -> Any:
    family = import_module(family_of(response))
    told = {"headers": response.headers, "extensions": response.extensions}
    return family.Response(response.status_code, stream=family.ByteStream(raw), **told)


def watched(
    response: Any,
    asynchronous: bool,
    feed: Callable[[bytes], None] | None = None,
    end: Callable[[], Any] | None = None,
    closed: Callable[[], Any] | None = None,
) -> Any:
    """Return the stream of a response with callbacks, which are awaited if the stream is async.

    `on_data` gets each piece. `on_end` is called at the end of the stream and again when it is closed. `on_close` is
    called once, when it is closed.
    """
    return _streams(family_of(response))[asynchronous](response.stream, feed, end, closed)


@cache
def _streams(family: str) -> tuple[type, type]:
    """Return stream classes for a library, sync and async. Its clients require subclasses of its base classes."""
    base: Any = import_module(family)

    class Watched(base.SyncByteStream):
        def __init__(self, stream: Any, feed: Any, end: Any, closed: Any) -> None:
            self._stream, self._feed, self._end, self._closed = stream, feed, end, closed

        def __iter__(self) -> Iterator[bytes]:
            for data in self._stream:
                if self._feed is not None:
                    self._feed(data)
                yield data
            if self._end is not None:
                self._end()

        def close(self) -> None:
            try:
                if self._end is not None:
                    self._end()
                self._stream.close()
            finally:
                closed, self._closed = self._closed, None
                if closed is not None:
                    closed()

    class AsyncWatched(base.AsyncByteStream):
        def __init__(self, stream: Any, feed: Any, end: Any, closed: Any) -> None:
            self._stream, self._feed, self._end, self._closed = stream, feed, end, closed

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in self._stream:
                if self._feed is not None:
                    self._feed(data)
                yield data
            if self._end is not None:
                await self._end()

        async def aclose(self) -> None:
            try:
                if self._end is not None:
                    await self._end()
            finally:
                await self._stopped()

        async def _stopped(self) -> None:
            try:
                await self._stream.aclose()
            finally:
                closed, self._closed = self._closed, None
                if closed is not None:
                    await closed()

    return Watched, AsyncWatched
