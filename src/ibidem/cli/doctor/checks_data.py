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
from ..proxy.serve import load_settings
from .check_runner import CheckContext, CheckResult

DAY_SECONDS = 86_400
OLD_PRICES_DAYS = 90
"""Age from which the price list is reported. New models appear every few weeks."""
OTHERS_MODE = 0o077
"""Mode bits that give other users access to a file."""


def check_store(machine: CheckContext) -> Iterator[CheckResult]:
    """Check the store that the proxy uses."""
    target = load_settings({}, machine.variables).settings.store or environment.store_target()
    if target == MEMORY_TARGET:
        yield CheckResult("ok", "in memory: originals are deleted when the proxy stops")
    elif target.startswith(SERVER_SCHEMES):
        yield CheckResult("ok", "on a server, which is not checked here. To check it: ibidem store stats")
    else:
        yield from check_database(Path(target))


def check_usage_db(machine: CheckContext) -> Iterator[CheckResult]:
    """Check the usage database."""
    try:
        usage_db: Any = import_module("ibidem.usage_db")
    except ModuleNotFoundError:
        yield from _check_folder(environment.data_folder())
        return
    yield from check_database(usage_db.database_path())


def check_database(path: Path) -> Iterator[CheckResult]:
    """Check that a database can be read and written, and that other users cannot access it."""
    name = one_line(str(path))
    if not path.exists():
        yield from _check_folder(path.parent, f"{name} does not exist yet")
        return
    if not path.is_file():
        yield CheckResult("problem", f"{name}: not a file", "remove it, or use another path")
    elif not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        yield CheckResult(
            "problem", f"{name}: not writable", f"chown and chmod 600 it, and chmod 700 {_parent_name(path)}"
        )
    elif os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & OTHERS_MODE:
        yield CheckResult("problem", f"{name}: other users of this machine can read it", f"chmod 600 {name}")
    elif damage := _describe_damage(path):
        yield CheckResult("problem", f"{name}: {damage}", "move the file away; ibidem then creates a new one")
    else:
        yield CheckResult("ok", f"{name}, {path.stat().st_size:,} bytes")


def _parent_name(path: Path) -> str:
    return one_line(str(path.parent))


def _check_folder(folder: Path, lead: str = "") -> Iterator[CheckResult]:
    """Check a folder, or its nearest existing parent if it does not exist yet."""
    existing = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    name, prefix = one_line(str(existing)), f"{lead}: " if lead else ""
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        remedy = f"make it a folder that you can write to: chmod 700 {name}"
        yield CheckResult("problem", f"{prefix}{name} is not writable", remedy)
    elif existing == folder and os.name == "posix" and stat.S_IMODE(existing.stat().st_mode) & OTHERS_MODE & 0o022:
        yield CheckResult("problem", f"{prefix}other users can write to {name}", f"chmod 700 {name}")
    else:
        yield CheckResult(
            "ok", f"{lead or one_line(str(folder))} and can be created" if lead or existing != folder else name
        )


def _describe_damage(path: Path) -> str:
    """Describe the damage of a database; "" if it is valid. Opens it read-only."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return ""  # locked, or SQLite would have to create a journal file to read it
    except sqlite3.Error:
        return "not a database"
    return ""


def check_prices(machine: CheckContext) -> Iterator[CheckResult]:
    """Check when the price list was installed. The list itself has no date."""
    distribution = metadata.distribution("genai-prices")
    text = f"genai-prices {distribution.version}"
    if newest := _newest_price_date():
        text += f", newest price from {newest}"
    installed_at = _install_time(distribution)
    if installed_at is None:
        yield CheckResult("ok", text)
        return
    days = (time.time() - installed_at) / DAY_SECONDS
    text += f", installed {datetime.fromtimestamp(installed_at, UTC):%Y-%m-%d}"
    if days > OLD_PRICES_DAYS:
        yield CheckResult("note", f"{text}: newer models may be missing", "pip install --upgrade genai-prices")
    else:
        yield CheckResult("ok", text)


def _install_time(distribution: metadata.Distribution) -> float | None:
    for file in distribution.files or ():
        if file.name == "METADATA":
            try:
                return os.stat(str(distribution.locate_file(file))).st_mtime
            except OSError:
                return None
    return None


def _newest_price_date() -> date | None:
    from genai_prices.data import providers

    rows = (row for provider in providers for model in provider.models for row in _as_list(model.prices))
    days = (getattr(getattr(row, "constraint", None), "start_date", None) for row in rows)
    return max((day for day in days if isinstance(day, date) and day <= date.today()), default=None)


def _as_list(prices: Any) -> list[Any]:
    return prices if isinstance(prices, list) else []
