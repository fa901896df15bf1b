"""For how long a provider is asked to keep what it is sent.

A cache that is kept for an hour costs more to write than one that is kept for five minutes, and spares writing again
after a pause between the two. Which is cheaper depends on the pauses to come. So the choice is made anew whenever the
provider has to write all of a conversation anyway (the *cold* moments), and only then: what is warm is never written
again for it. What is new may be kept for less long than what stands before it, at any moment, never for longer; only
marks of our own can keep messages apart so, those of a client keep all for an hour, tools and instructions, or nothing.
`choose` is a fold: it is given what it returned for the request before, and what is known of this one.

*What pays.* Of a token, an hour costs W1 - W5 more to write, and spares W5 - R at every pause between five minutes and
an hour. Both are proportional to the tokens, so the size of a conversation does not matter, only the number of such
pauses that are to be expected before a longer one (after which all is decided anew) or the end:

    an hour pays when   expected pauses >= (W1 - W5) / (W5 - R),   that is 0.65 at list prices

They are expected to come as often as they did in this conversation and before it (`Pauses`), by kind of request. The
conversation is expected to go on for as many requests as it had, and as many as one has on average: the longer it was,
the longer it will be, as lengths are spread (a Lomax distribution with a shape of 2).

*The promise* is that of `budget`, from the same bank: at every moment the conversation cost more than with what the
client asked for by at most the share `credit` of that, plus the share `phi` of what edits saved. An hour in place of
five minutes is paid for at once, so it has to fit when it is written. Five minutes in place of an hour are paid for
later: at the next pause between the two all that was kept for less must be written again, for an hour, so that it was
the last time. That has to fit for as large as the conversation can become, which is the window of its model: nothing
can be done about what is warm while it grows. Where the window is not known, the client's hour stays. A client who
asked for no cache is compared with what it asked for as well: marks pay from the second request on, and what they
spared may be spent. Five minutes are then the least that is done.

The ledger goes by the rules of the cache with what the provider counted: what it read, it read; what it did not find
although it should have, it would not have found for the client either, and is written again for as long as was decided,
which is the one thing that cannot be foreseen: it is counted, and nothing is spent until it has been earned again. What
is found though nothing of ours was there, others keep warm: the client finds it as well. Another model finds nothing,
which is known before it is asked: a cold moment. A provider that tells nothing gives no credit. Prices are multiples of
fresh input, of the model that is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from ..errors import UsageError
from .budget import LEAST_NEW_SHARE, MAX_TOKENS_PER_TOKEN
from .prices import Price
from .usage import FULL_READ_SHARE

CacheMode = Literal["off", "lifetime", "auto"]
"""`off`: marks are left alone. `lifetime`: marks of the client stay where they are, for as long as pays. `auto`: that,
and a request without any gets its own."""

CACHE_MODES: tuple[CacheMode, ...] = get_args(CacheMode)

NOTHING_LONG = -1
"""In `Kept.long`."""

PHI, CREDIT = 0.8, 0.03
"""As looking back has them (`Evict`)."""

FIVE_MINUTES, HOUR = 300.0, 3600.0
"""Seconds, by which pauses are told apart."""

PRIOR_PAUSES = 40
"""Pauses of this conversation that say as much as all that came before it: with fewer of one kind than it takes to see
a single longer one, the past is the better guide."""


class Pauses(NamedTuple):
    """How many requests came how long after the answer before: within five minutes, within an hour, later."""

    spoken: tuple[int, int, int] = (0, 0, 0)
    """Those in which the user has spoken."""
    looped: tuple[int, int, int] = (0, 0, 0)
    """Those with nothing but results of tools: a loop goes on."""
    conversations: int = 0
    """In which they were; 0 if unknown."""

    def __add__(self, other: object) -> Pauses:
        """Of both."""
        if not isinstance(other, Pauses):
            return NotImplemented
        spoken = _summed(self.spoken, other.spoken)
        return Pauses(spoken, _summed(self.looped, other.looped), self.conversations + other.conversations)


def _summed(one: Sequence[int], other: Sequence[int]) -> tuple[int, int, int]:
    soon, later, last = map(sum, zip(one, other, strict=True))
    return soon, later, last


def counted(pauses: Pauses, spoken: bool, idle: float) -> Pauses:
    """With one more."""
    place = (idle > FIVE_MINUTES) + (idle > HOUR)

    def more(counts: tuple[int, int, int]) -> tuple[int, int, int]:
        soon, later, last = (count + (number == place) for number, count in enumerate(counts))
        return soon, later, last

    return pauses._replace(spoken=more(pauses.spoken)) if spoken else pauses._replace(looped=more(pauses.looped))


NO_PAUSES = Pauses()
USUAL_PAUSES = Pauses((112, 3, 0), (112, 3, 0), 5)
"""Counted beside those of the user: in 275 recorded conversations of others, 324 of 12,615 pauses were between five
minutes and an hour. Those were not told apart by kind, so both are taken to be alike. It has the weight of a day."""


class Asked(NamedTuple):
    """What is known of a request when it is sent."""

    messages: int
    long: bool | None = None
    """What the client asks for: an hour, five minutes, or no cache at all (None)."""
    spoken: bool = False
    """Its last message is the user's."""
    idle: float | None = None
    """Seconds since the last answer; None if unknown, which counts as none."""
    context: int | None = None
    """Input tokens of the request before, as its provider counted them."""
    cached: int | None = None
    """Of these, what the provider read from its cache."""
    new: float = 0.0
    """Our count of what is new since then, as it is sent."""
    removed: float = 0.0
    """Our count of what edits have taken out of all of it."""
    spent: float = 0.0
    """What revisions have cost so far, in prices of fresh tokens."""
    head: float = 0.0
    """Our count of what stands before the messages; 0 if unknown, or if the client marks something but not that."""


class Kept(NamedTuple):
    """What was decided, and all that the next decision needs. Plain numbers: it is noted with the request."""

    long: int = NOTHING_LONG
    """Messages, from the first on, that are kept for an hour, with all that stands before them; 0: only that."""
    spent: float = 0.0
    """What lifetimes other than the client's have cost so far, in prices of fresh tokens, and what they may still cost
    at the next pause; below 0 what they saved whatever comes."""
    paid: float = 0.0
    """What they have cost for sure, the last request aside: what it cost is known when its provider has told."""
    bill: float = 0.0
    """What the client's own would have cost by then, at least."""
    saved: float = 0.0
    """What edits have saved by then."""
    length: int = 0
    """Messages of the last request."""
    client: int = -1
    """What the client asked for with it: 1 an hour, 0 five minutes, -1 no cache."""
    size: float = 0.0
    """Its tokens, as far as they can be told before its provider counted them."""
    hour: float = 0.0
    """Of these, those that are kept for an hour."""
    read: float = 0.0
    due: float = 0.0
    """Of these, what is found in the cache by its rules; and what would have been with the client's lifetimes."""
    head: float = 0.0
    """As in `Asked`, when it was last told."""
    others: float = 0.0
    """What was found after a pause though nothing of ours was there: no lifetime of ours spares writing it."""
    requests: int = 0
    missed: int = 0
    """Requests so far, and those of which the provider found less than it should have."""
    spoken: int = 0
    spoken_later: int = 0
    spoken_last: int = 0
    looped: int = 0
    looped_later: int = 0
    looped_last: int = 0
    """Pauses of this conversation, as in `Pauses`."""
    model: str = ""
    unit: float = 1.0
    """Which was asked, and dollars for a fresh token of it, in which all money is counted here; empty if unknown."""

    @property
    def pauses(self) -> Pauses:
        return Pauses(
            (self.spoken, self.spoken_later, self.spoken_last), (self.looped, self.looped_later, self.looped_last)
        )

    @property
    def whole(self) -> bool:
        """All of it is kept for an hour."""
        return self.long >= max(1, self.length)


class Tariff(NamedTuple):
    """What a provider charges for a token, as multiples of a fresh one in a small request; and when it forgets."""

    fresh: float
    read: float
    write: float
    write_1h: float
    lifetime: float
    lifetime_1h: float

    @classmethod
    def of(cls, price: Price, size: float) -> Tariff:
        """For a request of so many tokens."""
        rates, unit, caching = price.rates(size), price.tiers[0][1].fresh or 1.0, price.caching
        fresh, read, write, write_1h = (each / unit for each in (rates.fresh, rates.read, rates.write, rates.write_1h))
        return cls(fresh, read, write, write_1h, caching.lifetime, caching.lifetime_1h)

    def ours(self, kept: Kept) -> float:
        written_1h = max(0.0, kept.hour - kept.read)
        written = kept.size - kept.read - written_1h
        return self.read * kept.read + self.write_1h * written_1h + self.write * written

    def theirs(self, kept: Kept) -> float:
        if kept.client < 0:
            return self.fresh * kept.size
        return self.read * kept.due + self.asked_for(kept.client) * (kept.size - kept.due)

    def asked_for(self, client: int) -> float:
        """The price of a token that is written as a client asked."""
        return (self.fresh, self.write, self.write_1h)[client + 1]


def choose(
    price: Price,
    before: Kept | None,
    asked: Asked,
    prior: Pauses = NO_PAUSES,
    phi: float = PHI,
    credit: float = CREDIT,
) -> Kept:
    """For how long to keep what. The client's own choice until there is reason for another, and room for it. `prior`:
    the pauses of the user before this conversation; none where nothing is known."""
    if not (price.caching.marks and price.caching.hour):  # nothing to choose
        return Kept(asked.messages if asked.long else NOTHING_LONG)
    unit = price.tiers[0][1].fresh or 1.0
    settled = Kept(model=price.model, unit=unit)
    if before is not None:
        settled = _settled(price, before, asked)
        pauses = counted(settled.pauses, asked.spoken, asked.idle or 0.0)
        settled = _priced(settled, price.model, unit)._replace(requests=settled.requests + 1, **_flat(pauses))
        asked = asked._replace(head=asked.head or before.head)
        if before.model not in ("", price.model):  # which finds nothing, as after the longest of pauses
            asked = asked._replace(idle=float("inf"))
    worth = _worth(price, settled, prior)
    *wanted, least = _options(price, settled, asked, worth)

    def fits(long: int) -> bool:
        ahead = 0.0 if asked.long is None or settled.whole or long < asked.messages else worth.ahead
        return _fits(price, _after(price, settled, asked, long, MAX_TOKENS_PER_TOKEN), asked, phi, credit, ahead)

    long = next(filter(fits, wanted), least)
    found = _after(price, settled, asked, long)
    return found._replace(spent=found.paid + _cost(price, found) + _way_back(price, found, credit))


def _flat(pauses: Pauses) -> dict[str, Any]:
    names = ("spoken", "spoken_later", "spoken_last", "looped", "looped_later", "looped_last")
    return dict(zip(names, (*pauses.spoken, *pauses.looped), strict=True))


def _priced(kept: Kept, model: str, unit: float) -> Kept:
    """Its money, counted in prices of a model."""
    rate = kept.unit / unit if kept.model else 1.0
    return kept._replace(model=model, unit=unit, paid=rate * kept.paid, bill=rate * kept.bill, saved=rate * kept.saved)


def _settled(price: Price, before: Kept, asked: Asked) -> Kept:
    """With what the last request really cost, now that its provider has told; or might have, if it has not."""
    size = float(asked.context or before.size)
    sent = before._replace(
        size=size,
        hour=size if before.whole else min(before.hour, size),
        read=min(before.read, size),
        due=min(before.due, size),
    )
    if asked.cached is not None:
        read = min(float(max(0, asked.cached)), size)
        if read and 0 < sent.read <= sent.hour and not before.whole:  # that was all that is kept for an hour
            sent = sent._replace(hour=read, read=read)
        ours = max(sent.read, sent.hour) if sent.read else 0.0  # what is there without us the client finds as well
        # What was found by both is larger than it was taken for, where that had not been counted yet.
        missed, more = read < FULL_READ_SHARE * sent.read, read > ours or sent.due >= sent.read
        alone = sent.client < 0 or sent.requests < 2 or sent.read  # what a first one finds says nothing of later ones
        others = max(sent.others, 0.0 if alone else read)
        due = min(sent.due, read) if missed else max(sent.due, read) if more else sent.due
        due = max(due, min(others, read))
        sent = sent._replace(read=read, due=due, others=others, missed=sent.missed + missed)
    tariff = Tariff.of(price, size)
    told = asked.context is not None and asked.cached is not None
    cost, bill = _cost(price, sent), tariff.theirs(sent)
    if told and size < price.caching.minimum:  # too short to be kept: fresh, whatever was asked for
        cost, bill = 0.0, tariff.fresh * size
    worth = tariff.read if sent.due else tariff.asked_for(sent.client)
    return sent._replace(
        paid=before.paid + (cost if told else max(0.0, MAX_TOKENS_PER_TOKEN * cost)),
        bill=before.bill + (bill if told else 0.0),
        saved=before.saved + worth * asked.removed,
    )


def _cost(price: Price, kept: Kept) -> float:
    """What a request costs more than with the client's lifetimes."""
    tariff = Tariff.of(price, kept.size)
    return tariff.ours(kept) - tariff.theirs(kept)


def _options(price: Price, last: Kept, asked: Asked, worth: Worth) -> list[int]:
    """What `Kept.long` can be, the best first; the last of them is what is done if there is room for no other.

    What is warm stays as it was written. A part of the messages can be kept for longer than the rest only where marks
    are ours: those of a client move on with its messages, and what they leave behind is not found again.
    """
    caching, idle, everything = price.caching, asked.idle or 0.0, [asked.messages]
    head = [0] if asked.head >= caching.minimum else []
    if not last.size or idle > (caching.lifetime_1h if last.hour else caching.lifetime):
        if asked.long:
            return everything if worth.writing else [NOTHING_LONG, *everything]
        return [*everything, *head, NOTHING_LONG] if worth.writing else [NOTHING_LONG]
    if asked.long:
        return everything if last.whole else [last.long]
    if not last.hour or not worth.keeping:
        return [NOTHING_LONG]
    part = [last.long] if asked.long is None or not last.whole else head or [NOTHING_LONG]
    grows = worth.writing if asked.long is None or idle > caching.lifetime else worth.going_on
    return [*everything, *part] if grows and (last.whole or idle > caching.lifetime) else part


def _after(price: Price, last: Kept, asked: Asked, long: int, factor: float = 1.0) -> Kept:
    """The request, if so much is kept for an hour. `factor`: tokens of its provider for one that we count as new."""
    size = last.size + factor * (asked.new + (0.0 if last.size else asked.head))
    caching, idle = price.caching, asked.idle or 0.0
    forgets = caching.lifetime_1h if last.client > 0 else caching.lifetime
    hour = 0.0
    if long >= asked.messages:
        hour = size
    elif long >= 0:
        hour = last.hour if long == last.long and last.hour else min(size, MAX_TOKENS_PER_TOKEN * asked.head)
    found = last.hour if last.long else min(last.hour, LEAST_NEW_SHARE * asked.head)
    return last._replace(
        long=long,
        length=asked.messages,
        client=-1 if asked.long is None else int(asked.long),
        size=size,
        hour=hour,
        head=asked.head,
        read=last.size if idle <= caching.lifetime else found if idle <= caching.lifetime_1h else 0.0,
        due=last.size if last.client >= 0 and idle <= forgets else min(last.others, last.size),
        requests=max(1, last.requests),
    )


def _fits(price: Price, kept: Kept, asked: Asked, phi: float, credit: float, ahead: float = 0.0) -> bool:
    """Whether the promise is kept, now and at the next pause, whatever comes. `kept` is as large as it can be. `ahead`:
    for how many requests there has to be room for what is new in them, as it usually is."""
    small = kept.size - (MAX_TOKENS_PER_TOKEN - LEAST_NEW_SHARE) * asked.new
    least = kept._replace(size=small, due=min(kept.due, small))
    bill = kept.bill + Tariff.of(price, small).theirs(least)
    room = phi * kept.saved + credit * bill - kept.paid - max(0.0, asked.spent)
    cost = _cost(price, kept) * (1.0 if asked.context is not None else MAX_TOKENS_PER_TOKEN)
    if asked.long and kept.hour < kept.size and (price.window is None or asked.context is None):
        return False
    if ahead and kept.client == 0:
        tariff = Tariff.of(price, kept.size)
        cost += (tariff.write_1h - tariff.write) * ahead * max(0.0, kept.size - asked.head) / kept.requests
    return cost + _way_back(price, kept, credit) <= room


def _way_back(price: Price, kept: Kept, credit: float) -> float:
    """What the next pause costs at worst, if the client's hour would have lasted and ours does not: all that was kept
    for less is written again, for an hour. Until then it may grow, which spares something and adds to the bill."""
    if kept.client < 1 or kept.hour >= kept.size:
        return 0.0
    tariff, window = Tariff.of(price, kept.size), max(price.window or 0.0, kept.size)
    spared = tariff.write_1h - tariff.write + credit * tariff.write_1h
    return max(
        (tariff.write_1h - tariff.read) * (size - kept.hour) - spared * (size - kept.size)
        for size in (kept.size, window)
    )


class Worth(NamedTuple):
    """Whether an hour is the cheaper one, as far as pauses can be foreseen."""

    writing: bool
    """For what has to be written."""
    going_on: bool
    """For what is new, if else what stands before it is lost."""
    keeping: bool
    """For what was written: it costs more only if the provider loses it."""
    ahead: float
    """Requests until the next pause that an hour outlasts."""


def _worth(price: Price, kept: Kept, prior: Pauses) -> Worth:
    tariff = Tariff.of(price, kept.size)
    dearer, spared = tariff.write_1h - tariff.write, tariff.write - tariff.read
    known = prior + USUAL_PAUSES
    later, last = expected_pauses(kept.pauses, known)
    usual = sum(map(sum, known[:2])) / known.conversations
    requests = 1 / (last + 1 / (usual + kept.requests))
    gain = later * spared - kept.missed / (kept.requests + PRIOR_PAUSES) * dearer
    writing = gain * requests >= dearer
    return Worth(writing, writing or gain * kept.requests >= dearer, gain >= 0, min(requests, 1 / later))


def expected_pauses(own: Pauses, known: Pauses) -> tuple[float, float]:
    """How many of the pauses to come are between five minutes and an hour, and how many longer, as shares of all."""
    past, here = sum(map(sum, known[:2])), sum(map(sum, own[:2]))
    later = last = 0.0
    for kind, before in ((own.spoken, known.spoken), (own.looped, known.looped)):
        share = (sum(kind) + PRIOR_PAUSES * sum(before) / past) / (here + PRIOR_PAUSES)
        weight = min(1.0, PRIOR_PAUSES / sum(before))
        every = sum(kind) + weight * sum(before)
        later += share * (kind[1] + weight * before[1]) / every
        last += share * (kind[2] + weight * before[2]) / every
    return later, last


def checked_mode(cache: object) -> CacheMode:
    """Raises UsageError for what is none."""
    for known in CACHE_MODES:
        if cache == known:
            return known
    raise UsageError(f"cache: {cache!r} is unknown: use one of {', '.join(CACHE_MODES)}")
