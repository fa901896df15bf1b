"""What is shown of a request and of a conversation. Field names are promised: page, API and log have them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TrialNote:
    """What a trial has to know of a request."""

    arm: str
    """`rewrite` or `measure`: the side that its conversation is on, whatever became of this request."""
    unit: str
    """What the coin was tossed for: requests of one client session have it in common."""
    share: float
    """Of conversations that are rewritten."""
    profile: str
    turns: int
    """Since the request before: what the user asked."""
    rereads: int
    """Files that were read although they stood there unchanged."""
    edits: int
    failed_edits: int


@dataclass(slots=True)
class ExchangeRow:
    """One request. Field names are those of the page."""

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
    """For how long whatever."""
    written_1h: int = 0
    """Of these, for an hour."""
    fresh: int = 0
    output: int = 0
    removed: int = 0
    paid: float | None = None
    would_have_paid: float | None = None
    by_marks: float = 0.0
    """Of the difference, what other marks and lifetimes than the client's did."""
    miss: str | None = None
    """Why less was read from the cache than could have been, and where that shows."""
    missed: float = 0.0
    """What that cost, in dollars."""
    revision: str | None = None
    conversation: str | None = None
    resent: str = ""
    """What the provider called it, where it refused what was sent first."""
    model: str = ""
    format: str = ""
    client: str = ""
    """What it calls itself, with its version."""
    kind: str = "model"
    """`model` for what asks one, also where it is `signed`; `compact` for what is given back to its client; `count` for
    what asks for a size; or `other`."""
    output_paid: float = 0.0
    """Dollars for the output."""
    trial: TrialNote | None = None
    plan: bool = False
    """The login is that of a subscription: dollars are values at list prices, and nobody pays them."""
    could_save: float = 0.0
    """Dollars that rewriting would have saved, where a trial only measures; `would_have_paid` is what was paid then."""


@dataclass(slots=True)
class ConversationRow:
    """One conversation. Field names are those of the page."""

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
    """Dollars, by the cause of a miss."""
    unmarked: bool = False
    """The client asks its provider to keep nothing, and neither do we."""
    marks_would_save: float = 0.0
    """Dollars that marks would have spared it."""
    hits: int = 0
    misses: int = 0
    breaks: int = 0
    stopped: bool = False
    arm: str = ""
    """The side of a trial that it is on, if there is one."""
    plan: bool = False
    """Its last request had the login of a subscription."""
