"""One recorded session, sent again under a profile: what it would have cost.

Every request gets a size (see `sizes`), and the part of it that the provider had in its cache costs less. Where the
log has usage, it says how much that was: a miss that was recorded happens in the replay as well, at the same request
and the same place, whatever the profile. Where it has none, the rules of the provider decide: the longest beginning
that was sent before, if it is long enough and the last request is not too long ago. What a profile changes in messages
that were already sent is never in the cache.

Only input is priced: no profile changes what the model answers, and many logs record output wrongly.
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
"""Whether a provider still finds what stands before a change, or nothing but the head; or all, which none does: a bound
to compare with."""


@dataclass(slots=True)
class Step:
    """One request, as far as it is the same under every profile."""

    sent: RecordedRequest
    segment: int
    rates: Rates
    price: Price
    size: float
    """Tokens, all in all, as it was sent."""
    scale: float
    """Provider tokens per weighed token of ours."""
    head: float
    """Tokens before the history: system prompt, tools, and whatever else the log does not show."""
    prefix: Prefix
    """Tokens before each entry of the history, as its provider counts them."""
    held: float
    """Of what the log holds, the share that was sent: 1 but where the log holds more."""
    shared: int
    """Entries that the request before had as well, in the same places; -1 if there was none."""
    found: float | None
    """How much of it the provider found in its cache, if the log says; infinite for all that could be found."""
    short: float
    """By how much less than the request before is usually found where all is: providers count in blocks."""
    warm: bool
    """By the clock, the cache still holds the request before."""
    dear: float
    """Dollars for a token that was not read from the cache, as recorded."""
    write: float
    """Dollars for one that is written, for as long as was asked for."""
    whole: bool
    """The log shows what stands before the history, so that limits of the cache can be told."""

    def entry_at(self, tokens: float) -> int:
        """The entry of the history that stands after so many tokens of the request."""
        return self.prefix.entry_at((tokens - self.head) / self.held if self.held else 0.0)

    def kept(self, view: SentView, last: SentView | None) -> int:
        """Of the entries that the request before had as well, those that it had sent in the same way."""
        return view.parts_from(last, self.shared) if last is not None and self.shared > 0 else self.shared

    def charge(
        self, view: SentView, kept: int, after_break: AfterBreak, by_rule: bool, found: float | None = None
    ) -> Charge:
        """The request, sent as this view, if so many of its first entries are sent as they were before. `found`: what
        was in the cache, where that is not as recorded."""
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
    """What a session costs. Dollars for input, and provider tokens."""

    cost: float = 0.0
    tokens: float = 0.0
    read: float = 0.0
    peak: float = 0.0
    """Tokens of the largest request."""
    breaks: int = 0
    """Requests that changed what had been sent before."""
    rewrites: float = 0.0
    """Dollars of the cost for writing again what could have been read, had nothing been changed."""
    charges: list[Charge] = field(default_factory=list)
    """By request."""

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
        """By request."""
        return [charge.cost for charge in self.charges]

    def over(self, counted: Sequence[bool]) -> Bill:
        """The part of it for some of the requests; the others are there, and cost nothing."""
        found = Bill()
        for charge, here in zip(self.charges, counted, strict=True):
            found.add(charge if here else Charge())
        return found


class Charge(NamedTuple):
    """What one request costs: dollars, and provider tokens."""

    cost: float = 0.0
    size: float = 0.0
    read: float = 0.0
    again: float = 0.0
    """Dollars of the cost for writing again what could have been read, had nothing been changed."""
    broken: bool = False
    """It changed what had been sent before."""


class Told(NamedTuple):
    """What a provider tells about the requests of a session, by their numbers."""

    scales: Sequence[float] = ()
    """Its tokens per weighed token of ours; 1 where there is none."""
    thought: Callable[[Message], float] | None = None
    """How many of ours the thinking in a message is; what the message shows of it decides if there is none."""
    reads: Callable[[int, SentView, SentView | None], int] | None = None
    """What it read from its cache of a request that was sent so after another; if there is none, it does not tell."""
    keeps: Callable[[int, SentView | None, float], Kept] | None = None
    """For how long it is asked to keep what, given how the request before was sent, and what revisions have cost."""

    def moment(self, number: int, views: Sequence[SentView], spent: float) -> Moment:
        """What a request is asked to be kept for, after those that were sent so."""
        kept = self.keeps(number, views[-1] if views else None, spent) if self.keeps else None
        return Moment(long=kept.long > 0, paid=kept.spent) if kept else Moment()


class Replay:
    """A session that was measured once and can be billed for any number of profiles."""

    def __init__(self, session: Recording, prices: Prices, count: Count, messages: Histories) -> None:
        """`messages` are the histories of its segments as values."""
        self.session, self.messages = session, messages
        first = next((sent for segment in session.segments for sent in segment.requests), None)
        price = prices.of(first.model if first else "", session.format, first.at if first else None)
        self.weights = WEIGHTS.get(price.provider, Weights())
        self.steps = list(self._steps(prices, count))
        self._model = next((model for model, _ in Counter(step.sent.model for step in self.steps).most_common(1)), "")
        """The one that was asked most often."""

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
        """The bill for requests sent as these views, one per request; as recorded if there are none.

        `by_rule` lets the provider's rules decide what is in the cache even where the log knows better.
        """
        bill = Bill()
        last: SentView | None = None
        for number, step in enumerate(self.steps):
            view = views[number] if views else AS_RECORDED
            bill.add(step.charge(view, step.kept(view, last), after_break, by_rule))
            last = view
        return bill

    def told(self, after_break: AfterBreak, by_rule: bool = False) -> Told:
        """What a provider tells that finds so much in its cache after a change."""

        def read(number: int, view: SentView, last: SentView | None) -> int:
            step = self.steps[number]
            return round(step.charge(view, step.kept(view, last), after_break, by_rule).read)

        return Told([step.scale for step in self.steps], self.thought, read)

    def thought(self, message: Message) -> float:
        """Tokens of the thinking in a message that it would spare later turns to be without, before they are scaled."""
        return self.sizes.thought(message, self._model)

    @property
    def keeps_thinking(self) -> bool:
        """Thinking of earlier turns was counted as long as it was sent."""
        return not self.steps or self.sizes.calibrations[self._model].keeping == "kept"

    def thinking(self, counted: Sequence[bool] | None = None) -> float:
        """Dollars of the bill with nothing done for thinking that was sent back, in requests that count."""
        total = 0.0
        for step in compress(self.steps, counted or repeat(True)):
            read = step.charge(AS_RECORDED, step.shared, "hit", by_rule=False).read
            before = step.prefix.thought(min(step.sent.length, step.entry_at(read)))
            after = step.prefix.thought(step.sent.length) - before
            total += step.held * (before * step.rates.read + after * step.dear)
        return total

    def recorded(self) -> list[float | None]:
        """Dollars for the input of each request by its recorded usage."""
        return [
            None
            if (usage := step.sent.usage) is None
            else usage.read * step.rates.read + (usage.input - usage.read) * step.dear
            for step in self.steps
        ]


def _shortfalls(session: Recording) -> dict[str, float]:
    """By model, how much less than the request before was found on average where all was."""
    found: dict[str, list[int]] = {}
    for segment in session.segments:
        for last, sent in pairwise(segment.requests):
            if last.usage and sent.usage and last.model == sent.model and _all_read(last.usage, sent.usage):
                found.setdefault(sent.model, []).append(last.usage.input - sent.usage.read)
    return {model: sum(each) / len(each) for model, each in found.items()}


def _count_head(session: Recording, count: Count) -> int:
    return sum(count(value if isinstance(value, str) else to_json(value)) for value in session.head.values())


def shared_between(before: RecordedSegment, after: RecordedSegment, longest: int) -> int:
    """Entries at the start of both that are the same objects: segments share what they have in common."""
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
    """Whether the cache still holds the request before. A log without times is taken for one without pauses."""
    if sent.model != last.sent.model:
        return False
    long = last.sent.usage is not None and last.sent.usage.written_1h > 0
    lifetime = price.caching.lifetime_1h if long else price.caching.lifetime
    return (idle_between(last.sent, sent) or 0.0) <= lifetime


def idle_between(last: RecordedRequest, sent: RecordedRequest) -> float | None:
    """Seconds since the answer before, or since it was asked for where only that is told; None if nothing is."""
    since = last.at if last.answered is None else last.answered
    return None if sent.at is None or since is None else max(0.0, sent.at - since)


def _dear(sent: RecordedRequest, rates: Rates) -> float:
    """Dollars for a token that is not read: written as recorded, or all of it written."""
    usage = sent.usage
    if usage is None or usage.input == usage.read:
        return rates.write
    cost = usage.fresh * rates.fresh + usage.written * rates.write + usage.written_1h * rates.write_1h
    return cost / (usage.input - usage.read)


def position_of(step: Step, view: SentView, entry: int) -> float:
    """Tokens of the request before an entry of its history."""
    return step.head + step.held * step.prefix.before(entry) - step.scale * view.before(entry)


def _readable(step: Step, view: SentView, found: float | None) -> float:
    return 0.0 if found is None and not step.warm else readable(step, view, found, step.shared)


def readable(step: Step, view: SentView, found: float | None, reach: int = -1) -> float:
    """Tokens that are in the cache if nothing was changed that had been sent: what was found, or, where that is not
    said or was all that could be, the first so many entries (-1: not even what stands before them)."""
    if found is not None and found != float("inf"):
        return max(0.0, found - step.scale * view.before(step.entry_at(found)))
    read = position_of(step, view, reach) if reach >= 0 else 0.0
    if found is not None:
        return max(0.0, read - step.short)
    if step.whole:  # elsewhere system prompt and tools are missing, and they are never short
        read -= read % step.price.caching.step
        if read < step.price.caching.minimum:
            return 0.0
    return read


def messages_of(session: Recording) -> Histories:
    """The histories of a session's segments as values."""
    return Histories(session)
