"""When looking back pays.

Changing what was already sent makes the provider write everything after the change to its cache again. So edits wait,
all of them, for a moment when that is free (the cache is cold anyway) or certain to be paid for. The rule is built to
hold when estimates are wrong: it plans for a provider that misses the whole conversation after a change, and it spends
only a part of what edits have saved so far.

    theta  = 1.5 (W - R) / (R H)     H: further warm requests that can be expected
    rest   = what the provider will have to write again: the conversation already sent, without what goes
    price  = (W - R) rest
    saved  = over all requests: R (removed tokens that would have been read) + W (those that would have been written)
    change when cold; or when freed >= theta rest and spent + price <= phi (saved + R (removed + freed)), and then
    spent += price

The last term is what the very request with the change does without. So after every request, spent <= phi saved: if
`saved` is not overstated by more than 1 / phi and prices are not understated, the bill is never above that of doing
nothing, at the end or at any moment before.

Prices are multiples of fresh input: R for a token read from the cache, W for one written. Sizes are in provider tokens,
fitted to what it reported of earlier requests: `scale` is how much they grew for each token that we counted, for what
goes; `kappa` is how large they are for each token of the conversation, for what stays, and never less: it also has to
stand for what we cannot see, such as sealed reasoning. What stands before the conversation is not written again;
as much of a report is taken for it as cannot be conversation, at `MAX_TOKENS_PER_TOKEN` tokens for one of ours. Without
reports, all is counted as we count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from .calibration import SPENDING, ScaleFit

Reason = Literal["cold cache", "it pays", "price tier", "window"]

BREAK_EVEN_MARGIN = 1.5
"""How much more than break-even a change has to promise."""

NEAR_LIMIT_SHARE = 0.9
"""A limit is near from this share of it on."""

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
    tiers: tuple[int, ...] = ()
    """Sizes of requests, in provider tokens, from which all of it costs more."""
    window: int | None = None
    """Provider tokens that fit."""

    def forgets(self, idle: float | None) -> bool:
        """Whether a change is free after so many seconds. Not knowing counts as no pause."""
        return idle is not None and idle > max(self.lifetime, self.forgotten or 0.0)

    @property
    def horizon(self) -> float:
        """Further warm requests to expect, as measured on recorded sessions: the longer it remembers, the more."""
        return 22.0 if self.lifetime <= 300 else 30.0 if self.lifetime <= 600 else 42.0

    @property
    def theta(self) -> float:
        """The share of a conversation that a change must free."""
        if self.write <= self.read:
            return 0.0
        return BREAK_EVEN_MARGIN * (self.write - self.read) / (self.read * self.horizon) if self.read else float("inf")


class Moment(NamedTuple):
    """What is known about one request beside its history."""

    idle: float | None = None
    """Seconds since the last answer; None if unknown, which counts as none."""
    context: int | None = None
    """Input tokens of the request before, as its provider counted them."""
    refused: bool = False
    """The store could not keep what was to go, so it stayed."""


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


class Bank:
    """The fold over the requests of a conversation: what was saved so far, and what may be spent of it."""

    def __init__(self, economy: Economy, phi: float) -> None:
        self.economy = economy
        self.phi = phi
        self.spent = 0.0
        """In prices of fresh tokens, as all money here."""
        self.kappa = 1.0
        self._earned = 0.0
        """What was saved, at a scale of 1."""
        self._removed = 0.0
        """Tokens of ours that the last request did without."""
        self._head = 0.0
        """Provider tokens that stand before the conversation, at least."""
        self._last: tuple[float, float] | None = None
        """The last request, as the provider counted it and as we did; None if it was changed since."""
        self._fit = ScaleFit(SPENDING)

    @property
    def scale(self) -> float:
        return self._fit.scale

    @property
    def saved(self) -> float:
        """What is left of it."""
        return self.scale * self._earned - self.spent

    def reported(self, theirs: int | None, ours: float) -> None:
        """The provider counted the last request; we had counted it too."""
        if theirs is None or ours <= 0:
            return
        if self._last is not None:
            self._fit.grew(ours - self._last[1], theirs - self._last[0])
        self._last = (theirs, ours)
        self._head = max(self._head, theirs - MAX_TOKENS_PER_TOKEN * ours)
        self.kappa = max(1.0, self.scale, (theirs - self._head) / ours)

    def reason(self, standing: float, freed: float, moment: Moment) -> Reason | None:
        """Whether to change now, and why. `standing`: our count of what was sent before, as it stands now."""
        economy = self.economy
        if freed <= 0:
            return None
        if economy.forgets(moment.idle):
            return "cold cache"
        rest = self._rest(standing, freed)
        price = (economy.write - economy.read) * rest
        saved = self.scale * (self._earned + economy.read * (self._removed + freed))
        if self.scale * freed >= economy.theta * rest and self.spent + price <= self.phi * saved:
            return "it pays"
        size = self._head + self.kappa * standing
        if price <= self.saved:
            if economy.window is not None and size >= NEAR_LIMIT_SHARE * economy.window:
                return "window"
            if any(NEAR_LIMIT_SHARE * tier <= size <= tier for tier in economy.tiers):
                return "price tier"
        return None

    def pay(self, standing: float, freed: float, reason: Reason) -> tuple[float, float]:
        """Tokens rewritten, and the requests after which it has paid for itself."""
        economy = self.economy
        self._last = None
        if reason == "cold cache":
            return 0.0, 0.0
        rest = self._rest(standing, freed)
        price = (economy.write - economy.read) * rest
        self.spent += price
        return rest, price / (economy.read * self.scale * freed) if economy.read else float("inf")

    def settle(self, before: float, new: float, cold: bool) -> None:
        """One more request was sent: tokens removed of what had been sent before, and of what is new."""
        economy = self.economy
        self._earned += (economy.write if cold else economy.read) * before + economy.write * new
        self._removed = before + new

    def _rest(self, standing: float, freed: float) -> float:
        """Provider tokens of the conversation already sent, without what goes."""
        return max(0.0, self.kappa * standing - self.scale * freed)
