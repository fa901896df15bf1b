"""Replay a recorded session: its input cost, as recorded and with a profile.

Every request has a size (see `sizes`), and the part that the provider reads from its cache costs less. If the log has
usage, it determines that part: a recorded miss happens in the replay too, at the same request and position, with every
profile. Without usage, the provider's cache rules apply: the longest prefix sent before, if it is long enough and the
TTL has not expired. Changed text in messages that were already sent is never in the cache.

Only input is priced: the recorded responses stay the same, and many logs record output wrongly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, islice, pairwise, repeat
from typing import Literal, NamedTuple

from .. import formats
from ..billing.cache_ttl import TtlDecision
from ..billing.calibration import WEIGHTS, Count, TokenWeights, weigh_message
from ..billing.prices import Price, Prices, Rates
from ..billing.revision_budget import RequestContext
from ..billing.usage import FULL_READ_SHARE, Usage
from ..model import Message, to_json
from ..recordings import RecordedRequest, RecordedSegment, Recording
from .histories import Histories
from .sent_views import AS_RECORDED, SentView
from .sizes import Prefix, Sizes

AfterBreak = Literal["hit", "miss", "free"]
"""Part of a request that is still cached after a revision: the prefix before it (`hit`), or none (`miss`). `free`:
everything, which no provider does, as a bound for comparison."""


@dataclass(slots=True)
class ReplayStep:
    """The facts about one request that all profiles share: sizes, prices, and the recorded cache read."""

    sent: RecordedRequest
    segment: int
    rates: Rates
    price: Price
    size: float
    """Total provider tokens of the recorded request."""
    scale: float
    """Provider tokens per weighted token of ours."""
    head: float
    """Tokens before the history: system prompt, tools, and content that the log does not show."""
    prefix: Prefix
    """Provider tokens before each entry of the history."""
    held: float
    """Share of the logged history that was sent: 1 unless the log has more than the request."""
    shared: int
    """Number of entries at the start that the previous request has too; -1 if there was no previous request."""
    found: float | None
    """Recorded tokens read from the cache; infinite for a full hit; None without usage."""
    short: float
    """Average tokens by which a full hit reads less than the previous request: providers count in blocks."""
    warm: bool
    """The idle time is within the TTL, so the cache still has the previous request."""
    dear: float
    """Dollars per token that was not read from the cache, as recorded."""
    write: float
    """Dollars per written token, with the recorded TTL."""
    whole: bool
    """The log has the request parameters, so the minimum and the block size of the cache can be applied."""

    def entry_at(self, tokens: float) -> int:
        """Find the entry of the history after this number of tokens of the request."""
        return self.prefix.entry_at((tokens - self.head) / self.held if self.held else 0.0)

    def unchanged_entries(self, view: SentView, last: SentView | None) -> int:
        """Count the entries at the start that the previous request has too and that were sent in the same way."""
        return view.first_difference(last, self.shared) if last is not None and self.shared > 0 else self.shared

    def price_request(
        self, view: SentView, unchanged: int, after_break: AfterBreak, by_rule: bool, cache_read: float | None = None
    ) -> Charge:
        """Price the request, sent as this view. `unchanged`: number of first entries that are sent as before. `found`:
        tokens read from the cache, if not as recorded."""
        size = max(0.0, self.size - self.scale * view.removed_before(self.sent.length))
        could = min(
            size, _cached_tokens(self, view, cache_read if cache_read is not None else None if by_rule else self.found)
        )
        read = could
        if unchanged < self.shared and after_break != "free":
            read = min(could, entry_position(self, view, unchanged if after_break == "hit" else 0))
        factor = self.tier_factor(size)
        cheap, dear = factor * self.rates.read, factor * (self.write if by_rule else self.dear)
        cost = read * cheap + (size - read) * dear
        return Charge(cost, size, read, (could - read) * (dear - cheap), unchanged < self.shared)

    def tier_factor(self, size: float) -> float:
        """Return how many times as much a token costs in a request of this size as in the recorded one."""
        if len(self.price.tiers) == 1 or not self.rates.fresh:
            return 1.0
        return self.price.rates(size).fresh / self.rates.fresh


@dataclass(slots=True)
class Bill:
    """Cost of a session: dollars for input, and provider tokens."""

    cost: float = 0.0
    tokens: float = 0.0
    read: float = 0.0
    peak: float = 0.0
    """Tokens of the largest request."""
    breaks: int = 0
    """Requests that revised text already sent."""
    rewrites: float = 0.0
    """Dollars for writing again what could have been read without revisions; included in `cost`."""
    charges: list[Charge] = field(default_factory=list)
    """Charges of all requests, in order."""

    def add(self, charge: Charge) -> None:
        self.cost += charge.cost
        self.tokens += charge.size
        self.read += charge.read
        self.peak = max(self.peak, charge.size)
        self.breaks += charge.broken
        self.rewrites += charge.again
        self.charges.append(charge)

    @property
    def costs(self) -> list[float]:
        """Dollars of each request."""
        return [charge.cost for charge in self.charges]

    def counted_part(self, is_counted: Sequence[bool]) -> Bill:
        """Make the bill for some of the requests. The others stay in the list, with a cost of zero."""
        bill = Bill()
        for charge, here in zip(self.charges, is_counted, strict=True):
            bill.add(charge if here else Charge())
        return bill


class Charge(NamedTuple):
    """Cost of one request: dollars, and provider tokens."""

    cost: float = 0.0
    size: float = 0.0
    read: float = 0.0
    again: float = 0.0
    """Dollars for writing again what could have been read without a revision; included in `cost`."""
    broken: bool = False
    """The request revised text already sent."""


class ReportedUsage(NamedTuple):
    """Usage that a simulated provider reports for a session. Requests are named by number."""

    scales: Sequence[float] = ()
    """Provider tokens per weighted token of ours, for each request; 1 if empty."""
    thought: Callable[[Message], float] | None = None
    """Tokens of the thinking in a message, in our count; None to use the size of its text and signature."""
    reads: Callable[[int, SentView, SentView | None], int] | None = None
    """Tokens read from the cache, for a request, its view, and the previous view; None if they are not reported."""
    keeps: Callable[[int, SentView | None, float], TtlDecision] | None = None
    """TTL decision for a request, given the previous view and the cost of revisions; None for the recorded TTL."""

    def request_context(self, number: int, views: Sequence[SentView], revision_cost: float) -> RequestContext:
        """Make the context of a request, with the TTL that is requested after these views."""
        decision = self.keeps(number, views[-1] if views else None, revision_cost) if self.keeps else None
        return RequestContext(long=decision.long > 0, paid=decision.spent) if decision else RequestContext()


class Replay:
    """A session with sizes and prices, which can be billed for any number of profiles."""

    def __init__(self, session: Recording, prices: Prices, count: Count, messages: Histories) -> None:
        """`messages`: the parsed histories of the segments."""
        self.session, self.messages = session, messages
        first = next((sent for segment in session.segments for sent in segment.requests), None)
        price = prices.of(first.model if first else "", session.format, first.at if first else None)
        self.weights = WEIGHTS.get(price.provider, TokenWeights())
        self.steps = list(self._make_steps(prices, count))
        self._model = next((model for model, _ in Counter(step.sent.model for step in self.steps).most_common(1)), "")
        """The most frequent model."""

    def _make_steps(self, prices: Prices, count: Count) -> Iterator[ReplayStep]:
        session = self.session
        weigh_entry = partial(weigh_message, weights=self.weights, count=count)
        shows_thinking = formats.format_named(session.format).shows_thinking
        self.sizes = Sizes(session.segments, self.messages, weigh_entry, shows_thinking)
        short = _hit_shortfalls(session)
        head = self.weights.text * _count_head(session, count)
        last: ReplayStep | None = None
        for number, segment in enumerate(session.segments):
            for request, size in zip(segment.requests, self.sizes.request_sizes(number, head), strict=True):
                price = prices.of(request.model, session.format, request.at)
                last = self._make_step(number, request, size, price, short.get(request.model, 0.0), last)
                yield last

    def _make_step(
        self, number: int, request: RecordedRequest, size: float, price: Price, short: float, last: ReplayStep | None
    ) -> ReplayStep:
        prefix = self.sizes.request_prefix(number, request)
        own = prefix.tokens_before(request.length)
        sent_share = min(1.0, size / own) if own else 1.0
        rates = price.rates(size)
        shared_count = -1
        if last is not None:
            longest = min(last.sent.length, request.length)
            before, after = self.session.segments[last.segment], self.session.segments[number]
            shared_count = longest if before is after else shared_between(before, after, longest)
        return ReplayStep(
            request,
            number,
            rates,
            price,
            size,
            sent_share * self.sizes.calibrations[request.model].scale,
            size - sent_share * own,
            prefix,
            sent_share,
            shared_count,
            _recorded_read(request, last, self.session.segments[number]),
            short,
            last is not None and _is_warm(request, last, price),
            _unread_price(request, rates),
            rates.write_1h if request.usage and request.usage.written_1h else rates.write,
            bool(self.session.head),
        )

    def bill(
        self, views: Sequence[SentView] | None = None, *, after_break: AfterBreak = "hit", by_rule: bool = False
    ) -> Bill:
        """Bill the session, sent as these views (one per request), or as recorded (None).

        `by_rule`: the cache rules decide what is read, even if the log has counts of cache reads.
        """
        bill = Bill()
        last: SentView | None = None
        for number, step in enumerate(self.steps):
            view = views[number] if views else AS_RECORDED
            bill.add(step.price_request(view, step.unchanged_entries(view, last), after_break, by_rule))
            last = view
        return bill

    def reported_usage(self, after_break: AfterBreak, by_rule: bool = False) -> ReportedUsage:
        """Simulate the usage reports of a provider in this scenario."""

        def read_tokens(number: int, view: SentView, last: SentView | None) -> int:
            step = self.steps[number]
            return round(step.price_request(view, step.unchanged_entries(view, last), after_break, by_rule).read)

        return ReportedUsage([step.scale for step in self.steps], self.thinking_tokens, read_tokens)

    def thinking_tokens(self, message: Message) -> float:
        """Estimate the weighted tokens that later turns save if the thinking of a message is removed."""
        return self.sizes.thinking_tokens(message, self._model)

    @property
    def keeps_thinking(self) -> bool:
        """The provider counted thinking of earlier turns as long as it was sent."""
        return not self.steps or self.sizes.calibrations[self._model].keeping == "kept"

    def thinking_cost(self, is_counted: Sequence[bool] | None = None) -> float:
        """Add up the baseline's dollars for thinking that was sent back, in the counted requests."""
        total = 0.0
        for step in compress(self.steps, is_counted or repeat(True)):
            read = step.price_request(AS_RECORDED, step.shared, "hit", by_rule=False).read
            before = step.prefix.thinking_before(min(step.sent.length, step.entry_at(read)))
            after = step.prefix.thinking_before(step.sent.length) - before
            total += step.held * (before * step.rates.read + after * step.dear)
        return total

    def recorded_costs(self) -> list[float | None]:
        """Compute dollars for the input of each request from its recorded usage; None without usage."""
        return [
            None
            if (usage := step.sent.usage) is None
            else usage.read * step.rates.read + (usage.input - usage.read) * step.dear
            for step in self.steps
        ]


def _hit_shortfalls(session: Recording) -> dict[str, float]:
    """Compute for each model the average tokens by which a full hit reads less than the previous request."""
    differences: dict[str, list[int]] = {}
    for segment in session.segments:
        for last, request in pairwise(segment.requests):
            if last.usage and request.usage and last.model == request.model and _all_read(last.usage, request.usage):
                differences.setdefault(request.model, []).append(last.usage.input - request.usage.read)
    return {model: sum(each) / len(each) for model, each in differences.items()}


def _count_head(session: Recording, count: Count) -> int:
    return sum(count(value if isinstance(value, str) else to_json(value)) for value in session.head.values())


def shared_between(before: RecordedSegment, after: RecordedSegment, longest: int) -> int:
    """Count the equal entries at the start of two segments. Segments share the same objects, so identity is enough."""
    if before.is_compressed or after.is_compressed:
        return 0
    pairs = enumerate(islice(zip(before.history, after.history, strict=False), longest))
    return next((place for place, (old, new) in pairs if old is not new), longest)


def _recorded_read(request: RecordedRequest, last: ReplayStep | None, segment: RecordedSegment) -> float | None:
    if request.usage is None:
        return None
    before = last.sent.usage if last else None
    if before is not None and request is not segment.requests[0] and _all_read(before, request.usage):
        return float("inf")
    return float(request.usage.read)


def _all_read(before: Usage, usage: Usage) -> bool:
    return usage.read >= FULL_READ_SHARE * min(before.input, usage.input)


def _is_warm(request: RecordedRequest, last: ReplayStep, price: Price) -> bool:
    """Whether the cache still has the previous request. A log without times counts as one without idle times."""
    if request.model != last.sent.model:
        return False
    long = last.sent.usage is not None and last.sent.usage.written_1h > 0
    lifetime = price.caching.lifetime_1h if long else price.caching.lifetime
    return (idle_between(last.sent, request) or 0.0) <= lifetime


def idle_between(last: RecordedRequest, request: RecordedRequest) -> float | None:
    """Compute seconds since the previous response, or since the previous request if that is unknown; None without
    times."""
    since = last.at if last.answered is None else last.answered
    return None if request.at is None or since is None else max(0.0, request.at - since)


def _unread_price(request: RecordedRequest, rates: Rates) -> float:
    """Compute dollars per token that is not read, as recorded; the write price without usage."""
    usage = request.usage
    if usage is None or usage.input == usage.read:
        return rates.write
    cost = usage.fresh * rates.fresh + usage.written * rates.write + usage.written_1h * rates.write_1h
    return cost / (usage.input - usage.read)


def entry_position(step: ReplayStep, view: SentView, entry: int) -> float:
    """Compute the tokens of a sent request before an entry of its history."""
    return step.head + step.held * step.prefix.tokens_before(entry) - step.scale * view.removed_before(entry)


def _cached_tokens(step: ReplayStep, view: SentView, recorded_read: float | None) -> float:
    return 0.0 if recorded_read is None and not step.warm else cached_tokens(step, view, recorded_read, step.shared)


def cached_tokens(step: ReplayStep, view: SentView, recorded_read: float | None, reach: int = -1) -> float:
    """Compute the tokens in the cache if no sent text was revised.

    These are the recorded tokens (`recorded_read`). If that is unknown or was a full hit, they are the first `reach`
    entries (-1: not even the request parameters).
    """
    if recorded_read is not None and recorded_read != float("inf"):
        return max(0.0, recorded_read - step.scale * view.removed_before(step.entry_at(recorded_read)))
    read = entry_position(step, view, reach) if reach >= 0 else 0.0
    if recorded_read is not None:
        return max(0.0, read - step.short)
    if step.whole:  # other logs lack system prompt and tools, which are long enough for the minimum
        read -= read % step.price.caching.step
        if read < step.price.caching.minimum:
            return 0.0
    return read


def parse_histories(session: Recording) -> Histories:
    """Parse the histories of a session's segments."""
    return Histories(session)
