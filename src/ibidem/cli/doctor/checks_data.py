"""Check the store and the usage database, including file permissions, and the age of the price list."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from ... import environment
from ...errors import one_line
from ...store import SERVER_SCHEMES
from ...store.store import MEMORY_TARGET
from ..proxy.serving import loaded
from .checking import CheckResult, Machine

DAY_SECONDS = 86_400
OLD_PRICES_DAYS = 90
"""Age from which the price list is reported. New models appear every few weeks."""
OTHERS = 0o077
"""Mode bits that give other users access to a file."""


def store(machine: Machine) -> Iterator[CheckResult]:
    """Check the store that the proxy uses."""
    target = loaded({}, machine.variables).settings.store or environment.store_target()
    if target == MEMORY_TARGET:
        yield CheckResult("ok", "in memory: originals are deleted when the proxy stops")
    elif target.startswith(SERVER_SCHEMES):
        yield CheckResult("ok", "on a server, which is not checked here. To check it: ibidem store stats")
    else:
        yield from kept_in(Path(target))


def ledger(machine: Machine) -> Iterator[CheckResult]:
    """Check the usage database."""
    try:
        gains: Any = import_module("ibidem.gains")
    except ModuleNotFoundError:
        yield from _folder(environment.data_folder())
        return
    yield from kept_in(Path(gains.path()))


def kept_in(path: Path) -> Iterator[CheckResult]:
    """Check that a database can be read and written, and that other users cannot access it."""
    shown = one_line(str(path))
    if not path.exists():
        yield from _folder(path.parent, f"{shown} does not exist yet")
        return
    if not path.is_file():
        yield CheckResult("problem", f"{shown}: not a file", "remove it, or use another path")
    elif not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        yield CheckResult("problem", f"{shown}: not writable", f"chown and chmod 600 it, and chmod 700 {_of(path)}")
    elif os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & OTHERS:
        yield CheckResult("problem", f"{shown}: other users of this machine can read it", f"chmod 600 {shown}")
    elif why := _damage(path):
        yield CheckResult("problem", f"{shown}: {why}", "move the file away; ibidem then creates a new one")
    else:
        yield CheckResult("ok", f"{shown}, {path.stat().st_size:,} bytes")


def _of(path: Path) -> str:
    return one_line(str(path.parent))


def _folder(folder: Path, lead: str = "") -> Iterator[CheckResult]:
    """Check a folder, or its nearest existing parent if it does not exist yet."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    shown, before = one_line(str(there)), f"{lead}: " if lead else ""
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        remedy = f"make it a folder that you can write to: chmod 700 {shown}"
        yield CheckResult("problem", f"{before}{shown} is not writable", remedy)
    elif there == folder and os.name == "posix" and stat.S_IMODE(there.stat().st_mode) & OTHERS & 0o022:
        yield CheckResult("problem", f"{before}other users can write to {shown}", f"chmod 700 {shown}")
    else:
        yield CheckResult(
            "ok", f"{lead or one_line(str(folder))} and can be created" if lead or there != folder else shown
        )


def _damage(path: Path) -> str:
    """Describe the damage of a database; "" if it is valid. Opens it read-only."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return ""  # locked, or SQLite would have to create a journal file to read it
    except sqlite3.Error:
        return "not a database"
    return ""


def prices(machine: Machine) -> Iterator[CheckResult]:
    """Check when the price list was installed. The list itself has no date."""
    found = metadata.distribution("genai-prices")
    text = f"genai-prices {found.version}"
    if newest := _newest_price():
        text += f", newest price from {newest}"
    installed = _installed(found)
    if installed is None:
        yield CheckResult("ok", text)
        return
    days = (time.time() - installed) / DAY_SECONDS
    text += f", installed {datetime.fromtimestamp(installed, UTC):%Y-%m-%d}"
    if days > OLD_PRICES_DAYS:
        yield CheckResult("note", f"{text}: newer models may be missing", "pip install --upgrade genai-prices")
    else:
        yield CheckResult("ok", text)


def _installed(found: metadata.Distribution) -> float | None:
    for file in found.files or ():
        if file.name == "METADATA":
            try:
                return os.stat(str(found.locate_file(file))).st_mtime
            except OSError:
                return None
    return None


def _newest_price() -> date | None:
    from genai_prices.data import providers

    rows = (row for provider in providers for model in provider.models for row in _rows(model.prices))
    days = (getattr(getattr(row, "constraint", None), "start_date", None) for row in rows)
    return max((day for day in days if isinstance(day, date) and day <= date.today()), default=None)


def _rows(prices: Any) -> list[Any]:
    return prices if isinstance(prices, list) else []
