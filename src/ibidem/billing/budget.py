"""When looking back pays.

Changing what was already sent makes the provider write everything after the change to its cache again. So edits wait,
all of them, for a moment when that is free (the cache is cold anyway) or paid for:

    rent   = R x tokens that could have gone, for every request that read them since; and for SURE_REQUESTS to come
    rest   = what the provider will have to write again: the conversation already sent, without what goes
    price  = (W - R) rest
    saved  = over all requests: R (removed tokens that would have been read) + W (those that would have been written)
    bill   = what the requests so far cost at least, as their provider counted them
    paid   = what other lifetimes of the cache than the client's have cost (`lifetimes`): there is one bank for both
    change when cold; or when rent >= price and spent + paid + price <= phi (saved + R (removed + freed)) + credit bill,
    and then spent += price

Rent makes changes few and large: a small one waits until it has cost about as much as the change does, and by then more
waits with it. The second condition is the promise. R (removed + freed) is what the very request with the change does
without, so after every request spent <= phi saved + credit bill: if `saved` is not overstated by more than 1 / phi and
prices are not understated, the bill is above that of doing nothing by at most the share `credit` of that, at the end
and at any moment before. With no credit it is never above.

`rest` is planned for a provider that misses the whole conversation after a change, until it tells: what it read of the
request with a change sets `spent` right, and if it had found what stands before the change, later ones are planned so.
A provider that tells nothing is taken for one that misses, and gives no credit.

Prices are multiples of fresh input: R for a token read from the cache, W for one written. Sizes are in provider tokens,
fitted to what it reported of earlier requests: `scale` is how much those grew for each token that we counted that grew
least for it, for what goes (`calibration.TextScale`); `kappa` is how large they are for each token of the conversation,
for what stays, and never less: it also has to stand for what we cannot see, such as sealed reasoning. What stands
before the conversation is not written again; as much of a report is taken for it as cannot be conversation, at
`MAX_TOKENS_PER_TOKEN` tokens for one of ours, and no more than the first report leaves. Without reports, all is counted
as we count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from .calibration import TextScale

Reason = Literal["cold cache", "new settings", "it pays", "price tier", "window"]

SURE_REQUESTS = 10
"""Further requests that a conversation is taken to have, whatever its length."""

LEAST_NEW_SHARE = 0.5
"""What is new in a request has at least this share of the tokens that we count for it."""

TELLING_DIFFERENCE = 0.8
"""What a provider writes again that hits is less than this share of what it would if it missed, or nothing is told."""

NEAR_LIMIT_SHARE = 0.9
"""The window is nearly full from this share of it on."""

BELOW_TIER_SHARE = 0.95
"""A request is surely below a price tier up to this share of it."""

ALIVE_SHARE = 0.5
"""A cache survived a pause if the provider read at least this share of the conversation from it."""

MIN_ALIVE_TOKENS = 1024
"""After a change, the cache survived if the provider read so many tokens of the conversation."""

MAX_TOKENS_PER_TOKEN = 2.0
"""Provider tokens for one of ours, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Economy:
    """What a provider charges for, and how long it remembers."""

    read: float = 0.1
    """Price of a token read from the cache, as a multiple of a fresh one."""
    write: float = 1.25
    lifetime: float = 300.0
    """Seconds that the cache keeps a prefix after its last use."""
    forgotten: float | None = None
    """Seconds after which nothing is left for sure; None where that is its lifetime."""
    preserved_thinking: bool = False
    """Thinking is signed against all that was sent before it: a change invalidates every block after it."""
    keeps_thinking: bool = True
    """Thinking of earlier turns counts as long as it is sent. Elsewhere nothing is gained by leaving it out."""
    tiers: tuple[tuple[int, float], ...] = ()
    """Sizes of requests, in provider tokens, above which the whole request costs so many times as much."""
    window: int | None = None
    """Provider tokens that fit."""
    brief: tuple[float, float] | None = None
    hour: tuple[float, float] | None = None
    """Price of a token written, and lifetime, where it is asked to keep for five minutes, and where for an hour."""

    def kept(self, long: bool | None) -> Economy:
        """With the lifetime in force; None where that is as it was."""
        found = None if long is None else self.hour if long else self.brief
        return self if found is None else replace(self, write=found[0], lifetime=found[1])

    def forgets(self, idle: float | None) -> bool:
        """Whether a change is free after so many seconds. Not knowing counts as no pause."""
        return idle is not None and idle > max(self.lifetime, self.forgotten or 0.0)

    def tier_factor(self, size: float) -> float:
        """Return how many times as much as a small request one of so many provider tokens costs."""
        return next((factor for start, factor in reversed(self.tiers) if size > start), 1.0)


class Moment(NamedTuple):
    """What is known about one request beside its history."""

    idle: float | None = None
    """Seconds since the last answer; None if unknown, which counts as none."""
    context: int | None = None
    """Input tokens of the request before, as its provider counted them."""
    refused: bool = False
    """The store could not keep what was to go, so it stayed."""
    cached: int | None = None
    """Of the context, what the provider read from its cache."""
    long: bool | None = None
    """The provider is asked to keep it for an hour, or for five minutes; None where that is as at the start."""
    paid: float = 0.0
    """What other lifetimes than the client's have cost so far, in prices of fresh tokens; below 0 what they saved."""
    new_settings: bool = False
    """The model or its thinking settings changed, so the provider finds nothing of the conversation in its cache."""


class Offer(NamedTuple):
    """What one change could do, in tokens of ours."""

    freed: float
    waited: float
    """Those that could have gone before, once for every request that they stood in since."""
    behind: float
    """What stands from the first of it on, it included."""


class Point(NamedTuple):
    """A place where what had been sent was changed, and its price."""

    length: int
    """Messages of the request that was the first to be sent differently."""
    first: int
    """The first message that changed."""
    reason: Reason
    rewritten: float
    """Tokens that the provider has to write again because of it, at worst."""
    removed: float
    """Tokens that went."""
    break_even: float
    """Further requests after which it has paid for itself; 0 where it cost nothing."""


class _Change(NamedTuple):
    """A change that the provider has not told about yet, in its tokens."""

    rest: float
    """What was planned to be written again."""
    hit: float
    miss: float
    """What would be, where it finds what stands before the change, and where it finds nothing."""
    new: float
    """What was new in that request, at least."""
    factor: float = 1.0
    """How many times as much as a small request it costs, by its price tier."""
    cold: bool = False
    """It was made because the cache was taken for cold, and cost nothing if that was so."""


class Bank:
    """The fold over the requests of a conversation: what was saved so far, and what may be spent of it."""

    def __init__(self, economy: Economy, phi: float, credit: float = 0.0) -> None:
        self.economy = self._last_economy = economy
        """With the lifetime in force; and with the one before, by which it forgets."""
        self.paid = 0.0
        """What other lifetimes than the client's have cost. What they saved is theirs: the next pause may take it."""
        self.phi = phi
        self.credit = credit
        self.spent = 0.0
        """In prices of fresh tokens, as all money here."""
        self.bill = 0.0
        self.hits = False
        """The provider is known to find what stands before a change."""
        self.kappa = 1.0
        self._earned = 0.0
        """What was saved, at a scale of 1."""
        self._tier_saved = 0.0
        """What was saved because requests stayed below a price tier, at least."""
        self._removed = 0.0
        """Tokens of ours that the last request did without."""
        self._head = 0.0
        """Provider tokens that stand before the conversation, at least."""
        self._first_head = float("inf")
        """And at most: when there was least of the conversation, most of what was counted stood before it."""
        self._context = 0.0
        """Provider tokens of the last request that it told about."""
        self._context_ours = 0.0
        """And as we counted it."""
        self._idle: float | None = None
        """Seconds before the last request."""
        self._alive = 0.0
        """The longest idle time after which the provider still read the conversation from its cache."""
        self._return_price = 0.0
        """What a change with new settings costs if the client returns to the settings before them."""
        self._cold_premium = 0.0
        """What the last request saved, at a scale of 1, only because its cache was taken for cold."""
        self._last: tuple[float, float] | None = None
        """The last request, as the provider counted it and as we did; None if it was changed since."""
        self._changed: _Change | None = None
        """The last request, if it was one with a change that cost something."""
        self._fit = TextScale()

    @property
    def scale(self) -> float:
        return self._fit.scale

    @property
    def saved(self) -> float:
        """What is left of it."""
        return self.scale * self._earned + self._tier_saved - self.spent

    def keep(self, moment: Moment) -> None:
        """What is sent now is kept so, and what lifetimes have cost is not there to be spent."""
        self._last_economy, self.economy = self.economy, self.economy.kept(moment.long)
        self.paid = max(0.0, moment.paid)
        self._idle = moment.idle
        if moment.new_settings:  # perhaps those of before, whose cache holds the conversation as it was
            self.spent += self._return_price
            self._return_price = 0.0

    def forgets(self, idle: float | None) -> bool:
        """Whether what was sent before is forgotten: it was kept for as long as was asked for then.

        A provider that once read the conversation after a longer pause keeps it longer than it documents.
        """
        return idle is not None and idle > self._alive and self._last_economy.forgets(idle)

    def reported(self, theirs: int | None, ours: float, cached: int | None = None) -> None:
        """The provider counted the last request, and what it read of it from its cache; we had counted it too."""
        changed, self._changed = self._changed, None
        if cached is not None and self.forgets(self._idle):
            self._note_alive(cached, changed)
        if changed is not None and not changed.cold and changed.hit < TELLING_DIFFERENCE * changed.miss:
            if theirs is not None and cached is not None and cached > 0:
                written = max(changed.hit, theirs - cached - changed.new)
                self._learn(changed, written, cached - self._first_head)
            elif self.hits:  # it told before, and finds nothing now, or says nothing any more
                self._learn(changed, changed.miss, 0.0)
        if theirs is None or theirs <= 0 or ours <= 0:
            return
        if self._last is not None:
            self._fit.grew(ours - self._last[1], theirs - self._last[0])
        self._last = (theirs, ours)
        if not self._context:
            self._first_head = max(0.0, theirs - ours)
        self._head = min(self._first_head, max(self._head, theirs - MAX_TOKENS_PER_TOKEN * ours))
        self.kappa = max(1.0, self.scale, (theirs - self._head) / ours)
        self._context_ours = ours
        self._bill(theirs, None if changed or cached is None else max(0, cached))

    def _learn(self, changed: _Change, written: float, found: float) -> None:
        """What a change really cost, and what the provider found of the conversation."""
        self.spent += changed.factor * (self.economy.write - self.economy.read) * (written - changed.rest)
        self.hits = found >= (changed.miss - changed.hit) / 2

    def _note_alive(self, cached: int, changed: _Change | None) -> None:
        """Remember a pause that the cache survived. A change that was taken for free during it is paid for."""
        after_change = changed is not None and changed.cold and cached > self._first_head + MIN_ALIVE_TOKENS
        found = cached - self._first_head
        if not after_change and found < ALIVE_SHARE * max(0.0, self._context - self._first_head):
            return
        self._alive = self._idle or 0.0
        self._earned -= self._cold_premium
        if changed is not None and changed.cold:
            self.spent += changed.factor * (self.economy.write - self.economy.read) * changed.hit

    def _bill(self, theirs: float, cached: int | None) -> None:
        """What it costs at least: with nothing done it would be as large, or larger, and what is new has no cache."""
        economy = self.economy
        new = max(0.0, theirs - self._context) if self._context else 0.0  # others may have sent how it begins
        read = min(theirs, theirs - new if cached is None else cached)
        factor = economy.tier_factor(theirs)
        self.bill += factor * (economy.read * read + economy.write * (theirs - read))
        self._context = theirs

    def reason(self, standing: float, offer: Offer, moment: Moment, new: float = 0.0) -> Reason | None:
        """Whether to change now, and why.

        `standing`: our count of the conversation already sent. `new`: our count of what this request adds.
        """
        economy = self.economy
        if offer.freed <= 0:
            return None
        if self.forgets(moment.idle):
            return "cold cache"
        size = self._head + self.kappa * (standing + new)
        before = economy.tier_factor(size)
        after = self._factor_after(standing + new - offer.freed)
        price = after * (economy.write - economy.read) * self._rest(standing, offer)
        least = self._least_size(standing + new - offer.freed)
        earned, tier_saved = self._saving(least, self._removed + offer.freed, 0.0, economy.read)
        saved = self.scale * (self._earned + earned) + self._tier_saved + tier_saved
        rent = economy.read * self.scale * (offer.waited + SURE_REQUESTS * before * offer.freed)
        rent += SURE_REQUESTS * (before - after) * economy.read * least
        room = self.phi * saved + self.credit * self.bill - self.spent - self.paid
        worst = after * (economy.write - economy.read) * self._without(standing, offer.freed)
        if worst <= room + (1 - self.phi) * saved:
            if moment.new_settings:
                return "new settings"
            if rent >= price and price <= room:
                return "price tier" if after < before else "it pays"
        if price <= self.saved - self.paid and economy.window is not None and size >= NEAR_LIMIT_SHARE * economy.window:
            return "window"
        return None

    def pay(self, standing: float, offer: Offer, reason: Reason, new: float = 0.0) -> tuple[float, float]:
        """Tokens rewritten, and the requests after which it has paid for itself. `new`: what was not sent before."""
        economy = self.economy
        self._last = None
        factor = self._factor_after(standing + new - offer.freed)
        cold = reason in ("cold cache", "new settings")
        rest = 0.0 if cold else self._rest(standing, offer)
        hit, miss = self._without(offer.behind, offer.freed), self._without(standing, offer.freed)
        self._changed = _Change(rest, hit, miss, self.scale * new * LEAST_NEW_SHARE, factor, cold)
        if reason == "new settings":
            self._return_price += factor * (economy.write - economy.read) * miss
        if cold:
            return 0.0, 0.0
        price = factor * (economy.write - economy.read) * rest
        self.spent += price
        return rest, price / (economy.read * self.scale * offer.freed) if economy.read else float("inf")

    def settle(self, before: float, new: float, cold: bool, standing: float = 0.0) -> None:
        """One more request was sent: tokens removed of what had been sent before, and of what is new.

        `standing`: our count of all that it sends.
        """
        economy = self.economy
        size = self._least_size(standing)
        earned, tier_saved = self._saving(size, before, new, economy.write if cold else economy.read)
        self._cold_premium = earned - self._saving(size, before, new, economy.read)[0]
        self._earned += earned
        self._tier_saved += tier_saved
        self._removed = before + new

    def _saving(self, size: float, before: float, new: float, again: float) -> tuple[float, float]:
        """Return what a request saves, at a scale of 1, and what it saves in addition by staying below a price tier.

        `size`: its provider tokens, at least. `before`, `new`: tokens of ours that it does without. `again`: the price
        of a token that was sent before.
        """
        economy = self.economy
        if not economy.tiers:
            return again * before + economy.write * new, 0.0
        sent, unedited = (economy.tier_factor(each) for each in (size, size + self.scale * (before + new)))
        return unedited * (again * before + economy.write * new), (unedited - sent) * economy.read * size

    def _least_size(self, standing: float) -> float:
        """Provider tokens of a request, at least, from our count of its conversation."""
        if not self._context:
            return standing
        grown = standing - self._context_ours
        return max(0.0, self._context + (LEAST_NEW_SHARE if grown > 0 else self.scale) * grown)

    def _factor_after(self, standing: float) -> float:
        """Return the tier factor of a request after a change, from our count of its conversation.

        A request that is only just below a tier is taken to be above it: what we cannot see grows too.
        """
        size = self._head + self.kappa * standing
        if self._context:
            grown = standing - self._context_ours
            size = self._context + (MAX_TOKENS_PER_TOKEN if grown > 0 else 1.0) * grown
        return self.economy.tier_factor(size / BELOW_TIER_SHARE)

    def _rest(self, standing: float, offer: Offer) -> float:
        """Provider tokens of the conversation already sent that will be written again."""
        return self._without(offer.behind if self.hits else standing, offer.freed)

    def _without(self, standing: float, freed: float) -> float:
        return max(0.0, self.kappa * standing - self.scale * freed)
