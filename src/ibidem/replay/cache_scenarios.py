"""Detect whether a profile sends the same requests in both cache scenarios, so that one simulation is enough.

A `SavingsBalance` decides on evictions from the provider's usage reports. `PairedBalance` has a second one, which gets
the reports of the other scenario. As long as both decide the same, the requests of both scenarios are equal.
"""

from __future__ import annotations

from ..billing.revision_budget import CachePricing, Reason, RequestContext, RevisionOffer, SavingsBalance


class PairedContext(RequestContext):
    """A request context of one scenario, with the cache read of the other one."""

    cached_elsewhere: int | None = None
    """Tokens of the previous request that the provider read from its cache in the other scenario."""

    @classmethod
    def from_context(cls, moment: RequestContext, cached_elsewhere: int | None) -> PairedContext:
        context = cls(*moment)
        context.cached_elsewhere = cached_elsewhere
        return context


def other_scenario(moment: RequestContext) -> RequestContext:
    """Make the request context of the other scenario."""
    return (
        RequestContext(*moment)._replace(cached=moment.cached_elsewhere)
        if isinstance(moment, PairedContext)
        else moment
    )


class PairedBalance(SavingsBalance):
    """A savings balance that also decides for the other scenario, and compares both decisions."""

    def __init__(self, economy: CachePricing, phi: float, credit: float = 0.0) -> None:
        super().__init__(economy, phi, credit)
        self.agree = True
        """Both scenarios have had the same decisions so far."""
        self._other = SavingsBalance(economy, phi, credit)
        self._reported: tuple[int | None, float, int | None] = (None, 0.0, None)
        self._reason: Reason | None = None
        """Reason in the other scenario."""

    def add_usage(self, theirs: int | None, ours: float, cached: int | None = None) -> None:
        super().add_usage(theirs, ours, cached)
        self._reported = (theirs, ours, cached)

    def set_ttl(self, moment: RequestContext) -> None:
        """Apply the TTL. The caller has just reported usage; `moment` has the cache read of the other scenario."""
        super().set_ttl(moment)
        theirs, ours, cached = self._reported
        elsewhere = moment.cached_elsewhere if isinstance(moment, PairedContext) else cached
        self._other.add_usage(theirs, ours, elsewhere)
        self._other.set_ttl(moment)

    def decide_revision(
        self, standing: float, offer: RevisionOffer, moment: RequestContext, new: float = 0.0
    ) -> Reason | None:
        here = super().decide_revision(standing, offer, moment, new)
        self._reason = self._other.decide_revision(standing, offer, moment, new)
        self.agree = self.agree and (here is None) == (self._reason is None)
        return here

    def record_revision(
        self, standing: float, offer: RevisionOffer, reason: Reason, new: float = 0.0
    ) -> tuple[float, float]:
        self._other.record_revision(standing, offer, self._reason or reason, new)
        return super().record_revision(standing, offer, reason, new)

    def record_request(self, before: float, new: float, cold: bool, standing: float = 0.0) -> None:
        super().record_request(before, new, cold, standing)
        self._other.record_request(before, new, cold, standing)
