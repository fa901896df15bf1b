"""Requests of a trial and the rows for their responses: for the next action, or for a probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..recordings.body_store import encode_line
from .actions import make_sample
from .planning import LoadedSession
from .probes import Probe, append_question, grade_answer
from .providers import ModelReply
from .request_builder import ThinkingLevel, Variant
from .run_log import ResponseRow
from .schedule import ALTERED, CallKey, SessionPlan


class TrialRequest(Protocol):
    """Request of a trial in one variant, for a point or a probe."""

    @property
    def point_id(self) -> str:
        """Id of the point."""
        ...

    @property
    def size_key(self) -> str:
        """Key under which `TokenCeiling` stores the request's size."""
        ...

    @property
    def loaded_session(self) -> LoadedSession:
        """Session of the point."""
        ...

    @property
    def token_estimate(self) -> int:
        """Estimated tokens of the request."""
        ...

    @property
    def prefix_key(self) -> str:
        """Key of an earlier request that is a prefix of this one, or an empty string."""
        ...

    def build_body(self, level: ThinkingLevel) -> bytes:
        """Return the request body."""
        ...

    def make_row(self, key: CallKey, level: ThinkingLevel, reply: ModelReply, cost: float) -> ResponseRow:
        """Return the run log's row for a response."""
        ...


@dataclass(frozen=True, slots=True)
class PointRequest:
    """Request for the next action at a point, in one variant."""

    place: int
    plan: SessionPlan
    loaded_session: LoadedSession
    variant: Variant

    @property
    def point_id(self) -> str:
        return self.plan.points[self.place].id

    @property
    def size_key(self) -> str:
        return self.point_id

    @property
    def token_estimate(self) -> int:
        return self.plan.sizes[self.place].variant_tokens(self.variant)

    @property
    def prefix_key(self) -> str:
        return self.plan.points[self.place - 1].id if self.plan.sizes[self.place].extends_previous else ""

    @property
    def cached_length(self) -> int:
        """Length of the history of the point before, which is in the provider's cache."""
        return self.plan.points[self.place - 1].length if self.prefix_key else 0

    def request_for(self, key: CallKey) -> TrialRequest:
        """Return the request of this point with that key: this one, or a probe."""
        return ProbeRequest(self, key) if key.probe else self

    def build_body(self, level: ThinkingLevel) -> bytes:
        histories = self.loaded_session.points[self.point_id]
        history = histories.original if self.variant is Variant.ORIGINAL else histories.rewritten
        return encode_line(self.loaded_session.builder.build_body(history, level, self.cached_length))

    def make_row(self, key: CallKey, level: ThinkingLevel, reply: ModelReply, cost: float) -> ResponseRow:
        sample, usage = None, reply.usage
        if reply.stop == "ok":
            output, recorded_action = usage.output if usage else 0, self.loaded_session.recorded_action(self.point_id)
            sample = make_sample(reply.calls, self.loaded_session.visible_files(self.point_id), output, recorded_action)
        return ResponseRow(key=key, rung=level, stop=reply.stop, paid=cost, usage=usage, sample=sample)


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Request with a probe after the last result of a point, in one variant."""

    point: PointRequest
    key: CallKey

    @property
    def point_id(self) -> str:
        return self.point.point_id

    @property
    def size_key(self) -> str:
        return str(self.key)

    @property
    def loaded_session(self) -> LoadedSession:
        return self.point.loaded_session

    @property
    def probe(self) -> Probe:
        return self.point.plan.probes[self.point.place][self.key.sample]

    @property
    def token_estimate(self) -> int:
        return self.point.token_estimate + self.probe.question_tokens

    @property
    def prefix_key(self) -> str:
        """Key of the point's own request, which was already counted. An altered marker has about the same length."""
        return self.point.point_id

    def build_body(self, level: ThinkingLevel) -> bytes:
        histories, builder = self.loaded_session.points[self.point_id], self.loaded_session.builder
        history = histories.original if self.key.variant is Variant.ORIGINAL else histories.rewritten
        if self.key.probe == ALTERED and self.probe.altered is not None:
            history = self.probe.altered.replace_in(history)
        return encode_line(
            append_question(
                builder.build_body(history, level, self.point.cached_length), builder.format, self.probe.question
            )
        )

    def make_row(self, key: CallKey, level: ThinkingLevel, reply: ModelReply, cost: float) -> ResponseRow:
        probe_answer = None
        if reply.stop == "ok":
            probe_answer = grade_answer(
                self.probe, reply.text, has_called_tool=bool(reply.calls), is_altered=key.probe == ALTERED
            )
        return ResponseRow(key=key, rung=level, stop=reply.stop, paid=cost, usage=reply.usage, probe=probe_answer)
