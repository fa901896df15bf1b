"""Decide when a revision of text already sent pays for itself.

After a revision, the provider must write everything after it to its cache again. So edits of sent text are collected
until a revision is free, because the cache is cold, or pays for itself:

    rent   = R x evictable tokens, for every request that read them since they became evictable, and SURE_REQUESTS more
    rest   = tokens that the provider must write again: the conversation already sent, without the evicted text
    price  = (W - R) rest
    saved  = over all requests: R (removed tokens that would have been read) + W (removed tokens that would be written)
    bill   = minimum cost of the requests so far, from the provider's counts
    paid   = cost of TTLs other than the client's (`cache_ttl`): both decisions share one savings balance
    revise when cold; or when rent >= price and spent + paid + price <= phi (saved + R (removed + freed)) + credit bill,
    and then spent += price

The rent makes revisions few and large: a small one waits until its text has cost about as much as the revision would,
and by then more edits are ready. The second condition is the guarantee. R (removed + freed) is the saving of the
revised request itself, so after every request spent <= phi saved + credit bill. If `saved` is overstated by at most 1 /
phi and prices are not understated, the cost exceeds the baseline by at most the share `credit` of the baseline, at any
time. Without credit, the cost never exceeds the baseline.

At first, `rest` assumes that the provider misses the whole conversation after a revision. The provider's count of cache
reads for the revised request corrects `spent`. If it still had the prefix before the revision in its cache, later
revisions assume that. A provider without such counts is assumed to miss, and gives no credit.

Prices are multiples of fresh input: R for a token read from the cache, W for one written. Sizes are in provider tokens,
fitted to earlier counts. For evicted text, `scale` is a low estimate of provider tokens per token of ours
(`calibration.TextScale`). For remaining text, `kappa` is a high estimate, at least `scale`: it also covers content that
we cannot see, such as encrypted reasoning. The request parameters before the conversation are not written again. Their
size is the part of a count that cannot be conversation, at `MAX_TOKENS_PER_TOKEN` provider tokens per token of ours,
and at most the rest of the first count. Without counts, our own count is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from .calibration import TextScale

Reason = Literal["cold cache", "it pays", "price tier", "window"]

SURE_REQUESTS = 10
"""Number of further requests that every conversation is assumed to have."""

LEAST_NEW_SHARE = 0.5
"""Lower bound of provider tokens per token of ours, for new text of a request."""

TELLING_DIFFERENCE = 0.8
"""A count of cache reads distinguishes a hit from a miss only if a hit rewrites less than this share of a miss."""

NEAR_LIMIT_SHARE = 0.9
"""A request is near a size limit from this share of the limit on."""

MAX_TOKENS_PER_TOKEN = 2.0
"""Upper bound of provider tokens per token of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Economy:
    """Cache pricing of a model: prices of cache reads and writes, and the cache TTL."""

    read: float = 0.1
    write: float = 1.25
    """Prices of a token read from the cache, and of one written to it, as multiples of a fresh token."""
    lifetime: float = 300.0
    """TTL: seconds for which the cache has a prefix after its last use."""
    forgotten: float | None = None
    """Seconds after which the cache has certainly expired; None if that is `lifetime`."""
    preserved_thinking: bool = False
    """Thinking is signed together with everything before it, so a revision invalidates every later thinking block."""
    keeps_thinking: bool = True
    """Thinking of earlier turns counts as input while it is sent. If it does not, removing it saves no tokens."""
    tiers: tuple[int, ...] = ()
    """Request sizes in provider tokens from which the whole request costs more."""
    window: int | None = None
    """Context window in provider tokens."""
    brief: tuple[float, float] | None = None
    hour: tuple[float, float] | None = None
    """Write price and TTL in seconds of a request for five minutes (`brief`), and of one for an hour."""

    def kept(self, long: bool | None) -> Economy:
        """Apply the requested TTL: an hour, five minutes, or no change (None)."""
        found = None if long is None else self.hour if long else self.brief
        return self if found is None else replace(self, write=found[0], lifetime=found[1])

    def forgets(self, idle: float | None) -> bool:
        """Whether the cache has expired after this idle time, so that a revision is free. None counts as zero."""
        return idle is not None and idle > max(self.lifetime, self.forgotten or 0.0)


class Moment(NamedTuple):
    """Facts about one request that its messages do not contain."""

    idle: float | None = None
    """Seconds since the last response; None if unknown, which counts as zero."""
    context: int | None = None
    """Input tokens of the previous request, as its provider counted them."""
    refused: bool = False
    """The store could not save the originals, so no text was evicted."""
    cached: int | None = None
    """Tokens of the previous request that the provider read from its cache."""
    long: bool | None = None
    """Requested TTL: an hour (True) or five minutes (False); None if it is as at the start."""
    paid: float = 0.0
    """Cost of TTLs other than the client's so far, in prices of fresh tokens; negative if they saved."""


class Offer(NamedTuple):
    """Sizes for a possible revision, in tokens of our count."""

    freed: float
    """Tokens that the revision would evict."""
    waited: float
    """Evictable tokens of earlier requests, once for every request that sent them since."""
    behind: float
    """Tokens from the first evicted text on, including it."""


class Point(NamedTuple):
    """A revision of sent text, and its price."""

    length: int
    """Number of messages of the first request with the revision."""
    first: int
    """Index of the first message that changed."""
    reason: Reason
    rewritten: float
    """Upper bound of the tokens that the provider must write again."""
    removed: float
    """Evicted tokens."""
    break_even: float
    """Further requests after which the revision has paid for itself; 0 if it was free."""


class _Change(NamedTuple):
    """A revision that the provider has not counted yet, in provider tokens."""

    rest: float
    """Planned tokens to write again."""
    hit: float
    miss: float
    """Tokens to write again if the cache still has the prefix before the revision, and if it is empty."""
    new: float
    """Lower bound of the new tokens in that request."""


class Bank:
    """Savings of a conversation so far, of which revisions may spend a part. Updated with each request."""

    def __init__(self, economy: Economy, phi: float, credit: float = 0.0) -> None:
        self.economy = self._last_economy = economy
        """Cache pricing with the current TTL, and with the previous one, which decides whether the cache has
        expired."""
        self.paid = 0.0
        """Cost of TTLs other than the client's. Their savings are not counted: the next idle time may reverse them."""
        self.phi = phi
        self.credit = credit
        self.spent = 0.0
        """Cost of revisions, in prices of fresh tokens like all costs here."""
        self.bill = 0.0
        self.hits = False
        """The provider has been seen to read the prefix before a revision from its cache."""
        self.kappa = 1.0
        self._earned = 0.0
        """Savings of removed tokens, at a scale of 1."""
        self._removed = 0.0
        """Tokens of our count that were removed from the last request."""
        self._head = 0.0
        """Lower bound of the provider tokens before the conversation."""
        self._first_head = float("inf")
        """Upper bound, from the first count: the conversation was shortest then."""
        self._context = 0.0
        """Provider tokens of the last counted request."""
        self._last: tuple[float, float] | None = None
        """The provider's count of the last request, and ours; None if a revision changed the conversation since."""
        self._changed: _Change | None = None
        """The revision in the last request, unless it was free."""
        self._fit = TextScale()

    @property
    def scale(self) -> float:
        return self._fit.scale

    @property
    def saved(self) -> float:
        """Savings so far, less the cost of revisions."""
        return self.scale * self._earned - self.spent

    def keep(self, moment: Moment) -> None:
        """Apply the TTL of a request, and reserve the cost of TTLs."""
        self._last_economy, self.economy = self.economy, self.economy.kept(moment.long)
        self.paid = max(0.0, moment.paid)

    def forgets(self, idle: float | None) -> bool:
        """Whether the cache has expired, by the TTL of the previous request."""
        return self._last_economy.forgets(idle)

    def reported(self, theirs: int | None, ours: float, cached: int | None = None) -> None:
        """Add the provider's count of the last request, our own count, and the provider's count of cache reads."""
        changed, self._changed = self._changed, None
        if changed is not None and changed.hit < TELLING_DIFFERENCE * changed.miss:
            if theirs is not None and cached is not None and cached > 0:
                written = max(changed.hit, theirs - cached - changed.new)
                self._learn(changed, written, cached - self._first_head)
            elif self.hits:  # earlier revisions were hits; this one was a miss, or has no count
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
        self._bill(theirs, None if changed or cached is None else max(0, cached))

    def _learn(self, changed: _Change, written: float, found: float) -> None:
        """Correct the cost of a revision with the provider's count, and learn whether revisions are hits."""
        self.spent += (self.economy.write - self.economy.read) * (written - changed.rest)
        self.hits = found >= (changed.miss - changed.hit) / 2

    def _bill(self, theirs: float, cached: int | None) -> None:
        """Add a lower bound of the request's cost without Ibidem: that request is at least as large, and its new part
        was not cached."""
        economy = self.economy
        new = max(0.0, theirs - self._context) if self._context else 0.0  # others may have cached the first prefix
        read = min(theirs, theirs - new if cached is None else cached)
        self.bill += economy.read * read + economy.write * (theirs - read)
        self._context = theirs

    def reason(self, standing: float, offer: Offer, moment: Moment) -> Reason | None:
        """Decide whether to revise now. Returns the reason, or None. `standing`: our count of the text sent so far."""
        economy = self.economy
        if offer.freed <= 0:
            return None
        if self.forgets(moment.idle):
            return "cold cache"
        price = (economy.write - economy.read) * self._rest(standing, offer)
        saved = self.scale * (self._earned + economy.read * (self._removed + offer.freed))
        rent = economy.read * self.scale * (offer.waited + SURE_REQUESTS * offer.freed)
        if rent >= price and self.spent + self.paid + price <= self.phi * saved + self.credit * self.bill:
            return "it pays"
        size = self._head + self.kappa * standing
        if price <= self.saved - self.paid:
            if economy.window is not None and size >= NEAR_LIMIT_SHARE * economy.window:
                return "window"
            if any(NEAR_LIMIT_SHARE * tier <= size <= tier for tier in economy.tiers):
                return "price tier"
        return None

    def pay(self, standing: float, offer: Offer, reason: Reason, new: float = 0.0) -> tuple[float, float]:
        """Record a revision. Returns tokens to write again, and requests until break-even. `new`: tokens not sent
        yet."""
        economy = self.economy
        self._last = None
        if reason == "cold cache":
            return 0.0, 0.0
        rest = self._rest(standing, offer)
        hit = self._without(offer.behind, offer.freed)
        self._changed = _Change(rest, hit, self._without(standing, offer.freed), self.scale * new * LEAST_NEW_SHARE)
        price = (economy.write - economy.read) * rest
        self.spent += price
        return rest, price / (economy.read * self.scale * offer.freed) if economy.read else float("inf")

    def settle(self, before: float, new: float, cold: bool) -> None:
        """Record a sent request: tokens removed from text sent before, and from new text."""
        economy = self.economy
        self._earned += (economy.write if cold else economy.read) * before + economy.write * new
        self._removed = before + new

    def _rest(self, standing: float, offer: Offer) -> float:
        """Estimate the provider tokens of the sent conversation that a revision rewrites."""
        return self._without(offer.behind if self.hits else standing, offer.freed)

    def _without(self, standing: float, freed: float) -> float:
        return max(0.0, self.kappa * standing - self.scale * freed)
