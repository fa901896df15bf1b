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
from .measure import ReportSettings, measure_log, response_ids
from .report_cache import ReportCache
from .selection import RequestFilter, SessionFilter
from .session_result import FileResult, UnreadFile

READ_ALONE_BYTES = 20 << 20
"""Up to this size, reading logs in this process is faster than starting workers."""


# --- reading ------------------------------------------------------------------------------------


def gather_facts(
    logs: Sequence[LogFile], workers: LogWorkers, memory: ReportCache | None
) -> Iterator[tuple[LogFile, FileFacts]]:
    """Yield the recorded facts of every log. Facts of unchanged logs come from the cache; other logs are read, newest
    first."""
    cached_facts = memory.find_facts(log.state for log in logs) if memory is not None else {}
    for log in logs:
        if log.state in cached_facts:
            yield log, cached_facts[log.state]
    unread_logs = sorted((log for log in logs if log.state not in cached_facts), key=lambda log: -(log.written or 0.0))
    alone = sum(log.size for log in unread_logs) <= READ_ALONE_BYTES and not any(
        "://" in log.path for log in unread_logs
    )
    new_facts: dict[str, FileFacts] = {}
    try:
        for log, facts in workers.run_tasks(partial(facts_at, base=workers.base), unread_logs, alone, make_lost_facts):
            if log.state:
                new_facts[log.state] = facts
            yield log, facts
    finally:
        if memory is not None:
            memory.store_facts({state: each for state, each in new_facts.items() if not _is_lost(each.unread)})


def facts_at(log: LogFile, base: str = "") -> tuple[LogFile, FileFacts]:
    """Read the recorded facts of a log. An error becomes an `UnreadFile`, so that one log cannot stop a report."""
    try:
        return log, read_facts(log.path, fetch(log.path, base))
    except (OSError, LogError) as error:
        return log, FileFacts(unread=[UnreadFile(log.path, _read_error(error, log.path))])
    except IbidemError:
        raise  # the settings are wrong, not the log
    except Exception as error:
        return log, FileFacts(unread=[UnreadFile(log.path, _bug_message(error))], size=log.size)


LOST = "every worker that read it died, perhaps out of memory: give them more"


def make_lost_facts(log: LogFile) -> tuple[LogFile, FileFacts]:
    """Make the facts of a log that killed every worker."""
    return log, FileFacts(unread=[UnreadFile(log.path, LOST)], size=log.size)


def _is_lost(unread: Sequence[UnreadFile]) -> bool:
    return any(each.why == LOST for each in unread)


def _read_error(error: Exception, path: str) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: ")


def _bug_message(error: Exception) -> str:
    return f"this is a bug in ibidem. Please report it ({type(error).__name__}: {error})"


# --- selection ----------------------------------------------------------------------------------


class CountedSession(NamedTuple):
    """A session, and the numbers of its requests that count: selected, and not in an earlier log of the group."""

    session: SessionFacts
    request_filter: RequestFilter
    numbers: list[int]

    @property
    def is_whole(self) -> bool:
        return len(self.numbers) == len(self.session.times)


class LogGroup(NamedTuple):
    """Logs that share responses, in the order in which they are measured."""

    logs: tuple[LogFile, ...]
    sessions: tuple[CountedSession, ...]

    @property
    def last_request_time(self) -> float:
        """Unix time of the last request in these logs."""
        return max((each.session.last_request_time for each in self.sessions), default=0.0)

    @property
    def size_bytes(self) -> int:
        return sum(log.size for log in self.logs)


def group_logs(by_log: Mapping[LogFile, FileFacts], selection: SessionFilter) -> list[LogGroup]:
    """Group related logs. Groups without a selected request are left out; the newest group is first."""
    groups = [_select_requests(logs, by_log, selection) for logs in _related_logs(by_log)]
    return sorted((each for each in groups if each.sessions), key=lambda group: -group.last_request_time)


def _related_logs(by_log: Mapping[LogFile, FileFacts]) -> list[list[LogFile]]:
    """Group logs that share a response, directly or through other logs; smaller logs first."""
    parent = {log: log for log in by_log}

    def find_root(log: LogFile) -> LogFile:
        while parent[log] != log:
            parent[log] = log = parent[parent[log]]
        return log

    log_by_response: dict[str, LogFile] = {}
    for log, facts in by_log.items():
        for session in facts.sessions:
            for answer in filter(None, map(partial(_response_key, session), session.answers)):
                first_log = log_by_response.setdefault(answer, log)
                if first_log is not log:
                    parent[find_root(log)] = find_root(first_log)
    groups: dict[LogFile, list[LogFile]] = {}
    for log in by_log:
        groups.setdefault(find_root(log), []).append(log)
    return [sorted(logs, key=lambda log: (log.size, log.path)) for logs in groups.values()]


def _response_key(session: SessionFacts, answer: str) -> str:
    """Make a key for a response. Ids that are unique only within a session get the session's name."""
    if answer.startswith("msg_"):
        return answer
    return f"{session.agent} {session.id} {answer}" if session.id and answer else ""


def _select_requests(logs: list[LogFile], by_log: Mapping[LogFile, FileFacts], selection: SessionFilter) -> LogGroup:
    earlier_ids: set[str] = set()
    sessions = []
    for log in logs:
        log_ids: set[str] = set()
        for session in by_log[log].sessions:
            request_filter = selection.request_filter(session)
            numbers = [
                number
                for number, (at, answer) in enumerate(zip(session.times, session.answers, strict=True))
                if request_filter.matches_request(at, session.model_of(number))
                and (not answer or answer not in earlier_ids)
            ]
            log_ids.update(filter(None, session.answers))
            if numbers and selection.matches_session(session):
                sessions.append(CountedSession(session, request_filter, numbers))
        earlier_ids |= log_ids
    return LogGroup(tuple(logs), tuple(sessions))


# --- measuring ----------------------------------------------------------------------------------


class LogGroupTask(NamedTuple):
    """A group of logs to measure, with the selected requests."""

    logs: tuple[LogFile, ...]
    filters: dict[str, dict[str, RequestFilter]]
    """Path → session → selected requests. Sessions that are missing here do not count."""
    selection_digest: str
    """Digest of the selection: part of the key in the cache."""

    @classmethod
    def from_group(cls, group: LogGroup) -> LogGroupTask:
        filters: dict[str, dict[str, RequestFilter]] = {}
        for each in group.sessions:
            filters.setdefault(each.session.path, {})[each.session.name] = each.request_filter
        names = [f"{each.session.key} {each.numbers}" for each in group.sessions]
        digest = hashlib.sha256("\n".join(names).encode("utf-8", "backslashreplace")).hexdigest()
        return cls(group.logs, filters, digest)


class MeasuredLogGroup(NamedTuple):
    """Results of a group of logs."""

    work: LogGroupTask
    figures: list[FileResult]
    digests: list[str]
    """Digests of the logs; empty if a log could not be read."""


def measure_groups(
    work: Sequence[LogGroupTask], settings: ReportSettings, workers: LogWorkers, memory: ReportCache | None = None
) -> Iterator[tuple[LogGroupTask, list[FileResult]]]:
    """Yield the results of every group as they are ready. Unchanged logs are not opened: their results are cached."""
    remaining = list(work)
    if memory is not None:
        digests = memory.find_digests(log.state for one in work for log in one.logs)
        known_digests = [[digests.get(log.state, "") for log in one.logs] for one in work]
        cached_results = memory.find_results(known_digests, [one.selection_digest for one in work])
        is_cached = [
            all(each) and figures is not None for each, figures in zip(known_digests, cached_results, strict=True)
        ]
        for one, figures, old in zip(work, cached_results, is_cached, strict=True):
            if old and figures is not None:
                yield one, figures
        remaining = [one for one, old in zip(work, is_cached, strict=True) if not old]
    # Workers on other machines cannot write the cache on this disk, so this process stores their results.
    worker_cache = memory if not workers.elsewhere else None
    call = partial(measure_group, settings=settings, memory=worker_cache, base=workers.base)
    for each in workers.run_tasks(call, remaining, lost_result=make_lost_results):
        if worker_cache is None and memory is not None and each.digests:
            memory.store_results(
                [log.state for log in each.work.logs], each.digests, each.figures, each.work.selection_digest
            )
        yield each.work, each.figures


def make_lost_results(work: LogGroupTask) -> MeasuredLogGroup:
    """Make the results of a group that killed every worker."""
    return MeasuredLogGroup(work, [FileResult(unread=[UnreadFile(log.path, LOST) for log in work.logs])], [])


def measure_group(
    work: LogGroupTask, settings: ReportSettings, memory: ReportCache | None = None, base: str = ""
) -> MeasuredLogGroup:
    """Measure a group of logs. Logs that cannot be read are listed in the results."""
    contents: list[tuple[str, LogBytes]] = []
    failures: list[FileResult] = []
    for log in work.logs:
        try:
            contents.append((log.path, fetch(log.path, base)))
        except (OSError, LogError) as error:
            failures.append(FileResult(unread=[UnreadFile(log.path, _read_error(error, log.path))]))
    # Results contain the path, so the key in the cache contains it too.
    digests = [_digest_log(path, data) for path, data in contents]
    states = [log.state for log in work.logs]
    complete_digests = digests if not failures else []
    if (
        memory is not None
        and (cached_results := memory.find_results([digests], [work.selection_digest])[0]) is not None
    ):
        if not failures:
            memory.store_results(states, digests, cached_results, work.selection_digest)
        return MeasuredLogGroup(work, cached_results + failures, complete_digests)
    earlier_ids: frozenset[str] = frozenset()
    figures = []
    for path, data in contents:
        figures.append(_measure_safely(path, data, settings, earlier_ids, work.filters.get(path, {})))
        if len(contents) > 1:
            earlier_ids |= _response_ids(path, data)
    if memory is not None and not failures:
        memory.store_results(states, digests, figures, work.selection_digest)
    return MeasuredLogGroup(work, figures + failures, complete_digests)


def _digest_log(path: str, data: LogBytes) -> str:
    hasher = hashlib.sha256(path.encode("utf-8", "replace") + b"\0")
    for chunk in (data,) if isinstance(data, bytes) else data.iter_chunks():
        hasher.update(chunk)
    return hasher.hexdigest()


def _measure_safely(
    path: str,
    data: LogBytes,
    settings: ReportSettings,
    earlier_ids: frozenset[str],
    filters: Mapping[str, RequestFilter],
) -> FileResult:
    """Measure one log. An error becomes an `UnreadFile`, so that one log cannot stop a report."""
    try:
        return measure_log(path, data, settings, earlier_ids, filters)
    except IbidemError:
        raise  # the settings are wrong, not the log
    except Exception as error:
        return FileResult(unread=[UnreadFile(path, _bug_message(error))], size=len(data))


def _response_ids(path: str, data: LogBytes) -> frozenset[str]:
    try:
        return frozenset(answer for session in read(path, data) for answer in response_ids(session))
    except LogError:
        return frozenset()


Progress = Callable[[str, int], None]
"""Called with the finished step and its number of bytes."""


def unread_in(facts: Iterable[FileFacts]) -> list[UnreadFile]:
    """List the files that could not be read, by path."""
    return sorted((each for one in facts for each in one.unread), key=lambda unread: unread.path)
