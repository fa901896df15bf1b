"""What this machine offers: the one place that asks the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..sessions.places import discover

NAME = "ibidem"


def logs() -> list[Path]:
    """The logs of the agents that are used here."""
    return discover(os.environ, Path.home(), sys.platform)


def cache_folder() -> Path:
    """Where things are kept that may be deleted at any time."""
    return _folder("XDG_CACHE_HOME", ".cache", "Library/Caches", "Cache")


def _folder(variable: str, unix: str, mac: str, windows: str) -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / NAME / windows
    if found := os.environ.get(variable):
        return Path(found) / NAME
    return Path.home() / (mac if sys.platform == "darwin" else unix) / NAME
