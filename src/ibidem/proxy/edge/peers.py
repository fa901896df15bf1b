"""The other processes of the same proxy (`--workers`), as one of them sees them.

Each is whole: its own loop, conversations and figures. What one of them is asked that concerns all (figures, a
conversation by its id, off and on) it asks the others through their parent, over a pair of sockets without a name,
which no other process can open. That the parent is gone shows there too: whoever finds it closed ends.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

Question = Mapping[str, Any]
"""`what` says what is asked for."""

ANSWER_SECONDS = 2.0
"""Seconds that others have for an answer; who asks waits twice as long for all of them."""
TELL_SECONDS = 0.5
"""Seconds between two times that a worker's figures are told to the parent, which keeps those of who is killed."""

_LENGTH = struct.Struct(">I")


class Answers(NamedTuple):
    """Of all others."""

    found: Sequence[Any] = ()
    fleet: Mapping[str, Any] | None = None
    """How many processes there are, and which of them did not answer; None where there is only this one."""


class FirstWords(NamedTuple):
    """What a worker is told at its start."""

    number: int
    started: float
    """When the first of them was."""
    tidies: bool
    """It is the one that looks after the store."""
    all_off: bool
    off: Sequence[str]
    """Names in the store of conversations that are off."""
    settings: Mapping[str, Any]
    hand: int
    """The file descriptor that connections come from."""


class Alone:
    """The only process of its proxy."""

    prefix = ""
    """What ids begin with, so that no two processes give out the same."""
    first: FirstWords | None = None
    retired: asyncio.Event | None = None
    """Set when another process has taken this one's place: it takes no more connections, and answers what it has."""

    async def ask(self, question: Question) -> Answers:
        """What the others say to that."""
        return Answers()

    def tell(self, question: Question) -> None:
        """As `ask`, for who needs no answer."""

    def begin(self, answer: Callable[[Question], Any], figures: Callable[[], Any], stop: asyncio.Event) -> None:
        """From here on this one answers too. `figures` are None while nothing has changed."""

    async def end(self, figures: Any) -> None:
        """The last ones."""


ALONE = Alone()


class Peers(Alone):
    def __init__(self, channel: Channel, first: FirstWords) -> None:
        self.prefix = f"w{first.number}-"
        self.first = first
        self.retired: asyncio.Event = asyncio.Event()
        self._channel = channel
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Answers]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self, question: Question) -> Answers:
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._channel.send({"ask": number, "question": question})
        try:
            return await asyncio.wait_for(waiting, 2 * ANSWER_SECONDS)
        except TimeoutError:
            return Answers((), {"silent": 1})
        finally:
            del self._waiting[number]

    def tell(self, question: Question) -> None:
        self._channel.send({"ask": 0, "question": question})

    def ready(self, address: Sequence[Any]) -> None:
        self._channel.send({"ready": address})

    def begin(self, answer: Callable[[Question], Any], figures: Callable[[], Any], stop: asyncio.Event) -> None:
        self._tasks = [asyncio.ensure_future(self._listen(answer, stop)), asyncio.ensure_future(self._report(figures))]

    async def _listen(self, answer: Callable[[Question], Any], stop: asyncio.Event) -> None:
        try:
            while (told := await self._channel.receive()) is not None and "stop" not in told:
                if "asked" in told:
                    self._channel.send({"answer": told["asked"], "found": answer(told["question"])})
                elif "retire" in told:
                    self.retired.set()
                elif (waiting := self._waiting.get(told["answered"])) is not None and not waiting.done():
                    waiting.set_result(Answers(told["found"], told["fleet"]))
        finally:
            stop.set()

    async def _report(self, figures: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(TELL_SECONDS)
            if (found := figures()) is not None:
                self._channel.send({"figures": found})

    async def fail(self, why: str) -> None:
        """This one cannot begin."""
        self._channel.send({"failed": why})
        await self._channel.close()

    async def end(self, figures: Any) -> None:
        for task in self._tasks:
            task.cancel()
        self._channel.send({"figures": figures})
        await self._channel.close()


class Channel:
    """JSON documents over a socket, one after the other, both ways."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, own: socket.socket) -> Channel:
        return cls(*await asyncio.open_unix_connection(sock=own))

    def send(self, document: Mapping[str, Any]) -> None:
        data = json.dumps(document).encode()
        if not self._writer.is_closing():
            self._writer.write(_LENGTH.pack(len(data)) + data)

    async def receive(self) -> dict[str, Any] | None:
        """None once the other side is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            found: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None
        return found

    async def close(self) -> None:
        """All that was said is on its way."""
        with suppress(OSError):
            await self._writer.drain()
            self._writer.close()
            await self._writer.wait_closed()
