"""Whether a profile does the same in two worlds that differ in what a provider finds in its cache after a change.

What goes and when is decided by a `Bank`, by what the provider tells. So a second one is kept beside it, which is told
what the provider would tell in the other world. As long as both decide alike, all that is sent is the same in both, and
nothing has to be simulated again.
"""

from __future__ import annotations

from ..billing.budget import Bank, Economy, Moment, Offer, Reason


class WorldsMoment(Moment):
    """A moment of one world that knows what would be told in the other."""

    cached_elsewhere: int | None = None
    """Of the context, what the provider read from its cache there."""

    @classmethod
    def of(cls, moment: Moment, cached_elsewhere: int | None) -> WorldsMoment:
        found = cls(*moment)
        found.cached_elsewhere = cached_elsewhere
        return found


def there(moment: Moment) -> Moment:
    """As it is in the other world."""
    return Moment(*moment)._replace(cached=moment.cached_elsewhere) if isinstance(moment, WorldsMoment) else moment


class TwoBanks(Bank):
    """Decides as a bank does, and says whether the one of the other world would have."""

    def __init__(self, economy: Economy, phi: float, credit: float = 0.0) -> None:
        super().__init__(economy, phi, credit)
        self.agree = True
        """So far both have decided alike."""
        self._other = Bank(economy, phi, credit)
        self._reported: tuple[int | None, float, int | None] = (None, 0.0, None)
        self._reason: Reason | None = None
        """Of the other one."""

    def reported(self, theirs: int | None, ours: float, cached: int | None = None) -> None:
        super().reported(theirs, ours, cached)
        self._reported = (theirs, ours, cached)

    def keep(self, moment: Moment) -> None:
        """Comes right after what was reported: the moment says what that was in the other world."""
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
