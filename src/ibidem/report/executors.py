"""Who works: one process, or all cores of this machine, with the same functions; `cluster` has other machines.

A worker is handed a function and what to do with it, and gives results as they are done. Whoever stops asking stops the
work.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

from ..errors import IbidemError

W = TypeVar("W")
R = TypeVar("R")


class LogWorkers(Protocol):
    """Used in a `with` block, at whose end they are gone."""

    elsewhere: bool
    """They may be on other machines, where only what is named in full is the same."""
    base: str
    """The folder from which they have to take names that are not whole; empty for the one they are in."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def each(
        self, call: Callable[[W], R], work: Sequence[W], alone: bool = False, lost: Callable[[W], R] | None = None
    ) -> Iterator[R]:
        """What comes of every piece of work, as it is done; begun in their order. `alone` where it is so little that
        sharing it would take longer; `lost` is what comes of a piece that takes every worker with it, where that can be
        told."""


def cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class LocalWorkers:
    """Processes that start when there is work for more than one, and stay until all is done."""

    elsewhere, base = False, ""

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs or cores()
        self._pool: ProcessPoolExecutor | None = None
        self._before: set[Any] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is None:
            return
        for worker in set(multiprocessing.active_children()) - self._before:
            worker.terminate()
        # The pool's own thread must end here. Left to the end of the interpreter, it may close its pipe just before
        # `concurrent.futures` writes to it, which prints a traceback.
        self._pool.shutdown(wait=True, cancel_futures=True)

    def each(
        self, call: Callable[[W], R], work: Sequence[W], alone: bool = False, lost: Callable[[W], R] | None = None
    ) -> Iterator[R]:
        if alone or min(self._jobs, len(work)) <= 1:
            yield from map(call, work)
            return
        try:
            workers = self._workers()  # not in there: what it starts for them to share hears signals again
            with _uninterrupted():
                futures = [workers.submit(call, one) for one in work]
            for done in as_completed(futures):
                yield done.result()
        except BrokenProcessPool:
            raise IbidemError("a worker was stopped, perhaps for want of memory: run again with --jobs 1") from None

    def _workers(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._before = set(multiprocessing.active_children())
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._jobs, context, initializer=_ignore_interrupts)
        return self._pool


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """LogWorkers that start in here are deaf to Ctrl-C from their first moment on, where the platform can do that."""
    mask = getattr(signal, "pthread_sigmask", None)
    if mask is None:
        yield
        return
    before = mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        mask(signal.SIG_SETMASK, before)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process; only the first one decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
