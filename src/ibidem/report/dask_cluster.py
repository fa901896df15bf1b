"""Workers of a running Dask cluster, for reports that are too large for one machine.

Its scheduler and its workers need the same version of ibidem as this process. Workers open logs by path or URL, so
paths must be on a shared disk. If a worker dies, another one repeats its tasks.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Generic, Self, TypeVar

from ..environment import install_command
from ..errors import IbidemError

W = TypeVar("W")
R = TypeVar("R")

CONNECT_SECONDS = 10.0
WORKERS_WITHIN = 60.0
"""Seconds that a cluster may be without workers. Some clusters start workers on demand."""
POLL_SECONDS = 0.02
"""Interval between checks for finished tasks."""
COUNT_SECONDS = 2.0
"""Interval between checks for workers."""
GREETING_BYTES = 1 << 20
"""Limit for the length of a scheduler's greeting. Other servers start with text, which is a much larger number."""
PACKAGES = ("ibidem-llm", "genai-prices")
"""Packages whose versions change the results."""


@dataclass(frozen=True, slots=True)
class VersionCheckedCall(Generic[W, R]):
    """Function for a worker that first compares package versions: with other versions, results differ."""

    call: Callable[[W], R]
    versions: tuple[str, ...]

    def __call__(self, one: W) -> R:
        if (here := package_versions()) != self.versions:
            theirs = " and ".join(f"{name} {version}" for name, version in zip(PACKAGES, here, strict=True))
            ours = " and ".join(f"{name} {version}" for name, version in zip(PACKAGES, self.versions, strict=True))
            raise IbidemError(f"a worker of the cluster has {theirs}, and this process {ours}: install the same there")
        return self.call(one)


def package_versions() -> tuple[str, ...]:
    return tuple(map(metadata.version, PACKAGES))


class DaskWorkers:
    """Workers of an existing cluster. Raises IbidemError if the scheduler does not answer."""

    elsewhere = True

    def __init__(self, scheduler: str) -> None:
        try:
            import distributed
        except ImportError:
            raise IbidemError(f"--engine dask needs distributed. Install it: {install_command('dask')}") from None
        self.base = os.getcwd()
        self._address, self._dask = scheduler, distributed
        for name in [each for each in logging.root.manager.loggerDict if each.startswith("distributed")]:
            logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are reported below, in one line
        try:
            _check_scheduler(scheduler, distributed.comm.get_address_host_port(scheduler))
            self._client = distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise IbidemError(f"no Dask scheduler at {scheduler} ({error}): start one, or name another") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def run_tasks(
        self,
        call: Callable[[W], R],
        work: Sequence[W],
        alone: bool = False,
        lost_result: Callable[[W], R] | None = None,
    ) -> Iterator[R]:
        pieces = list(work)
        if not pieces:
            return
        with self._translate_errors():
            futures = self._client.map(VersionCheckedCall(call, package_versions()), pieces, pure=False)
            numbers = {future.key: number for number, future in enumerate(futures)}
            waiting = self._dask.as_completed(futures, loop=self._client.loop)
        del futures  # a reference here would keep results in the cluster's memory
        for done_future in self._finished_futures(waiting):
            try:
                with self._translate_errors():
                    result: R = done_future.result()
            except self._dask.scheduler.KilledWorker:
                if lost_result is None:
                    raise IbidemError("workers died, perhaps out of memory: give them more") from None
                result = lost_result(pieces[numbers[done_future.key]])
            yield result
            done_future.release()

    def _finished_futures(self, waiting: Any) -> Iterator[Any]:
        """Yield futures as they finish. Raises IbidemError if the cluster has no workers for `WORKERS_WITHIN`."""
        last_seen = last_check = time.monotonic()
        while waiting.count():
            batch = waiting.next_batch(block=False)
            yield from batch
            now = time.monotonic()
            if batch:
                last_seen = now
                continue
            if now - last_check > COUNT_SECONDS:
                with self._translate_errors():
                    last_check, last_seen = now, now if self._client.nthreads() else last_seen
            if now - last_seen > WORKERS_WITHIN:
                fix = f"start some (dask worker {self._address}), or name another"
                raise IbidemError(f"the cluster at {self._address} has no workers: {fix}")
            time.sleep(POLL_SECONDS)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of the connection to the cluster into IbidemError."""
        try:
            yield
        except (self._dask.scheduler.KilledWorker, IbidemError):
            raise
        except (self._dask.client.FutureCancelledError, self._dask.CancelledError, OSError):
            raise IbidemError(f"lost the Dask scheduler at {self._address}: start it, and run again") from None
        except (ImportError, RuntimeError) as error:  # RuntimeError: the scheduler could not deserialize the task
            if isinstance(error, RuntimeError) and "deserializ" not in str(error):
                raise
            fix = f"install version {package_versions()[0]} on all of its machines: {install_command('dask')}"
            raise IbidemError(f"the cluster at {self._address} has no ibidem, or another one: {fix}") from None


def _check_scheduler(scheduler: str, address: tuple[str, int]) -> None:
    """Check for a scheduler's greeting, which starts with its length: `Client` gives up only after half a minute."""
    with socket.create_connection(address, timeout=CONNECT_SECONDS) as connection:
        if scheduler.partition("://")[0] not in (scheduler, "tcp"):
            return  # with TLS, the client sends first
        try:
            greeting = connection.recv(8, socket.MSG_WAITALL) if hasattr(socket, "MSG_WAITALL") else connection.recv(8)
        except TimeoutError:
            raise OSError("something else answers there") from None
        if len(greeting) < 8 or struct.unpack("<Q", greeting)[0] > GREETING_BYTES:
            raise OSError("something else answers there")
