"""Select the logs of a report: the paths that the user passed, or the agent logs on this machine."""

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
"""Logs with their agents. The agent is "" if the log's path does not show it."""


def installed_agent_logs() -> AgentOf:
    """Find the logs of all agents on this machine."""
    agents = discover_by_agent(variables(), home(), sys.platform)
    return {LogFile.at(str(path)): agent for agent, paths in agents.items() for path in paths}


@contextmanager
def standard_input(paths: tuple[str, ...]) -> Iterator[str | None]:
    """Copy standard input to a temporary file and yield its path; None if `-` is not one of the paths."""
    if "-" not in paths:
        yield None
        return
    if sys.stdin is None:
        raise InputError(STDIN, "closed: pipe a log into it or pass a file")
    with tempfile.TemporaryDirectory(prefix="ibidem-") as folder:
        path = Path(folder, "log")
        path.write_bytes(sys.stdin.buffer.read())
        yield str(path)


def named(paths: tuple[str, ...], piped: str | None) -> AgentOf:
    """List the logs at these paths and URLs, each once. Their agents are unknown."""
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
        raise InputError(one_line(url), "no logs in this folder: pass another")
    return found


def _below(path: str) -> list[LogFile]:
    name = one_line(click.format_filename(path))
    if not os.path.exists(path):
        raise InputError(name, "no such file or folder: check the path")
    found = logs_in(Path(path))
    if not found:
        raise InputError(name, "no logs in this folder: pass another")
    return [LogFile.at(str(each)) for each in found]


def matching_logs(agents: AgentOf, selection: SessionFilter) -> list[LogFile]:
    """Return the logs that may have selected sessions. All other logs are not read."""
    return [log for log, agent in agents.items() if selection.may_hold(log.path, log.written, agent or None)]
