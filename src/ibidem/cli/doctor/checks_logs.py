"""Check the newest agent logs for models without a known price and for sessions without prompt caching."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...billing.cache_misses import lacks_breakpoints
from ...billing.prices import Prices
from ...errors import one_line
from ...recordings import LogError, Recording, read
from ...recordings.discovery import discover_logs, load_log
from .check_runner import CheckContext, CheckResult

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
    skipped_count: int
    """Logs that were skipped because they are too large."""


def check_newest_logs(machine: CheckContext) -> Iterator[CheckResult]:
    """Check models and prompt caching in the newest agent logs."""
    logs = _read_newest(machine)
    if not logs.logs:
        text = (
            f"no logs were checked ({logs.skipped_count} are too large)"
            if logs.skipped_count
            else "no agent logs on this machine"
        )
        yield CheckResult("ok", text)
        return
    prices = Prices()
    yield _check_models(logs, prices)
    yield _check_breakpoints(logs, prices)


def _check_models(logs: NewestLogs, prices: Prices) -> CheckResult:
    lead = f"{len(logs.sessions):,} sessions in the newest {logs.logs} logs"
    models = Counter(model for each in logs.sessions for model in each.models if prices.of(model, each.format).assumed)
    if not models:
        return CheckResult("ok", f"{lead}: every model is in the price list")
    remedy = "pip install --upgrade genai-prices, or pass their prices: ibidem report --prices FILE"
    return CheckResult("note", f"{lead}: not in the price list: {_list_names(models)}", remedy)


def _check_breakpoints(logs: NewestLogs, prices: Prices) -> CheckResult:
    """Report sessions that paid the uncached price for all input because their requests have no cache breakpoints."""
    agents = Counter(each.agent for each in logs.sessions if _is_never_cached(each, prices))
    if not agents:
        return CheckResult("ok", "prompt caching: every session used it, or could not")
    count, names = sum(agents.values()), _list_names(agents)
    text = f"{count:,} sessions had no cache breakpoints and never used the prompt cache: {names}"
    return CheckResult("note", text, "ibidem wrap --cache auto -- COMMAND adds cache breakpoints")


def _is_never_cached(session: Recording, prices: Prices) -> bool:
    requests = [sent for segment in session.segments for sent in segment.requests if sent.usage is not None]
    if not requests:
        return False
    caching = prices.of(requests[-1].model, session.format).caching
    return lacks_breakpoints([sent.usage for sent in requests if sent.usage is not None], caching)


def _list_names(names: Counter[str]) -> str:
    displayed = [one_line(name[:MAX_NAME_LENGTH]) for name, _ in names.most_common(MAX_NAMED)]
    return ", ".join(displayed) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")


def _read_newest(machine: CheckContext) -> NewestLogs:
    dated = [
        (when, path)
        for path in discover_logs(machine.variables, machine.home, machine.platform)
        if (when := _modified_time(path))
    ]
    newest = [path for _, path in sorted(dated, reverse=True)[:MAX_LOGS]]
    until, bytes_left, logs, skipped_count = time.monotonic() + READ_SECONDS, MAX_ALL_BYTES, 0, 0
    sessions: list[Recording] = []
    for path in newest:
        size = _log_size(path)
        if size > min(MAX_LOG_BYTES, bytes_left) or time.monotonic() > until:
            skipped_count += 1
            continue
        bytes_left -= size
        try:
            sessions += read(str(path), load_log(path))
            logs += 1
        except (LogError, OSError):
            continue  # no request in it, or another program's log: `ibidem report` lists it
    return NewestLogs(sessions, logs, skipped_count)


def _modified_time(path: Path) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _log_size(path: Path) -> int:
    """Return a log's size in bytes. A folder of unknown size counts as too large."""
    try:
        return path.stat().st_size if path.is_file() else MAX_ALL_BYTES + 1
    except OSError:
        return MAX_ALL_BYTES + 1
