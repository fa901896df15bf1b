"""Detect whether a profile sends the same requests in both cache scenarios, so that one simulation is enough.

A `SavingsBalance` decides on evictions from the provider's usage reports. `PairedBalance` has a second one, which gets
the reports of the other scenario. As long as both decide the same, the requests of both scenarios are equal.
"""

from __future__ import annotations

from ..billing.budget import Bank, Economy, Moment, Offer, Reason


class WorldsMoment(Moment):
    """A request context of one scenario, with the cache read of the other one."""

    cached_elsewhere: int | None = None
    """Tokens of the previous request that the provider read from its cache in the other scenario."""

    @classmethod
    def of(cls, moment: Moment, cached_elsewhere: int | None) -> WorldsMoment:
        found = cls(*moment)
        found.cached_elsewhere = cached_elsewhere
        return found


def there(moment: Moment) -> Moment:
    """Make the request context of the other scenario."""
    return Moment(*moment)._replace(cached=moment.cached_elsewhere) if isinstance(moment, WorldsMoment) else moment


class TwoBanks(Bank):
    """A savings balance that also decides for the other scenario, and compares both decisions."""

    def __init__(self, economy: Economy, phi: float, credit: float = 0.0) -> None:
        super().__init__(economy, phi, credit)
        self.agree = True
        """Both scenarios have had the same decisions so far."""
        self._other = Bank(economy, phi, credit)
        self._reported: tuple[int | None, float, int | None] = (None, 0.0, None)
        self._reason: Reason | None = None
        """Reason in the other scenario."""

    def reported(self, theirs: int | None, ours: float, cached: int | None = None) -> None:
        super().reported(theirs, ours, cached)
        self._reported = (theirs, ours, cached)

    def keep(self, moment: Moment) -> None:
        """Apply the TTL. The caller has just reported usage; `moment` has the cache read of the other scenario."""
        super().keep(moment)
        theirs, ours, cached = self._reported
        elsewhere = moment.cached_elsewhere if isinstance(moment, WorldsMoment) else cached
        self._other.reported(theirs, ours, elsewhere)
        self._other.keep(moment)

    def reason(self, standing: float, offer: Offer, moment: Moment, new: float = 0.0) -> Reason | None:
        here = super().reason(standing, offer, moment, new)
        self._reason = self._other.reason(standing, offer, moment, new)
        self.agree = self.agree and (here is None) == (self._reason is None)
        return here

    def pay(self, standing: float, offer: Offer, reason: Reason, new: float = 0.0) -> tuple[float, float]:
        self._other.pay(standing, offer, self._reason or reason, new)
        return super().pay(standing, offer, reason, new)

    def settle(self, before: float, new: float, cold: bool, standing: float = 0.0) -> None:
        super().settle(before, new, cold, standing)
        self._other.settle(before, new, cold, standing)
