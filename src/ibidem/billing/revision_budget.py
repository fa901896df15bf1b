"""Decide when a revision of text already sent pays for itself.

After a revision, the provider must write everything after it to its cache again. So edits of sent text are collected
until a revision is free, because the cache is cold, or pays for itself:

    rent   = R x evictable tokens, for every request that read them since they became evictable, and SURE_REQUESTS more
    rest   = tokens that the provider must write again: the conversation already sent, without the evicted text
    price  = (W - R) rest; `worst` is the price if the provider misses the whole conversation
    saved  = over all requests: R (removed tokens that would have been read) + W (removed tokens that would be written)
    bill   = minimum cost of the requests so far, from the provider's counts
    paid   = cost of TTLs other than the client's (`cache_ttl`): both decisions share one savings balance
    gain   = saved + R (removed + freed)
    revise when cold; or when rent >= price, spent + paid + price <= phi gain + credit bill, and
    spent + paid + worst <= gain + credit bill; and then spent += price

The rent makes revisions few and large: a small one waits until its text has cost about as much as the revision would,
and by then more edits are ready. The other conditions are the guarantee. R (removed + freed) is the saving of the
revised request itself, so after every request spent <= phi saved + credit bill; after a miss that was planned as a hit,
spent <= saved + credit bill. If `saved` is overstated by at most 1 / phi (after such a miss: not at all) and prices are
not understated, the cost exceeds the baseline by at most the share `credit` of the baseline, at any time. Without
credit, the cost never exceeds the baseline.

At first, `rest` assumes that the provider misses the whole conversation after a revision. The provider's count of cache
reads for the revised request corrects `spent`. If it still had the prefix before the revision in its cache, later
revisions assume that. A provider without such counts is assumed to miss, and gives no credit.

The cache is cold if the TTL is documented and has passed, unless the cache once survived a longer idle time. With a new
model or effort it is empty too, but the client may return to the earlier settings: such a revision needs no rent, only
the third condition, and is charged at the next change of settings. Above a price tier, the whole request costs more, so
prices have its factor, and staying below counts as saved.

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

Reason = Literal["cold cache", "new settings", "it pays", "price tier", "window"]

SURE_REQUESTS = 10
"""Number of further requests that every conversation is assumed to have."""

LEAST_NEW_SHARE = 0.5
"""Lower bound of provider tokens per token of ours, for new text of a request."""

MAX_HIT_SHARE = 0.8
"""A count of cache reads distinguishes a hit from a miss only if a hit rewrites less than this share of a miss."""

NEAR_LIMIT_SHARE = 0.9
"""The context window is nearly full from this share on."""

BELOW_TIER_SHARE = 0.95
"""A request counts as below a price tier up to this share of the tier's size."""

ALIVE_SHARE = 0.5
"""A cache survived an idle time if the provider read at least this share of the conversation from it."""

MIN_ALIVE_TOKENS = 1024
"""After a revision, the cache survived if the provider read this number of tokens of the conversation."""

MAX_TOKENS_PER_TOKEN = 2.0
"""Upper bound of provider tokens per token of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePricing:
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
    tiers: tuple[tuple[int, float], ...] = ()
    """Price tiers: request size in provider tokens, and the factor by which the whole request costs more above it."""
    window: int | None = None
    """Context window in provider tokens."""
    brief: tuple[float, float] | None = None
    hour: tuple[float, float] | None = None
    """Write price and TTL in seconds of a request for five minutes (`brief`), and of one for an hour."""

    def kept(self, long: bool | None) -> CachePricing:
        """Apply the requested TTL: an hour, five minutes, or no change (None)."""
        terms = None if long is None else self.hour if long else self.brief
        return self if terms is None else replace(self, write=terms[0], lifetime=terms[1])

    def forgets(self, idle: float | None) -> bool:
        """Whether the cache has expired after this idle time, so that a revision is free. None counts as zero."""
        return idle is not None and idle > max(self.lifetime, self.forgotten or 0.0)

    def tier_factor(self, size: float) -> float:
        """Return the price factor of a request with this number of provider tokens; 1 below all tiers."""
        return next((factor for start, factor in reversed(self.tiers) if size > start), 1.0)


class RequestContext(NamedTuple):
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
    new_settings: bool = False
    """The model or its thinking settings changed, so the provider's cache has nothing of the conversation."""


class RevisionOffer(NamedTuple):
    """Sizes for a possible revision, in tokens of our count."""

    freed: float
    """Tokens that the revision would evict."""
    waited: float
    """Evictable tokens of earlier requests, once for every request that sent them since."""
    behind: float
    """Tokens from the first evicted text on, including it."""


class PricedRevision(NamedTuple):
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


class _PendingRevision(NamedTuple):
    """A revision that the provider has not counted yet, in provider tokens."""

    rest: float
    """Planned tokens to write again."""
    hit: float
    miss: float
    """Tokens to write again if the cache still has the prefix before the revision, and if it is empty."""
    new: float
    """Lower bound of the new tokens in that request."""
    factor: float = 1.0
    """Price factor of the request, by its price tier."""
    cold: bool = False
    """The revision was made because the cache was expected to be empty. If it was, the revision was free."""


class SavingsBalance:
    """Savings of a conversation so far, of which revisions may spend a part. Updated with each request."""

    def __init__(self, economy: CachePricing, phi: float, credit: float = 0.0) -> None:
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
        self._tier_saved = 0.0
        """Lower bound of the additional savings of requests that stayed below a price tier."""
        self._removed = 0.0
        """Tokens of our count that were removed from the last request."""
        self._head = 0.0
        """Lower bound of the provider tokens before the conversation."""
        self._first_head = float("inf")
        """Upper bound, from the first count: the conversation was shortest then."""
        self._context = 0.0
        """Provider tokens of the last counted request."""
        self._context_ours = 0.0
        """Our count of the same request."""
        self._idle: float | None = None
        """Idle time before the last request, in seconds."""
        self._alive = 0.0
        """Longest idle time after which the provider still read the conversation from its cache."""
        self._return_price = 0.0
        """Cost of revisions at new settings if the client returns to the settings before them."""
        self._cold_premium = 0.0
        """Savings of the last request, at a scale of 1, that assume that its cache had expired."""
        self._last: tuple[float, float] | None = None
        """The provider's count of the last request, and ours; None if a revision changed the conversation since."""
        self._changed: _PendingRevision | None = None
        """The revision in the last request, unless it was free."""
        self._fit = TextScale()

    @property
    def scale(self) -> float:
        return self._fit.scale

    @property
    def net_savings(self) -> float:
        """Savings so far, less the cost of revisions."""
        return self.scale * self._earned + self._tier_saved - self.spent

    def set_ttl(self, moment: RequestContext) -> None:
        """Apply the TTL of a request, and reserve the cost of TTLs."""
        self._last_economy, self.economy = self.economy, self.economy.kept(moment.long)
        self.paid = max(0.0, moment.paid)
        self._idle = moment.idle
        if moment.new_settings:  # these may be the earlier settings, whose cache has the conversation unrevised
            self.spent += self._return_price
            self._return_price = 0.0

    def is_expired(self, idle: float | None) -> bool:
        """Whether the cache has expired, by the TTL of the previous request.

        If the provider once read the conversation after a longer idle time, its cache lives longer than documented.
        """
        return idle is not None and idle > self._alive and self._last_economy.forgets(idle)

    def add_usage(self, theirs: int | None, ours: float, cached: int | None = None) -> None:
        """Add the provider's count of the last request, our own count, and the provider's count of cache reads."""
        revision, self._changed = self._changed, None
        if cached is not None and self.is_expired(self._idle):
            self._note_alive(cached, revision)
        if revision is not None and not revision.cold and revision.hit < MAX_HIT_SHARE * revision.miss:
            if theirs is not None and cached is not None and cached > 0:
                written_tokens = max(revision.hit, theirs - cached - revision.new)
                self._settle_revision(revision, written_tokens, cached - self._first_head)
            elif self.hits:  # earlier revisions were hits; this one was a miss, or has no count
                self._settle_revision(revision, revision.miss, 0.0)
        if theirs is None or theirs <= 0 or ours <= 0:
            return
        if self._last is not None:
            self._fit.add_growth(ours - self._last[1], theirs - self._last[0])
        self._last = (theirs, ours)
        if not self._context:
            self._first_head = max(0.0, theirs - ours)
        self._head = min(self._first_head, max(self._head, theirs - MAX_TOKENS_PER_TOKEN * ours))
        self.kappa = max(1.0, self.scale, (theirs - self._head) / ours)
        self._context_ours = ours
        self._add_bill(theirs, None if revision or cached is None else max(0, cached))

    def _settle_revision(self, revision: _PendingRevision, written_tokens: float, cached_tokens: float) -> None:
        """Correct the cost of a revision with the provider's count, and learn whether revisions are hits."""
        self.spent += revision.factor * (self.economy.write - self.economy.read) * (written_tokens - revision.rest)
        self.hits = cached_tokens >= (revision.miss - revision.hit) / 2

    def _note_alive(self, cached: int, changed: _PendingRevision | None) -> None:
        """Record an idle time that the cache survived, and charge a revision that was taken for free after it."""
        after_change = changed is not None and changed.cold and cached > self._first_head + MIN_ALIVE_TOKENS
        found = cached - self._first_head
        if not after_change and found < ALIVE_SHARE * max(0.0, self._context - self._first_head):
            return
        self._alive = self._idle or 0.0
        self._earned -= self._cold_premium
        if changed is not None and changed.cold:
            self.spent += changed.factor * (self.economy.write - self.economy.read) * changed.hit

    def _add_bill(self, theirs: float, cached: int | None) -> None:
        """Add a lower bound of the request's cost without Ibidem: that request is at least as large, and its new part
        was not cached."""
        economy = self.economy
        new = max(0.0, theirs - self._context) if self._context else 0.0  # others may have cached the first prefix
        read = min(theirs, theirs - new if cached is None else cached)
        factor = economy.tier_factor(theirs)
        self.bill += factor * (economy.read * read + economy.write * (theirs - read))
        self._context = theirs

    def decide_revision(
        self, standing: float, offer: RevisionOffer, moment: RequestContext, new: float = 0.0
    ) -> Reason | None:
        """Decide whether to revise now. Returns the reason, or None.

        `standing`: our count of the conversation already sent. `new`: our count of the text that this request adds.
        """
        economy = self.economy
        if offer.freed <= 0:
            return None
        if self.is_expired(moment.idle):
            return "cold cache"
        size = self._head + self.kappa * (standing + new)
        before = economy.tier_factor(size)
        after = self._factor_after(standing + new - offer.freed)
        price = after * (economy.write - economy.read) * self._rewritten_tokens(standing, offer)
        least = self._least_size(standing + new - offer.freed)
        earned, tier_saved = self._saving(least, self._removed + offer.freed, 0.0, economy.read)
        savings = self.scale * (self._earned + earned) + self._tier_saved + tier_saved
        rent = economy.read * self.scale * (offer.waited + SURE_REQUESTS * before * offer.freed)
        rent += SURE_REQUESTS * (before - after) * economy.read * least
        room = self.phi * savings + self.credit * self.bill - self.spent - self.paid
        worst = after * (economy.write - economy.read) * self._remaining_tokens(standing, offer.freed)
        if worst <= room + (1 - self.phi) * savings:
            if moment.new_settings:
                return "new settings"
            if rent >= price and price <= room:
                return "price tier" if after < before else "it pays"
        if (
            price <= self.net_savings - self.paid
            and economy.window is not None
            and size >= NEAR_LIMIT_SHARE * economy.window
        ):
            return "window"
        return None

    def record_revision(
        self, standing: float, offer: RevisionOffer, reason: Reason, new: float = 0.0
    ) -> tuple[float, float]:
        """Record a revision. Returns tokens to write again, and requests until break-even. `new`: tokens not sent
        yet."""
        economy = self.economy
        self._last = None
        factor = self._factor_after(standing + new - offer.freed)
        cold = reason in ("cold cache", "new settings")
        rest_tokens = 0.0 if cold else self._rewritten_tokens(standing, offer)
        hit, miss = self._remaining_tokens(offer.behind, offer.freed), self._remaining_tokens(standing, offer.freed)
        self._changed = _PendingRevision(rest_tokens, hit, miss, self.scale * new * LEAST_NEW_SHARE, factor, cold)
        if reason == "new settings":
            self._return_price += factor * (economy.write - economy.read) * miss
        if cold:
            return 0.0, 0.0
        price = factor * (economy.write - economy.read) * rest_tokens
        self.spent += price
        return rest_tokens, price / (economy.read * self.scale * offer.freed) if economy.read else float("inf")

    def record_request(self, before: float, new: float, cold: bool, standing: float = 0.0) -> None:
        """Record a sent request: tokens removed from text sent before, and from new text.

        `standing`: our count of the whole conversation as it is sent.
        """
        economy = self.economy
        size = self._least_size(standing)
        earned, tier_saved = self._saving(size, before, new, economy.write if cold else economy.read)
        self._cold_premium = earned - self._saving(size, before, new, economy.read)[0]
        self._earned += earned
        self._tier_saved += tier_saved
        self._removed = before + new

    def _saving(self, size: float, before: float, new: float, again: float) -> tuple[float, float]:
        """Return the savings of a request at a scale of 1, and its additional savings from a lower price tier.

        `size`: lower bound of its provider tokens. `before`, `new`: removed tokens of our count. `again`: price of a
        token that was sent before.
        """
        economy = self.economy
        if not economy.tiers:
            return again * before + economy.write * new, 0.0
        sent, unedited = (economy.tier_factor(each) for each in (size, size + self.scale * (before + new)))
        return unedited * (again * before + economy.write * new), (unedited - sent) * economy.read * size

    def _least_size(self, standing: float) -> float:
        """Return a lower bound of the provider tokens of a request, from our count of its conversation."""
        if not self._context:
            return standing
        grown = standing - self._context_ours
        return max(0.0, self._context + (LEAST_NEW_SHARE if grown > 0 else self.scale) * grown)

    def _factor_after(self, standing: float) -> float:
        """Return the price factor of a request after a revision, from our count of its conversation.

        A request just below a tier counts as above it, because sealed reasoning grows too and is not in our count.
        """
        size = self._head + self.kappa * standing
        if self._context:
            grown = standing - self._context_ours
            size = self._context + (MAX_TOKENS_PER_TOKEN if grown > 0 else 1.0) * grown
        return self.economy.tier_factor(size / BELOW_TIER_SHARE)

    def _rewritten_tokens(self, standing: float, offer: RevisionOffer) -> float:
        """Estimate the provider tokens of the sent conversation that a revision rewrites."""
        return self._remaining_tokens(offer.behind if self.hits else standing, offer.freed)

    def _remaining_tokens(self, standing: float, freed: float) -> float:
        return max(0.0, self.kappa * standing - self.scale * freed)
