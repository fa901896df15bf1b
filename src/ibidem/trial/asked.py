"""A request that is to be asked, and what is made of its answer: for the next action, or with a question behind it."""

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
    @property
    def id(self) -> str:
        """Of the point."""
        ...

    @property
    def name(self) -> str:
        """What its size is learnt under."""
        ...

    @property
    def loaded(self) -> LoadedSession: ...

    @property
    def tokens(self) -> int: ...

    @property
    def before(self) -> str:
        """The name of a request that this one begins with, all of it; empty if there is none."""
        ...

    def body(self, rung: ThinkingRung) -> bytes: ...

    def heard(self, key: CallKey, rung: ThinkingRung, reply: ModelReply, paid: float) -> AnsweredRow: ...


@dataclass(frozen=True, slots=True)
class PointCalls:
    """A point in an arm, as far as each of its answers needs it."""

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
        """The length of the history up to which the point before it was asked."""
        return self.plan.points[self.place - 1].length if self.before else 0

    def asking(self, key: CallKey) -> Askable:
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
    """A question behind a point, in an arm."""

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
        """The point itself, which was counted. An altered number is about as long as the one that was there."""
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
