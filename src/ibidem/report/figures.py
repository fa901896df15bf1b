"""The figures of one recorded session: plain values that can be stored, sent and added up.

Money is dollars for input; tokens are the provider's, as far as they are known (see `sizes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from ..billing.misses import Shares, shares
from ..billing.usage import Usage

NOTHING_DONE = "nothing done"
"""In place of a profile's name, where none is at work."""


class Spent(msgspec.Struct):
    """A session's requests as one way of sending them costs."""

    cost: float = 0.0
    tokens: float = 0.0
    """Of all requests together."""
    read: float = 0.0
    """Of these, read from the cache."""
    peak: float = 0.0
    """Tokens of the largest request."""
    breaks: int = 0
    """Requests that changed what had been sent before, so that the cache did not know it."""


class Saved(msgspec.Struct):
    """What was taken out, by something that can be named."""

    hits: int = 0
    tokens: float = 0.0
    """Taken out of the conversation: each text counts once, however often it would have been sent."""
    cost: float = 0.0

    def add(self, hits: int, tokens: float, cost: float) -> None:
        self.hits += hits
        self.tokens += tokens
        self.cost += cost


class World(msgspec.Struct):
    """A session under a profile that changes what had been sent, with a provider that after a change finds what stands
    before it (`hit`), or nothing of the conversation (`miss`)."""

    cost: float
    rewrites: float
    """Of the cost, what was paid for writing again what could have been read, had nothing been changed."""
    worst: float
    """As in `ProfileOutcome`."""
    best: float | None = None
    """What the same edits would have cost at the best moments, if that was asked for and they can be moved."""


class ProfileOutcome(msgspec.Struct):
    """A session under a profile."""

    spent: Spent
    """In a world where a provider finds what stands before a change."""
    worst: float = 0.0
    """How much dearer than doing nothing it ever was, as a share, over all beginnings of the session; 0 if never."""
    law_failures: int = 0
    failures: list[str] = []
    """What they were, each wording once."""
    strategies: dict[str, Saved] = {}
    tools: dict[str, Saved] = {}
    files: dict[str, Saved] = {}
    points: dict[str, int] = {}
    """Why what had been sent was changed, and how often, where the profile says so."""
    worlds: dict[str, World] = {}
    """By what a provider finds after a change; empty for a profile that never makes one."""
    restored: int = 0
    """Requests of which what they added was restored from what is sent, and compared with what was said."""


class Results(msgspec.Struct):
    """Tool results of a session, of one tool or about one file; each counts once."""

    count: int = 0
    tokens: float = 0.0


class Recorded(msgspec.Struct):
    """What the log says about the bill, and what we compute for the same requests."""

    cost: float
    requests: int
    baseline: float
    by_rule: float
    """What nothing done costs by the rules of the cache alone: recorded hits and misses are not looked at."""


class Missed(msgspec.Struct):
    """Requests of which a provider read less than it could, for one reason (`billing.misses`)."""

    count: int = 0
    tokens: float = 0.0
    """That had been sent before, and were not read."""
    cost: float = 0.0
    """What was paid for these, above the price of reading them."""
    dearest: float = 0.0
    """Of the cost, that of the dearest one."""
    request: int = 0
    """Which that was, from 1 on."""
    where: str = ""
    """And what it was: in words."""


class Cached(msgspec.Struct):
    """How the requests that have usage were cached. Tokens as their provider counted them; the four add up to all."""

    read: int = 0
    written: int = 0
    """For five minutes, or however long a provider keeps it unasked."""
    written_1h: int = 0
    fresh: int = 0
    """Not cached."""
    misses: dict[str, Missed] = {}
    """By cause."""
    unmarked: bool = False
    """The provider keeps only what requests mark, and none marked anything. The cost of the one miss is then what
    five-minute marks would have saved in all: below 0 where they would have cost."""

    @property
    def shares(self) -> Shares:
        return shares([Usage(self.fresh, self.read, self.written, self.written_1h)]) or Shares()


class SessionFigures(msgspec.Struct):
    path: str
    agent: str
    name: str
    project: str
    model: str
    """The first; see `models`."""
    models: list[str]
    priced_as: dict[str, str]
    """Models that are not in the price list → the one whose price was taken."""
    started: float | None
    requests: int
    restarts: dict[str, int]
    """Compactions, micro-compactions, rewinds."""
    skipped: list[tuple[int, str]]
    """Lines of the log that could not be used."""
    invalid: int
    """Requests that break a rule of their provider, as they stand in the log."""
    violations: dict[str, int]
    """Rule → how many requests break it."""
    baseline: Spent
    recorded: Recorded | None
    profiles: dict[str, ProfileOutcome]
    tools: dict[str, Results]
    files: dict[str, Results]
    accepted: int = 0
    """Of the invalid requests, those that the log has usage of: their provider took them all the same."""
    thinking: float = 0.0
    """Dollars of the baseline for thinking that was sent back with later requests."""
    cached: Cached | None = None
    """None where no usage was recorded."""
    caching: dict[str, dict[str, World]] = {}
    """How caching is asked for → profile, or `NOTHING_DONE` → what that would have cost. `worst` is against nothing
    done, as it was sent."""
    unasked: bool = False
    """Its provider keeps by itself what it is sent: whatever is asked for, caching is as recorded."""
    spoken: tuple[int, int, int] = (0, 0, 0)
    looped: tuple[int, int, int] = (0, 0, 0)
    """How long after the answer before requests came, as in `billing.lifetimes.Pauses`."""

    id: str = ""
    """As its agent prints it."""
    title: str = ""
    times: list[float | None] = []
    """By request that is counted, in Unix seconds: when its answer was complete."""
    asked: list[int] = []
    """By request: which of the models; -1 where that is not known."""
    costs: dict[str, list[float]] = {}
    """Dollars by request: `NOTHING_DONE`, and every profile."""
    sizes: dict[str, list[float]] = {}
    """Tokens by request, likewise."""
    windows: dict[str, int] = {}
    """Model → input tokens that fit, where that is known."""

    @property
    def thinking_share(self) -> float:
        """Of the bill with nothing done."""
        return self.thinking / self.baseline.cost if self.baseline.cost else 0.0

    @property
    def label(self) -> str:
        return f"{self.path} ({self.name})" if self.name else self.path

    @property
    def key(self) -> tuple[str, str]:
        """Tells it apart from all others."""
        return self.path, self.name


class Unread(msgspec.Struct):
    """A file that gave no session, and why."""

    path: str
    why: str


class FileFigures(msgspec.Struct):
    """What was found in one file."""

    sessions: list[SessionFigures] = []
    unread: list[Unread] = []
    size: int = 0
    """Bytes, unpacked or not, as it lies on the disk."""


def encoded(figures: FileFigures) -> bytes:
    return msgspec.json.encode(figures)


def decoded(data: bytes) -> FileFigures:
    return msgspec.json.decode(data, type=FileFigures)


def plain(value: Any) -> Any:
    """As JSON values."""
    return msgspec.to_builtins(value)


def worst_share(before: Sequence[float], after: Sequence[float]) -> float:
    """By which share the second was ever dearer than the first, over all beginnings; 0 if never. Costs by request."""
    shares = [ours / theirs - 1 for theirs, ours in zip(accumulate(before), accumulate(after), strict=True) if theirs]
    return max([0.0, *shares])
