"""Workers that read and measure logs: this process, or all cores. `dask_cluster` has workers on other machines.

A worker gets a function and its argument. Results are yielded as they are ready. Closing the iterator stops the work.
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
    """Workers for use in a `with` block, which stops them at its end."""

    elsewhere: bool
    """Workers may be on other machines: relative paths and local caches differ there."""
    base: str
    """Folder that relative paths are resolved against; empty for the current one."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def run_tasks(
        self,
        call: Callable[[W], R],
        work: Sequence[W],
        alone: bool = False,
        lost_result: Callable[[W], R] | None = None,
    ) -> Iterator[R]:
        """Yield the result of every task as it is ready. Tasks start in order. `alone`: little work, for this process.
        `lost_result` makes the result of a task that killed all its workers, if they can detect that."""


def count_cores() -> int:
    """Count the cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class LocalWorkers:
    """Processes on this machine. They start with the first work for more than one, and stop at the end of the block."""

    elsewhere, base = False, ""

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs or count_cores()
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

    def run_tasks(
        self,
        call: Callable[[W], R],
        work: Sequence[W],
        alone: bool = False,
        lost_result: Callable[[W], R] | None = None,
    ) -> Iterator[R]:
        if alone or min(self._jobs, len(work)) <= 1:
            yield from map(call, work)
            return
        try:
            workers = self._start_pool()  # outside the block: its helper process would unblock the signal
            with _block_interrupts():
                futures = [workers.submit(call, one) for one in work]
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise IbidemError("a worker was stopped, perhaps out of memory: run again with --jobs 1") from None

    def _start_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._before = set(multiprocessing.active_children())
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._jobs, context, initializer=_ignore_interrupts)
        return self._pool


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block Ctrl-C in processes that start in this block, from their first instruction on, if the platform can."""
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
    """Ignore Ctrl-C in a worker. The terminal sends it to every process, but only the main process handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
