"""From names of logs to facts, and from facts to work.

Reading comes first and says what was paid. Then every family of logs is measured: a session that was resumed begins
with a copy of what it goes on, so logs that hold the same answer are measured together, and what they share counts
once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..model import IbidemError
from ..recordings import LogError, read
from ..recordings.discovery import LOG_ENDINGS, load
from .cache import ReportCache
from .executors import LogWorkers
from .facts import FileFacts, SessionFacts, read_facts
from .figures import FileFigures, Unread
from .measure import ReportSettings, answers_in, measure_log
from .selection import Chosen, Selection

READ_ALONE_BYTES = 20 << 20
"""Bytes of logs that are read in less time than it takes to start processes."""


def fetch(path: str) -> bytes:
    """The content of a log; a URL is opened with fsspec."""
    if "://" not in path:
        return load(Path(path))
    with _fsspec().open(path, "rb") as stream:
        data: bytes = stream.read()
        return data


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
    logs = (each for each in sorted(system.find(path)) if each.endswith(LOG_ENDINGS))
    found: list[str] = [system.unstrip_protocol(each) for each in logs]
    return found


# --- reading ------------------------------------------------------------------------------------


class LogFile(NamedTuple):
    """A log, as far as it can be known without opening it."""

    path: str
    size: int = 0
    written: float | None = None
    """When it was last written to, in Unix seconds."""
    state: str = ""
    """Changes whenever the file does; empty where that cannot be told."""

    @classmethod
    def at(cls, path: str) -> LogFile:
        """A database may keep what is new in a file beside it."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return cls(path)
        if os.path.isdir(path):
            return cls(path)
        times, sizes = [found.st_mtime_ns], [found.st_size]
        if path.endswith(".db") and os.path.exists(beside := f"{path}-wal"):
            more = os.stat(beside)
            times.append(more.st_mtime_ns)
            sizes.append(more.st_size)
        # What is remembered holds the path as it was named here, so another way to name the file is another state.
        state = " ".join([path, os.path.abspath(path), *map(str, (*sizes, *times))])
        return cls(path, found.st_size, max(times) / 1e9, state)


def gather(
    logs: Sequence[LogFile], workers: LogWorkers, memory: ReportCache | None
) -> Iterator[tuple[LogFile, FileFacts]]:
    """What every log says, the newest first; those that did not change since they were read are not opened."""
    known = memory.facts(log.state for log in logs) if memory is not None else {}
    for log in logs:
        if log.state in known:
            yield log, known[log.state]
    rest = sorted((log for log in logs if log.state not in known), key=lambda log: -(log.written or 0.0))
    alone = sum(log.size for log in rest) <= READ_ALONE_BYTES and not any("://" in log.path for log in rest)
    fresh: dict[str, FileFacts] = {}
    try:
        for log, facts in workers.each(facts_at, rest, alone):
            if log.state:
                fresh[log.state] = facts
            yield log, facts
    finally:
        if memory is not None:
            memory.keep_facts(fresh)


def facts_at(log: LogFile) -> tuple[LogFile, FileFacts]:
    """What a log says. What cannot be read is named in it, and one log that breaks us does not take others with it."""
    try:
        return log, read_facts(log.path, fetch(log.path))
    except (OSError, LogError) as error:
        return log, FileFacts(unread=[Unread(log.path, _why(error, log.path))])
    except IbidemError:
        raise  # the settings are wrong, not the log
    except Exception as error:
        return log, FileFacts(unread=[Unread(log.path, _fault(error))], size=log.size)


def _why(error: Exception, path: str) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: ")


def _fault(error: Exception) -> str:
    return f"this is a fault of ibidem: please report it ({type(error).__name__}: {error})"


# --- what counts --------------------------------------------------------------------------------


class CountedSession(NamedTuple):
    """A session, and which of its requests count: those that were asked for and stand in no log before."""

    session: SessionFacts
    chosen: Chosen
    numbers: list[int]

    @property
    def whole(self) -> bool:
        return len(self.numbers) == len(self.session.times)


class Family(NamedTuple):
    """Logs that have answers in common, in the order in which they are measured."""

    logs: tuple[LogFile, ...]
    sessions: tuple[CountedSession, ...]

    @property
    def last(self) -> float:
        """When the last request in them was."""
        return max((each.session.last for each in self.sessions), default=0.0)

    @property
    def size(self) -> int:
        return sum(log.size for log in self.logs)


def families(found: Mapping[LogFile, FileFacts], selection: Selection) -> list[Family]:
    """Those in which something is asked for, the newest first."""
    groups = [_counted(logs, found, selection) for logs in _related(found)]
    return sorted((each for each in groups if each.sessions), key=lambda family: -family.last)


def _related(found: Mapping[LogFile, FileFacts]) -> list[list[LogFile]]:
    """Logs that belong together: those that share an answer, directly or through others; smaller ones first."""
    parent = {log: log for log in found}

    def root(log: LogFile) -> LogFile:
        while parent[log] != log:
            parent[log] = log = parent[parent[log]]
        return log

    seen: dict[str, LogFile] = {}
    for log, facts in found.items():
        for session in facts.sessions:
            for answer in filter(None, map(partial(_answer_key, session), session.answers)):
                other = seen.setdefault(answer, log)
                if other is not log:
                    parent[root(log)] = root(other)
    groups: dict[LogFile, list[LogFile]] = {}
    for log in found:
        groups.setdefault(root(log), []).append(log)
    return [sorted(logs, key=lambda log: (log.size, log.path)) for logs in groups.values()]


def _answer_key(session: SessionFacts, answer: str) -> str:
    """What names an answer everywhere; a short id does so in its own session only."""
    if answer.startswith("msg_"):
        return answer
    return f"{session.agent} {session.id} {answer}" if session.id and answer else ""


def _counted(logs: list[LogFile], found: Mapping[LogFile, FileFacts], selection: Selection) -> Family:
    known: set[str] = set()
    sessions = []
    for log in logs:
        new: set[str] = set()
        for session in found[log].sessions:
            chosen = selection.chosen(session)
            numbers = [
                number
                for number, (at, answer) in enumerate(zip(session.times, session.answers, strict=True))
                if chosen.counts(at, session.model_of(number)) and (not answer or answer not in known)
            ]
            new.update(filter(None, session.answers))
            if numbers and selection.wants(session):
                sessions.append(CountedSession(session, chosen, numbers))
        known |= new
    return Family(tuple(logs), tuple(sessions))


# --- measuring ----------------------------------------------------------------------------------


class Work(NamedTuple):
    """A family that is to be measured."""

    logs: tuple[LogFile, ...]
    chosen: dict[str, dict[str, Chosen]]
    """Path → session → which of its requests count; sessions that are not in it do not."""
    asked: str
    """What names this choice among others; empty where all counts."""

    @classmethod
    def of(cls, family: Family) -> Work:
        chosen: dict[str, dict[str, Chosen]] = {}
        for each in family.sessions:
            chosen.setdefault(each.session.path, {})[each.session.name] = each.chosen
        names = [f"{each.session.key} {each.numbers}" for each in family.sessions]
        asked = hashlib.sha256("\n".join(names).encode("utf-8", "backslashreplace")).hexdigest()
        return cls(family.logs, chosen, asked)


Measured = tuple[Work, list[FileFigures]]


def measured(
    work: Sequence[Work], settings: ReportSettings, workers: LogWorkers, memory: ReportCache | None = None
) -> Iterator[Measured]:
    """Figures of every family, as they are done. Of logs that did not change since, they are not even opened."""
    rest = list(work)
    if memory is not None:
        digests = memory.digests(log.state for one in work for log in one.logs)
        known = [[digests.get(log.state, "") for log in one.logs] for one in work]
        found = memory.figures(known, [one.asked for one in work])
        remembered = [all(each) and figures is not None for each, figures in zip(known, found, strict=True)]
        for one, figures, old in zip(work, found, remembered, strict=True):
            if old and figures is not None:
                yield one, figures
        rest = [one for one, old in zip(work, remembered, strict=True) if not old]
    yield from workers.each(partial(look, settings=settings, memory=memory), rest)


def look(work: Work, settings: ReportSettings, memory: ReportCache | None = None) -> Measured:
    """The figures of a family of logs. What cannot be read is named in them."""
    contents: list[tuple[str, bytes]] = []
    found: list[FileFigures] = []
    for log in work.logs:
        try:
            contents.append((log.path, fetch(log.path)))
        except (OSError, LogError) as error:
            found.append(FileFigures(unread=[Unread(log.path, _why(error, log.path))]))
    # The path is part of the figures, so it is part of what is remembered.
    digests = [hashlib.sha256(path.encode("utf-8", "replace") + b"\0" + data).hexdigest() for path, data in contents]
    states = [log.state for log in work.logs]
    if memory is not None and (remembered := memory.figures([digests], [work.asked])[0]) is not None:
        if not found:
            memory.keep(states, digests, remembered, work.asked)
        return work, remembered + found
    known: frozenset[str] = frozenset()
    figures = []
    for path, data in contents:
        figures.append(_measured(path, data, settings, known, work.chosen.get(path, {})))
        if len(contents) > 1:
            known |= _answers(path, data)
    if memory is not None and not found:
        memory.keep(states, digests, figures, work.asked)
    return work, figures + found


def _measured(
    path: str, data: bytes, settings: ReportSettings, known: frozenset[str], chosen: Mapping[str, Chosen]
) -> FileFigures:
    """One log that breaks us must not take the others with it."""
    try:
        return measure_log(path, data, settings, known, chosen)
    except IbidemError:
        raise  # the settings are wrong, not the log
    except Exception as error:
        return FileFigures(unread=[Unread(path, _fault(error))], size=len(data))


def _answers(path: str, data: bytes) -> frozenset[str]:
    try:
        return frozenset(answer for session in read(path, data) for answer in answers_in(session))
    except LogError:
        return frozenset()


Progress = Callable[[str, int], None]
"""What was done, and how many bytes that were."""


def unread_in(facts: Iterable[FileFacts]) -> list[Unread]:
    return sorted((each for one in facts for each in one.unread), key=lambda unread: unread.path)
