"""Results of measuring one recorded session: plain values that can be stored, sent and added up.

Costs are dollars for input. Tokens are provider tokens, recorded or estimated (see `replay.sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import msgspec

from ..billing.cache_misses import CacheShares, cache_shares
from ..billing.usage import Usage
from ..render.number_format import saved_share

NOTHING_DONE = "nothing done"
"""Name of the baseline, where other rows have a profile's name."""

T = TypeVar("T", bound="Addable")


class Addable(Protocol):
    """A sum to which another value of its class can be added."""

    def add(self: T, other: T, /) -> None: ...


def merge_totals(totals: dict[str, T], more: Mapping[str, T], empty: Callable[[], T]) -> None:
    """Add values to totals of the same name."""
    for name, value in more.items():
        if name not in totals:
            totals[name] = empty()
        totals[name].add(value)


class SendCost(msgspec.Struct):
    """Cost and size of all requests of a session, as recorded or with one profile."""

    cost: float = 0.0
    tokens: float = 0.0
    """Input tokens of all requests together."""
    read: float = 0.0
    """Tokens that were read from the cache."""
    peak: float = 0.0
    """Tokens of the largest request."""
    breaks: int = 0
    """Requests that changed text already sent, so that the provider had to write its cache again."""

    def add(self, other: SendCost) -> None:
        self.cost += other.cost
        self.tokens += other.tokens
        self.read += other.read
        self.peak = max(self.peak, other.peak)
        self.breaks += other.breaks


class Removal(msgspec.Struct):
    """Text that one strategy removed, or that was removed from results of one tool or about one file."""

    hits: int = 0
    tokens: float = 0.0
    """Tokens removed from the conversation. Each text counts once, however often it would have been sent."""
    cost: float = 0.0
    """Dollars saved."""

    def add(self, other: Removal) -> None:
        self.hits += other.hits
        self.tokens += other.tokens
        self.cost += other.cost


class Scenario(msgspec.Struct):
    """Cost of a session in one cache scenario, for a profile that revises text already sent.

    After a revision, the provider still has the prefix before it in its cache (`hit`), or no part of the conversation
    (`miss`).
    """

    cost: float
    rewrites: float
    """Dollars for writing again what could have been read without revisions."""
    worst: float
    """Largest extra cost, as in `ProfileOutcome`."""
    best: float | None = None
    """Cost of the same edits at the best times (`replay.offline_optimum`); None if it was not computed."""


class ProfileOutcome(msgspec.Struct):
    """Results of a session with one profile."""

    spent: SendCost = msgspec.field(default_factory=SendCost)
    """Cost in the scenario `hit`."""
    worst: float = 0.0
    """Largest extra cost after any request, as a share of the baseline until then; 0 if it never was above."""
    law_failures: int = 0
    """Number of violated invariants and failed requests."""
    failures: list[str] = []
    """Distinct messages of these failures."""
    strategies: dict[str, Removal] = {}
    tools: dict[str, Removal] = {}
    files: dict[str, Removal] = {}
    points: dict[str, int] = {}
    """Reason of revisions → how many there were."""
    worlds: dict[str, Scenario] = {}
    """Costs by scenario, `hit` and `miss`; empty for a profile that never revises."""
    restored: int = 0
    """Requests whose new messages were expanded and compared with the original."""
    needs: int = 0
    """Requests whose recorded output used evicted text (`replay.need`)."""
    need_cost: float = 0.0
    """Dollars for one more request for each such need, which fetches the text again."""

    def add(self, other: ProfileOutcome) -> None:
        """Add the sums of another session. Scenarios, tools and files are added up elsewhere (`aggregate`)."""
        self.spent.add(other.spent)
        self.worst = max(self.worst, other.worst)
        self.law_failures += other.law_failures
        self.restored += other.restored
        self.needs += other.needs
        self.need_cost += other.need_cost
        for reason, count in other.points.items():
            self.points[reason] = self.points.get(reason, 0) + count
        merge_totals(self.strategies, other.strategies, Removal)


class ToolResultTotals(msgspec.Struct):
    """Number and tokens of tool results, of one tool or about one file; each result counts once."""

    count: int = 0
    tokens: float = 0.0

    def add(self, other: ToolResultTotals) -> None:
        self.count += other.count
        self.tokens += other.tokens


class BilledCheck(msgspec.Struct):
    """Recorded cost of requests with usage, and replayed costs of the same requests."""

    cost: float = 0.0
    """Recorded cost."""
    requests: int = 0
    baseline: float = 0.0
    """Replayed cost without Ibidem."""
    by_rule: float = 0.0
    """Replayed cost if the cache rules decide what is read, instead of recorded cache reads."""

    def add(self, other: BilledCheck) -> None:
        self.cost += other.cost
        self.requests += other.requests
        self.baseline += other.baseline
        self.by_rule += other.by_rule


class MissCount(msgspec.Struct):
    """Cache misses of one cause (`billing.cache_misses`)."""

    count: int = 0
    tokens: float = 0.0
    """Tokens that had been sent before and were not read from the cache."""
    cost: float = 0.0
    """Dollars for these tokens, above the price of reading them."""
    dearest: float = 0.0
    """Dollars for the most expensive miss."""
    request: int = 0
    """Number of the request with the most expensive miss, from 1."""
    where: str = ""
    """Details of the most expensive miss, in words."""

    def add(self, other: MissCount) -> None:
        self.count += other.count
        self.tokens += other.tokens
        self.cost += other.cost
        if other.dearest > self.dearest or not self.request:
            self.dearest, self.request, self.where = other.dearest, other.request, other.where


class CacheUse(msgspec.Struct):
    """Prompt caching of requests with recorded usage. The four token counts add up to their input."""

    read: int = 0
    written: int = 0
    """Tokens written for five minutes, or for the default TTL of a provider that caches automatically."""
    written_1h: int = 0
    fresh: int = 0
    """Tokens that were neither read nor written."""
    misses: dict[str, MissCount] = {}
    """Cache misses by cause."""
    unmarked: bool = False
    """The provider needs cache breakpoints, and no request had any. The cost of the miss `unmarked` is then the total
    saving of five-minute breakpoints, negative if they would have cost more."""

    @property
    def shares(self) -> CacheShares:
        return cache_shares([Usage(self.fresh, self.read, self.written, self.written_1h)]) or CacheShares()

    def add(self, other: CacheUse) -> None:
        self.read += other.read
        self.written += other.written
        self.written_1h += other.written_1h
        self.fresh += other.fresh
        merge_totals(self.misses, other.misses, MissCount)
        self.unmarked |= other.unmarked


class SessionResult(msgspec.Struct):
    """Results of one replayed session."""

    path: str
    agent: str
    name: str
    project: str
    model: str
    """The first of `models`."""
    models: list[str]
    priced_as: dict[str, str]
    """Model that is not in the price list → model whose price was used."""
    started: float | None
    """Unix time of the first request."""
    requests: int
    restarts: dict[str, int]
    """Numbers of compactions, micro-compactions and rewinds."""
    skipped: list[tuple[int, str]]
    """Lines of the log that could not be parsed, with the reason."""
    invalid: int
    """Number of requests that break a rule of their provider, as recorded in the log."""
    violations: dict[str, int]
    """Rule → number of requests that break it."""
    baseline: SendCost
    recorded: BilledCheck | None
    profiles: dict[str, ProfileOutcome]
    tools: dict[str, ToolResultTotals]
    files: dict[str, ToolResultTotals]
    accepted: int = 0
    """Number of invalid requests with recorded usage, so the provider accepted them."""
    thinking: float = 0.0
    """Dollars of the baseline for thinking that was sent back with later requests."""
    cached: CacheUse | None = None
    """Recorded prompt caching; None without recorded usage."""
    caching: dict[str, dict[str, Scenario]] = {}
    """Caching mode → profile, or `NOTHING_DONE` → cost. `worst` is relative to the baseline as recorded."""
    unasked: bool = False
    """The provider caches automatically, so the cost is as recorded in every caching mode."""
    spoken: tuple[int, int, int] = (0, 0, 0)
    looped: tuple[int, int, int] = (0, 0, 0)
    """Counts of idle times before requests, as in `billing.cache_ttl.Pauses`."""

    id: str = ""
    """The session's id, as its agent prints it."""
    title: str = ""
    times: list[float | None] = []
    """Unix time at which the response was complete, for each counted request."""
    asked: list[int] = []
    """Index in `models` of each request's model; -1 if unknown."""
    costs: dict[str, list[float]] = {}
    """`NOTHING_DONE` or profile → dollars of each request."""
    sizes: dict[str, list[float]] = {}
    """`NOTHING_DONE` or profile → tokens of each request."""
    windows: dict[str, int] = {}
    """Model → its context window in input tokens, if known."""

    @property
    def thinking_share(self) -> float:
        """Cost of returned thinking as a share of the baseline."""
        return self.thinking / self.baseline.cost if self.baseline.cost else 0.0

    def saved_share(self, profile: str) -> float:
        """The share of the input cost that a profile saves; negative if it costs more."""
        return saved_share(self.baseline.cost, self.profiles[profile].spent.cost)

    def model_of(self, number: int) -> str:
        """The model of a request; empty if it is not known."""
        return self.models[self.asked[number]] if self.asked[number] >= 0 else ""

    @property
    def key(self) -> tuple[str, str]:
        """Path and name, unique among all sessions."""
        return self.path, self.name


class UnreadFile(msgspec.Struct):
    """A file without a session, and the reason."""

    path: str
    why: str


class FileResult(msgspec.Struct):
    """Results of one file."""

    sessions: list[SessionResult] = []
    unread: list[UnreadFile] = []
    size: int = 0
    """Size on disk in bytes, compressed or not."""


def encode_result(figures: FileResult) -> bytes:
    """Encode results for the cache."""
    return msgspec.json.encode(figures)


def decode_result(data: bytes) -> FileResult:
    """Decode results from the cache. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=FileResult)


def to_json_value(value: Any) -> Any:
    """Convert a struct to JSON values."""
    return msgspec.to_builtins(value)


def worst_share(before: Sequence[float], after: Sequence[float]) -> float:
    """Largest share by which the running total of `after` exceeds that of `before`; 0 if it never does.

    Both are costs by request.
    """
    shares = [ours / theirs - 1 for theirs, ours in zip(accumulate(before), accumulate(after), strict=True) if theirs]
    return max([0.0, *shares])
