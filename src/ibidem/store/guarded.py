"""Deadlines and a circuit breaker for any store, so that no caller waits long for a disk or a server that hangs.

`GuardedStore(store)` makes its calls in two threads and waits for each until a deadline. A call that timed out may
still finish later. Its result is dropped, but a write may still happen. A caller may repeat it: `put` is idempotent and
`note` is conditional on its place. (`save` is not: a late one replaces a newer state. Nothing in Ibidem saves.)

The breaker opens after a time-out, or after two errors in a row. While it is open, calls fail at once with StoreError.
After a pause, one call is let through as a trial. If the store answers within the call's deadline, the breaker closes;
else the pause doubles. Inside `until`, the caller of a trial waits for `TRIAL_SECONDS` only.
Two things do not count against the store:

- an error whose message names a reference that the caller passed: it is malformed, or another text has it;
- a time-out of a call that had less than `FAIR_SECONDS`: earlier calls had used up its deadline.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakSet

from .memory import MemoryStore
from .store import Limits, Store, StoreError

DEFAULT_SECONDS, CLEANUP_SECONDS, CLOSE_SECONDS = 15.0, 600.0, 2.0
"""Deadlines outside of `until`: of calls in the background, of those that delete slice by slice, and of `close`."""
FAIR_SECONDS, TRIAL_SECONDS = 0.01, 0.05
MAX_THREADS, IDLE_SECONDS = 2, 10.0
"""A thread without a call for so long ends. The next call starts it again."""
MAX_ERRORS, FIRST_PAUSE, LONGEST_PAUSE = 2, 1.0, 30.0
"""Errors in a row that open the breaker, and the seconds for which it stays open."""

log = logging.getLogger("ibidem")
_numbers = count(1)
_deadline: ContextVar[float] = ContextVar("ibidem-store-deadline", default=math.inf)


class StoreUnavailable(StoreError):
    """A call that was not made, or not answered in time. `reason` is the same for all such calls, for counting."""

    def __init__(self, where: str, what: str, reason: str) -> None:
        super().__init__(where, what)
        self.args = (where, what, reason)
        self.reason = reason


def _guard_method(name: str, usual: float = DEFAULT_SECONDS) -> Any:
    """The method `name` of the store, with a deadline."""

    @functools.wraps(getattr(Store, name))
    def guarded_method(self: GuardedStore, *args: Any, **keyword_args: Any) -> Any:
        if self._in_memory:
            return getattr(self._store, name)(*args, **keyword_args)
        # Copies, because the call may still read its arguments after the caller has changed its own.
        args = tuple(map(_copy_argument, args))
        keyword_args = {key: _copy_argument(value) for key, value in keyword_args.items()}
        return self._make_call(
            _Call(lambda: getattr(self._store, name)(*args, **keyword_args)), usual, (*args, *keyword_args.values())
        )

    return guarded_method


class GuardedStore(Store):
    """A store whose calls end at a deadline, safe to use from several threads."""

    def __init__(
        self,
        store: Store,
        *,
        in_memory: bool | None = None,
        on_change: Callable[[str], None] = log.warning,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`in_memory`: make calls directly, without threads and breaker (default: if `store` is a plain MemoryStore).

        `on_change` gets a sentence when the breaker opens and when it closes.
        """
        self.where = store.where
        self._store, self._on_change, self._clock = store, on_change, clock
        # A subclass may do anything, also hang: it needs `in_memory=True`.
        self._in_memory = type(store) is MemoryStore if in_memory is None else in_memory
        self._reset_state()
        _all.add(self)

    def _reset_state(self) -> None:
        self._threads, self._lock = _Threads(), threading.Lock()
        self._pause = self._retry_at = 0.0  # a pause of 0 means closed
        self._trial, self._reason = False, ""
        self._errors_in_a_row, self._counts = 0, {"timeouts": 0, "errors": 0, "refused": 0}

    def __reduce__(self) -> tuple[Any, ...]:
        return GuardedStore, (self._store,)

    @property
    def limits(self) -> Limits:
        return self._store.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._store.limits = limits

    @contextmanager
    def time_limit(self, seconds: float) -> Iterator[None]:
        """Set the deadline for all calls in the `with` block. If blocks are nested, the earliest deadline applies."""
        token = _deadline.set(min(_deadline.get(), self._clock() + seconds))
        try:
            yield
        finally:
            _deadline.reset(token)

    @property
    def health(self) -> dict[str, float]:
        """Whether the breaker is `open`, seconds until it lets a call through (`retry_in`), and counts of calls."""
        with self._lock:
            wait = max(0.0, self._retry_at - self._clock()) if self._pause else 0.0
            return {"open": self._pause > 0, "retry_in": wait, **self._counts}

    put, get, refs = _guard_method("put"), _guard_method("get"), _guard_method("refs")
    place, places = _guard_method("place"), _guard_method("places")
    save, load = _guard_method("save"), _guard_method("load")
    note, notes = _guard_method("note"), _guard_method("notes")
    forget, forget_all = _guard_method("forget"), _guard_method("forget_all", CLEANUP_SECONDS)
    forget_older, prune = _guard_method("forget_older", CLEANUP_SECONDS), _guard_method("prune", CLEANUP_SECONDS)
    stats = _guard_method("stats")

    def close(self) -> None:
        """Close the store, also while the breaker is open. If that takes too long, return without an error."""
        call = _Call(self._store.close)
        if self._in_memory:
            self._store.close()
        elif self._threads.make(call, max(0.0, self._seconds_left(CLOSE_SECONDS))) and call.error is not None:
            raise call.error

    def _make_call(self, call: _Call, usual: float, args: Iterable[object]) -> Any:
        seconds = self._seconds_left(usual)
        trial, waits = self._admit_call(seconds), seconds
        if trial and _deadline.get() != math.inf and seconds > TRIAL_SECONDS:
            waits = TRIAL_SECONDS
            call.on_late = functools.partial(self._close_late, self._clock() + seconds)
        try:
            has_answered = self._threads.make(call, waits)
        except BaseException:  # the caller was interrupted, which is not a fault of the store
            self._trial = self._trial and not trial
            raise
        error = call.error if has_answered else self._timeout_error(waits)
        is_excused = waits < FAIR_SECONDS if not has_answered else _is_callers_fault(error, args)
        self._record_result(trial, has_answered, error, is_excused)
        if error is None:
            return call.result
        try:
            raise error
        finally:
            del error, call  # break the reference cycle through the traceback

    def _timeout_error(self, seconds: float) -> StoreError:
        advice = "check that it runs, and that no process keeps it locked"
        problem = f"did not answer within {seconds * 1000:.0f} ms: {advice}"
        return StoreUnavailable(self.where, problem, "the store did not answer in time")

    def _seconds_left(self, usual: float) -> float:
        deadline = _deadline.get()
        return usual if deadline == math.inf else min(deadline - self._clock(), threading.TIMEOUT_MAX)

    def _admit_call(self, seconds: float) -> bool:
        """Return whether the call is a trial. Raises StoreError if the call is rejected."""
        with self._lock:
            wait = self._retry_at - self._clock()
            # While both threads are stuck, a trial could only wait for them and would not show the store's state.
            can_try = wait <= 0 and not self._trial and self._threads.stuck < MAX_THREADS
            if seconds > 0 and (can_try or not self._pause):
                self._trial = self._trial or self._pause > 0
                return self._pause > 0
            self._counts["refused"] += 1
        if seconds <= 0:
            problem = "was not called, because no time was left: earlier calls had used it up"
            raise StoreUnavailable(self.where, problem, "the store did not answer in time")
        when = f"for {max(wait, 0.1):.1f} s" if wait > 0 else "yet"
        problem = f"is not called {when} after {self._reason}"
        raise StoreUnavailable(self.where, problem, "the store is not called for a while after a failure")

    def _record_result(self, trial: bool, has_answered: bool, error: BaseException | None, is_excused: bool) -> None:
        with self._lock:
            was_open = self._pause > 0
            self._trial = self._trial and not trial
            self._counts["timeouts"] += not has_answered
            if error is None:
                self._errors_in_a_row = 0
                self._pause = 0.0 if trial else self._pause
            elif not is_excused:
                self._counts["errors"] += has_answered
                self._errors_in_a_row += 1
                if trial or (not was_open and (not has_answered or self._errors_in_a_row >= MAX_ERRORS)):
                    self._pause = min(2 * self._pause, LONGEST_PAUSE) or FIRST_PAUSE
                    self._retry_at = self._clock() + self._pause
                    what = error.what if isinstance(error, StoreError) else type(error).__name__
                    self._reason = f"it failed ({what})" if has_answered else "it did not answer"
            is_open, reason = self._pause > 0, self._reason
        if is_open != was_open:
            self._report_change(f"is not called for {FIRST_PAUSE:g} s after {reason}" if is_open else "answers again")

    def _close_late(self, deadline: float) -> None:
        """Close the breaker if a trial succeeds before the deadline but after its caller stopped waiting."""
        with self._lock:
            closes = self._pause > 0 and self._clock() <= deadline
            if closes:
                self._pause, self._errors_in_a_row = 0.0, 0
        if closes:
            self._report_change("answers again")

    def _report_change(self, news: str) -> None:
        with suppress(Exception):
            self._on_change(f"The store {self.where} {news}.")


def _copy_argument(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | tuple) else value


def _is_callers_fault(error: BaseException | None, args: Iterable[object]) -> bool:
    """Return whether the caller caused the error: the message has a reference of the call.

    Stores name references only if they are malformed or belong to another text.
    """
    refs = [ref for arg in args if isinstance(arg, dict | list) for ref in arg if isinstance(ref, str)]
    return isinstance(error, StoreError) and any(ref in error.what for ref in refs)


class _Call:
    """A store call, shared between the thread that waits for it and the thread that makes it."""

    __slots__ = ("answered", "ask", "error", "has_ended", "is_dropped", "on_late", "result")

    def __init__(self, ask: Callable[[], Any]) -> None:
        self.ask: Callable[[], Any] | None = ask
        """Function to call; None after a thread has started it or the caller has dropped it."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.has_ended = self.is_dropped = False
        self.on_late: Callable[[], None] | None = None
        """Called if the call succeeds after its caller stopped waiting."""
        self.answered = threading.Lock()
        self.answered.acquire()


class _Threads:
    """Pool of at most two threads that make calls in order. Threads start when needed."""

    def __init__(self) -> None:
        self.stuck = 0
        """Number of threads in a call whose caller no longer waits."""
        self._lock, self._calls = threading.Lock(), SimpleQueue[_Call]()
        self._running = self._unfinished = 0

    def make(self, call: _Call, seconds: float) -> bool:
        """Make a call, and return whether it ended in time. If it has not started by then, it is dropped."""
        with self._lock:
            if self._unfinished >= self._running and self._running < MAX_THREADS:
                threading.Thread(target=self._run_calls, name=f"ibidem-store-{next(_numbers)}", daemon=True).start()
                self._running += 1
            self._unfinished += 1
            self._calls.put(call)
        try:
            call.answered.acquire(timeout=seconds)
        finally:
            with self._lock:
                if not call.has_ended:
                    call.is_dropped, has_begun, call.ask = True, call.ask is None, None
                    self.stuck += has_begun
                    self._unfinished -= not has_begun
        return not call.is_dropped

    def _run_calls(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._calls.empty():
                        self._running -= 1
                        return
                continue
            with self._lock:
                ask, call.ask = call.ask, None
            if ask is not None:
                try:
                    call.result = ask()
                except BaseException as error:
                    call.error = error
                with self._lock:
                    call.has_ended = True
                    self._unfinished -= 1
                    self.stuck -= call.is_dropped
                call.answered.release()
                if call.is_dropped and call.error is None and call.on_late is not None:
                    call.on_late()
            del call, ask  # free the texts of the call while the thread is idle


_all: WeakSet[GuardedStore] = WeakSet()


def _after_fork() -> None:
    """Reset all stores in a forked child. It has none of the parent's threads, but may have their locks."""
    for store in list(_all):
        store._reset_state()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
