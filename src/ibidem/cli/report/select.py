"""Which logs a report reads: those that are named, or those of the agents on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ...environment import home, variables
from ...errors import one_line
from ...recordings.discovery import discover_by_agent, logs_in
from ...report.log_sources import LogFile, below, is_url
from ...report.selection import SessionFilter
from ..errors import InputError
from ..reading import STDIN

AgentOf = dict[LogFile, str]
"""Whose log it is, as far as its place tells."""


def installed_agent_logs() -> AgentOf:
    """The logs of the agents on this machine."""
    agents = discover_by_agent(variables(), home(), sys.platform)
    return {LogFile.at(str(path)): agent for agent, paths in agents.items() for path in paths}


@contextmanager
def standard_input(paths: tuple[str, ...]) -> Iterator[str | None]:
    """What comes in there, as a file that is gone afterwards; None if it is not asked for."""
    if "-" not in paths:
        yield None
        return
    if sys.stdin is None:
        raise InputError(STDIN, "closed: pipe a log into it or name a file")
    with tempfile.TemporaryDirectory(prefix="ibidem-") as folder:
        path = Path(folder, "log")
        path.write_bytes(sys.stdin.buffer.read())
        yield str(path)


def named(paths: tuple[str, ...], piped: str | None) -> AgentOf:
    """The logs at these paths and URLs, each once. Nothing is known of whose they are."""
    told: dict[str, LogFile] = {}
    for path in paths:
        if path == "-" and piped is not None:
            found = [LogFile.at(piped)]
        else:
            found = _below_url(path) if is_url(path) else _below(path)
        for log in found:
            told.setdefault(log.path if is_url(log.path) else str(Path(log.path).resolve()), log)
    return dict.fromkeys(told.values(), "")


def _below_url(url: str) -> list[LogFile]:
    try:
        found = below(url)
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise InputError(one_line(url), f"cannot be reached ({one_line(why)}): check the address") from None
    if not found:
        raise InputError(one_line(url), "no logs in this folder: name another")
    return found


def _below(path: str) -> list[LogFile]:
    name = one_line(click.format_filename(path))
    if not os.path.exists(path):
        raise InputError(name, "no such file or folder: check the path")
    found = logs_in(Path(path))
    if not found:
        raise InputError(name, "no logs in this folder: name another")
    return [LogFile.at(str(each)) for each in found]


def matching_logs(agents: AgentOf, selection: SessionFilter) -> list[LogFile]:
    """Those that can hold what is asked for: the others are not read."""
    return [log for log, agent in agents.items() if selection.may_hold(log.path, log.written, agent or None)]
