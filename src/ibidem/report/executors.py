"""Many logs → their figures: on all cores of this machine, or on a Dask cluster, with the same function for each.

The unit of work is a family of logs: a session that was resumed begins with a copy of what it goes on, so files that
begin with the same answer are read together, and what they share is counted once.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..model import IbidemError
from ..recordings import LogError, read
from ..recordings.discovery import LOG_ENDINGS, load
from ..recordings.log import beginning
from .cache import ReportCache
from .figures import FileFigures, Unread
from .measure import ReportSettings, answers_in, measure_log

LogFamily = tuple[str, ...]
"""Paths or URLs."""

OPENING_BYTES = 1 << 18
"""Bytes of a log in which its first answer is looked for."""

_ANSWER = re.compile(rb'"id":\s?"(msg_[^"]{8,80})"')
_CHAT = re.compile(rb'"sessionId":\s?"([^"]{8,80})",\s*"projectHash"')
"""Gemini CLI copies an older chat into a new file, with another ending, when it is resumed."""


def fetch(path: str, first: int | None = None) -> bytes:
    """The content of a log, or its first bytes; a URL is opened with fsspec."""
    if "://" in path:
        with _fsspec().open(path, "rb") as stream:
            data: bytes = stream.read() if first is None else stream.read(first)
            return data
    if first is None:
        return load(Path(path))
    if Path(path).is_dir():
        return b""
    with open(path, "rb") as file:
        return file.read(first)


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError:
        raise IbidemError("logs at a URL need fsspec: pip install 'ibidem-llm[dask]'") from None
    return fsspec


def below(url: str) -> list[str]:
    """The logs at a URL: itself, or those in the folder that it is."""
    try:
        system, path = _fsspec().core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise IbidemError(f"{url}: {error}") from None
    if not system.isdir(path):
        return [url]
    names = [each for each in sorted(system.find(path)) if each.endswith(LOG_ENDINGS)]
    return [system.unstrip_protocol(each) for each in names]


def families(paths: Sequence[str]) -> list[LogFamily]:
    """Logs that belong together, the largest first, so that no worker is left with a large one at the end."""
    found: dict[str, list[str]] = {}
    for path in paths:
        try:
            answer = _begun(path)
        except OSError:
            answer = None  # whoever reads it will say so
        found.setdefault(answer[1].decode() if answer else path, []).append(path)
    grown = [tuple(sorted(family, key=_size)) for family in found.values()]
    return sorted(grown, key=lambda family: -sum(map(_size, family)))


def _begun(path: str) -> re.Match[bytes] | None:
    """A packed copy belongs to the log that it is a copy of, too."""
    if not path.endswith(LOG_ENDINGS):
        return None
    opening = beginning(fetch(path, OPENING_BYTES), OPENING_BYTES)
    lines = path.removesuffix(".gz").removesuffix(".zst").endswith(".jsonl")
    return (_ANSWER.search(opening) if lines else None) or _CHAT.search(opening)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _state(path: str) -> str:
    """Changes whenever the file does; empty where that cannot be told."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return "" if os.path.isdir(path) else f"{os.path.abspath(path)} {found.st_size} {found.st_mtime_ns}"


def look(family: LogFamily, settings: ReportSettings, memory: ReportCache | None = None) -> list[FileFigures]:
    """The figures of a family of logs. What cannot be read is named in them."""
    states = [_state(path) for path in family]
    if memory is not None and (remembered := recall(states, memory)) is not None:
        return remembered
    contents: list[tuple[str, bytes]] = []
    found: list[FileFigures] = []
    for path in family:
        try:
            contents.append((path, fetch(path)))
        except (OSError, LogError) as error:
            found.append(FileFigures(unread=[Unread(path, _why(error, path))]))
    # The path is part of the figures, so it is part of what is remembered.
    digests = [hashlib.sha256(path.encode("utf-8", "replace") + b"\0" + data).hexdigest() for path, data in contents]
    if memory is not None and (remembered := memory.figures(digests)) is not None:
        if not found:
            memory.keep(states, digests, remembered)
        return remembered + found
    known: frozenset[str] = frozenset()
    figures = []
    for path, data in contents:
        figures.append(_measured(path, data, settings, known))
        if len(family) > 1:
            known |= _answers(path, data)
    if memory is not None and not found:
        memory.keep(states, digests, figures)
    return figures + found


def _why(error: Exception, path: str) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: ")


def recall(states: Sequence[str], memory: ReportCache) -> list[FileFigures] | None:
    """The figures of logs that did not change since they were read: they are not even opened."""
    digests = [memory.digest(state) if state else None for state in states]
    known = [digest for digest in digests if digest is not None]
    return memory.figures(known) if len(known) == len(states) else None


def _measured(path: str, data: bytes, settings: ReportSettings, known: frozenset[str]) -> FileFigures:
    """One log that breaks us must not take the others with it."""
    try:
        return measure_log(path, data, settings, known)
    except IbidemError:
        raise  # the settings are wrong, not the log
    except Exception as error:
        why = f"this is a fault of ibidem: please report it ({type(error).__name__}: {error})"
        return FileFigures(unread=[Unread(path, why)], size=len(data))


def _answers(path: str, data: bytes) -> frozenset[str]:
    try:
        return frozenset(answer for session in read(path, data) for answer in answers_in(session))
    except LogError:
        return frozenset()


def cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def on_this_machine(
    work: Sequence[LogFamily], settings: ReportSettings, memory: ReportCache | None = None, jobs: int | None = None
) -> Iterator[list[FileFigures]]:
    """Figures of every family, as they are done. Whoever stops asking stops the workers."""
    jobs = min(jobs or cores(), len(work))
    if jobs <= 1:
        yield from (look(family, settings, memory) for family in work)
        return
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, context, initializer=_ignore_interrupts)
    try:
        with _uninterrupted():
            futures = [pool.submit(look, family, settings, memory) for family in work]
        for done in as_completed(futures):
            yield done.result()
    except BrokenProcessPool:
        raise IbidemError("a worker was stopped, perhaps for want of memory: run again with --jobs 1") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(multiprocessing.active_children()) - before:
            worker.terminate()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Workers that start in here are deaf to Ctrl-C from their first moment on, where the platform can do that."""
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


def on_dask(work: Sequence[LogFamily], settings: ReportSettings, scheduler: str) -> Iterator[list[FileFigures]]:
    """Figures of logs from an existing cluster, whose workers have ibidem installed and reach the logs by name."""
    try:
        import distributed
    except ImportError:
        raise IbidemError("--engine dask needs: pip install 'ibidem-llm[dask]'") from None
    try:
        with socket.create_connection(distributed.comm.get_address_host_port(scheduler), timeout=10):
            pass  # a Client that fails to connect takes 20 s and a traceback to go away
        client = distributed.Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise IbidemError(f"no Dask scheduler at {scheduler} ({error}): start one, or name another") from None
    with client:
        futures = client.map(look, work, settings=settings, pure=False)
        for done in distributed.as_completed(futures, loop=client.loop):
            yield done.result()
            done.release()
