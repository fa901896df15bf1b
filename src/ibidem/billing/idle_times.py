"""Counts of the user's idle times between requests, from logs on this machine, in a small file.

`ibidem report` writes the file. `cache_ttl.choose_ttl` uses the counts. A missing or damaged file counts as no data.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..environment import data_folder
from ..errors import IbidemError
from .cache_ttl import IdleTimes

PAUSES_FILE = "pauses.json"
PAUSES_VERSION = 1
MAX_COUNT = 10**12
"""Upper bound of a plausible count. A file with a larger number is damaged."""
MAX_FILE_BYTES = 4096


def load_idle_times(folder: Path | None = None) -> IdleTimes:
    """Load the counts from a folder (default: the data folder); empty counts without a file."""
    with suppress(OSError, ValueError, RecursionError, IbidemError):
        with open((folder or data_folder()) / PAUSES_FILE, "rb") as file:
            value = json.loads(file.read(MAX_FILE_BYTES))
        if isinstance(value, dict) and value.get("version") == PAUSES_VERSION:
            user_counts, loop_counts = _read_counts(value.get("spoken")), _read_counts(value.get("looped"))
            conversations = value.get("conversations")
            if user_counts and loop_counts and isinstance(conversations, int) and _is_count(conversations):
                return IdleTimes(user_counts, loop_counts, conversations)
    return IdleTimes()


def save_idle_times(pauses: IdleTimes, folder: Path | None = None) -> None:
    """Replace the stored counts atomically. After an error, the old ones stay."""
    value = {"version": PAUSES_VERSION, **pauses._asdict()}
    with suppress(OSError, IbidemError):
        target = (folder or data_folder()) / PAUSES_FILE
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = target.with_name(f".{PAUSES_FILE}.{secrets.token_hex(4)}.part")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(handle, "w", encoding="ascii") as file:
                json.dump(value, file)
                file.write("\n")
            os.replace(beside, target)
        except OSError:
            with suppress(OSError):
                os.unlink(beside)


def _read_counts(value: Any) -> tuple[int, int, int] | None:
    """Read three counts; None for any other value."""
    match value:
        case [soon, later, last] if all(map(_is_count, value)):
            return soon, later, last
    return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT
