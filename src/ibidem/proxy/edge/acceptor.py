"""Accept client connections in one process, and leave file descriptors for everything else.

If descriptors run out, asyncio's own server logs a traceback for each failed accept and retries more often each time,
and uvloop's closes the connection. Here the client waits in the listen queue. Some descriptors are never used for
clients: upstream connections, databases and modules that are imported late need them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

BACKLOG = 1024
"""Connections in the listen queue."""
RETRY_SECONDS = 0.1
"""Seconds until accept is tried again after a shortage."""
RESERVED_FILES, RESERVED_SHARE = 64, 4
"""Descriptors that clients do not get: this number, but at most one fourth of all."""
WARNING_SECONDS = 600.0
"""Seconds between two warnings."""
SHORTAGE = "new clients wait: too many files are open. Close clients, or raise the limit (ulimit -n)"

log = logging.getLogger("ibidem")


def has_room(number: int) -> bool:
    """Return True if a client may have the descriptor `number`. The system assigns the lowest free number."""
    try:
        import resource
    except ImportError:  # Windows
        return True
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return True
    return number < limit - min(RESERVED_FILES, limit // RESERVED_SHARE)


async def open_sockets(host: str, port: int, reuse_port: bool = False) -> list[socket.socket]:
    """Bind the sockets that `create_server` would bind. Raises OSError if the address is not available.

    With `reuse_port`, other processes of this user may listen there too. The system gives each connection to one.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False, reuse_port=reuse_port or None)
    sockets = [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]
    server.close()
    return sockets


class Acceptor:
    """Acceptor of connections on these sockets. `protocol` creates a protocol for each. Needs `loop.add_reader`."""

    def __init__(self, sockets: Sequence[socket.socket], protocol: Callable[[], asyncio.Protocol]) -> None:
        self._sockets, self._protocol = sockets, protocol
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._next_warning = 0.0
        for each in sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
        self._resume_accepting()

    def close(self) -> None:
        """Accept the connections in the queue, then close the sockets."""
        for each in self._sockets:
            self._loop.remove_reader(each)
            self._accept_clients(each)  # the system would reset connections that wait in the queue
        if self._retry is not None:
            self._retry.cancel()
        for each in self._sockets:
            each.close()
        self._sockets = ()

    def _resume_accepting(self) -> None:
        self._retry = None
        for each in self._sockets:
            self._loop.add_reader(each, self._accept_clients, each)

    def _pause_accepting(self) -> None:
        for each in self._sockets:
            self._loop.remove_reader(each)
        self._retry = self._loop.call_later(RETRY_SECONDS, self._resume_accepting)
        if self._loop.time() >= self._next_warning:
            self._next_warning = self._loop.time() + WARNING_SECONDS
            log.warning(SHORTAGE)

    def _accept_clients(self, listening: socket.socket) -> None:
        for _ in range(BACKLOG):
            try:
                # Check before accepting: an accepted client cannot go back into the queue, and would use the reserve.
                os.close(number := os.dup(listening.fileno()))
                if not has_room(number):
                    self._pause_accepting()
                    return
                connection, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._pause_accepting()
                return
            task = asyncio.ensure_future(self._serve_client(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve_client(self, connection: socket.socket) -> None:
        with suppress(OSError):  # the client may have disconnected
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._protocol, connection)
            return
        connection.close()
