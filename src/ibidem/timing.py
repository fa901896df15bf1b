"""When looking back pays.

Changing what was already sent makes the provider write everything after the change to its cache again. So edits wait,
all of them, for a moment when that is free (the cache is cold anyway) or certain to be paid for. The rule is built to
hold when estimates are wrong: it plans for a provider that misses the whole conversation after a change, and it spends
only a part of what earlier edits have already saved (the bank). Then the bill is never above that of doing nothing, at
the end or at any moment before.

    theta = 1.5 (W - R) / (R H)      H: further warm requests that can be expected
    price = (W - R) S                S: tokens of the conversation already sent, after the change
    change when cold; or when freed >= theta S and price <= phi bank, and then bank -= price
    after each request: bank += R (removed tokens that would have been read) + W (those that would have been written)

Prices are multiples of fresh input: R for a token read from the cache, W for one written. Sizes are our own counts.
What has to be written again counts `kappa` times: the last size that the provider reported over our count of that
request, at least 1. What was saved counts once: better too little than too much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Reason = Literal["cold cache", "it pays", "price tier", "window"]

MARGIN = 1.5
"""How much more than break-even a change has to promise."""

NEAR = 0.9
"""A limit is near from this share of it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Economy:
    """What a provider charges for, and how long it remembers."""

    read: float = 0.1
    """Price of a token read from the cache, as a multiple of a fresh one."""
    write: float = 1.25
    lifetime: float = 300.0
    """Seconds that the cache keeps a prefix after its last use."""
    preserved_thinking: bool = False
    """Thinking is signed against all that was sent before it: a change invalidates every block after it."""
    tiers: tuple[int, ...] = ()
    """Sizes of requests, in provider tokens, from which all of it costs more."""
    window: int | None = None
    """Provider tokens that fit."""

    @property
    def horizon(self) -> float:
        """Further warm requests to expect, as measured on recorded sessions: the longer it remembers, the more."""
        return 22.0 if self.lifetime <= 300 else 30.0 if self.lifetime <= 600 else 42.0

    @property
    def theta(self) -> float:
        """The share of a conversation that a change must free."""
        if self.write <= self.read:
            return 0.0
        return MARGIN * (self.write - self.read) / (self.read * self.horizon) if self.read else float("inf")


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
        self.saved = 0.0
        """In prices of fresh tokens."""
        self.kappa = 1.0

    def reported(self, theirs: int | None, ours: float) -> None:
        """The provider counted the last request; we had counted it too."""
        if theirs is not None and ours > 0:
            self.kappa = max(1.0, theirs / ours)

    def reason(self, standing: float, freed: float, moment: Moment) -> Reason | None:
        """Whether to change now, and why. `standing`: our count of what was sent before, as it stands now."""
        economy = self.economy
        if freed <= 0:
            return None
        if moment.idle is not None and moment.idle > economy.lifetime:
            return "cold cache"
        rest = self.kappa * max(0.0, standing - freed)
        price = (economy.write - economy.read) * rest
        if freed >= economy.theta * rest and price <= self.phi * self.saved:
            return "it pays"
        size = self.kappa * standing
        if price <= self.saved:
            if economy.window is not None and size >= NEAR * economy.window:
                return "window"
            if any(NEAR * tier <= size <= tier for tier in economy.tiers):
                return "price tier"
        return None

    def pay(self, standing: float, freed: float, reason: Reason) -> tuple[float, float]:
        """Tokens rewritten, and the requests after which it has paid for itself."""
        economy = self.economy
        if reason == "cold cache":
            return 0.0, 0.0
        rest = self.kappa * max(0.0, standing - freed)
        price = (economy.write - economy.read) * rest
        self.saved -= price
        return rest, price / (economy.read * freed) if economy.read else float("inf")

    def settle(self, before: float, new: float, cold: bool) -> None:
        """One more request was sent: tokens removed of what had been sent before, and of what is new."""
        economy = self.economy
        self.saved += (economy.write if cold else economy.read) * before + economy.write * new
