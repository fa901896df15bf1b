"""Logs of agents at the prompt: is a file one, which session in it is meant, and where is one of this id."""

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
"""What request bodies are taken for, which are nobody's log."""
MAX_NAMED = 5
"""Sessions that an answer names."""
MAIN_NAME = "main"
"""How the session of a file is called that has no name among others that have."""


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log, and how its user named it."""

    said: str
    sessions: list[Recording]

    def named(self, session: str | None) -> Recording:
        """The one with this name or id, or that begins so; without one, the one with most requests."""
        if session is None:
            return max(self.sessions, key=lambda each: each.length)
        exact = [each for each in self.sessions if session in (label(each), each.id)]
        begun = [each for each in self.sessions if label(each).startswith(session) or each.id.startswith(session)]
        found = exact or begun
        if len(found) == 1:
            return found[0]
        what = "more than one session begins so" if found else "no such session"
        raise InputError(self.where, f"{what}: name one of {_listed(map(label, found or self.sessions))}")

    @property
    def where(self) -> str:
        return one_line(click.format_filename(self.said))

    @property
    def argument(self) -> str:
        """For a command that names it again."""
        return one_line(shlex.quote(self.said))


def label(session: Recording) -> str:
    """What tells it from others in its file."""
    return session.name or MAIN_NAME


def _listed(names: Iterator[str] | Sequence[str]) -> str:
    some = [one_line(name) for name in names]
    more = f" and {len(some) - MAX_NAMED:,} more" if len(some) > MAX_NAMED else ""
    return ", ".join(some[:MAX_NAMED]) + more


def is_log(data: bytes, *, requests_too: bool) -> bool:
    """Whether to read it as a log: of an agent, or request bodies too if one of several is asked for."""
    found = agent_in(data)
    return bool(found) and (requests_too or found != REQUESTS_AGENT)


def is_elsewhere(file: str) -> bool:
    """Whether it is at an address, or in a store: nothing that requests are read from."""
    return "://" in file or (file != "-" and is_store(Path(file)))


def fetched(file: str) -> bytes:
    """The bytes of a file, a store or an address. Raises InputError."""
    try:
        if "://" in file:
            from ..report.log_sources import fetch_url  # only it knows of addresses

            return fetch_url(file)
        return load(Path(file))
    except OSError as error:
        raise InputError(one_line(click.format_filename(file)), reason(error)) from None
    except LogError as error:
        raise InputError(one_line(click.format_filename(file)), str(error).removeprefix(f"{file}: ")) from None


def read_sessions(file: str, data: bytes) -> FoundLog:
    """The sessions in a log. Raises InputError."""
    try:
        with waiting("reading the log"):
            return FoundLog(file, read(file, data))
    except LogError as error:
        raise InputError(one_line(click.format_filename(file)), str(error).removeprefix(f"{file}: ")) from None


def may_be_id(file: str) -> bool:
    """Whether what is no file may be the beginning of an id: it does not look like a path."""
    return bool(file) and not file.startswith("-") and not set(file) & {"/", os.sep} and not _is_log_name(file)


def _is_log_name(file: str) -> bool:
    return any(Path(file).match(pattern) for pattern in LOGS)


def by_id(beginning: str) -> FoundLog:
    """The session on this machine whose id begins so. Raises InputError for none, and for several."""
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
        raise InputError(one_line(beginning), "no such file, and no logs of agents on this machine: check the path")
    told = f"no such file, and no session in {len(paths):,} logs of this machine has an id that begins so"
    raise InputError(one_line(beginning), f"{told}: `ibidem report --by session` lists ids")


def _only_one(beginning: str, ids: list[str]) -> None:
    if len(ids) > 1:
        raise InputError(
            one_line(beginning), f"{len(ids):,} ids begin so: {_listed(ids)}: type more of the one you mean"
        )


def _with_id(beginning: str, paths: Sequence[str]) -> Iterator[Recording]:
    """Sessions whose own id, or name, begins so. Most files need not be read for that: an id stands in its log."""
    wanted = beginning.lower().encode()
    with waiting("looking for the id") as say:
        for number, path in enumerate(paths, 1):
            say(f"looking for the id, log {number:,} of {len(paths):,}")
            try:
                data = load(Path(path))
                if wanted in data.lower() or data.startswith((ZSTD_MAGIC, GZIP_MAGIC)):
                    yield from (each for each in read(path, data) if _begins(each, beginning.lower()))
            except (OSError, IbidemError):
                continue  # whoever reports on it will say so


def _begins(session: Recording, wanted: str) -> bool:
    return session.id.lower().startswith(wanted) or session.name.lower().startswith(wanted)


def refuse_log(source: Input, request: InputRequest) -> None:
    """For commands that take requests, of one that they cannot use: raises InputError if it stands in a log."""
    try:
        agent = agent_in(_telling(source, request))
    except (OSError, IbidemError):
        return
    if agent and agent != REQUESTS_AGENT:
        file = one_line(shlex.quote(source.path or "FILE"))
        told = f"`ibidem report {file}` prices it, `ibidem show {file}` shows its requests"
        raise InputError(source.name, f"a log of {agent}, not a request: {told}")


def _telling(source: Input, request: InputRequest) -> bytes:
    """As much of a file as tells whose log it is."""
    if source.path and is_store(Path(source.path)):
        return load(Path(source.path))
    if request.line is None or not source.path:
        return request.data
    with open(source.path, "rb") as stream:
        return b"".join(islice(stream, PROBED_ROWS))
