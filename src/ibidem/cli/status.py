"""The line that `ibidem statusline` prints for Claude Code: cost, savings, context and cache use.

Claude Code sends its status as JSON about once per second. So this module imports only `json` and `sqlite3`, and only
if it needs them. It always prints a line and returns exit code 0. It prints only numbers from the status, never its
text, so the status cannot send escape codes to the terminal.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` is not imported for it: that takes half as long as starting Python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAX_STATUS_BYTES = 2**20
MAX_COLUMNS = 100
MAX_FIGURE = 1e12
"""Largest plausible number of dollars or tokens. Larger numbers are treated as errors in the input."""
BETWEEN = " | "
NOTHING = "ibidem: no data yet"
CONTEXT_PARTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def run() -> int:
    """Read the status from standard input and print the line. Always returns 0: the client hides output on failure."""
    try:
        status = _read()
        session = status.get("session_id")
        shown = line(status, _of_ledger(session) if isinstance(session, str) and session else None)
    except Exception:
        shown = NOTHING
    try:
        sys.stdout.write(f"{shown}\n")
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # standard output is closed: the flush at exit must not fail either
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except OSError:
            return 0
    return 0


def line(status: dict[str, Any], session: SessionSum | None) -> str:
    """Join as many parts as fit into `MAX_COLUMNS`, the most important first."""
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
    """Format the cost, or on a subscription the value at list prices. Only subscribers have `rate_limits`."""
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
    """Format the input tokens of the latest request, as the provider counted them."""
    window = _table(status, "context_window")
    usage = _table(window, "current_usage")
    counted = [count for name in CONTEXT_PARTS if (count := _number(usage.get(name))) is not None]
    size, percent = _number(window.get("context_window_size")), _number(window.get("used_percentage"))
    if not counted:
        return "" if percent is None else f"context {percent:.0f}%"
    used = sum(counted)
    return f"context {_tokens(used)} of {_tokens(size)} ({used / size:.0%})" if size else f"context {_tokens(used)}"


def _cache(status: dict[str, Any]) -> str:
    """Format the prompt cache's hit ratio and misses, as the client reports them."""
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
    """Return a number in the plausible range, else None. The range check also excludes NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if least <= value <= MAX_FIGURE else None


def _table(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _read() -> dict[str, Any]:
    """Read the status from standard input; empty if there is none. Does not wait for input from a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return {}
    import json

    found = json.loads(sys.stdin.buffer.read(MAX_STATUS_BYTES))
    return found if isinstance(found, dict) else {}


class SessionSum:
    """Totals of a session in the usage database, in dollars."""

    def __init__(self, paid: float, saved: float, plan: bool = False, removed_share: float = 0.0) -> None:
        self.paid = paid
        """Cost of input and output."""
        self.saved = saved
        self.plan = plan
        """The last request of the session was covered by a subscription."""
        self.removed_share = removed_share
        """Share of the input tokens that Ibidem removed, 0 to 1."""


LEDGER_QUERY = """
SELECT total(paid) + total(output_paid), total(CASE WHEN observed THEN paid ELSE would_have_paid END) - total(paid){}
FROM exchanges WHERE session = ?1 AND session <> '' HAVING count(*)
"""
LATER_FIELDS = """, (SELECT plan FROM exchanges WHERE session = ?1 ORDER BY id DESC LIMIT 1),
total(removed * (1 - observed)) / max(1, total(fresh + read + written) + total(removed * (1 - observed)))"""
"""Columns that databases of earlier builds lack."""
LEDGER_VERSION = 1
LEDGER_PATIENCE = 0.25
"""Seconds to wait for a locked database."""


def _of_ledger(session: str) -> SessionSum | None:
    """Read the totals of a session from the usage database; None if the session or the database is missing.

    The package has its own reader of this database, but importing it takes longer than this whole command. A test
    compares the results of the two.
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
    except Exception:  # the rest of the line does not need the database
        return None


def ledger_file() -> str:
    """Return the path of the usage database. Same as with `environment.data_folder`, but without its imports."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        return os.path.join(base, "ibidem", "Data", "gains.sqlite3")
    usual = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
    return os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.join(home, usual), "ibidem", "gains.sqlite3")


def _quoted(file: str) -> str:
    """Escape the characters with a meaning in a URI."""
    return file.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
