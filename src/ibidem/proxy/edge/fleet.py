"""Several processes on one port (`--workers`): their parent, which serves nothing itself.

It opens the port and hands connections to each in turn (`dealing`), so that none is lost that comes after one has died.
It passes on what they ask each other (`peers`), starts another in place of one that dies, and ends with all of them.
What those who are gone had counted it keeps: sums never fall. For new settings each is replaced in turn (`reload`): the
next one serves before the one before it retires, and that one answers what it has before it ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from typing import Any

from ...errors import IbidemError, one_line
from ..address import Address, Summary
from ..books.closing import ClosingLine, closing_line
from ..page.together import added, counted
from ..settings import Settings
from ..switch import MAX_NAMES
from .dealing import Dealer
from .peers import ANSWER_SECONDS, Channel, FirstWords, Question

END_SECONDS = 10.0
"""Seconds that a worker may take to end, when it is asked to; then it is killed. It needs one or two, seven at most."""
BEGIN_SECONDS = 60.0
"""Seconds that one may take to begin, in place of another that still serves."""
STEADY_SECONDS = 10.0
"""Seconds after which a worker that dies did not die at its start."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before another is started in place of one that did; twice as many each time."""
IN_MEMORY = frozenset({"unmarked", "marks_would_save"})
"""Among the totals, those of conversations in memory."""


class WorkerFailed(IbidemError):
    """A worker could not begin."""


class WorkerProcess:
    """A process, as its parent sees it."""

    def __init__(
        self,
        number: int,
        tidies: bool,
        channel: Channel,
        process: asyncio.subprocess.Process,
        hand: socket.socket,
    ) -> None:
        """Connections are handed to it through `hand`."""
        self.number = number
        self.tidies = tidies
        self.channel = channel
        self.process = process
        self.began = time.monotonic()
        self.hand = hand
        self.failed = ""
        self.figures: dict[str, Any] = {}
        """As it last told them."""
        self.retired = False
        """Another has its place."""
        self.aside = False
        """It has none yet."""
        self.ready: asyncio.Future[Address | None] = asyncio.get_running_loop().create_future()
        """Where it serves; None for one that ended before."""
        self.over = asyncio.Event()
        """It is gone."""
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    @property
    def serves(self) -> bool:
        return self.ready.done() and self.ready.result() is not None

    async def ask(self, question: Question) -> Any:
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.channel.send({"asked": number, "question": question})
        try:
            return await asyncio.wait_for(waiting, ANSWER_SECONDS)
        finally:
            del self._waiting[number]

    def answered(self, number: int, found: Any) -> None:
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(found)

    def fell_silent(self) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()

    def gone(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)
        self.over.set()

    @property
    def end(self) -> str:
        code = self.process.returncode
        if self.failed:
            return self.failed
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


class Fleet:
    """`command` starts a worker; the number of its end of the channel is put behind it. `say` tells the user."""

    def __init__(self, settings: Settings, command: Sequence[str], say: Callable[[str], None]) -> None:
        self._settings = settings
        self._command = command
        self._say = say
        self._started = time.time()
        self._numbers = count(1)
        self._workers: list[WorkerProcess] = []
        self._places: list[WorkerProcess] = []
        """Those among them that serve, or are to."""
        self._gone: dict[str, Any] = {"totals": {}, "events": []}
        self._replaced = 0
        self._all_off = False
        self._off: OrderedDict[str, None] = OrderedDict()
        self._stopping = asyncio.Event()
        self._changing = asyncio.Lock()
        """Held by who puts others in places."""
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run(self, ready: Callable[[Address], None], stop: asyncio.Event) -> Summary:
        """Serve until told to stop. Raises OSError if the address cannot be listened on, `WorkerFailed`."""
        _fill_standard_streams()
        sockets = await _listening(self._settings.host, self._settings.port)
        port, self._dealer = sockets[0].getsockname()[1], Dealer(sockets)
        kept: list[asyncio.Future[None]] = []
        try:
            await self._fill()
            kept += [asyncio.ensure_future(self._keep(number)) for number in range(self._settings.workers)]
            stopped, begun = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._all_ready())
            await asyncio.wait((stopped, begun), return_when=asyncio.FIRST_COMPLETED)
            if begun.done():
                host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
                ready(begun.result()._replace(url=f"http://{host}:{port}", port=port))
            begun.cancel()
            await stopped
        finally:
            await self._end(kept)
        found = self._gone
        return Summary(closing_line(ClosingLine(self._settings.observe, found.get("closing")), found["totals"]), found)

    def kill(self) -> None:
        """At once."""
        for each in self._workers:
            with suppress(ProcessLookupError):
                each.process.kill()

    # ── one place among them, and who is in it ──────────────────────────────────────────────────────────────────────

    async def _fill(self) -> None:
        try:
            while len(self._places) < self._settings.workers:
                self._places.append(await self._begin())
        except OSError as error:
            told = one_line(error.strerror or str(error))
            raise WorkerFailed(f"workers: {told}: allow more files and processes, or fewer --workers") from None

    async def _all_ready(self) -> Address:
        found: list[Address] = await asyncio.gather(*map(_began, self._places))
        return found[0]

    async def _keep(self, place: int) -> None:
        """Filled again whenever it is empty."""
        pause, served = 0.0, False
        while not self._stopping.is_set():
            worker = self._places[place]
            await worker.over.wait()
            served = served or worker.serves
            if self._stopping.is_set() or not served:
                return
            if self._places[place] is not worker:  # it retired
                continue
            early = time.monotonic() - worker.began < STEADY_SECONDS
            pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * pause)) if early else 0.0
            self._tell(worker, pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            await self._refill(place, worker)

    async def _refill(self, place: int, gone: WorkerProcess) -> None:
        async with self._changing:
            if self._stopping.is_set() or self._places[place] is not gone:
                return
            try:
                self._places[place] = await self._begin()
                self._replaced += 1
            except OSError as error:  # no more processes, or files: it is tried again, after a pause
                gone.failed = f"cannot be replaced ({error.strerror})"
                gone.began = time.monotonic()

    def reload_soon(self, settings: Settings) -> None:
        self._beside(self.reload(settings))

    async def reload(self, settings: Settings) -> None:
        """Others serve in their places, with these settings. Where one of them cannot, all stay as they are."""
        async with self._changing:
            before, self._settings = self._settings, settings
            news: list[WorkerProcess] = []
            failed = await self._prepare(news)
            if failed:
                self._settings = before
                for new in news:
                    new.retired = True
                    new.channel.send({"stop": True})
                if not self._stopping.is_set():
                    self.note(f"the settings are not taken: {failed}")
                return
            for place, new in enumerate(news):
                self._succeed(place, new)
            self.note("the settings were read again: new processes serve, and the old ones answer what they have")

    async def _prepare(self, news: list[WorkerProcess]) -> str:
        """As many others as there are, each of which could serve; if one cannot, why."""
        for old in self._places:
            try:
                news.append(new := await self._begin(old, aside=True))
            except OSError as error:
                return f"a worker process: {error.strerror}"
            await asyncio.wait((new.ready,), timeout=BEGIN_SECONDS)
            if not new.ready.done():
                new.process.kill()
                await new.over.wait()
            if not new.serves or new.over.is_set():
                return new.failed or f"a worker process: {new.end}"
        return "a worker process ended at once" if any(new.hand.fileno() < 0 for new in news) else ""

    def _succeed(self, place: int, new: WorkerProcess) -> None:
        """It has this place from now on."""
        old, self._places[place] = self._places[place], new
        new.aside = False
        self._dealer.add(new.hand)
        old.retired = True
        self._dealer.retire(old.hand)
        old.channel.send({"retire": True})

    async def _begin(self, replaced: WorkerProcess | None = None, *, aside: bool = False) -> WorkerProcess:
        """`aside`: it gets no connections until it has a place."""
        (ours, theirs), (hand, taken) = socket.socketpair(), socket.socketpair()
        staying = [each for each in self._workers if each is not replaced and not each.retired]
        number, tidies = next(self._numbers), not any(each.tidies for each in staying)
        handed = theirs.fileno(), taken.fileno()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, str(theirs.fileno()), stdin=asyncio.subprocess.DEVNULL, pass_fds=handed
            )
        except OSError:
            ours.close()
            hand.close()
            raise
        finally:
            theirs.close()  # else it would not show that the worker is gone
            taken.close()
        worker = WorkerProcess(number, tidies, await Channel.over(ours), process, hand)
        settings = {**asdict(self._settings), "upstreams": dict(self._settings.upstreams)}
        first = FirstWords(number, self._started, tidies, self._all_off, list(self._off), settings, handed[1])
        worker.aside = aside
        worker.channel.send(first._asdict())
        self._workers.append(worker)
        if self._stopping.is_set():
            worker.channel.send({"stop": True})
        self._beside(self._attend(worker))
        return worker

    async def _attend(self, worker: WorkerProcess) -> None:
        """Until it is gone."""
        while (told := await worker.channel.receive()) is not None:
            if "answer" in told:
                worker.answered(told["answer"], told["found"])
            elif "ask" in told:
                self._beside(self._pass_on(worker, told["ask"], told["question"]))
            elif "figures" in told:
                worker.figures = told["figures"]
            elif "failed" in told:
                worker.failed = told["failed"]
            elif "ready" in told:
                if not worker.aside:
                    self._dealer.add(worker.hand)
                worker.ready.set_result(Address(*told["ready"]))
        worker.fell_silent()
        self._dealer.remove(worker.hand)
        await worker.channel.close()
        try:
            await asyncio.wait_for(worker.process.wait(), END_SECONDS)
        except TimeoutError:
            worker.process.kill()
            await worker.process.wait()
        self._forget(worker)
        worker.gone()

    def _forget(self, worker: WorkerProcess) -> None:
        """But for what it had counted."""
        self._workers.remove(worker)
        closing = added(each.get("closing", {}) for each in (self._gone, worker.figures))
        self._gone = {**counted((self._gone, worker.figures)), "closing": closing}
        if not self._stopping.is_set():  # that was of conversations which it had in memory
            self._gone["totals"].update(dict.fromkeys(IN_MEMORY & {*self._gone["totals"]}, 0))

    def _tell(self, worker: WorkerProcess, pause: float) -> None:
        when = f"in {pause:g} s, since it had only just begun" if pause else "now"
        if worker.failed and worker.serves:
            when = f"in {pause:g} s"
        self.note(f"a worker process (pid {worker.process.pid}) {worker.end}: another is started {when}")

    def note(self, told: str) -> None:
        """For the user, here and on the page."""
        text = one_line(told)
        self._say(text)
        event = {"at": time.time(), "kind": "worker", "conversation": "", "text": text}
        self._gone["events"] = [event, *self._gone["events"]]

    async def _end(self, kept: Sequence[asyncio.Future[None]]) -> None:
        self._stopping.set()
        self._dealer.close()
        for worker in self._workers:
            worker.channel.send({"stop": True})
        ending: list[asyncio.Future[Any]] = [
            *kept,
            *(asyncio.ensure_future(each.over.wait()) for each in self._workers),
        ]
        late = (await asyncio.wait(ending, timeout=END_SECONDS))[1] if ending else set()
        if late:
            self.kill()
            await asyncio.wait(late)

    # ── what they ask each other ────────────────────────────────────────────────────────────────────────────────────

    async def _pass_on(self, asker: WorkerProcess, number: int, question: Question) -> None:
        """To all others, and what they say back. Of figures, those of who is gone or does not answer as last known."""
        if question["what"] == "switch":
            self._switched(question)
        others = [each for each in self._workers if each is not asker and each.serves]
        found = await asyncio.gather(*(each.ask(question) for each in others), return_exceptions=True)
        answers = [each for each in found if not isinstance(each, BaseException)]
        silent = [each for each, answer in zip(others, found, strict=True) if isinstance(answer, BaseException)]
        if question["what"] == "state":
            answers += [each.figures for each in silent] + [self._gone]
        asker.channel.send({"answered": number, "found": answers, "fleet": self._about(len(silent))})

    def _about(self, silent: int) -> dict[str, Any]:
        running = [each.process.pid for each in self._workers if each.serves and not (each.retired or each.aside)]
        wanted = self._settings.workers
        return {"count": wanted, "running": len(running), "silent": silent, "replaced": self._replaced, "pids": running}

    def _switched(self, question: Question) -> None:
        """Kept for those who begin later."""
        if question["all"]:
            self._all_off = question["off"]
            self._off.clear()
            return
        for name in question["names"]:
            if question["off"]:
                self._off[name] = None
            else:
                self._off.pop(name, None)
        while len(self._off) > MAX_NAMES:
            self._off.popitem(last=False)

    def _beside(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _began(worker: WorkerProcess) -> Address:
    address = await asyncio.shield(worker.ready)
    if address is None:
        raise WorkerFailed(worker.failed or f"a worker process: {worker.end}: try --workers 1")
    return address


async def _listening(host: str, port: int) -> list[socket.socket]:
    """As a server would open them."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    found = [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]
    server.close()
    return found


def _fill_standard_streams() -> None:
    """Where a process was started without one of them, what is opened next would take its number, and is handed on."""
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
