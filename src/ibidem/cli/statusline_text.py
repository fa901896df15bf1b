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
MAX_NUMBER = 1e12
"""Largest plausible number of dollars or tokens. Larger numbers are treated as errors in the input."""
SEPARATOR = " | "
NO_DATA = "ibidem: no data yet"
CONTEXT_PARTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def print_statusline() -> int:
    """Read the status from standard input and print the line. Always returns 0: the client hides output on failure."""
    try:
        status = _read_status()
        session = status.get("session_id")
        text = format_line(status, _read_session_totals(session) if isinstance(session, str) and session else None)
    except Exception:
        text = NO_DATA
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # standard output is closed: the flush at exit must not fail either
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except OSError:
            return 0
    return 0


def format_line(status: dict[str, Any], session: StatuslineTotals | None) -> str:
    """Join as many parts as fit into `MAX_COLUMNS`, the most important first."""
    text = ""
    for part in _format_parts(status, session):
        candidate = f"{text}{SEPARATOR}{part}" if text else part
        if len(candidate) <= MAX_COLUMNS:
            text = candidate
    return text or NO_DATA


def _format_parts(status: dict[str, Any], session: StatuslineTotals | None) -> Iterator[str]:
    for part in (_format_cost(status, session), _format_context(status), _format_cache(status)):
        if part:
            yield part


def _format_cost(status: dict[str, Any], session: StatuslineTotals | None) -> str:
    """Format the cost, or on a subscription the value at list prices. Only subscribers have `rate_limits`."""
    is_plan = session.plan if session else bool(_get_table(status, "rate_limits"))
    paid = _valid_number(session.paid) if session else None
    saved = _valid_number(session.saved, -MAX_NUMBER) if session else None
    if paid is not None and saved is not None:
        if session and is_plan:
            tokens = f", {session.removed_share:.0%} of input tokens saved" if session.removed_share > 0 else ""
            return f"worth {_format_dollars(paid)} at list prices{tokens}"
        without = paid + saved
        share = f" ({saved / without:.0%})" if saved > 0 and without > 0 else ""
        return f"paid {_format_dollars(paid)}, saved {_format_dollars(saved)}{share}"
    cost = _valid_number(_get_table(status, "cost").get("total_cost_usd"))
    if cost is None:
        return ""
    return f"worth {_format_dollars(cost)} at list prices" if is_plan else f"cost {_format_dollars(cost)}"


def _format_context(status: dict[str, Any]) -> str:
    """Format the input tokens of the latest request, as the provider counted them."""
    window = _get_table(status, "context_window")
    usage = _get_table(window, "current_usage")
    counts = [count for name in CONTEXT_PARTS if (count := _valid_number(usage.get(name))) is not None]
    size, percent = _valid_number(window.get("context_window_size")), _valid_number(window.get("used_percentage"))
    if not counts:
        return "" if percent is None else f"context {percent:.0f}%"
    used_tokens = sum(counts)
    return (
        f"context {_format_tokens(used_tokens)} of {_format_tokens(size)} ({used_tokens / size:.0%})"
        if size
        else f"context {_format_tokens(used_tokens)}"
    )


def _format_cache(status: dict[str, Any]) -> str:
    """Format the prompt cache's hit ratio and misses, as the client reports them."""
    cache = _get_table(status, "prompt_cache")
    ratio, misses = _valid_number(cache.get("hit_ratio")), _valid_number(cache.get("misses"))
    parts = [f"{ratio:.0%} hit"] if ratio is not None and ratio <= 1 else []
    if misses is not None:
        parts.append(f"{misses:.0f} miss{'' if misses == 1 else 'es'}")
    return f"cache {', '.join(parts)}" if parts else ""


def _format_dollars(value: float) -> str:
    sign, size = ("-" if value < 0 else ""), abs(value)
    return f"{sign}${size:,.2f}" if size >= 0.1 or not size else f"{sign}${size:.4f}"


def _format_tokens(value: float) -> str:
    if value < 1000:
        return f"{value:.0f}"
    return f"{value / 1000:.0f}k" if value < 999_500 else f"{value / 1e6:.1f}M".replace(".0M", "M")


def _valid_number(value: object, least: float = 0.0) -> float | None:
    """Return a number in the plausible range, else None. The range check also excludes NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if least <= value <= MAX_NUMBER else None


def _get_table(parent: dict[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def _read_status() -> dict[str, Any]:
    """Read the status from standard input; empty if there is none. Does not wait for input from a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return {}
    import json

    status = json.loads(sys.stdin.buffer.read(MAX_STATUS_BYTES))
    return status if isinstance(status, dict) else {}


class StatuslineTotals:
    """Totals of a session in the usage database, in dollars."""

    def __init__(self, paid: float, saved: float, plan: bool = False, removed_share: float = 0.0) -> None:
        self.paid = paid
        """Cost of input and output."""
        self.saved = saved
        self.plan = plan
        """The last request of the session was covered by a subscription."""
        self.removed_share = removed_share
        """Share of the input tokens that Ibidem removed, 0 to 1."""


TOTALS_QUERY = """
SELECT total(paid) + total(output_paid), total(CASE WHEN observed THEN paid ELSE would_have_paid END) - total(paid){}
FROM exchanges WHERE session = ?1 AND session <> '' HAVING count(*)
"""
LATER_FIELDS = """, (SELECT plan FROM exchanges WHERE session = ?1 ORDER BY id DESC LIMIT 1),
total(removed * (1 - observed)) / max(1, total(fresh + read + written) + total(removed * (1 - observed)))"""
"""Columns that databases of earlier builds lack."""
DATABASE_VERSION = 1
LOCK_TIMEOUT = 0.25
"""Seconds to wait for a locked database."""


def _read_session_totals(session: str) -> StatuslineTotals | None:
    """Read the totals of a session from the usage database; None if the session or the database is missing.

    The package has its own reader of this database, but importing it takes longer than this whole command. A test
    compares the results of the two.
    """
    try:
        file = usage_db_path()
        if not os.path.exists(file):
            return None
        import sqlite3

        database = sqlite3.connect(f"file:{_escape_uri(file)}?mode=ro", timeout=LOCK_TIMEOUT, uri=True)
        try:
            if database.execute("PRAGMA user_version").fetchone() != (DATABASE_VERSION,):
                return None
            try:
                row = database.execute(TOTALS_QUERY.format(LATER_FIELDS), (session,)).fetchone()
            except sqlite3.OperationalError:
                row = database.execute(TOTALS_QUERY.format(""), (session,)).fetchone()
        finally:
            database.close()
        return StatuslineTotals(*row) if row else None
    except Exception:  # the rest of the line does not need the database
        return None


def usage_db_path() -> str:
    """Return the path of the usage database. Same as with `environment.data_folder`, but without its imports."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        return os.path.join(base, "ibidem", "Data", "gains.sqlite3")
    usual = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
    return os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.join(home, usual), "ibidem", "gains.sqlite3")


def _escape_uri(file: str) -> str:
    """Escape the characters with a meaning in a URI."""
    return file.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
