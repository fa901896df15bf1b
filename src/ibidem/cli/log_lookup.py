"""Find the log and the session that a command line argument names: a path, an address, or a session id."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import click

from ..environment import environment_variables, home_folder
from ..errors import IbidemError, one_line
from ..recordings import PROBED_ROWS, LogError, Recording, agent_in, read
from ..recordings.discovery import LOG_PATTERNS, discover_logs, load_log
from ..recordings.log_file import GZIP_MAGIC, ZSTD_MAGIC
from ..recordings.opencode_store import is_store
from ..recordings.session_ids import file_name_ids, session_id
from .command_errors import InputError, describe_os_error
from .elapsed_time import show_elapsed_time
from .request_input import InputRequest, RequestInput

REQUESTS_AGENT = "requests"
"""Agent name for a file of request bodies, which no agent wrote."""
MAX_NAMED = 5
"""Largest number of sessions in an error message."""
MAIN_NAME = "main"
"""Name for a session without a name, in a file where others have one."""


@dataclass(frozen=True, slots=True)
class AgentLog:
    """The sessions of a log, with the argument that the user passed for it."""

    argument_text: str
    sessions: list[Recording]

    def find_session(self, session: str | None) -> Recording:
        """Return the session with this name or id, or a prefix of it; by default the one with most requests."""
        if session is None:
            return max(self.sessions, key=lambda each: each.length)
        exact = [each for each in self.sessions if session in (session_name(each), each.id)]
        prefix_matches = [
            each for each in self.sessions if session_name(each).startswith(session) or each.id.startswith(session)
        ]
        matches = exact or prefix_matches
        if len(matches) == 1:
            return matches[0]
        what = "several sessions start with this name" if matches else "no such session"
        raise InputError(
            self.display_name, f"{what}: pass one of {_list_names(map(session_name, matches or self.sessions))}"
        )

    @property
    def display_name(self) -> str:
        """The user's argument, for messages."""
        return one_line(click.format_filename(self.argument_text))

    @property
    def quoted_argument(self) -> str:
        """The user's argument, quoted for a shell command."""
        return one_line(shlex.quote(self.argument_text))


def session_name(session: Recording) -> str:
    """Return the session's name within its file."""
    return session.name or MAIN_NAME


def _list_names(names: Iterator[str] | Sequence[str]) -> str:
    some = [one_line(name) for name in names]
    more = f" and {len(some) - MAX_NAMED:,} more" if len(some) > MAX_NAMED else ""
    return ", ".join(some[:MAX_NAMED]) + more


def is_log(data: bytes, *, requests_too: bool) -> bool:
    """Return whether to read a file as a log. `requests_too` also accepts request bodies as a session."""
    agent = agent_in(data)
    return bool(agent) and (requests_too or agent != REQUESTS_AGENT)


def is_url_or_database(file: str) -> bool:
    """Return whether the argument is a URL or an agent's database. Neither can contain single requests."""
    return "://" in file or (file != "-" and is_store(Path(file)))


def read_log_bytes(file: str) -> bytes:
    """Read the bytes of a file, an agent's database or a URL. Raises InputError."""
    try:
        if "://" in file:
            from ..report.log_sources import fetch_url  # imported only for URLs

            return fetch_url(file)
        return load_log(Path(file))
    except OSError as error:
        raise InputError(one_line(click.format_filename(file)), describe_os_error(error)) from None
    except LogError as error:
        raise InputError(one_line(click.format_filename(file)), str(error).removeprefix(f"{file}: ")) from None


def read_sessions(file: str, data: bytes) -> AgentLog:
    """Parse the sessions of a log. Raises InputError."""
    try:
        with show_elapsed_time("reading the log"):
            return AgentLog(file, read(file, data))
    except LogError as error:
        raise InputError(one_line(click.format_filename(file)), str(error).removeprefix(f"{file}: ")) from None


def may_be_id(file: str) -> bool:
    """Return whether an argument that is not a file may be the start of a session id: it does not look like a path."""
    return bool(file) and not file.startswith("-") and not set(file) & {"/", os.sep} and not _is_log_name(file)


def _is_log_name(file: str) -> bool:
    return any(Path(file).match(pattern) for pattern in LOG_PATTERNS)


def find_session_by_id(beginning: str) -> AgentLog:
    """Find the session on this machine whose id starts with `beginning`. Raises InputError for none or several."""
    paths = [str(path) for path in discover_logs(environment_variables(), home_folder(), sys.platform)]
    prefix = beginning.lower()
    paths_by_name = [path for path in paths if any(each.lower().startswith(prefix) for each in file_name_ids(path))]
    exact = [path for path in paths_by_name if prefix in map(str.lower, file_name_ids(path))]
    if paths_by_name := exact or paths_by_name:
        _require_one(beginning, [file_name_ids(path)[0] for path in paths_by_name])
        log = read_sessions(paths_by_name[0], read_log_bytes(paths_by_name[0]))
        return AgentLog(beginning, log.sessions)
    sessions = list(_find_by_content(beginning, paths))
    exact_sessions = [each for each in sessions if prefix in (each.id.lower(), each.name.lower())]
    if sessions := exact_sessions or sessions:
        _require_one(beginning, list(dict.fromkeys(map(session_id, sessions))))
        return AgentLog(beginning, sessions)
    if not paths:
        raise InputError(one_line(beginning), "no such file, and no agent logs on this machine: check the path")
    message = f"no such file, and no session id in {len(paths):,} logs on this machine starts with this"
    raise InputError(one_line(beginning), f"{message}: `ibidem report --by session` lists ids")


def _require_one(beginning: str, ids: list[str]) -> None:
    if len(ids) > 1:
        raise InputError(
            one_line(beginning), f"{len(ids):,} session ids start with this: {_list_names(ids)}: type more characters"
        )


def _find_by_content(beginning: str, paths: Sequence[str]) -> Iterator[Recording]:
    """Find sessions whose id or name starts with `beginning`, in logs whose file name does not have the id.

    A log contains the ids of its sessions, so logs without these characters are not parsed.
    """
    prefix = beginning.lower().encode()
    with show_elapsed_time("looking for the id") as show:
        for number, path in enumerate(paths, 1):
            show(f"looking for the id, log {number:,} of {len(paths):,}")
            try:
                data = load_log(Path(path))
                if prefix in data.lower() or data.startswith((ZSTD_MAGIC, GZIP_MAGIC)):
                    yield from (each for each in read(path, data) if _has_prefix(each, beginning.lower()))
            except (OSError, IbidemError):
                continue  # `ibidem report` lists unreadable logs


def _has_prefix(session: Recording, prefix: str) -> bool:
    return session.id.lower().startswith(prefix) or session.name.lower().startswith(prefix)


def refuse_log(source: RequestInput, request: InputRequest) -> None:
    """Raise InputError, with the commands for logs, if a request that cannot be used is part of an agent's log."""
    try:
        agent = agent_in(_read_for_detection(source, request))
    except (OSError, IbidemError):
        return
    if agent and agent != REQUESTS_AGENT:
        file = one_line(shlex.quote(source.path or "FILE"))
        advice = f"`ibidem report {file}` shows its cost, `ibidem show {file}` its requests"
        raise InputError(source.name, f"a log of {agent}, not a request: {advice}")


def _read_for_detection(source: RequestInput, request: InputRequest) -> bytes:
    """Read enough of a file to identify the agent that wrote it."""
    if source.path and is_store(Path(source.path)):
        return load_log(Path(source.path))
    if request.line is None or not source.path:
        return request.data
    with open(source.path, "rb") as stream:
        return b"".join(islice(stream, PROBED_ROWS))
