"""Daily totals of cost and savings from the usage database, including earlier runs. Numbers only, no texts."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...gains import Gains, GainsError, Sum

SHOWN_DAYS = 14


def days_kept(file: Path | None, now: float) -> dict[str, Any]:
    """Return the totals of the last days in local time, newest first. Days without data are omitted."""
    if file is None:
        return {"days": [], "all": None, "trouble": ""}
    tomorrow = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    starts = [tomorrow - timedelta(days=days) for days in range(SHOWN_DAYS + 1)]
    try:
        with Gains(file) as found:
            whole = found.total()
            days = [found.total(start.timestamp(), end.timestamp()) for end, start in pairwise(starts)]
    except GainsError as error:
        return {"days": [], "all": None, "trouble": str(error)}
    shown = [{"day": f"{day:%Y-%m-%d}", **_figures(each)} for day, each in zip(starts[1:], days, strict=True) if each]
    return {"days": shown, "all": _figures(whole) if whole else None, "trouble": ""}


def _figures(found: Sum) -> dict[str, Any]:
    return {**found._asdict(), "input": found.input, "saved": found.saved}
