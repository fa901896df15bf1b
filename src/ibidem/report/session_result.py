"""The figures of one recorded session: plain values that can be stored, sent and added up.

Money is dollars for input; tokens are the provider's, as far as they are known (see `sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import msgspec

from ..billing.misses import Shares, shares
from ..billing.usage import Usage
from ..render.number_format import saved_share

NOTHING_DONE = "nothing done"
"""In place of a profile's name, where none is at work."""

T = TypeVar("T", bound="Addable")


class Addable(Protocol):
    """A sum that another one of its kind can be added to."""

    def add(self: T, other: T, /) -> None: ...


def merge(totals: dict[str, T], more: Mapping[str, T], empty: Callable[[], T]) -> None:
    """Add values to totals of the same name."""
    for name, value in more.items():
        if name not in totals:
            totals[name] = empty()
        totals[name].add(value)


class SendCost(msgspec.Struct):
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

    def add(self, other: SendCost) -> None:
        self.cost += other.cost
        self.tokens += other.tokens
        self.read += other.read
        self.peak = max(self.peak, other.peak)
        self.breaks += other.breaks


class Removal(msgspec.Struct):
    """What was taken out, by something that can be named."""

    hits: int = 0
    tokens: float = 0.0
    """Taken out of the conversation: each text counts once, however often it would have been sent."""
    cost: float = 0.0

    def add(self, other: Removal) -> None:
        self.hits += other.hits
        self.tokens += other.tokens
        self.cost += other.cost


class Scenario(msgspec.Struct):
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

    spent: SendCost = msgspec.field(default_factory=SendCost)
    """In a world where a provider finds what stands before a change."""
    worst: float = 0.0
    """How much dearer than doing nothing it ever was, as a share, over all beginnings of the session; 0 if never."""
    law_failures: int = 0
    failures: list[str] = []
    """What they were, each wording once."""
    strategies: dict[str, Removal] = {}
    tools: dict[str, Removal] = {}
    files: dict[str, Removal] = {}
    points: dict[str, int] = {}
    """Why what had been sent was changed, and how often, where the profile says so."""
    worlds: dict[str, Scenario] = {}
    """By what a provider finds after a change; empty for a profile that never makes one."""
    restored: int = 0
    """Requests of which what they added was restored from what is sent, and compared with what was said."""
    needs: int = 0
    """Requests whose recorded output used evicted text (`replay.need`)."""
    need_cost: float = 0.0
    """Dollars for one more request for each of them, which fetches the text again."""

    def add(self, other: ProfileOutcome) -> None:
        """Add the sums of another session. Scenarios, tools and files are added up apart from profiles."""
        self.spent.add(other.spent)
        self.worst = max(self.worst, other.worst)
        self.law_failures += other.law_failures
        self.restored += other.restored
        self.needs += other.needs
        self.need_cost += other.need_cost
        for reason, count in other.points.items():
            self.points[reason] = self.points.get(reason, 0) + count
        merge(self.strategies, other.strategies, Removal)


class ToolResultTotals(msgspec.Struct):
    """Tool results of a session, of one tool or about one file; each counts once."""

    count: int = 0
    tokens: float = 0.0

    def add(self, other: ToolResultTotals) -> None:
        self.count += other.count
        self.tokens += other.tokens


class BilledCheck(msgspec.Struct):
    """What the log says about the bill, and what we compute for the same requests."""

    cost: float = 0.0
    requests: int = 0
    baseline: float = 0.0
    by_rule: float = 0.0
    """What nothing done costs by the rules of the cache alone: recorded hits and misses are not looked at."""

    def add(self, other: BilledCheck) -> None:
        self.cost += other.cost
        self.requests += other.requests
        self.baseline += other.baseline
        self.by_rule += other.by_rule


class MissCount(msgspec.Struct):
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

    def add(self, other: MissCount) -> None:
        self.count += other.count
        self.tokens += other.tokens
        self.cost += other.cost
        if other.dearest > self.dearest or not self.request:
            self.dearest, self.request, self.where = other.dearest, other.request, other.where


class CacheUse(msgspec.Struct):
    """How the requests that have usage were cached. Tokens as their provider counted them; the four add up to all."""

    read: int = 0
    written: int = 0
    """For five minutes, or however long a provider keeps it unasked."""
    written_1h: int = 0
    fresh: int = 0
    """Not cached."""
    misses: dict[str, MissCount] = {}
    """By cause."""
    unmarked: bool = False
    """The provider keeps only what requests mark, and none marked anything. The cost of the one miss is then what
    five-minute marks would have saved in all: below 0 where they would have cost."""

    @property
    def shares(self) -> Shares:
        return shares([Usage(self.fresh, self.read, self.written, self.written_1h)]) or Shares()

    def add(self, other: CacheUse) -> None:
        self.read += other.read
        self.written += other.written
        self.written_1h += other.written_1h
        self.fresh += other.fresh
        merge(self.misses, other.misses, MissCount)
        self.unmarked |= other.unmarked


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
    baseline: SendCost
    recorded: BilledCheck | None
    profiles: dict[str, ProfileOutcome]
    tools: dict[str, ToolResultTotals]
    files: dict[str, ToolResultTotals]
    accepted: int = 0
    """Of the invalid requests, those that the log has usage of: their provider took them all the same."""
    thinking: float = 0.0
    """Dollars of the baseline for thinking that was sent back with later requests."""
    cached: CacheUse | None = None
    """None where no usage was recorded."""
    caching: dict[str, dict[str, Scenario]] = {}
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

    def saved_share(self, profile: str) -> float:
        """The share of the input cost that a profile saves; negative if it costs more."""
        return saved_share(self.baseline.cost, self.profiles[profile].spent.cost)

    def model_of(self, number: int) -> str:
        """The model of a request; empty if it is not known."""
        return self.models[self.asked[number]] if self.asked[number] >= 0 else ""

    @property
    def key(self) -> tuple[str, str]:
        """Tells it apart from all others."""
        return self.path, self.name


class UnreadFile(msgspec.Struct):
    """A file that gave no session, and why."""

    path: str
    why: str


class FileFigures(msgspec.Struct):
    """What was found in one file."""

    sessions: list[SessionFigures] = []
    unread: list[UnreadFile] = []
    size: int = 0
    """Bytes, unpacked or not, as it lies on the disk."""


def encode_result(figures: FileFigures) -> bytes:
    return msgspec.json.encode(figures)


def decode_result(data: bytes) -> FileFigures:
    return msgspec.json.decode(data, type=FileFigures)


def plain(value: Any) -> Any:
    """As JSON values."""
    return msgspec.to_builtins(value)


def worst_share(before: Sequence[float], after: Sequence[float]) -> float:
    """By which share the second was ever dearer than the first, over all beginnings; 0 if never. Costs by request."""
    shares = [ours / theirs - 1 for theirs, ours in zip(accumulate(before), accumulate(after), strict=True) if theirs]
    return max([0.0, *shares])
