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

LIBRARIES = ("httpx", "httpx2")

Key = tuple[str, bool, object]


class ConnectionPool:
    """A transport with the number of requests that use it."""

    def __init__(self, inner: Any, is_external: bool = False) -> None:
        """With `is_external`, the owner of `inner` closes it."""
        self.inner = inner
        self._is_external = is_external
        self._lock = threading.Lock()
        self._request_count = 0
        self._is_abandoned = False

    def acquire(self) -> None:
        with self._lock:
            self._request_count += 1

    def _update_use(self, finished_count: int, is_abandoned: bool) -> bool:
        """Update the counters. Return True if the pool is abandoned and no request uses it."""
        with self._lock:
            self._request_count -= finished_count
            self._is_abandoned = self._is_abandoned or is_abandoned
            return self._is_abandoned and not self._request_count and not self._is_external

    def attach_response(self, response: Any) -> Any:
        """Return the response, which releases the pool when it is closed."""
        if response.is_closed:  # already read
            self.release()
        elif not self._is_external:
            response.stream = watch_stream(response, False, on_close=self.release)
        return response

    async def aattach_response(self, response: Any) -> Any:
        if response.is_closed:
            await self.arelease()
        elif not self._is_external:
            response.stream = watch_stream(response, True, on_close=self.arelease)
        return response

    def release(self) -> None:
        if self._update_use(1, False):
            self.inner.close()

    async def arelease(self) -> None:
        if self._update_use(1, False):
            await self.inner.aclose()

    def close(self) -> None:
        if self._update_use(0, True):
            self.inner.close()

    async def aclose(self) -> None:
        if self._update_use(0, True):
            await self.inner.aclose()


class ConnectionPools:
    """Pools by library, mode and event loop."""

    def __init__(self) -> None:
        self._all: dict[Key, ConnectionPool] = {}
        self._lock = threading.Lock()

    def acquire_pool(self, library: str, is_async: bool) -> ConnectionPool:
        with self._lock:
            key = library, is_async, _connection_owner() if is_async else None
            if key not in self._all:
                module = import_module(library)
                transport_class = module.AsyncHTTPTransport if is_async else module.HTTPTransport
                self._all = {each: pool for each, pool in self._all.items() if not _is_finished(each[2])}
                self._all[key] = ConnectionPool(transport_class(limits=module.Limits(**LIMITS)))
            self._all[key].acquire()
            return self._all[key]

    def remove_pools(self, is_async: bool) -> list[ConnectionPool]:
        """Remove and return the pools of a client that is being closed. A later client gets a new pool."""
        owner = _connection_owner() if is_async else None
        with self._lock:
            keys = [key for key in self._all if key[1:] == (is_async, owner)]
            return [self._all.pop(key) for key in keys]


def _connection_owner() -> Any:
    """Return the owner of async connections: the event loop, or the token of a trio run."""
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    with suppress(RuntimeError):
        return sys.modules["trio"].lowlevel.current_trio_token() if "trio" in sys.modules else None
    return None


def _is_finished(loop: Any) -> bool:
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


def library_of(message: Any) -> str:
    """Return the library of a request or response, `httpx` or `httpx2`, also for subclasses in other packages."""
    packages = (base.__module__.partition(".")[0] for base in type(message).__mro__)
    return next((each for each in packages if each in LIBRARIES), LIBRARIES[0])


def read_response(response: Any) -> tuple[Any, bytes]:
    """Read a response. Return an unread copy for the client, and the bytes."""
    if hasattr(response, "_content"):  # the transport returned a complete response
        return response, response.content
    raw = b"".join(response.iter_raw())
    return _unread_copy(response, raw), raw


async def aread_response(response: Any) -> tuple[Any, bytes]:
    if hasattr(response, "_content"):
        return response, response.content
    raw = b"".join([piece async for piece in response.aiter_raw()])
    return _unread_copy(response, raw), raw


def _unread_copy(response: Any, raw: bytes) -> Any:
    library = import_module(library_of(response))
    attributes = {"headers": response.headers, "extensions": response.extensions}
    return library.Response(response.status_code, stream=library.ByteStream(raw), **attributes)


def watch_stream(
    response: Any,
    is_async: bool,
    on_data: Callable[[bytes], None] | None = None,
    on_end: Callable[[], Any] | None = None,
    on_close: Callable[[], Any] | None = None,
) -> Any:
    """Return the stream of a response with callbacks: to read the usage in it, or to release its connection pool.

    `on_data` gets each piece. `on_end` is called at the end of the stream and again when it is closed. `on_close` is
    called once, when it is closed. If the stream is async, `on_end` and `on_close` are awaited.
    """
    return _stream_classes(library_of(response))[is_async](response.stream, on_data, on_end, on_close)


@cache
def _stream_classes(family: str) -> tuple[type, type]:
    """Return stream classes for a library, sync and async. Its clients require subclasses of its base classes."""
    base: Any = import_module(family)

    class UsageStream(base.SyncByteStream):
        def __init__(self, stream: Any, feed: Any, end: Any, on_close: Any) -> None:
            self._stream, self._feed, self._end, self._on_close = stream, feed, end, on_close

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
                on_close, self._on_close = self._on_close, None
                if on_close is not None:
                    on_close()

    class AsyncUsageStream(base.AsyncByteStream):
        def __init__(self, stream: Any, feed: Any, end: Any, on_close: Any) -> None:
            self._stream, self._feed, self._end, self._on_close = stream, feed, end, on_close

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
                await self._close_stream()

        async def _close_stream(self) -> None:
            try:
                await self._stream.aclose()
            finally:
                on_close, self._on_close = self._on_close, None
                if on_close is not None:
                    await on_close()

    return UsageStream, AsyncUsageStream
