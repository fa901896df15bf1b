"""By what a user can name a session: the id that its agent prints, or what the file's name says of it."""

from __future__ import annotations

import re
from pathlib import PurePath

from .recording import Recording

ENDINGS = (".zst", ".gz", ".jsonl", ".json", ".traj", ".db")
"""Of the names of logs, in the order in which they are taken off."""
SHARED_NAMES = frozenset({"events", "trajectory", "output", "session"})
"""Names that every log of an agent has: its folder tells them apart."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.IGNORECASE)


def session_id(session: Recording) -> str:
    """Its own, or that of its file where the log does not say; sessions of one file are told apart by their names."""
    return session.id or session.name or ids_in(session.path)[0]


def ids_in(path: str) -> tuple[str, ...]:
    """What the name of a log says: the id at its end, if there is one (`rollout-<time>-<id>.jsonl`), and all of it."""
    place = PurePath(path)
    name = place.name
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    if name in SHARED_NAMES and place.parent.name:
        name = place.parent.name
    found = _UUID.search(name)
    return (found[0], name) if found and found[0] != name else (name,)
