"""Rows of requests and conversations. The page, the API and the log use these field names, so they must not change."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TrialData:
    """Trial data of a request."""

    arm: str
    """Variant of its conversation: `rewrite` or `measure`, even if this request was not rewritten."""
    unit: str
    """Unit of the random assignment. All requests of a client session have the same."""
    share: float
    """Share of conversations that are rewritten."""
    profile: str
    turns: int
    """User requests since the previous request."""
    rereads: int
    """Files that were read again although their lines were in the context and unchanged."""
    edits: int
    failed_edits: int


@dataclass(slots=True)
class ExchangeRow:
    """Row of one request."""

    id: str
    at: float
    path: str
    outcome: str
    reason: str = ""
    status: int = 0
    messages: int = 0
    edits: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    took_ms: float = 0.0
    first_byte_ms: float | None = None
    total_ms: float | None = None
    input: int = 0
    read: int = 0
    written: int = 0
    """Tokens written to the cache, for any TTL."""
    written_1h: int = 0
    """Part of `written` with a TTL of one hour."""
    fresh: int = 0
    output: int = 0
    removed: int = 0
    paid: float | None = None
    would_have_paid: float | None = None
    by_marks: float = 0.0
    """Dollars saved by our cache directives, as part of the total saving."""
    miss: str | None = None
    """Cause of a cache miss, and its position."""
    missed: float = 0.0
    """Cost of the cache miss, in dollars."""
    revision: str | None = None
    conversation: str | None = None
    resent: str = ""
    """Provider's name for the error, if it rejected the first body."""
    model: str = ""
    format: str = ""
    client: str = ""
    """Name and version of the client."""
    kind: str = "model"
    """`model` or `signed` for a model call, `compact` for a body returned to the client, `count` for a token count, or
    `other`."""
    output_paid: float = 0.0
    """Dollars for the output."""
    trial: TrialData | None = None
    plan: bool = False
    """True if a subscription covers the request. Its dollars are values at list prices that are not charged."""
    could_save: float = 0.0
    """Dollars that rewriting would have saved, if a trial only measures. `would_have_paid` equals `paid` then."""


@dataclass(slots=True)
class ConversationRow:
    """Row of one conversation."""

    id: str
    title: str
    client: str
    model: str
    format: str
    first: float
    last: float
    requests: int = 0
    active: bool = False
    paid: float = 0.0
    would_have_paid: float = 0.0
    input: int = 0
    read: int = 0
    written: int = 0
    written_1h: int = 0
    removed: int = 0
    by_marks: float = 0.0
    missed: dict[str, float] = field(default_factory=dict)
    """Cost of cache misses in dollars, by cause."""
    unmarked: bool = False
    """True if its requests have no cache breakpoints, neither the client's nor ours."""
    marks_would_save: float = 0.0
    """Dollars that cache breakpoints would have saved."""
    hits: int = 0
    misses: int = 0
    breaks: int = 0
    stopped: bool = False
    arm: str = ""
    """Variant in a trial; empty without a trial."""
    plan: bool = False
    """True if a subscription covered its last request."""
