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

    def __init__(self, errand: WorkerTask | None) -> None:
        super().__init__()
        self.errand = errand
        """The task if it continues in its thread; None if no thread has started it."""


class WorkerTask:
    """Work for one request. Either a thread claims it, or its caller when it gives up, never both."""

    __slots__ = ("_claim_lock", "outcome", "ready", "work")

    def __init__(self, work: Callable[[], RewriteResult], ready: asyncio.Future[None]) -> None:
        self.work = work
        self.ready = ready
        """Set when the task is done, or when its time is over."""
        self.outcome: RewriteResult | Exception | None = None
        self._claim_lock = threading.Lock()

    def try_claim(self) -> bool:
        """Claim the task. Return False if it was claimed already."""
        return self._claim_lock.acquire(blocking=False)

    @property
    def is_claimed(self) -> bool:
        return self._claim_lock.locked()

    def wake_caller(self) -> None:
        """Wake the caller that waits for the task."""
        if not self.ready.done():
            self.ready.set_result(None)


class WorkerThreads:
    """Worker threads: one, and one more for each that is late."""

    def __init__(self, count: int, name: str, clock: Clock, on_done: Callable[[WorkerTask], None]) -> None:
        """`on_done` is called in the event loop with each finished task, also if no caller waits for it."""
        self._count = count
        self._name = name
        self._now = clock.monotonic
        self._on_done = on_done
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work_queue: SimpleQueue[WorkerTask | None] = SimpleQueue()
        self._done: deque[WorkerTask] = deque()
        self._is_reporting = False
        """True while the event loop is scheduled to report finished tasks."""
        self._since: dict[int, float] = {}
        """Start time of the current task, by thread."""
        self._threads = self._started_count = 0
        self._lock = threading.Lock()
        """Protects the number of threads."""

    def submit(self, work: Callable[[], RewriteResult]) -> WorkerTask:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        errand = WorkerTask(work, self._loop.create_future())
        self._work_queue.put(errand)
        self.add_thread()
        return errand

    def add_thread(self) -> None:
        """Start another thread for waiting tasks if all existing ones are late."""
        if self._threads and (len(self._since) < self._threads or self._late_count() < self._threads):
            return
        with self._lock:
            if self._threads >= self._count:
                return
            self._threads += 1
        self._started_count += 1
        threading.Thread(
            target=self._run_tasks, args=(self._started_count,), name=f"{self._name}_{self._started_count}", daemon=True
        ).start()

    def _late_count(self) -> int:
        now = self._now()
        return sum(now - since > LATE_SECONDS for since in list(self._since.values()))

    def _run_tasks(self, number: int) -> None:
        """Run tasks until the queue ends or another thread is enough."""
        while (errand := self._work_queue.get()) is not None:
            if not errand.try_claim():
                continue
            self._since[number] = self._now()
            try:
                errand.outcome = errand.work()
            except Exception as error:
                errand.outcome = error
            del self._since[number]
            self._done.append(errand)
            del errand  # no reference to the task while the thread waits
            if not self._is_reporting and self._loop is not None:  # else the scheduled report includes this task
                self._is_reporting = True
                with suppress(RuntimeError):  # the event loop is closed
                    self._loop.call_soon_threadsafe(self._report_done)
            if self._threads > 1 and self._try_retire():
                return

    def _try_retire(self) -> bool:
        """Stop this thread if another one is not late. Two threads would only take turns."""
        with self._lock:
            if self._threads - self._late_count() <= 1:
                return False
            self._threads -= 1
            return True

    def _report_done(self) -> None:
        self._is_reporting = False  # first, so that tasks which finish from here on are reported again
        while self._done:
            errand = self._done.popleft()
            self._on_done(errand)
            errand.wake_caller()

    def shutdown(self) -> None:
        """Stop without waiting for running tasks, and do not start waiting ones."""
        with suppress(Empty):
            while True:
                if (errand := self._work_queue.get_nowait()) is not None:
                    errand.try_claim()
        for _ in range(self._threads):
            self._work_queue.put(None)


class Workers:
    """Worker threads, and the abandoned tasks that still occupy a thread."""

    def __init__(self, count: int, name: str, clock: Clock) -> None:
        self.stuck: dict[WorkerTask, float] = {}
        """Abandoned tasks that still run, with the time when they were abandoned."""
        self.pool = WorkerThreads(count, name, clock, self._remove_stuck)
        self._count = count
        self._clock = clock

    def is_exhausted(self, budget: float) -> bool:
        """Return True if every thread has been busy with an abandoned task for `budget` seconds."""
        if len(self.stuck) < self._count:
            return False
        now = self._clock.monotonic()
        return all(now - since >= budget for since in self.stuck.values())

    async def run_task(
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
            await errand.ready
            if errand.outcome is None and more is not None and (seconds := await more()):
                await self.wait_for_task(errand, seconds)
            if errand.outcome is None:
                if end():
                    raise TooLate(errand if self._abandon_task(errand) else None)
                errand.ready = asyncio.get_running_loop().create_future()  # a thread finishes it right now
                await errand.ready
        except asyncio.CancelledError:
            end()
            self._abandon_task(errand)
            raise
        finally:
            watch.stop()
        if isinstance(errand.outcome, Exception):
            raise errand.outcome
        assert errand.outcome is not None
        return errand.outcome

    async def wait_for_task(self, errand: WorkerTask, seconds: float) -> None:
        """Wait at most `seconds` for a task."""
        if errand.outcome is not None:
            return
        errand.ready = asyncio.get_running_loop().create_future()
        watch = _Deadline(errand, seconds, self.pool)
        try:
            if errand.outcome is None:
                await errand.ready
        finally:
            watch.stop()

    def _remove_stuck(self, errand: WorkerTask) -> None:
        self.stuck.pop(errand, None)

    def _abandon_task(self, errand: WorkerTask) -> bool:
        """Abandon a task. Return True if a thread has started it, so that it continues."""
        if errand.try_claim():
            return False
        if errand.outcome is None:
            self.stuck[errand] = self._clock.monotonic()
        return True


class _Deadline:
    """Timer of a task. It starts another thread if no thread claims the task, and wakes the caller at the deadline."""

    def __init__(self, errand: WorkerTask, budget: float, pool: WorkerThreads) -> None:
        self._errand = errand
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + budget
        self._timer = self._loop.call_later(min(LATE_SECONDS, budget), self._check_task)

    def _check_task(self) -> None:
        now = self._loop.time()
        if now >= self._until:
            self._errand.wake_caller()
            return
        seconds = self._until - now
        if not self._errand.is_claimed:
            self._pool.add_thread()
            seconds = min(LATE_SECONDS, seconds)
        self._timer = self._loop.call_later(seconds, self._check_task)

    def stop(self) -> None:
        self._timer.cancel()
