"""A session under one profile, request by request: the edits that each would have been sent with, and what each saves.

Dollars are those of `measure`: in every request, what was saved is shared out by the tokens that each edit takes out of
it. So what the edits saved adds up to what a report says of the session. Requests are counted from 0 here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from ..billing.budget import Point
from ..formats import named as format_named
from ..model import Conversation
from ..plan import Edit
from ..recordings import RecordedSegment, Recording
from ..replay.billing import Step
from ..replay.removed import kind_of
from ..replay.simulate import Simulation
from ..replay.spans import EditSpan
from ..strategies import profiles
from .measure import ReportSettings, SessionBasis, basis_of, earned_by_token

EditKey = tuple[Any, ...]
"""Of one edit, in every segment that it is in."""


class TracedEdit(NamedTuple):
    """An edit in one request."""

    edit: Edit
    since: int
    """The first request with it."""
    revises: bool
    """Its text had been sent otherwise before."""
    before: float
    after: float
    """Provider tokens of both texts, in this request."""
    saved: float
    """Dollars, in this request."""
    saved_so_far: float
    """Dollars, in this request and all before it."""
    saved_in_all: float
    """Dollars, in all requests of the session."""


class TracedRequest(NamedTuple):
    """As it was sent, and as it would have been. Provider tokens, and dollars for input."""

    step: Step
    before: float
    after: float
    paid: float
    would_pay: float
    new: int
    """Edits that no request before it has."""
    points: tuple[Point, ...]
    """Changes of what had been sent, each with its reason."""
    rewritten: float
    """Dollars for writing again to the cache what could have been read."""


class SessionTrace:
    """Everything there is to say about any of its requests."""

    def __init__(self, session: Recording, settings: ReportSettings, profile: str) -> None:
        self.session, self.profile = session, profile
        self._basis: SessionBasis = basis_of(session, settings)
        replay, economy, count = self._basis
        self._simulation = Simulation(
            session,
            replay.messages,
            profiles.named(profile),
            replay.weights,
            count,
            economy,
            replay.told("hit"),
        )
        self._paid, self._would_pay = replay.bill(), replay.bill(self._simulation.views)
        self._earned = earned_by_token(replay, self._simulation.views, self._paid, self._would_pay)
        self._spans: dict[EditKey, list[EditSpan]] = {}
        for span in self._simulation.spans:
            if span.first < span.last:
                self._spans.setdefault(self._key(span), []).append(span)

    def __len__(self) -> int:
        return len(self._basis.replay.steps)

    @cached_property
    def requests(self) -> list[TracedRequest]:
        new = [0] * len(self)
        for spans in self._spans.values():
            new[min(span.first for span in spans)] += 1
        points: dict[int, list[Point]] = {}
        for number, point in zip(self._simulation.point_requests, self._simulation.points, strict=True):
            points.setdefault(number, []).append(point)
        return [self._request(number, new[number], tuple(points.get(number, ()))) for number in range(len(self))]

    def _request(self, number: int, new: int, points: tuple[Point, ...]) -> TracedRequest:
        step, views = self._basis.replay.steps[number], self._simulation.views
        view = views[number]
        kept = step.kept(view, views[number - 1] if number else None)
        charge = step.charge(view, kept, "hit", by_rule=False)
        paid, would_pay = self._paid.costs[number], self._would_pay.costs[number]
        return TracedRequest(step, step.size, charge.size, paid, would_pay, new, points, charge.again)

    def spent(self, first: int, last: int) -> tuple[float, float]:
        """Dollars for the requests from one on and before another: as they were sent, and as they would have been."""
        return sum(self._paid.costs[first:last]), sum(self._would_pay.costs[first:last])

    @property
    def failures(self) -> list[str]:
        """Why requests were left as they came."""
        return self._simulation.failures

    def segment_of(self, number: int) -> int:
        return self._basis.replay.steps[number].segment

    def request_at(self, number: int) -> Conversation:
        """A request as it was sent."""
        step = self._basis.replay.steps[number]
        messages = self._basis.replay.messages[step.segment][: step.sent.length]
        return Conversation(tuple(messages), format_named(self.session.format), self.session.head)

    def edits(self, number: int) -> list[TracedEdit]:
        """Those in force in a request, in the order of its messages."""
        found = [
            self._traced(span, spans, number)
            for spans in self._spans.values()
            for span in spans
            if span.first <= number < span.last
        ]
        return sorted(found, key=lambda each: each.edit.message)

    def edits_by_request(self) -> Iterator[tuple[int, list[TracedEdit]]]:
        """Every edit once, at the first request with it."""
        found: dict[int, list[TracedEdit]] = {}
        for spans in self._spans.values():
            first = min(spans, key=lambda span: span.first)
            found.setdefault(first.first, []).append(self._traced(first, spans, first.first))
        for number in sorted(found):
            yield number, sorted(found[number], key=lambda each: each.edit.message)

    def _traced(self, span: EditSpan, spans: list[EditSpan], number: int) -> TracedEdit:
        replay, _, count = self._basis
        step, edit = replay.steps[number], span.edit
        history = replay.messages[step.segment]
        message = history[edit.message] if 0 <= edit.message < len(history) else None
        weight = step.scale * replay.weights.of(kind_of(message, edit) if message else "messages")
        after = weight * count(edit.added) if edit.added else 0.0
        since = min(each.first for each in spans)
        return TracedEdit(
            edit,
            since,
            self._revises(since, span.edit),
            after + step.scale * span.tokens,
            after,
            span.tokens * (self._earned[number + 1] - self._earned[number]),
            self._saved(spans, number + 1),
            self._saved(spans, len(self)),
        )

    def _saved(self, spans: list[EditSpan], end: int) -> float:
        """Dollars, in all requests before one."""
        earned = self._earned
        return sum(
            each.tokens * (earned[min(each.last, end)] - earned[each.first]) for each in spans if each.first < end
        )

    def _revises(self, number: int, edit: Edit) -> bool:
        """Whether the request before had the text already, without this edit."""
        step = self._basis.replay.steps[number]
        return number > 0 and edit.message < step.shared

    def _key(self, span: EditSpan) -> EditKey:
        """Segments share the entries that they have in common, though not always in the same place."""
        edit = span.edit
        segment: RecordedSegment = self.session.segments[self.segment_of(span.first)]
        known = not segment.apart and 0 <= edit.message < len(segment.history)
        owner = id(segment.history[edit.message]) if known else (id(segment), edit.message)
        return (owner, edit.strategy, edit.op, edit.path, edit.added)
