"""Connections, taken by one process and handed to others in turn.

Where several processes wait at one listening socket, the system may wake the same one every time: all connections that
are opened in a quiet moment then end up there, and stay. So the parent takes them, and hands each to the next worker
over a pair of sockets. That costs some tens of microseconds for a connection, and nothing for a request. It lets go of
one when the worker says that it has it: what was handed to one that died meanwhile goes to another.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

BACKLOG = 1024
"""Connections that wait to be taken."""
RETRY_SECONDS = 0.1
"""Seconds until it is tried again, where nobody could take a connection, or this process has too many files open."""


class Dealer:
    """Takes connections while there is somebody to hand them to; until then they wait."""

    def __init__(self, listening: Sequence[socket.socket]) -> None:
        self._listening = listening
        self._hands: deque[socket.socket] = deque()
        """Whose turn it is first."""
        self._handed: dict[socket.socket, deque[socket.socket]] = {}
        """What each was handed and has not said to have."""
        self._waiting: deque[socket.socket] = deque()
        self._loop = asyncio.get_running_loop()
        for each in listening:
            each.setblocking(False)
            each.listen(BACKLOG)

    def add(self, hand: socket.socket) -> None:
        hand.setblocking(False)
        self._hands.append(hand)
        self._handed[hand] = deque()
        self._loop.add_reader(hand, self._let_go, hand)
        self._begin()

    def retire(self, hand: socket.socket) -> None:
        """It gets no more; what it was handed it takes."""
        if hand in self._hands:
            self._hands.remove(hand)

    def remove(self, hand: socket.socket) -> None:
        if hand in self._handed:
            self._let_go(hand)
            self._loop.remove_reader(hand)
            self.retire(hand)
            self._waiting.extend(self._handed.pop(hand))
            self._begin()
        hand.close()

    def close(self) -> None:
        self._pause()
        for each in (*self._listening, *self._waiting):
            each.close()
        self._listening = ()
        self._waiting.clear()

    def _let_go(self, hand: socket.socket) -> None:
        """Of as many as it has."""
        taken = b""
        with suppress(OSError):
            taken = hand.recv(BACKLOG)
        for _ in taken:
            self._handed[hand].popleft().close()
        if not taken:  # it is gone, and will be removed
            self._loop.remove_reader(hand)

    def _begin(self) -> None:
        if not self._hands:
            self._pause()
            return
        while self._waiting:
            if not self._deal(self._waiting[0]):
                self._loop.call_later(RETRY_SECONDS, self._begin)
                return
            self._waiting.popleft()
        for each in self._listening:
            self._loop.add_reader(each, self._accept, each)

    def _pause(self) -> None:
        for each in self._listening:
            self._loop.remove_reader(each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._pause()
                self._loop.call_later(RETRY_SECONDS, self._begin)
                return
            with suppress(OSError):  # it may be gone already
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._deal(connection):
                self._waiting.append(connection)
                self._pause()
                self._loop.call_later(RETRY_SECONDS, self._begin)
                return

    def _deal(self, connection: socket.socket) -> bool:
        for _ in range(len(self._hands)):
            self._hands.rotate(-1)
            with suppress(OSError):  # full, or gone: the next one's turn
                socket.send_fds(self._hands[-1], [b"\0"], [connection.fileno()])
                self._handed[self._hands[-1]].append(connection)
                return True
        return False


class Taker:
    """Serves what is handed over, with a protocol for each."""

    def __init__(self, hand: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._hand, self._protocol = hand, protocol
        self._loop = asyncio.get_running_loop()
        self._begun: set[asyncio.Task[None]] = set()
        self._owed = 0
        """Connections that are here, and of which the parent does not know that yet."""
        self._telling: asyncio.TimerHandle | None = None
        hand.setblocking(False)
        self._loop.add_reader(hand, self._take)

    def end(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._loop.remove_reader(self._hand)
        self._hand.close()

    def _take(self) -> None:
        with suppress(OSError):  # there is no more
            while True:
                data, numbers, _flags, _address = socket.recv_fds(self._hand, 1, 1)
                if not data:  # the parent is gone: that is noticed elsewhere
                    self._loop.remove_reader(self._hand)
                    return
                for number in numbers:
                    task = asyncio.ensure_future(self._serve(number))
                    self._begun.add(task)
                    task.add_done_callback(self._begun.discard)
                self._owed += 1
                self._tell()

    def _tell(self) -> None:
        """A parent that hands over many reads nothing meanwhile: what it cannot be told now it is told later."""
        with suppress(OSError):
            while self._owed:
                self._owed -= self._hand.send(bytes(self._owed))
        if self._telling is not None:
            self._telling.cancel()
        self._telling = self._loop.call_later(RETRY_SECONDS, self._tell) if self._owed else None

    async def _serve(self, number: int) -> None:
        connection = socket.socket(fileno=number)
        connection.setblocking(False)
        with suppress(OSError):  # who connected is gone
            await self._loop.connect_accepted_socket(self._protocol, connection)
