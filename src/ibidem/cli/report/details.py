"""What was rewritten in each session of a report, written beside its page: a file per session. They hold texts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from urllib.parse import quote

from ... import recordings
from ...recordings import LogError
from ...report.executors import LogWorkers
from ...report.figures import SessionFigures
from ...report.measure import ReportSettings
from ...report.places import fetch
from .progress import progress

SessionKey = tuple[str, str]


def write_all(
    sessions: Iterable[SessionFigures], settings: ReportSettings, folder: Path, page: Path, workers: LogWorkers
) -> dict[SessionKey, str]:
    """Path and name of a session → where the page finds what was rewritten in it. The last of the profiles is shown:
    one that lets go of old text does all that the others do as well."""
    names: dict[str, list[str]] = {}
    for session in sessions:
        names.setdefault(session.path, []).append(session.name)
    there = os.path.relpath(folder, page.parent).replace(os.sep, "/")
    found: dict[SessionKey, str] = {}
    call = partial(_write, settings=settings, folder=folder)
    with progress("writing details", len(names)) as done:
        for written in workers.each(call, list(names.items())):
            found |= {key: quote(f"{there}/{name}") for key, name in written.items()}
            done(1, "")
    return found


def _write(log: tuple[str, list[str]], settings: ReportSettings, folder: Path) -> dict[SessionKey, str]:
    """The pages of one log. One that is gone meanwhile has none."""
    from ..view.details import write_details

    path, names = log
    try:
        sessions = recordings.read(path, fetch(path))
    except (OSError, LogError):
        return {}
    wanted = [session for session in sessions if session.name in names]
    profile = settings.profiles[-1]
    return {(path, session.name): write_details(session, settings, folder, profile) for session in wanted}
