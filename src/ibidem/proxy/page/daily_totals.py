"""Daily totals of cost and savings from the usage database, including earlier runs. Numbers only, no texts."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...usage_db import UsageDatabase, UsageDatabaseError, UsageTotals

SHOWN_DAYS = 14


def load_daily_totals(file: Path | None, now: float) -> dict[str, Any]:
    """Return the totals of the last days in local time, newest first. Days without data are omitted."""
    if file is None:
        return {"days": [], "all": None, "trouble": ""}
    tomorrow = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    starts = [tomorrow - timedelta(days=days) for days in range(SHOWN_DAYS + 1)]
    try:
        with UsageDatabase(file) as database:
            whole = database.total_usage()
            days = [database.total_usage(start.timestamp(), end.timestamp()) for end, start in pairwise(starts)]
    except UsageDatabaseError as error:
        return {"days": [], "all": None, "trouble": str(error)}
    rows = [
        {"day": f"{day:%Y-%m-%d}", **_totals_json(each)} for day, each in zip(starts[1:], days, strict=True) if each
    ]
    return {"days": rows, "all": _totals_json(whole) if whole else None, "trouble": ""}


def _totals_json(totals: UsageTotals) -> dict[str, Any]:
    return {**totals._asdict(), "input": totals.input_tokens, "saved": totals.saved_dollars}
