"""Select the logs of a report: the paths that the user passed, or the agent logs on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ...environment import environment_variables, home_folder
from ...errors import one_line
from ...recordings.discovery import discover_by_agent, find_logs
from ...report.log_sources import LogFile, is_url, list_logs
from ...report.selection import SessionFilter
from ..command_errors import InputError
from ..request_input import STDIN

AgentOf = dict[LogFile, str]
"""Logs with their agents. The agent is "" if the log's path does not show it."""


def installed_agent_logs() -> AgentOf:
    """Find the logs of all agents on this machine."""
    agents = discover_by_agent(environment_variables(), home_folder(), sys.platform)
    return {LogFile.from_path(str(path)): agent for agent, paths in agents.items() for path in paths}


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


def logs_at(paths: tuple[str, ...], stdin_path: str | None) -> AgentOf:
    """List the logs at these paths and URLs, each once. Their agents are unknown."""
    logs: dict[str, LogFile] = {}
    for path in paths:
        if path == "-" and stdin_path is not None:
            path_logs = [LogFile.from_path(stdin_path)]
        else:
            path_logs = _logs_at_url(path) if is_url(path) else _logs_in_path(path)
        for log in path_logs:
            logs.setdefault(log.path if is_url(log.path) else str(Path(log.path).resolve()), log)
    return dict.fromkeys(logs.values(), "")


def _logs_at_url(url: str) -> list[LogFile]:
    try:
        logs = list_logs(url)
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise InputError(one_line(url), f"cannot be reached ({one_line(why)}): check the address") from None
    if not logs:
        raise InputError(one_line(url), "no logs in this folder: pass another")
    return logs


def _logs_in_path(path: str) -> list[LogFile]:
    name = one_line(click.format_filename(path))
    if not os.path.exists(path):
        raise InputError(name, "no such file or folder: check the path")
    paths = find_logs(Path(path))
    if not paths:
        raise InputError(name, "no logs in this folder: pass another")
    return [LogFile.from_path(str(each)) for each in paths]


def matching_logs(agents: AgentOf, selection: SessionFilter) -> list[LogFile]:
    """Return the logs that may have selected sessions. All other logs are not read."""
    return [log for log, agent in agents.items() if selection.may_hold(log.path, log.written, agent or None)]
