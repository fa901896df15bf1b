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

from ..environment import home, variables
from ..errors import IbidemError, one_line
from ..recordings import PROBED_ROWS, LogError, Recording, agent_in, read
from ..recordings.discovery import LOGS, discover, load
from ..recordings.ids import ids_in, session_id
from ..recordings.log import GZIP_MAGIC, ZSTD_MAGIC
from ..recordings.opencode_store import is_store
from .errors import InputError, reason
from .reading import Input, InputRequest
from .waiting import waiting

REQUESTS_AGENT = "requests"
"""Agent name for a file of request bodies, which no agent wrote."""
MAX_NAMED = 5
"""Largest number of sessions in an error message."""
MAIN_NAME = "main"
"""Name for a session without a name, in a file where others have one."""


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The sessions of a log, with the argument that the user passed for it."""

    said: str
    sessions: list[Recording]

    def named(self, session: str | None) -> Recording:
        """Return the session with this name or id, or a prefix of it; by default the one with most requests."""
        if session is None:
            return max(self.sessions, key=lambda each: each.length)
        exact = [each for each in self.sessions if session in (label(each), each.id)]
        begun = [each for each in self.sessions if label(each).startswith(session) or each.id.startswith(session)]
        found = exact or begun
        if len(found) == 1:
            return found[0]
        what = "several sessions start with this name" if found else "no such session"
        raise InputError(self.where, f"{what}: pass one of {_listed(map(label, found or self.sessions))}")

    @property
    def where(self) -> str:
        """The user's argument, for messages."""
        return one_line(click.format_filename(self.said))

    @property
    def argument(self) -> str:
        """The user's argument, quoted for a shell command."""
        return one_line(shlex.quote(self.said))


def label(session: Recording) -> str:
    """Return the session's name within its file."""
    return session.name or MAIN_NAME


def _listed(names: Iterator[str] | Sequence[str]) -> str:
    some = [one_line(name) for name in names]
    more = f" and {len(some) - MAX_NAMED:,} more" if len(some) > MAX_NAMED else ""
    return ", ".join(some[:MAX_NAMED]) + more


def is_log(data: bytes, *, requests_too: bool) -> bool:
    """Return whether to read a file as a log. `requests_too` also accepts request bodies as a session."""
    found = agent_in(data)
    return bool(found) and (requests_too or found != REQUESTS_AGENT)


def is_elsewhere(file: str) -> bool:
    """Return whether the argument is a URL or an agent's database. Neither can contain single requests."""
    return "://" in file or (file != "-" and is_store(Path(file)))


def fetched(file: str) -> bytes:
    """Read the bytes of a file, an agent's database or a URL. Raises InputError."""
    try:
        if "://" in file:
            from ..report.log_sources import fetch_url  # imported only for URLs

            return fetch_url(file)
        return load(Path(file))
    except OSError as error:
        raise InputError(one_line(click.format_filename(file)), reason(error)) from None
    except LogError as error:
        raise InputError(one_line(click.format_filename(file)), str(error).removeprefix(f"{file}: ")) from None


def read_sessions(file: str, data: bytes) -> FoundLog:
    """Parse the sessions of a log. Raises InputError."""
    try:
        with waiting("reading the log"):
            return FoundLog(file, read(file, data))
    except LogError as error:
        raise InputError(one_line(click.format_filename(file)), str(error).removeprefix(f"{file}: ")) from None


def may_be_id(file: str) -> bool:
    """Return whether an argument that is not a file may be the start of a session id: it does not look like a path."""
    return bool(file) and not file.startswith("-") and not set(file) & {"/", os.sep} and not _is_log_name(file)


def _is_log_name(file: str) -> bool:
    return any(Path(file).match(pattern) for pattern in LOGS)


def by_id(beginning: str) -> FoundLog:
    """Find the session on this machine whose id starts with `beginning`. Raises InputError for none or several."""
    paths = [str(path) for path in discover(variables(), home(), sys.platform)]
    wanted = beginning.lower()
    named = [path for path in paths if any(each.lower().startswith(wanted) for each in ids_in(path))]
    exact = [path for path in named if wanted in map(str.lower, ids_in(path))]
    if named := exact or named:
        _only_one(beginning, [ids_in(path)[0] for path in named])
        found = read_sessions(named[0], fetched(named[0]))
        return FoundLog(beginning, found.sessions)
    inside = list(_with_id(beginning, paths))
    exact_inside = [each for each in inside if wanted in (each.id.lower(), each.name.lower())]
    if inside := exact_inside or inside:
        _only_one(beginning, list(dict.fromkeys(map(session_id, inside))))
        return FoundLog(beginning, inside)
    if not paths:
        raise InputError(one_line(beginning), "no such file, and no agent logs on this machine: check the path")
    told = f"no such file, and no session id in {len(paths):,} logs on this machine starts with this"
    raise InputError(one_line(beginning), f"{told}: `ibidem report --by session` lists ids")


def _only_one(beginning: str, ids: list[str]) -> None:
    if len(ids) > 1:
        raise InputError(
            one_line(beginning), f"{len(ids):,} session ids start with this: {_listed(ids)}: type more characters"
        )


def _with_id(beginning: str, paths: Sequence[str]) -> Iterator[Recording]:
    """Find sessions whose id or name starts with `beginning`, in logs whose file name does not have the id.

    A log contains the ids of its sessions, so logs without these characters are not parsed.
    """
    wanted = beginning.lower().encode()
    with waiting("looking for the id") as say:
        for number, path in enumerate(paths, 1):
            say(f"looking for the id, log {number:,} of {len(paths):,}")
            try:
                data = load(Path(path))
                if wanted in data.lower() or data.startswith((ZSTD_MAGIC, GZIP_MAGIC)):
                    yield from (each for each in read(path, data) if _begins(each, beginning.lower()))
            except (OSError, IbidemError):
                continue  # `ibidem report` lists unreadable logs


def _begins(session: Recording, wanted: str) -> bool:
    return session.id.lower().startswith(wanted) or session.name.lower().startswith(wanted)


def refuse_log(source: Input, request: InputRequest) -> None:
    """Raise InputError, with the commands for logs, if a request that cannot be used is part of an agent's log."""
    try:
        agent = agent_in(_telling(source, request))
    except (OSError, IbidemError):
        return
    if agent and agent != REQUESTS_AGENT:
        file = one_line(shlex.quote(source.path or "FILE"))
        told = f"`ibidem report {file}` shows its cost, `ibidem show {file}` its requests"
        raise InputError(source.name, f"a log of {agent}, not a request: {told}")


def _telling(source: Input, request: InputRequest) -> bytes:
    """Read enough of a file to identify the agent that wrote it."""
    if source.path and is_store(Path(source.path)):
        return load(Path(source.path))
    if request.line is None or not source.path:
        return request.data
    with open(source.path, "rb") as stream:
        return b"".join(islice(stream, PROBED_ROWS))
