"""What `ibidem statusline` prints: one line of figures, for the status line of Claude Code.

The client hands over its status as JSON, often. So nothing is loaded here but what reads JSON and the ledger of gains,
and whatever goes wrong, there is a line and exit code 0. Only numbers of the status are printed, in our own words: no
text of it can reach the terminal.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in `typing`, whose import takes half as long as the start of Python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAX_STATUS_BYTES = 2**20
MAX_COLUMNS = 100
MAX_FIGURE = 1e12
"""What is larger is no number of dollars or tokens, but a mistake."""
BETWEEN = " | "
NOTHING = "ibidem: no figures yet"
CONTEXT_PARTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def run() -> int:
    """Reads standard input, prints the line, and is always fine: a client blanks the line of a command that fails."""
    try:
        status = _read()
        session = status.get("session_id")
        shown = line(status, _of_ledger(session) if isinstance(session, str) and session else None)
    except Exception:
        shown = NOTHING
    try:
        sys.stdout.write(f"{shown}\n")
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # nobody reads it: what is left must not fail at the end either
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except OSError:
            return 0
    return 0


def line(status: dict[str, Any], session: SessionSum | None) -> str:
    """As many of the figures as fit, the most important first."""
    shown = ""
    for part in _parts(status, session):
        longer = f"{shown}{BETWEEN}{part}" if shown else part
        if len(longer) <= MAX_COLUMNS:
            shown = longer
    return shown or NOTHING


def _parts(status: dict[str, Any], session: SessionSum | None) -> Iterator[str]:
    for part in (_money(status, session), _context(status), _cache(status)):
        if part:
            yield part


def _money(status: dict[str, Any], session: SessionSum | None) -> str:
    """Cost, or on a subscription the value at list prices. Only subscribers have `rate_limits` in the status."""
    is_plan = session.plan if session else bool(_table(status, "rate_limits"))
    paid = _number(session.paid) if session else None
    saved = _number(session.saved, -MAX_FIGURE) if session else None
    if paid is not None and saved is not None:
        if session and is_plan:
            tokens = f", {session.removed_share:.0%} of input tokens saved" if session.removed_share > 0 else ""
            return f"worth {_dollars(paid)} at list prices{tokens}"
        without = paid + saved
        share = f" ({saved / without:.0%})" if saved > 0 and without > 0 else ""
        return f"paid {_dollars(paid)}, saved {_dollars(saved)}{share}"
    cost = _number(_table(status, "cost").get("total_cost_usd"))
    if cost is None:
        return ""
    return f"worth {_dollars(cost)} at list prices" if is_plan else f"cost {_dollars(cost)}"


def _context(status: dict[str, Any]) -> str:
    """The newest request's input, as the provider counted it."""
    window = _table(status, "context_window")
    usage = _table(window, "current_usage")
    counted = [count for name in CONTEXT_PARTS if (count := _number(usage.get(name))) is not None]
    size, percent = _number(window.get("context_window_size")), _number(window.get("used_percentage"))
    if not counted:
        return "" if percent is None else f"context {percent:.0f}%"
    used = sum(counted)
    return f"context {_tokens(used)} of {_tokens(size)} ({used / size:.0%})" if size else f"context {_tokens(used)}"


def _cache(status: dict[str, Any]) -> str:
    """The client's own verdict on how well its provider's cache is used."""
    cache = _table(status, "prompt_cache")
    ratio, misses = _number(cache.get("hit_ratio")), _number(cache.get("misses"))
    parts = [f"{ratio:.0%} hit"] if ratio is not None and ratio <= 1 else []
    if misses is not None:
        parts.append(f"{misses:.0f} miss{'' if misses == 1 else 'es'}")
    return f"cache {', '.join(parts)}" if parts else ""


def _dollars(value: float) -> str:
    sign, size = ("-" if value < 0 else ""), abs(value)
    return f"{sign}${size:,.2f}" if size >= 0.1 or not size else f"{sign}${size:.4f}"


def _tokens(value: float) -> str:
    if value < 1000:
        return f"{value:.0f}"
    return f"{value / 1000:.0f}k" if value < 999_500 else f"{value / 1e6:.1f}M".replace(".0M", "M")


def _number(value: object, least: float = 0.0) -> float | None:
    """A figure that can be printed; None for everything else, also for what JSON has no numbers for."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if least <= value <= MAX_FIGURE else None


def _table(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _read() -> dict[str, Any]:
    """The status; an empty one where there is none. Who types at a terminal is not waited for."""
    if sys.stdin is None or sys.stdin.isatty():
        return {}
    import json

    found = json.loads(sys.stdin.buffer.read(MAX_STATUS_BYTES))
    return found if isinstance(found, dict) else {}


class SessionSum:
    """What the ledger knows of a session, in dollars."""

    def __init__(self, paid: float, saved: float, plan: bool = False, removed_share: float = 0.0) -> None:
        self.paid = paid
        """For input and output."""
        self.saved = saved
        self.plan = plan
        """A subscription covers the session, as its last request says."""
        self.removed_share = removed_share
        """Share of the input tokens that were left out."""


LEDGER_QUERY = """
SELECT total(paid) + total(output_paid), total(CASE WHEN observed THEN paid ELSE would_have_paid END) - total(paid){}
FROM exchanges WHERE session = ?1 AND session <> '' HAVING count(*)
"""
LATER_FIELDS = """, (SELECT plan FROM exchanges WHERE session = ?1 ORDER BY id DESC LIMIT 1),
total(removed * (1 - observed)) / max(1, total(fresh + read + written) + total(removed * (1 - observed)))"""
"""Files of earlier builds lack these columns."""
LEDGER_VERSION = 1
LEDGER_PATIENCE = 0.25
"""Seconds that others may keep it locked."""


def _of_ledger(session: str) -> SessionSum | None:
    """What was paid and saved in a session; None where nothing is noted of it, or there is no ledger.

    As `ibidem.gains` says it, which takes longer to import than all of this; a test holds the two together.
    """
    try:
        file = ledger_file()
        if not os.path.exists(file):
            return None
        import sqlite3

        ledger = sqlite3.connect(f"file:{_quoted(file)}?mode=ro", timeout=LEDGER_PATIENCE, uri=True)
        try:
            if ledger.execute("PRAGMA user_version").fetchone() != (LEDGER_VERSION,):
                return None
            try:
                found = ledger.execute(LEDGER_QUERY.format(LATER_FIELDS), (session,)).fetchone()
            except sqlite3.OperationalError:
                found = ledger.execute(LEDGER_QUERY.format(""), (session,)).fetchone()
        finally:
            ledger.close()
        return SessionSum(*found) if found else None
    except Exception:  # whatever is wrong with it, the other figures are known
        return None


def ledger_file() -> str:
    """As `environment.data_folder` has it, without what that imports."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        return os.path.join(base, "ibidem", "Data", "gains.sqlite3")
    usual = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
    return os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.join(home, usual), "ibidem", "gains.sqlite3")


def _quoted(file: str) -> str:
    """What means something in an address."""
    return file.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
