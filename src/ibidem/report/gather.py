"""Read logs, select their requests, and measure them.

The first pass reads recorded usage. The second pass measures each group of logs. A resumed session starts with a copy
of the earlier one, so logs that contain the same response are measured together, and shared requests count once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ..errors import IbidemError
from ..recordings import LogBytes, LogError, read
from .executors import LogWorkers
from .log_sources import LogFile, fetch
from .log_summary import FileFacts, SessionFacts, read_facts
from .measure import ReportSettings, answers_in, measure_log
from .report_cache import ReportCache
from .selection import RequestFilter, SessionFilter
from .session_result import FileFigures, UnreadFile

READ_ALONE_BYTES = 20 << 20
"""Up to this size, reading logs in this process is faster than starting workers."""


# --- reading ------------------------------------------------------------------------------------


def gather(
    logs: Sequence[LogFile], workers: LogWorkers, memory: ReportCache | None
) -> Iterator[tuple[LogFile, FileFacts]]:
    """Yield the recorded facts of every log. Facts of unchanged logs come from the cache; other logs are read, newest
    first."""
    known = memory.facts(log.state for log in logs) if memory is not None else {}
    for log in logs:
        if log.state in known:
            yield log, known[log.state]
    rest = sorted((log for log in logs if log.state not in known), key=lambda log: -(log.written or 0.0))
    alone = sum(log.size for log in rest) <= READ_ALONE_BYTES and not any("://" in log.path for log in rest)
    fresh: dict[str, FileFacts] = {}
    try:
        for log, facts in workers.each(partial(facts_at, base=workers.base), rest, alone, lost_facts):
            if log.state:
                fresh[log.state] = facts
            yield log, facts
    finally:
        if memory is not None:
            memory.keep_facts({state: each for state, each in fresh.items() if not _is_lost(each.unread)})


def facts_at(log: LogFile, base: str = "") -> tuple[LogFile, FileFacts]:
    """Read the recorded facts of a log. An error becomes an `UnreadFile`, so that one log cannot stop a report."""
    try:
        return log, read_facts(log.path, fetch(log.path, base))
    except (OSError, LogError) as error:
        return log, FileFacts(unread=[UnreadFile(log.path, _why(error, log.path))])
    except IbidemError:
        raise  # the settings are wrong, not the log
    except Exception as error:
        return log, FileFacts(unread=[UnreadFile(log.path, _fault(error))], size=log.size)


LOST = "every worker that read it died, perhaps out of memory: give them more"


def lost_facts(log: LogFile) -> tuple[LogFile, FileFacts]:
    """Make the facts of a log that killed every worker."""
    return log, FileFacts(unread=[UnreadFile(log.path, LOST)], size=log.size)


def _is_lost(unread: Sequence[UnreadFile]) -> bool:
    return any(each.why == LOST for each in unread)


def _why(error: Exception, path: str) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: ")


def _fault(error: Exception) -> str:
    return f"this is a bug in ibidem. Please report it ({type(error).__name__}: {error})"


# --- selection ----------------------------------------------------------------------------------


class CountedSession(NamedTuple):
    """A session, and the numbers of its requests that count: selected, and not in an earlier log of the group."""

    session: SessionFacts
    chosen: RequestFilter
    numbers: list[int]

    @property
    def whole(self) -> bool:
        return len(self.numbers) == len(self.session.times)


class LogGroup(NamedTuple):
    """Logs that share responses, in the order in which they are measured."""

    logs: tuple[LogFile, ...]
    sessions: tuple[CountedSession, ...]

    @property
    def last(self) -> float:
        """Unix time of the last request in these logs."""
        return max((each.session.last for each in self.sessions), default=0.0)

    @property
    def size(self) -> int:
        return sum(log.size for log in self.logs)


def group_logs(found: Mapping[LogFile, FileFacts], selection: SessionFilter) -> list[LogGroup]:
    """Group related logs. Groups without a selected request are left out; the newest group is first."""
    groups = [_counted(logs, found, selection) for logs in _related(found)]
    return sorted((each for each in groups if each.sessions), key=lambda family: -family.last)


def _related(found: Mapping[LogFile, FileFacts]) -> list[list[LogFile]]:
    """Group logs that share a response, directly or through other logs; smaller logs first."""
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
    """Make a key for a response. Ids that are unique only within a session get the session's name."""
    if answer.startswith("msg_"):
        return answer
    return f"{session.agent} {session.id} {answer}" if session.id and answer else ""


def _counted(logs: list[LogFile], found: Mapping[LogFile, FileFacts], selection: SessionFilter) -> LogGroup:
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
    return LogGroup(tuple(logs), tuple(sessions))


# --- measuring ----------------------------------------------------------------------------------


class LogGroupTask(NamedTuple):
    """A group of logs to measure, with the selected requests."""

    logs: tuple[LogFile, ...]
    chosen: dict[str, dict[str, RequestFilter]]
    """Path → session → selected requests. Sessions that are missing here do not count."""
    asked: str
    """Digest of the selection: part of the key in the cache."""

    @classmethod
    def of(cls, family: LogGroup) -> LogGroupTask:
        chosen: dict[str, dict[str, RequestFilter]] = {}
        for each in family.sessions:
            chosen.setdefault(each.session.path, {})[each.session.name] = each.chosen
        names = [f"{each.session.key} {each.numbers}" for each in family.sessions]
        asked = hashlib.sha256("\n".join(names).encode("utf-8", "backslashreplace")).hexdigest()
        return cls(family.logs, chosen, asked)


class MeasuredLogGroup(NamedTuple):
    """Results of a group of logs."""

    work: LogGroupTask
    figures: list[FileFigures]
    digests: list[str]
    """Digests of the logs; empty if a log could not be read."""


def measure_groups(
    work: Sequence[LogGroupTask], settings: ReportSettings, workers: LogWorkers, memory: ReportCache | None = None
) -> Iterator[tuple[LogGroupTask, list[FileFigures]]]:
    """Yield the results of every group as they are ready. Unchanged logs are not opened: their results are cached."""
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
    # Workers on other machines cannot write the cache on this disk, so this process stores their results.
    theirs = memory if not workers.elsewhere else None
    call = partial(measure_group, settings=settings, memory=theirs, base=workers.base)
    for each in workers.each(call, rest, lost=lost_figures):
        if theirs is None and memory is not None and each.digests:
            memory.keep([log.state for log in each.work.logs], each.digests, each.figures, each.work.asked)
        yield each.work, each.figures


def lost_figures(work: LogGroupTask) -> MeasuredLogGroup:
    """Make the results of a group that killed every worker."""
    return MeasuredLogGroup(work, [FileFigures(unread=[UnreadFile(log.path, LOST) for log in work.logs])], [])


def measure_group(
    work: LogGroupTask, settings: ReportSettings, memory: ReportCache | None = None, base: str = ""
) -> MeasuredLogGroup:
    """Measure a group of logs. Logs that cannot be read are listed in the results."""
    contents: list[tuple[str, LogBytes]] = []
    found: list[FileFigures] = []
    for log in work.logs:
        try:
            contents.append((log.path, fetch(log.path, base)))
        except (OSError, LogError) as error:
            found.append(FileFigures(unread=[UnreadFile(log.path, _why(error, log.path))]))
    # Results contain the path, so the key in the cache contains it too.
    digests = [_digest(path, data) for path, data in contents]
    states = [log.state for log in work.logs]
    whole = digests if not found else []
    if memory is not None and (remembered := memory.figures([digests], [work.asked])[0]) is not None:
        if not found:
            memory.keep(states, digests, remembered, work.asked)
        return MeasuredLogGroup(work, remembered + found, whole)
    known: frozenset[str] = frozenset()
    figures = []
    for path, data in contents:
        figures.append(_measured(path, data, settings, known, work.chosen.get(path, {})))
        if len(contents) > 1:
            known |= _answers(path, data)
    if memory is not None and not found:
        memory.keep(states, digests, figures, work.asked)
    return MeasuredLogGroup(work, figures + found, whole)


def _digest(path: str, data: LogBytes) -> str:
    found = hashlib.sha256(path.encode("utf-8", "replace") + b"\0")
    for chunk in (data,) if isinstance(data, bytes) else data.chunks():
        found.update(chunk)
    return found.hexdigest()


def _measured(
    path: str, data: LogBytes, settings: ReportSettings, known: frozenset[str], chosen: Mapping[str, RequestFilter]
) -> FileFigures:
    """Measure one log. An error becomes an `UnreadFile`, so that one log cannot stop a report."""
    try:
        return measure_log(path, data, settings, known, chosen)
    except IbidemError:
        raise  # the settings are wrong, not the log
    except Exception as error:
        return FileFigures(unread=[UnreadFile(path, _fault(error))], size=len(data))


def _answers(path: str, data: LogBytes) -> frozenset[str]:
    try:
        return frozenset(answer for session in read(path, data) for answer in answers_in(session))
    except LogError:
        return frozenset()


Progress = Callable[[str, int], None]
"""Called with the finished step and its number of bytes."""


def unread_in(facts: Iterable[FileFacts]) -> list[UnreadFile]:
    """List the files that could not be read, by path."""
    return sorted((each for one in facts for each in one.unread), key=lambda unread: unread.path)
