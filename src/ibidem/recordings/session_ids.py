"""Session ids that a user can pass to a command: the id that the agent prints, or the id in the file name."""

from __future__ import annotations

import re
from pathlib import PurePath

from .recording import Recording

ENDINGS = (".zst", ".gz", ".jsonl", ".json", ".traj", ".db")
"""Endings of log names, in the order in which they are removed."""
SHARED_NAMES = frozenset({"events", "trajectory", "output", "session"})
"""Names that all logs of an agent have. The folder's name identifies the session instead."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.IGNORECASE)


def session_id(session: Recording) -> str:
    """Return the id of a session: from its log, or else its name within the file, or else from the file name."""
    return session.id or session.name or file_name_ids(session.path)[0]


def file_name_ids(path: str) -> tuple[str, ...]:
    """Return the ids in a log's name: the UUID at its end, if any (`rollout-<time>-<id>.jsonl`), and the whole name."""
    log_path = PurePath(path)
    name = log_path.name
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    if name in SHARED_NAMES and log_path.parent.name:
        name = log_path.parent.name
    match = _UUID.search(name)
    return (match[0], name) if match and match[0] != name else (name,)
