"""Threads that work for requests, and are not waited for without end.

Python runs one thread at a time: several that rewrite at once would only take turns, and every turn costs. So one
works, and another is there only while that one is late with what it works on, which may be large, or stuck.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from .types import Clock, RewriteResult

LATE_SECONDS = 0.005
"""Seconds after which a thread is late, and keeps others from work no longer: most requests take a tenth of that."""


class TooLate(Exception):
    """There was no time for it."""

    def __init__(self, errand: Errand | None) -> None:
        super().__init__()
        self.errand = errand
        """Work that goes on; None if no thread has begun with it."""


class Errand:
    """Work for one request. A thread takes it, or who does not want it any more, never both."""

    __slots__ = ("_taken", "outcome", "told", "work")

    def __init__(self, work: Callable[[], RewriteResult], told: asyncio.Future[None]) -> None:
        self.work = work
        self.told = told
        """That it is done, or that there is no time left."""
        self.outcome: RewriteResult | Exception | None = None
        self._taken = threading.Lock()

    def take(self) -> bool:
        return self._taken.acquire(blocking=False)

    @property
    def taken(self) -> bool:
        return self._taken.locked()

    def tell(self) -> None:
        if not self.told.done():
            self.told.set_result(None)


class TurnTaking:
    """The threads: one, and as many more as are late."""

    def __init__(self, count: int, name: str, clock: Clock, over: Callable[[Errand], None]) -> None:
        """`over` is called by the loop with all that is done, whether anybody waits for that or not."""
        self._count = count
        self._name = name
        self._now = clock.monotonic
        self._over = over
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work_queue: SimpleQueue[Errand | None] = SimpleQueue()
        self._done: deque[Errand] = deque()
        self._telling = False
        """The loop was asked to look at what is done."""
        self._since: dict[int, float] = {}
        """By thread that works: since when, on the same errand."""
        self._threads = self._made = 0
        self._lock = threading.Lock()
        """For how many threads there are."""

    def submit(self, work: Callable[[], RewriteResult]) -> Errand:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        errand = Errand(work, self._loop.create_future())
        self._work_queue.put(errand)
        self.help_out()
        return errand

    def help_out(self) -> None:
        """Another thread for what waits, where all that there are are late."""
        if self._threads and (len(self._since) < self._threads or self._late() < self._threads):
            return
        with self._lock:
            if self._threads >= self._count:
                return
            self._threads += 1
        self._made += 1
        threading.Thread(target=self._run, args=(self._made,), name=f"{self._name}_{self._made}", daemon=True).start()

    def _late(self) -> int:
        now = self._now()
        return sum(now - since > LATE_SECONDS for since in list(self._since.values()))

    def _run(self, me: int) -> None:
        """What a thread does."""
        while (errand := self._work_queue.get()) is not None:
            if not errand.take():
                continue
            self._since[me] = self._now()
            try:
                errand.outcome = errand.work()
            except Exception as error:
                errand.outcome = error
            del self._since[me]
            self._done.append(errand)
            del errand  # nothing is held while there is nothing to do
            if not self._telling and self._loop is not None:  # else the loop will come upon this one too
                self._telling = True
                with suppress(RuntimeError):  # it is closed
                    self._loop.call_soon_threadsafe(self._tell)
            if self._threads > 1 and self._retires():
                return

    def _retires(self) -> bool:
        """There is another thread that is not late: this one would only take turns with it."""
        with self._lock:
            if self._threads - self._late() <= 1:
                return False
            self._threads -= 1
            return True

    def _tell(self) -> None:
        self._telling = False  # first: what is done from here on is told again
        while self._done:
            errand = self._done.popleft()
            self._over(errand)
            errand.tell()

    def shutdown(self) -> None:
        """What was begun is not waited for, and what was not is not begun."""
        with suppress(Empty):
            while True:
                if (errand := self._work_queue.get_nowait()) is not None:
                    errand.take()
        for _ in range(self._threads):
            self._work_queue.put(None)


class Workers:
    """Threads that rewrite, and what they are stuck with."""

    def __init__(self, count: int, name: str, clock: Clock) -> None:
        self.stuck: dict[Errand, float] = {}
        """What was given up and is worked on nevertheless, and since when."""
        self.pool = TurnTaking(count, name, clock, self._over)
        self._count = count
        self._clock = clock

    def exhausted(self, budget: float) -> bool:
        """Every thread has been working for long on what was given up: who waits for one would wait in vain."""
        if len(self.stuck) < self._count:
            return False
        now = self._clock.monotonic()
        return all(now - since >= budget for since in self.stuck.values())

    async def finish(
        self,
        work: Callable[[], RewriteResult],
        budget: float,
        end: Callable[[], bool],
        more: Callable[[], Awaitable[float]] | None = None,
    ) -> RewriteResult:
        """Raise `TooLate` if that takes longer than `budget` seconds and `more`, and `end` allows to give it up."""
        errand = self.pool.submit(work)
        watch = _Deadline(errand, budget, self.pool)
        try:
            await errand.told
            if errand.outcome is None and more is not None and (seconds := await more()):
                await self.wait(errand, seconds)
            if errand.outcome is None:
                if end():
                    raise TooLate(errand if self._give_up(errand) else None)
                errand.told = asyncio.get_running_loop().create_future()  # it is being done at the last moment
                await errand.told
        except asyncio.CancelledError:
            end()
            self._give_up(errand)
            raise
        finally:
            watch.stop()
        if isinstance(errand.outcome, Exception):
            raise errand.outcome
        assert errand.outcome is not None
        return errand.outcome

    async def wait(self, errand: Errand, seconds: float) -> None:
        """Wait for the result of some work, for so many seconds at most."""
        if errand.outcome is not None:
            return
        errand.told = asyncio.get_running_loop().create_future()
        watch = _Deadline(errand, seconds, self.pool)
        try:
            if errand.outcome is None:
                await errand.told
        finally:
            watch.stop()

    def _over(self, errand: Errand) -> None:
        self.stuck.pop(errand, None)

    def _give_up(self, errand: Errand) -> bool:
        """Whether it has begun, and so goes on."""
        if errand.take():
            return False
        if errand.outcome is None:
            self.stuck[errand] = self._clock.monotonic()
        return True


class _Deadline:
    """Sees to it that a thread begins with an errand, and that nobody waits for it for too long."""

    def __init__(self, errand: Errand, budget: float, pool: TurnTaking) -> None:
        self._errand = errand
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + budget
        self._timer = self._loop.call_later(min(LATE_SECONDS, budget), self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._until:
            self._errand.tell()
            return
        left = self._until - now
        if not self._errand.taken:
            self._pool.help_out()
            left = min(LATE_SECONDS, left)
        self._timer = self._loop.call_later(left, self._look)

    def stop(self) -> None:
        self._timer.cancel()
