"""Recorded sessions below a folder, as histories and the lengths at which they were sent."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ibidem.recordings import LogError
from ibidem.recordings.discovery import find_logs, load_log

from .readers import read


@dataclass(frozen=True)
class Recorded:
    """One context segment: `history[:n]` for every n in `cuts` was sent as a request."""

    name: str
    """Path below the root, then which session and segment, where a file holds several."""
    folder: str
    format: str
    history: list[dict[str, Any]]
    cuts: list[int]


def sessions(root: Path, folders: Iterable[str] | None = None) -> Iterator[Recorded]:
    """Every segment of every session, in the order of the file names. Files that are no logs are named on stderr."""
    wanted = None if folders is None else set(folders)
    for path in find_logs(root):
        name = path.relative_to(root).as_posix()
        folder = name.partition("/")[0]
        if wanted is not None and folder not in wanted:
            continue
        try:
            found = read(name, load_log(path))
        except LogError as error:
            print(f"skipped: {error}", file=sys.stderr)
            continue
        for session in found:
            label = f"{name} ({session.name})" if session.name else name
            for number, segment in enumerate(session.segments, 1):
                full = label if number == 1 else f"{label}#{number}"
                cuts = [sent.length for sent in segment.requests]
                yield Recorded(full, folder, session.format, segment.history, cuts)
