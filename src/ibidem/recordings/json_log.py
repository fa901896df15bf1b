"""The log of ibidem's own proxy (`--json-log`): one row per request, with what was counted and paid.

It holds figures and no histories, so it is no `Recording`: nothing can be replayed, but what was paid, and what would
have been paid otherwise, is known as it was at the time. A file may hold several runs of the proxy, each of which
numbers its conversations from one: `started` tells the runs apart.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

from ..billing.usage import Usage
from .counts import MAX_TOKENS, count
from .log import beginning, decoded, read_log, seconds
from .recording import Json
from .streams import LogBytes
from .titles import on_one_line

REQUIRED = frozenset({"id", "at", "path", "outcome", "status", "bytes_in", "bytes_out", "took_ms", "would_have_paid"})
"""What every row has, whatever version of the proxy wrote it."""
SNIFFED_BYTES, SNIFFED_LINES = 1 << 16, 8
"""How far into a file rows are looked for: a row is short, and the first may be cut off."""
REFUSAL = (
    "a log of ibidem's proxy (--json-log): it has the figures of each request, and no conversations to read: "
    "name the agent's own log"
)


class LoggedExchange(NamedTuple):
    """One request that went through the proxy. What the row does not say is empty or None."""

    time: float
    """Unix seconds at which it was sent."""
    model: str
    format: str
    usage: Usage | None
    """None where the provider counted nothing, or nobody could tell."""
    paid: float | None
    """Dollars of input."""
    would_have_paid: float | None
    """Dollars of input had it gone out as it came. With `--observe`, where all goes out as it came, had it been
    rewritten."""
    observed: bool
    """Whether that is so."""
    conversation: str
    """Its number in this run of the proxy."""
    started: float | None
    """Unix seconds at which the proxy was started: with the conversation it names one in all files."""
    client: str
    """What the client calls itself, with its version."""
    title: str
    status: int
    """Of the answer over HTTP; 0 where there was none."""


def is_logged(row: Json) -> bool:
    """Whether a row of a file is one that the proxy wrote."""
    return row.keys() >= REQUIRED and isinstance(row["outcome"], str) and seconds(row["at"]) is not None


def is_json_log(data: LogBytes) -> bool:
    """Whether a file is such a log, by its beginning alone."""
    lines = beginning(data, SNIFFED_BYTES).splitlines()[:SNIFFED_LINES]
    rows = (decoded(line) for line in lines if b'"would_have_paid"' in line)
    return any(isinstance(row, dict) and is_logged(row) for row in rows)


def read_json_log(path: str, data: LogBytes) -> list[LoggedExchange] | None:
    """The requests in a log of the proxy, in the order in which they ended; None for any other file.

    Raises LogError where it begins like one and cannot be unpacked.
    """
    if not is_json_log(data):
        return None
    return [_exchange(row) for _, row in read_log(path, data).rows if is_logged(row)]


def _exchange(row: Json) -> LoggedExchange:
    time = seconds(row["at"])
    assert time is not None
    return LoggedExchange(
        time=time,
        model=_text(row.get("model")),
        format=_text(row.get("format")),
        usage=_usage(row),
        paid=dollars_in(row.get("paid")),
        would_have_paid=dollars_in(row.get("would_have_paid")),
        observed=row.get("observe") is True or row["outcome"] == "observed",
        conversation=_text(row.get("conversation")),
        started=seconds(row.get("started")),
        client=_text(row.get("client")),
        title=_text(row.get("title")),
        status=count(row["status"]),
    )


def _usage(row: Json) -> Usage | None:
    """`written` of a row is all that was written, for however long."""
    fresh, read, written, long, output = (
        count(row.get(name)) for name in ("fresh", "read", "written", "written_1h", "output")
    )
    long = min(long, written)
    usage = Usage(fresh, read, written - long, long, output)
    return usage if usage.input and max(usage.input, output) < MAX_TOKENS else None


def dollars_in(value: Any) -> float | None:
    """An amount; None for what is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if isfinite(value) and value >= 0 else None


def _text(value: Any) -> str:
    return on_one_line(value) if isinstance(value, str) else ""
