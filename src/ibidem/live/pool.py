"""Threads that rewrite requests, with a time limit for each request.

Python runs one thread at a time, so several threads that rewrite at once only take turns, and each switch costs time.
Normally one thread works. Another one is started only while the first is late with its task, which may be large or
stuck.
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
"""Seconds after which a thread is late and another may start. Most requests take a tenth of that."""


class TooLate(Exception):
    """The time limit of a request has passed."""

    def __init__(self, errand: Errand | None) -> None:
        super().__init__()
        self.errand = errand
        """The task if it continues in its thread; None if no thread has started it."""


class Errand:
    """Work for one request. Either a thread claims it, or its caller when it gives up, never both."""

    __slots__ = ("_taken", "outcome", "told", "work")

    def __init__(self, work: Callable[[], RewriteResult], told: asyncio.Future[None]) -> None:
        self.work = work
        self.told = told
        """Set when the task is done, or when its time is over."""
        self.outcome: RewriteResult | Exception | None = None
        self._taken = threading.Lock()

    def take(self) -> bool:
        """Claim the task. Return False if it was claimed already."""
        return self._taken.acquire(blocking=False)

    @property
    def taken(self) -> bool:
        return self._taken.locked()

    def tell(self) -> None:
        """Wake the caller that waits for the task."""
        if not self.told.done():
            self.told.set_result(None)


class TurnTaking:
    """Worker threads: one, and one more for each that is late."""

    def __init__(self, count: int, name: str, clock: Clock, over: Callable[[Errand], None]) -> None:
        """`over` is called in the event loop with each finished task, also if no caller waits for it."""
        self._count = count
        self._name = name
        self._now = clock.monotonic
        self._over = over
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work_queue: SimpleQueue[Errand | None] = SimpleQueue()
        self._done: deque[Errand] = deque()
        self._telling = False
        """True while the event loop is scheduled to report finished tasks."""
        self._since: dict[int, float] = {}
        """Start time of the current task, by thread."""
        self._threads = self._made = 0
        self._lock = threading.Lock()
        """Protects the number of threads."""

    def submit(self, work: Callable[[], RewriteResult]) -> Errand:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        errand = Errand(work, self._loop.create_future())
        self._work_queue.put(errand)
        self.help_out()
        return errand

    def help_out(self) -> None:
        """Start another thread for waiting tasks if all existing ones are late."""
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
        """Run tasks until the queue ends or another thread is enough."""
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
            del errand  # no reference to the task while the thread waits
            if not self._telling and self._loop is not None:  # else the scheduled report includes this task
                self._telling = True
                with suppress(RuntimeError):  # the event loop is closed
                    self._loop.call_soon_threadsafe(self._tell)
            if self._threads > 1 and self._retires():
                return

    def _retires(self) -> bool:
        """Stop this thread if another one is not late. Two threads would only take turns."""
        with self._lock:
            if self._threads - self._late() <= 1:
                return False
            self._threads -= 1
            return True

    def _tell(self) -> None:
        self._telling = False  # first, so that tasks which finish from here on are reported again
        while self._done:
            errand = self._done.popleft()
            self._over(errand)
            errand.tell()

    def shutdown(self) -> None:
        """Stop without waiting for running tasks, and do not start waiting ones."""
        with suppress(Empty):
            while True:
                if (errand := self._work_queue.get_nowait()) is not None:
                    errand.take()
        for _ in range(self._threads):
            self._work_queue.put(None)


class Workers:
    """Worker threads, and the abandoned tasks that still occupy a thread."""

    def __init__(self, count: int, name: str, clock: Clock) -> None:
        self.stuck: dict[Errand, float] = {}
        """Abandoned tasks that still run, with the time when they were abandoned."""
        self.pool = TurnTaking(count, name, clock, self._over)
        self._count = count
        self._clock = clock

    def exhausted(self, budget: float) -> bool:
        """Return True if every thread has been busy with an abandoned task for `budget` seconds."""
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
        """Run `work` in a thread and return its result.

        Raises `TooLate` after `budget` seconds plus the seconds that `more` returns, if `end` permits to abandon the
        task.
        """
        errand = self.pool.submit(work)
        watch = _Deadline(errand, budget, self.pool)
        try:
            await errand.told
            if errand.outcome is None and more is not None and (seconds := await more()):
                await self.wait(errand, seconds)
            if errand.outcome is None:
                if end():
                    raise TooLate(errand if self._give_up(errand) else None)
                errand.told = asyncio.get_running_loop().create_future()  # a thread finishes it right now
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
        """Wait at most `seconds` for a task."""
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
        """Abandon a task. Return True if a thread has started it, so that it continues."""
        if errand.take():
            return False
        if errand.outcome is None:
            self.stuck[errand] = self._clock.monotonic()
        return True


class _Deadline:
    """Timer of a task. It starts another thread if no thread claims the task, and wakes the caller at the deadline."""

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
