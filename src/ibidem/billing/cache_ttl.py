"""Choose the prompt-cache TTL for each request: five minutes or an hour.

A cache write with a TTL of an hour costs more than one with five minutes, and saves writing again after an idle time
between the two. So the choice depends on future idle times. It is made only when the provider must write the whole
conversation anyway (the cache is *cold*), because another TTL for a warm prefix would rewrite it. New messages can get
a shorter TTL than those before them at any time, never a longer one. That needs our own breakpoints: with the client's
breakpoints, the TTL of an hour covers everything, only tools and instructions, or no part. `choose_ttl` gets its result
for the previous request, and the facts of this one.

*Expected saving.* Per token, an hour costs W1 - W5 more to write, and saves W5 - R at each idle time between five
minutes and an hour. Both are proportional to the tokens, so the size of the conversation cancels out. The expected
number of such idle times before a longer one, or before the end, decides:

    an hour pays off if   expected idle times >= (W1 - W5) / (W5 - R),   which is 0.65 at list prices

Idle times are expected to be as frequent as in this conversation and before it (`Pauses`), by kind of request. The
expected number of further requests is the number so far plus the average length of a conversation: lengths have a Lomax
distribution with shape 2.

*Guarantee.* As in `revision_budget`, from the same savings balance: at any time, the cost exceeds that of the client's
own choice by at most the share `credit` of it, plus the share `phi` of the savings from edits. An hour instead of five
minutes costs more at once, so the balance must cover it then. Five minutes instead of an hour cost more later: at the
next idle time between the two, the part with the shorter TTL is written again, for an hour, so this happens at most
once. The balance must cover that for the largest possible conversation, the model's context window, because a warm
conversation can grow. If the window is unknown, the client's hour stays. A client without prompt caching is compared
with its own choice too: breakpoints save from the second request on, and that saving can be spent. Its TTL is at least
five minutes.

The accounting follows the cache rules and the provider's counts. The client would have had an unexplained miss too. The
cost of writing the prefix again with the chosen TTL cannot be foreseen, so it is earned back before more is spent. The
client would have had an unexplained hit too: it comes from another conversation. A change of model is a cold cache. A
provider without counts gives no credit. Prices are multiples of the requested model's fresh input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from ..errors import UsageError
from .prices import Price
from .revision_budget import LEAST_NEW_SHARE, MAX_TOKENS_PER_TOKEN
from .usage import FULL_READ_SHARE

CacheMode = Literal["off", "lifetime", "auto"]
"""`off`: cache directives stay unchanged. `lifetime`: choose the TTL of the client's breakpoints. `auto`: as
`lifetime`, and add breakpoints to requests without them."""

CACHE_MODES: tuple[CacheMode, ...] = get_args(CacheMode)

NOTHING_LONG = -1
"""`TtlDecision.long` if no part has a TTL of an hour."""

PHI, CREDIT = 0.8, 0.03
"""Shares of savings and cost that may be spent, as in `Evict`."""

FIVE_MINUTES, HOUR = 300.0, 3600.0
"""Seconds that separate the three classes of idle times."""

PRIOR_WEIGHT = 40
"""Number of idle times in this conversation with the same weight as all earlier ones. With fewer, a conversation is
unlikely to have a single longer idle time, so the past predicts better."""


class IdleTimes(NamedTuple):
    """Counts of idle times between a response and the next request: up to five minutes, up to an hour, longer."""

    spoken: tuple[int, int, int] = (0, 0, 0)
    """Counts for requests that end with a message of the user."""
    looped: tuple[int, int, int] = (0, 0, 0)
    """Counts for requests that end with tool results, in an active tool loop."""
    conversations: int = 0
    """Number of conversations; 0 if unknown."""

    def __add__(self, other: object) -> IdleTimes:
        """Add the counts of both."""
        if not isinstance(other, IdleTimes):
            return NotImplemented
        spoken = _add_counts(self.spoken, other.spoken)
        return IdleTimes(spoken, _add_counts(self.looped, other.looped), self.conversations + other.conversations)


def _add_counts(one: Sequence[int], other: Sequence[int]) -> tuple[int, int, int]:
    soon, later, last = map(sum, zip(one, other, strict=True))
    return soon, later, last


def add_idle_time(pauses: IdleTimes, has_spoken: bool, idle: float) -> IdleTimes:
    """Add one idle time to the counts."""
    place = (idle > FIVE_MINUTES) + (idle > HOUR)

    def add_one(counts: tuple[int, int, int]) -> tuple[int, int, int]:
        soon, later, last = (count + (number == place) for number, count in enumerate(counts))
        return soon, later, last

    return (
        pauses._replace(spoken=add_one(pauses.spoken)) if has_spoken else pauses._replace(looped=add_one(pauses.looped))
    )


NO_IDLE_TIMES = IdleTimes()
USUAL_IDLE_TIMES = IdleTimes((112, 3, 0), (112, 3, 0), 5)
"""Counts that are added to the user's own: in 275 recorded conversations of other users, 324 of 12,615 idle times were
between five minutes and an hour. Their kind was not recorded, so both kinds are equal. The weight is that of one
day."""


class CacheRequest(NamedTuple):
    """Facts about a request before it is sent, for the choice of its TTL."""

    messages: int
    long: bool | None = None
    """The client's TTL: an hour (True), five minutes (False), or no caching (None)."""
    spoken: bool = False
    """The last message is the user's."""
    idle: float | None = None
    """Seconds since the last response; None if unknown, which counts as zero."""
    context: int | None = None
    """Input tokens of the previous request, as its provider counted them."""
    cached: int | None = None
    """Tokens of the previous request that the provider read from its cache."""
    new: float = 0.0
    """Our count of the new messages, as sent."""
    removed: float = 0.0
    """Our count of all text that edits removed."""
    spent: float = 0.0
    """Cost of revisions so far, in prices of fresh tokens."""
    head: float = 0.0
    """Our count of the request parameters; 0 if unknown, or if the client's breakpoints do not cover them."""


class TtlDecision(NamedTuple):
    """TTL of a request, with the numbers that the next decision needs. It is stored in the journal as plain numbers."""

    long: int = NOTHING_LONG
    """Number of first messages with a TTL of an hour, with the request parameters; 0: only the parameters."""
    spent: float = 0.0
    """Cost of TTLs other than the client's so far, in prices of fresh tokens, with the possible cost of the next idle
    time; negative if they saved in any case."""
    paid: float = 0.0
    """Settled part of that cost, without the last request: the provider has not counted it yet."""
    bill: float = 0.0
    """Lower bound of the cost with the client's TTLs until then."""
    saved: float = 0.0
    """Savings of edits until then."""
    length: int = 0
    """Number of messages in the last request."""
    client: int = -1
    """TTL that the client requested: 1 an hour, 0 five minutes, -1 no caching."""
    size: float = 0.0
    """Tokens of the last request, estimated until its provider has counted them."""
    hour: float = 0.0
    """Tokens with a TTL of an hour."""
    read: float = 0.0
    due: float = 0.0
    """Tokens in the cache by the cache rules (`read`), and with the client's TTLs (`due`)."""
    head: float = 0.0
    """The last known `head` of `CacheRequest`."""
    others: float = 0.0
    """Tokens that were read after an idle time although our cache had expired: other conversations share them."""
    requests: int = 0
    missed: int = 0
    """Number of requests, and of requests with a smaller cache read than the rules predict."""
    spoken: int = 0
    spoken_later: int = 0
    spoken_last: int = 0
    looped: int = 0
    looped_later: int = 0
    looped_last: int = 0
    """Counts of this conversation's idle times, as in `Pauses`."""
    model: str = ""
    unit: float = 1.0
    """Requested model (empty if unknown), and dollars for its fresh token: the unit of all costs here."""

    @property
    def idle_times(self) -> IdleTimes:
        return IdleTimes(
            (self.spoken, self.spoken_later, self.spoken_last), (self.looped, self.looped_later, self.looped_last)
        )

    @property
    def is_all_hour(self) -> bool:
        """The whole request has a TTL of an hour."""
        return self.long >= max(1, self.length)


class CacheTariff(NamedTuple):
    """Prices per token, as multiples of a fresh token in a small request, and the two TTLs in seconds."""

    fresh: float
    read: float
    write: float
    write_1h: float
    lifetime: float
    lifetime_1h: float

    @classmethod
    def for_size(cls, price: Price, size: float) -> CacheTariff:
        """Make the tariff for a request of this size in tokens."""
        rates, unit, caching = price.rates(size), price.tiers[0][1].fresh or 1.0, price.caching
        fresh, read, write, write_1h = (each / unit for each in (rates.fresh, rates.read, rates.write, rates.write_1h))
        return cls(fresh, read, write, write_1h, caching.lifetime, caching.lifetime_1h)

    def actual_cost(self, decision: TtlDecision) -> float:
        written_1h = max(0.0, decision.hour - decision.read)
        written_tokens = decision.size - decision.read - written_1h
        return self.read * decision.read + self.write_1h * written_1h + self.write * written_tokens

    def client_cost(self, decision: TtlDecision) -> float:
        if decision.client < 0:
            return self.fresh * decision.size
        return self.read * decision.due + self.write_price(decision.client) * (decision.size - decision.due)

    def write_price(self, client: int) -> float:
        """Look up the price of a token that is not read: fresh, or written with the client's TTL."""
        return (self.fresh, self.write, self.write_1h)[client + 1]


def choose_ttl(
    price: Price,
    before: TtlDecision | None,
    request: CacheRequest,
    prior: IdleTimes = NO_IDLE_TIMES,
    phi: float = PHI,
    credit: float = CREDIT,
) -> TtlDecision:
    """Choose the TTL of a request. Without a cheaper one that the balance covers, the client's own choice stays.

    `before` is the decision for the previous request. `prior` has the user's idle times before this conversation.
    """
    if not (price.caching.marks and price.caching.hour):  # the provider has only one TTL
        return TtlDecision(request.messages if request.long else NOTHING_LONG)
    unit = price.tiers[0][1].fresh or 1.0
    state = TtlDecision(model=price.model, unit=unit)
    if before is not None:
        state = _settle_request(price, before, request)
        idle_times = add_idle_time(state.idle_times, request.spoken, request.idle or 0.0)
        state = _convert_prices(state, price.model, unit)._replace(
            requests=state.requests + 1, **_idle_time_fields(idle_times)
        )
        request = request._replace(head=request.head or before.head)
        if before.model not in ("", price.model):  # another model has no cache, as after a long idle time
            request = request._replace(idle=float("inf"))
    worth = _compare_ttls(price, state, prior)
    *options, least = _list_options(price, state, request, worth)

    def is_covered(long: int) -> bool:
        ahead = 0.0 if request.long is None or state.is_all_hour or long < request.messages else worth.ahead
        return _is_covered(
            price, _predict_state(price, state, request, long, MAX_TOKENS_PER_TOKEN), request, phi, credit, ahead
        )

    long = next(filter(is_covered, options), least)
    decision = _predict_state(price, state, request, long)
    return decision._replace(
        spent=decision.paid + _extra_cost(price, decision) + _reversal_cost(price, decision, credit)
    )


def _idle_time_fields(pauses: IdleTimes) -> dict[str, Any]:
    names = ("spoken", "spoken_later", "spoken_last", "looped", "looped_later", "looped_last")
    return dict(zip(names, (*pauses.spoken, *pauses.looped), strict=True))


def _convert_prices(decision: TtlDecision, model: str, unit: float) -> TtlDecision:
    """Convert the costs to prices of a model."""
    rate = decision.unit / unit if decision.model else 1.0
    return decision._replace(
        model=model, unit=unit, paid=rate * decision.paid, bill=rate * decision.bill, saved=rate * decision.saved
    )


def _settle_request(price: Price, before: TtlDecision, request: CacheRequest) -> TtlDecision:
    """Settle the last request with its provider's counts, or with an upper bound without counts."""
    size = float(request.context or before.size)
    state = before._replace(
        size=size,
        hour=size if before.is_all_hour else min(before.hour, size),
        read=min(before.read, size),
        due=min(before.due, size),
    )
    if request.cached is not None:
        read = min(float(max(0, request.cached)), size)
        if (
            read and 0 < state.read <= state.hour and not before.is_all_hour
        ):  # only the part with a TTL of an hour was left
            state = state._replace(hour=read, read=read)
        ours = max(state.read, state.hour) if state.read else 0.0  # the client would read other cached parts too
        # If the size had only been estimated, the part that both read can be larger than the estimate.
        is_miss, has_more = read < FULL_READ_SHARE * state.read, read > ours or state.due >= state.read
        alone = state.client < 0 or state.requests < 2 or state.read  # a first request does not predict later ones
        others = max(state.others, 0.0 if alone else read)
        due = min(state.due, read) if is_miss else max(state.due, read) if has_more else state.due
        due = max(due, min(others, read))
        state = state._replace(read=read, due=due, others=others, missed=state.missed + is_miss)
    tariff = CacheTariff.for_size(price, size)
    is_counted = request.context is not None and request.cached is not None
    cost, bill = _extra_cost(price, state), tariff.client_cost(state)
    if is_counted and size < price.caching.minimum:  # too short for the cache, so all tokens are fresh
        cost, bill = 0.0, tariff.fresh * size
    worth = tariff.read if state.due else tariff.write_price(state.client)
    return state._replace(
        paid=before.paid + (cost if is_counted else max(0.0, MAX_TOKENS_PER_TOKEN * cost)),
        bill=before.bill + (bill if is_counted else 0.0),
        saved=before.saved + worth * request.removed,
    )


def _extra_cost(price: Price, decision: TtlDecision) -> float:
    """Compute the extra cost of a request compared with the client's TTL."""
    tariff = CacheTariff.for_size(price, decision.size)
    return tariff.actual_cost(decision) - tariff.client_cost(decision)


def _list_options(price: Price, last: TtlDecision, request: CacheRequest, worth: TtlComparison) -> list[int]:
    """List the possible values of `TtlDecision.long`, the best first. The last one needs no balance.

    A warm prefix keeps its TTL. Messages can have different TTLs only with our own breakpoints: a client moves its
    breakpoints along with its messages, so a provider would not find the earlier entry again.
    """
    caching, idle, everything = price.caching, request.idle or 0.0, [request.messages]
    head = [0] if request.head >= caching.minimum else []
    if not last.size or idle > (caching.lifetime_1h if last.hour else caching.lifetime):
        if request.long:
            return everything if worth.writing else [NOTHING_LONG, *everything]
        return [*everything, *head, NOTHING_LONG] if worth.writing else [NOTHING_LONG]
    if request.long:
        return everything if last.is_all_hour else [last.long]
    if not last.hour or not worth.keeping:
        return [NOTHING_LONG]
    part = [last.long] if request.long is None or not last.is_all_hour else head or [NOTHING_LONG]
    grows = worth.writing if request.long is None or idle > caching.lifetime else worth.going_on
    return [*everything, *part] if grows and (last.is_all_hour or idle > caching.lifetime) else part


def _predict_state(
    price: Price, last: TtlDecision, request: CacheRequest, long: int, factor: float = 1.0
) -> TtlDecision:
    """Predict the state after a request with this TTL. `factor`: provider tokens per new token of our count."""
    size = last.size + factor * (request.new + (0.0 if last.size else request.head))
    caching, idle = price.caching, request.idle or 0.0
    forgets = caching.lifetime_1h if last.client > 0 else caching.lifetime
    hour = 0.0
    if long >= request.messages:
        hour = size
    elif long >= 0:
        hour = last.hour if long == last.long and last.hour else min(size, MAX_TOKENS_PER_TOKEN * request.head)
    cached_part = last.hour if last.long else min(last.hour, LEAST_NEW_SHARE * request.head)
    return last._replace(
        long=long,
        length=request.messages,
        client=-1 if request.long is None else int(request.long),
        size=size,
        hour=hour,
        head=request.head,
        read=last.size if idle <= caching.lifetime else cached_part if idle <= caching.lifetime_1h else 0.0,
        due=last.size if last.client >= 0 and idle <= forgets else min(last.others, last.size),
        requests=max(1, last.requests),
    )


def _is_covered(
    price: Price, decision: TtlDecision, request: CacheRequest, phi: float, credit: float, ahead: float = 0.0
) -> bool:
    """Whether the balance covers a decision, now and at any next idle time.

    `decision` has upper bounds of its sizes. `ahead`: number of further requests of usual size to cover.
    """
    small = decision.size - (MAX_TOKENS_PER_TOKEN - LEAST_NEW_SHARE) * request.new
    least = decision._replace(size=small, due=min(decision.due, small))
    bill = decision.bill + CacheTariff.for_size(price, small).client_cost(least)
    room = phi * decision.saved + credit * bill - decision.paid - max(0.0, request.spent)
    cost = _extra_cost(price, decision) * (1.0 if request.context is not None else MAX_TOKENS_PER_TOKEN)
    if request.long and decision.hour < decision.size and (price.window is None or request.context is None):
        return False
    if ahead and decision.client == 0:
        tariff = CacheTariff.for_size(price, decision.size)
        cost += (tariff.write_1h - tariff.write) * ahead * max(0.0, decision.size - request.head) / decision.requests
    return cost + _reversal_cost(price, decision, credit) <= room


def _reversal_cost(price: Price, decision: TtlDecision, credit: float) -> float:
    """Compute the maximum cost of the next idle time if the client's hour would outlast it and our TTL does not.

    The part with the shorter TTL is then written again, for an hour. Growth until then saves on writes and raises the
    client's own cost, so the current size and the largest size are both checked.
    """
    if decision.client < 1 or decision.hour >= decision.size:
        return 0.0
    tariff, window = CacheTariff.for_size(price, decision.size), max(price.window or 0.0, decision.size)
    saving = tariff.write_1h - tariff.write + credit * tariff.write_1h
    return max(
        (tariff.write_1h - tariff.read) * (size - decision.hour) - saving * (size - decision.size)
        for size in (decision.size, window)
    )


class TtlComparison(NamedTuple):
    """Whether a TTL of an hour is expected to be cheaper, for different parts of a request."""

    writing: bool
    """For a prefix that must be written anyway."""
    going_on: bool
    """For new messages, if the prefix before them would lose its hour otherwise."""
    keeping: bool
    """For a prefix that is written already: its hour costs more only after an unexplained miss."""
    ahead: float
    """Expected requests until the next idle time between five minutes and an hour."""


def _compare_ttls(price: Price, decision: TtlDecision, prior: IdleTimes) -> TtlComparison:
    tariff = CacheTariff.for_size(price, decision.size)
    extra, saving = tariff.write_1h - tariff.write, tariff.write - tariff.read
    prior_counts = prior + USUAL_IDLE_TIMES
    later, last = expected_idle_times(decision.idle_times, prior_counts)
    usual = sum(map(sum, prior_counts[:2])) / prior_counts.conversations
    requests = 1 / (last + 1 / (usual + decision.requests))
    gain = later * saving - decision.missed / (decision.requests + PRIOR_WEIGHT) * extra
    writing = gain * requests >= extra
    return TtlComparison(writing, writing or gain * decision.requests >= extra, gain >= 0, min(requests, 1 / later))


def expected_idle_times(own: IdleTimes, prior_counts: IdleTimes) -> tuple[float, float]:
    """Estimate the shares of future idle times that are between five minutes and an hour, and longer."""
    past, here = sum(map(sum, prior_counts[:2])), sum(map(sum, own[:2]))
    later = last = 0.0
    for kind, before in ((own.spoken, prior_counts.spoken), (own.looped, prior_counts.looped)):
        share = (sum(kind) + PRIOR_WEIGHT * sum(before) / past) / (here + PRIOR_WEIGHT)
        weight = min(1.0, PRIOR_WEIGHT / sum(before))
        every = sum(kind) + weight * sum(before)
        later += share * (kind[1] + weight * before[1]) / every
        last += share * (kind[2] + weight * before[2]) / every
    return later, last


def validate_cache_mode(cache: object) -> CacheMode:
    """Check a cache mode. Raises UsageError if it is unknown."""
    for mode in CACHE_MODES:
        if cache == mode:
            return mode
    raise UsageError(f"cache: {cache!r} is unknown: use one of {', '.join(CACHE_MODES)}")
