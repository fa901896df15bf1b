"""Requests of a trial and the rows for their responses: for the next action, or for a probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..recordings.bodies import as_line
from .actions import sample_of
from .bodies import Arm, ThinkingRung
from .ledger import AnsweredRow
from .order import ALTERED, CallKey, SessionPlan
from .planning import LoadedSession
from .probes import Probe, asked_behind, graded
from .providers import ModelReply


class Askable(Protocol):
    """Request of a trial in one variant, for a point or a probe."""

    @property
    def id(self) -> str:
        """Id of the point."""
        ...

    @property
    def name(self) -> str:
        """Key under which `TokenCeiling` stores the request's size."""
        ...

    @property
    def loaded(self) -> LoadedSession:
        """Session of the point."""
        ...

    @property
    def tokens(self) -> int:
        """Estimated tokens of the request."""
        ...

    @property
    def before(self) -> str:
        """Key of an earlier request that is a prefix of this one, or an empty string."""
        ...

    def body(self, rung: ThinkingRung) -> bytes:
        """Return the request body."""
        ...

    def heard(self, key: CallKey, rung: ThinkingRung, reply: ModelReply, paid: float) -> AnsweredRow:
        """Return the run log's row for a response."""
        ...


@dataclass(frozen=True, slots=True)
class PointCalls:
    """Request for the next action at a point, in one variant."""

    place: int
    plan: SessionPlan
    loaded: LoadedSession
    arm: Arm

    @property
    def id(self) -> str:
        return self.plan.points[self.place].id

    @property
    def name(self) -> str:
        return self.id

    @property
    def tokens(self) -> int:
        return self.plan.sizes[self.place].of(self.arm)

    @property
    def before(self) -> str:
        return self.plan.points[self.place - 1].id if self.plan.sizes[self.place].goes_on else ""

    @property
    def marked(self) -> int:
        """Length of the history of the point before, which is in the provider's cache."""
        return self.plan.points[self.place - 1].length if self.before else 0

    def asking(self, key: CallKey) -> Askable:
        """Return the request of this point with that key: this one, or a probe."""
        return ProbeCall(self, key) if key.probe else self

    def body(self, rung: ThinkingRung) -> bytes:
        found = self.loaded.points[self.id]
        history = found.original if self.arm is Arm.ORIGINAL else found.rewritten
        return as_line(self.loaded.asker.body(history, rung, self.marked))

    def heard(self, key: CallKey, rung: ThinkingRung, reply: ModelReply, paid: float) -> AnsweredRow:
        sample, usage = None, reply.usage
        if reply.stop == "ok":
            output, recorded = usage.output if usage else 0, self.loaded.recorded(self.id)
            sample = sample_of(reply.calls, self.loaded.shown(self.id), output, recorded)
        return AnsweredRow(key=key, rung=rung, stop=reply.stop, paid=paid, usage=usage, sample=sample)


@dataclass(frozen=True, slots=True)
class ProbeCall:
    """Request with a probe after the last result of a point, in one variant."""

    point: PointCalls
    key: CallKey

    @property
    def id(self) -> str:
        return self.point.id

    @property
    def name(self) -> str:
        return str(self.key)

    @property
    def loaded(self) -> LoadedSession:
        return self.point.loaded

    @property
    def probe(self) -> Probe:
        return self.point.plan.probes[self.point.place][self.key.sample]

    @property
    def tokens(self) -> int:
        return self.point.tokens + self.probe.tokens

    @property
    def before(self) -> str:
        """Key of the point's own request, which was already counted. An altered marker has about the same length."""
        return self.point.id

    def body(self, rung: ThinkingRung) -> bytes:
        found, asker = self.loaded.points[self.id], self.loaded.asker
        history = found.original if self.key.arm is Arm.ORIGINAL else found.rewritten
        if self.key.probe == ALTERED and self.probe.altered is not None:
            history = self.probe.altered.within(history)
        return as_line(asked_behind(asker.body(history, rung, self.point.marked), asker.format, self.probe.question))

    def heard(self, key: CallKey, rung: ThinkingRung, reply: ModelReply, paid: float) -> AnsweredRow:
        found = None
        if reply.stop == "ok":
            found = graded(self.probe, reply.text, called=bool(reply.calls), altered=key.probe == ALTERED)
        return AnsweredRow(key=key, rung=rung, stop=reply.stop, paid=paid, usage=reply.usage, probe=found)
