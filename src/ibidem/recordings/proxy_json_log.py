"""Read the usage log of Ibidem's proxy (`--json-log`): one row per request, with token counts and cost.

The log has no histories, so it is not a `Recording` and cannot be replayed. It has the actual cost and the baseline,
both with the prices at that time. A file can contain several runs of the proxy, and each run numbers its conversations
from one. The field `started` identifies the run.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

from ..billing.usage import Usage
from .log_file import decode_row, parse_timestamp, read_log, read_log_start
from .log_streams import LogBytes
from .recording import Json
from .titles import title_line
from .usage_fields import MAX_TOKENS, token_count

REQUIRED_FIELDS = frozenset(
    {"id", "at", "path", "outcome", "status", "bytes_in", "bytes_out", "took_ms", "would_have_paid"}
)
"""Fields of every row, in all versions of the proxy."""
SNIFFED_BYTES, SNIFFED_LINES = 1 << 16, 8
"""Size of the file's start that is searched for a row. Rows are short, and the first one may be cut off."""
NO_CONVERSATIONS = (
    "a log of ibidem's proxy (--json-log): it has the cost of each request, but no conversations. "
    "Pass the agent's own log instead"
)


class LoggedExchange(NamedTuple):
    """One request that the proxy logged. Fields missing in the row are empty or None."""

    time: float
    """Unix seconds when it was sent."""
    model: str
    format: str
    usage: Usage | None
    """None if the provider reported no usage."""
    paid: float | None
    """Input cost in dollars."""
    would_have_paid: float | None
    """Input cost in dollars without Ibidem. With `--observe`: the cost with rewriting, because requests are forwarded
    unchanged."""
    observed: bool
    """True if the proxy ran with `--observe`."""
    conversation: str
    """Number of the conversation in this run of the proxy."""
    started: float | None
    """Unix seconds when the proxy started. Together with `conversation`, it identifies a conversation in all files."""
    client: str
    """Name and version of the client, as the client reports them."""
    title: str
    status: int
    """HTTP status of the response; 0 if there was no response."""


def is_usage_row(row: Json) -> bool:
    """Return True if the proxy wrote this row."""
    return row.keys() >= REQUIRED_FIELDS and isinstance(row["outcome"], str) and parse_timestamp(row["at"]) is not None


def is_usage_log(data: LogBytes) -> bool:
    """Return True if the first lines of a file have a row of the proxy's usage log."""
    lines = read_log_start(data, SNIFFED_BYTES).splitlines()[:SNIFFED_LINES]
    rows = (decode_row(line) for line in lines if b'"would_have_paid"' in line)
    return any(isinstance(row, dict) and is_usage_row(row) for row in rows)


def read_usage_log(path: str, data: LogBytes) -> list[LoggedExchange] | None:
    """Return the requests in a usage log of the proxy, in the order in which they ended; None for any other file.

    Raises LogError if the file starts like such a log but cannot be decompressed.
    """
    if not is_usage_log(data):
        return None
    return [_parse_row(row) for _, row in read_log(path, data).rows if is_usage_row(row)]


def _parse_row(row: Json) -> LoggedExchange:
    time = parse_timestamp(row["at"])
    assert time is not None
    return LoggedExchange(
        time=time,
        model=_line_of_text(row.get("model")),
        format=_line_of_text(row.get("format")),
        usage=_parse_usage(row),
        paid=valid_dollars(row.get("paid")),
        would_have_paid=valid_dollars(row.get("would_have_paid")),
        observed=row.get("observe") is True or row["outcome"] == "observed",
        conversation=_line_of_text(row.get("conversation")),
        started=parse_timestamp(row.get("started")),
        client=_line_of_text(row.get("client")),
        title=_line_of_text(row.get("title")),
        status=token_count(row["status"]),
    )


def _parse_usage(row: Json) -> Usage | None:
    """Convert usage. The field `written` includes cache writes of every TTL."""
    fresh, read, write_tokens, long, output = (
        token_count(row.get(name)) for name in ("fresh", "read", "written", "written_1h", "output")
    )
    long = min(long, write_tokens)
    usage = Usage(fresh, read, write_tokens - long, long, output)
    return usage if usage.input and max(usage.input, output) < MAX_TOKENS else None


def valid_dollars(value: Any) -> float | None:
    """Return `value` if it is a valid amount of dollars, else None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if isfinite(value) and value >= 0 else None


def _line_of_text(value: Any) -> str:
    return title_line(value) if isinstance(value, str) else ""
