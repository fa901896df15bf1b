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
from ..billing.budget import Moment
from ..billing.calibration import WEIGHTS, Count, Weights, weigh
from ..billing.lifetimes import Kept
from ..billing.prices import Price, Prices, Rates
from ..billing.usage import FULL_READ_SHARE, Usage
from ..model import Message, to_json
from ..recordings import RecordedRequest, RecordedSegment, Recording
from .histories import Histories
from .sizes import Prefix, Sizes
from .views import AS_RECORDED, SentView

AfterBreak = Literal["hit", "miss", "free"]
"""Part of a request that is still cached after a revision: the prefix before it (`hit`), or none (`miss`). `free`:
everything, which no provider does, as a bound for comparison."""


@dataclass(slots=True)
class Step:
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

    def kept(self, view: SentView, last: SentView | None) -> int:
        """Count the entries at the start that the previous request has too and that were sent in the same way."""
        return view.parts_from(last, self.shared) if last is not None and self.shared > 0 else self.shared

    def charge(
        self, view: SentView, kept: int, after_break: AfterBreak, by_rule: bool, found: float | None = None
    ) -> Charge:
        """Price the request, sent as this view. `kept`: number of first entries that are sent as before. `found`:
        tokens read from the cache, if not as recorded."""
        size = max(0.0, self.size - self.scale * view.before(self.sent.length))
        could = min(size, _readable(self, view, found if found is not None else None if by_rule else self.found))
        read = could
        if kept < self.shared and after_break != "free":
            read = min(could, position_of(self, view, kept if after_break == "hit" else 0))
        factor = self.tier_factor(size)
        cheap, dear = factor * self.rates.read, factor * (self.write if by_rule else self.dear)
        cost = read * cheap + (size - read) * dear
        return Charge(cost, size, read, (could - read) * (dear - cheap), kept < self.shared)

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

    def over(self, counted: Sequence[bool]) -> Bill:
        """Make the bill for some of the requests. The others stay in the list, with a cost of zero."""
        found = Bill()
        for charge, here in zip(self.charges, counted, strict=True):
            found.add(charge if here else Charge())
        return found


class Charge(NamedTuple):
    """Cost of one request: dollars, and provider tokens."""

    cost: float = 0.0
    size: float = 0.0
    read: float = 0.0
    again: float = 0.0
    """Dollars for writing again what could have been read without a revision; included in `cost`."""
    broken: bool = False
    """The request revised text already sent."""


class Told(NamedTuple):
    """Usage that a simulated provider reports for a session. Requests are named by number."""

    scales: Sequence[float] = ()
    """Provider tokens per weighted token of ours, for each request; 1 if empty."""
    thought: Callable[[Message], float] | None = None
    """Tokens of the thinking in a message, in our count; None to use the size of its text and signature."""
    reads: Callable[[int, SentView, SentView | None], int] | None = None
    """Tokens read from the cache, for a request, its view, and the previous view; None if they are not reported."""
    keeps: Callable[[int, SentView | None, float], Kept] | None = None
    """TTL decision for a request, given the previous view and the cost of revisions; None for the recorded TTL."""

    def moment(self, number: int, views: Sequence[SentView], spent: float) -> Moment:
        """Make the context of a request, with the TTL that is requested after these views."""
        kept = self.keeps(number, views[-1] if views else None, spent) if self.keeps else None
        return Moment(long=kept.long > 0, paid=kept.spent) if kept else Moment()


class Replay:
    """A session with sizes and prices, which can be billed for any number of profiles."""

    def __init__(self, session: Recording, prices: Prices, count: Count, messages: Histories) -> None:
        """`messages`: the parsed histories of the segments."""
        self.session, self.messages = session, messages
        first = next((sent for segment in session.segments for sent in segment.requests), None)
        price = prices.of(first.model if first else "", session.format, first.at if first else None)
        self.weights = WEIGHTS.get(price.provider, Weights())
        self.steps = list(self._steps(prices, count))
        self._model = next((model for model, _ in Counter(step.sent.model for step in self.steps).most_common(1)), "")
        """The most frequent model."""

    def _steps(self, prices: Prices, count: Count) -> Iterator[Step]:
        session = self.session
        weighed = partial(weigh, weights=self.weights, count=count)
        shown = formats.named(session.format).shows_thinking
        self.sizes = Sizes(session.segments, self.messages, weighed, shown)
        short = _shortfalls(session)
        head = self.weights.text * _count_head(session, count)
        last: Step | None = None
        for number, segment in enumerate(session.segments):
            for sent, size in zip(segment.requests, self.sizes.anchored(number, head), strict=True):
                price = prices.of(sent.model, session.format, sent.at)
                last = self._step(number, sent, size, price, short.get(sent.model, 0.0), last)
                yield last

    def _step(
        self, number: int, sent: RecordedRequest, size: float, price: Price, short: float, last: Step | None
    ) -> Step:
        prefix = self.sizes.prefix(number, sent)
        own = prefix.before(sent.length)
        held = min(1.0, size / own) if own else 1.0
        rates = price.rates(size)
        shared = -1
        if last is not None:
            longest = min(last.sent.length, sent.length)
            before, after = self.session.segments[last.segment], self.session.segments[number]
            shared = longest if before is after else shared_between(before, after, longest)
        return Step(
            sent,
            number,
            rates,
            price,
            size,
            held * self.sizes.calibrations[sent.model].scale,
            size - held * own,
            prefix,
            held,
            shared,
            _found(sent, last, self.session.segments[number]),
            short,
            last is not None and _warm(sent, last, price),
            _dear(sent, rates),
            rates.write_1h if sent.usage and sent.usage.written_1h else rates.write,
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
            bill.add(step.charge(view, step.kept(view, last), after_break, by_rule))
            last = view
        return bill

    def told(self, after_break: AfterBreak, by_rule: bool = False) -> Told:
        """Simulate the usage reports of a provider in this scenario."""

        def read(number: int, view: SentView, last: SentView | None) -> int:
            step = self.steps[number]
            return round(step.charge(view, step.kept(view, last), after_break, by_rule).read)

        return Told([step.scale for step in self.steps], self.thought, read)

    def thought(self, message: Message) -> float:
        """Estimate the weighted tokens that later turns save if the thinking of a message is removed."""
        return self.sizes.thought(message, self._model)

    @property
    def keeps_thinking(self) -> bool:
        """The provider counted thinking of earlier turns as long as it was sent."""
        return not self.steps or self.sizes.calibrations[self._model].keeping == "kept"

    def thinking(self, counted: Sequence[bool] | None = None) -> float:
        """Add up the baseline's dollars for thinking that was sent back, in the counted requests."""
        total = 0.0
        for step in compress(self.steps, counted or repeat(True)):
            read = step.charge(AS_RECORDED, step.shared, "hit", by_rule=False).read
            before = step.prefix.thought(min(step.sent.length, step.entry_at(read)))
            after = step.prefix.thought(step.sent.length) - before
            total += step.held * (before * step.rates.read + after * step.dear)
        return total

    def recorded(self) -> list[float | None]:
        """Compute dollars for the input of each request from its recorded usage; None without usage."""
        return [
            None
            if (usage := step.sent.usage) is None
            else usage.read * step.rates.read + (usage.input - usage.read) * step.dear
            for step in self.steps
        ]


def _shortfalls(session: Recording) -> dict[str, float]:
    """Compute for each model the average tokens by which a full hit reads less than the previous request."""
    found: dict[str, list[int]] = {}
    for segment in session.segments:
        for last, sent in pairwise(segment.requests):
            if last.usage and sent.usage and last.model == sent.model and _all_read(last.usage, sent.usage):
                found.setdefault(sent.model, []).append(last.usage.input - sent.usage.read)
    return {model: sum(each) / len(each) for model, each in found.items()}


def _count_head(session: Recording, count: Count) -> int:
    return sum(count(value if isinstance(value, str) else to_json(value)) for value in session.head.values())


def shared_between(before: RecordedSegment, after: RecordedSegment, longest: int) -> int:
    """Count the equal entries at the start of two segments. Segments share the same objects, so identity is enough."""
    if before.apart or after.apart:
        return 0
    pairs = enumerate(islice(zip(before.history, after.history, strict=False), longest))
    return next((place for place, (old, new) in pairs if old is not new), longest)


def _found(sent: RecordedRequest, last: Step | None, segment: RecordedSegment) -> float | None:
    if sent.usage is None:
        return None
    before = last.sent.usage if last else None
    if before is not None and sent is not segment.requests[0] and _all_read(before, sent.usage):
        return float("inf")
    return float(sent.usage.read)


def _all_read(before: Usage, usage: Usage) -> bool:
    return usage.read >= FULL_READ_SHARE * min(before.input, usage.input)


def _warm(sent: RecordedRequest, last: Step, price: Price) -> bool:
    """Whether the cache still has the previous request. A log without times counts as one without idle times."""
    if sent.model != last.sent.model:
        return False
    long = last.sent.usage is not None and last.sent.usage.written_1h > 0
    lifetime = price.caching.lifetime_1h if long else price.caching.lifetime
    return (idle_between(last.sent, sent) or 0.0) <= lifetime


def idle_between(last: RecordedRequest, sent: RecordedRequest) -> float | None:
    """Compute seconds since the previous response, or since the previous request if that is unknown; None without
    times."""
    since = last.at if last.answered is None else last.answered
    return None if sent.at is None or since is None else max(0.0, sent.at - since)


def _dear(sent: RecordedRequest, rates: Rates) -> float:
    """Compute dollars per token that is not read, as recorded; the write price without usage."""
    usage = sent.usage
    if usage is None or usage.input == usage.read:
        return rates.write
    cost = usage.fresh * rates.fresh + usage.written * rates.write + usage.written_1h * rates.write_1h
    return cost / (usage.input - usage.read)


def position_of(step: Step, view: SentView, entry: int) -> float:
    """Compute the tokens of a sent request before an entry of its history."""
    return step.head + step.held * step.prefix.before(entry) - step.scale * view.before(entry)


def _readable(step: Step, view: SentView, found: float | None) -> float:
    return 0.0 if found is None and not step.warm else readable(step, view, found, step.shared)


def readable(step: Step, view: SentView, found: float | None, reach: int = -1) -> float:
    """Compute the tokens in the cache if no sent text was revised.

    These are the recorded tokens (`found`). If that is unknown or was a full hit, they are the first `reach` entries
    (-1: not even the request parameters).
    """
    if found is not None and found != float("inf"):
        return max(0.0, found - step.scale * view.before(step.entry_at(found)))
    read = position_of(step, view, reach) if reach >= 0 else 0.0
    if found is not None:
        return max(0.0, read - step.short)
    if step.whole:  # other logs lack system prompt and tools, which are long enough for the minimum
        read -= read % step.price.caching.step
        if read < step.price.caching.minimum:
            return 0.0
    return read


def messages_of(session: Recording) -> Histories:
    """Parse the histories of a session's segments."""
    return Histories(session)
