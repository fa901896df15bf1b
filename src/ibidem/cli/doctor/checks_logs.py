"""Check the newest agent logs for models without a known price and for sessions without prompt caching."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...billing.misses import is_unmarked
from ...billing.prices import Prices
from ...errors import one_line
from ...recordings import LogError, Recording, read
from ...recordings.discovery import discover, load
from .checking import CheckResult, Machine

MAX_LOGS = 20
MAX_LOG_BYTES = 4 * 2**20
MAX_ALL_BYTES = 8 * 2**20
READ_SECONDS = 5.0
"""Limits: number of logs, bytes per log, bytes in total, and seconds."""
MAX_NAMED = 5
MAX_NAME_LENGTH = 60


class NewestLogs(NamedTuple):
    """The sessions of the newest logs."""

    sessions: list[Recording]
    logs: int
    passed_over: int
    """Logs that were skipped because they are too large."""


def newest_logs(machine: Machine) -> Iterator[CheckResult]:
    """Check models and prompt caching in the newest agent logs."""
    found = _newest(machine)
    if not found.logs:
        text = (
            f"no logs were checked ({found.passed_over} are too large)"
            if found.passed_over
            else "no agent logs on this machine"
        )
        yield CheckResult("ok", text)
        return
    prices = Prices()
    yield _unknown(found, prices)
    yield _unmarked(found, prices)


def _unknown(found: NewestLogs, prices: Prices) -> CheckResult:
    lead = f"{len(found.sessions):,} sessions in the newest {found.logs} logs"
    models = Counter(model for each in found.sessions for model in each.models if prices.of(model, each.format).assumed)
    if not models:
        return CheckResult("ok", f"{lead}: every model is in the price list")
    remedy = "pip install --upgrade genai-prices, or pass their prices: ibidem report --prices FILE"
    return CheckResult("note", f"{lead}: not in the price list: {_named(models)}", remedy)


def _unmarked(found: NewestLogs, prices: Prices) -> CheckResult:
    """Report sessions that paid the uncached price for all input because their requests have no cache breakpoints."""
    agents = Counter(each.agent for each in found.sessions if _never_cached(each, prices))
    if not agents:
        return CheckResult("ok", "prompt caching: every session used it, or could not")
    text = (
        f"{sum(agents.values()):,} sessions had no cache breakpoints and never used the prompt cache: {_named(agents)}"
    )
    return CheckResult("note", text, "ibidem wrap --cache auto -- COMMAND adds cache breakpoints")


def _never_cached(session: Recording, prices: Prices) -> bool:
    requests = [sent for segment in session.segments for sent in segment.requests if sent.usage is not None]
    if not requests:
        return False
    caching = prices.of(requests[-1].model, session.format).caching
    return is_unmarked([sent.usage for sent in requests if sent.usage is not None], caching)


def _named(names: Counter[str]) -> str:
    shown = [one_line(name[:MAX_NAME_LENGTH]) for name, _ in names.most_common(MAX_NAMED)]
    return ", ".join(shown) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")


def _newest(machine: Machine) -> NewestLogs:
    dated = [
        (when, path) for path in discover(machine.variables, machine.home, machine.platform) if (when := _when(path))
    ]
    newest = [path for _, path in sorted(dated, reverse=True)[:MAX_LOGS]]
    until, left, logs, passed_over = time.monotonic() + READ_SECONDS, MAX_ALL_BYTES, 0, 0
    sessions: list[Recording] = []
    for path in newest:
        size = _size(path)
        if size > min(MAX_LOG_BYTES, left) or time.monotonic() > until:
            passed_over += 1
            continue
        left -= size
        try:
            sessions += read(str(path), load(path))
            logs += 1
        except (LogError, OSError):
            continue  # no request in it, or another program's log: `ibidem report` lists it
    return NewestLogs(sessions, logs, passed_over)


def _when(path: Path) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _size(path: Path) -> int:
    """Return a log's size in bytes. A folder of unknown size counts as too large."""
    try:
        return path.stat().st_size if path.is_file() else MAX_ALL_BYTES + 1
    except OSError:
        return MAX_ALL_BYTES + 1
