"""What was paid and saved on each of the last days and in all, also before the proxy was started: figures, no texts."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ...gains import GainPart, Gains, GainsError, Sum

SHOWN_DAYS = 14
ALL_DAYS = "all"


def days_kept(file: Path | None, now: float) -> dict[str, Any]:
    """By the clock of this machine, the newest day first; days of which nothing is kept are left out."""
    if file is None:
        return {"days": [], "all": None, "trouble": ""}
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    first = (today - timedelta(days=SHOWN_DAYS - 1)).timestamp()

    def day(part: GainPart) -> str:
        return f"{datetime.fromtimestamp(part.at):%Y-%m-%d}" if part.at >= first else ""

    try:
        with Gains(file) as found:
            sums = found.sums(day)
            every = found.total()
    except GainsError as error:
        return {"days": [], "all": None, "trouble": str(error)}
    named = sorted(((name, each) for name, each in sums.items() if name), reverse=True)
    shown = [{"day": name, **_figures(each)} for name, each in named]
    return {"days": shown, "all": _figures(every) if every else None, "trouble": ""}


def _figures(found: Sum) -> dict[str, Any]:
    return {**found._asdict(), "input": found.input, "saved": found.saved}
