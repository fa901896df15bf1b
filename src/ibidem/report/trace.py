"""A session with one profile, request by request: the edits in each request, and the saving of each edit.

Costs are computed as in `measure`. The saving of a request is split between its edits by the tokens that they remove,
so the savings of all edits add up to that of the session. Requests are counted from 0 here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from ..billing.revision_budget import PricedRevision
from ..formats import format_named as format_named
from ..model import Conversation
from ..plan import Edit
from ..recordings import RecordedSegment, Recording
from ..replay.edit_lifespans import EditSpan
from ..replay.removed_tokens import edit_kind
from ..replay.replay_bill import ReplayStep
from ..replay.simulate import Simulation
from ..strategies import profiles
from .measure import ReportSettings, SessionBasis, prepare_session, savings_by_token

EditKey = tuple[Any, ...]
"""Identifies an edit in all segments that share its message."""


class TracedEdit(NamedTuple):
    """An edit in one request."""

    edit: Edit
    since: int
    """The first request with this edit."""
    revises: bool
    """An earlier request sent the text without this edit."""
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
    """Cost and size of a request, without and with the profile, in provider tokens and dollars for input."""

    step: ReplayStep
    before: float
    after: float
    paid: float
    would_pay: float
    new: int
    """Number of edits that are new in this request."""
    points: tuple[PricedRevision, ...]
    """Revisions of text already sent, with their reasons."""
    rewritten: float
    """Dollars for writing to the cache again what could have been read."""


class SessionTrace:
    """Replay of a session with one profile, for questions about single requests."""

    def __init__(self, session: Recording, settings: ReportSettings, profile: str) -> None:
        self.session, self.profile = session, profile
        self._basis: SessionBasis = prepare_session(session, settings)
        replay, economy, count = self._basis
        self._simulation = Simulation(
            session,
            replay.messages,
            profiles.profile_strategies(profile),
            replay.weights,
            count,
            economy,
            replay.reported_usage("hit"),
        )
        self._paid, self._would_pay = replay.bill(), replay.bill(self._simulation.views)
        self._earned = savings_by_token(replay, self._simulation.views, self._paid, self._would_pay)
        self._spans: dict[EditKey, list[EditSpan]] = {}
        for span in self._simulation.spans:
            if span.first < span.last:
                self._spans.setdefault(self._edit_key(span), []).append(span)

    def __len__(self) -> int:
        return len(self._basis.replay.steps)

    @cached_property
    def requests(self) -> list[TracedRequest]:
        new = [0] * len(self)
        for spans in self._spans.values():
            new[min(span.first for span in spans)] += 1
        points: dict[int, list[PricedRevision]] = {}
        for number, point in zip(self._simulation.point_requests, self._simulation.points, strict=True):
            points.setdefault(number, []).append(point)
        return [self._trace_request(number, new[number], tuple(points.get(number, ()))) for number in range(len(self))]

    def _trace_request(self, number: int, new: int, points: tuple[PricedRevision, ...]) -> TracedRequest:
        step, views = self._basis.replay.steps[number], self._simulation.views
        view = views[number]
        unchanged = step.unchanged_entries(view, views[number - 1] if number else None)
        charge = step.price_request(view, unchanged, "hit", by_rule=False)
        cost, would_pay = self._paid.costs[number], self._would_pay.costs[number]
        return TracedRequest(step, step.size, charge.size, cost, would_pay, new, points, charge.again)

    def costs_between(self, first: int, last: int) -> tuple[float, float]:
        """Add up dollars for the requests from `first` to before `last`, without and with the profile."""
        return sum(self._paid.costs[first:last]), sum(self._would_pay.costs[first:last])

    @property
    def failures(self) -> list[str]:
        """Messages of errors that left requests unchanged, and of violated invariants."""
        return self._simulation.failures

    def segment_of(self, number: int) -> int:
        return self._basis.replay.steps[number].segment

    def request_at(self, number: int) -> Conversation:
        """Rebuild a request as it was recorded."""
        step = self._basis.replay.steps[number]
        messages = self._basis.replay.messages[step.segment][: step.sent.length]
        return Conversation(tuple(messages), format_named(self.session.format), self.session.head)

    def edits_at(self, number: int) -> list[TracedEdit]:
        """List the edits in a request, in the order of its messages."""
        edits = [
            self._trace_edit(span, spans, number)
            for spans in self._spans.values()
            for span in spans
            if span.first <= number < span.last
        ]
        return sorted(edits, key=lambda each: each.edit.message)

    def edits_by_request(self) -> Iterator[tuple[int, list[TracedEdit]]]:
        """Yield each request with new edits. Every edit occurs once, in the first request with it."""
        edits: dict[int, list[TracedEdit]] = {}
        for spans in self._spans.values():
            first = min(spans, key=lambda span: span.first)
            edits.setdefault(first.first, []).append(self._trace_edit(first, spans, first.first))
        for number in sorted(edits):
            yield number, sorted(edits[number], key=lambda each: each.edit.message)

    def _trace_edit(self, span: EditSpan, spans: list[EditSpan], number: int) -> TracedEdit:
        replay, _, count = self._basis
        step, edit = replay.steps[number], span.edit
        history = replay.messages[step.segment]
        message = history[edit.message] if 0 <= edit.message < len(history) else None
        weight = step.scale * replay.weights.for_kind(edit_kind(message, edit) if message else "messages")
        after = weight * count(edit.added) if edit.added else 0.0
        since = min(each.first for each in spans)
        return TracedEdit(
            edit,
            since,
            self._is_revision(since, span.edit),
            after + step.scale * span.tokens,
            after,
            span.tokens * (self._earned[number + 1] - self._earned[number]),
            self._saving_until(spans, number + 1),
            self._saving_until(spans, len(self)),
        )

    def _saving_until(self, spans: list[EditSpan], end: int) -> float:
        """Add up the dollars that an edit saved in the requests before `end`."""
        savings = self._earned
        return sum(
            each.tokens * (savings[min(each.last, end)] - savings[each.first]) for each in spans if each.first < end
        )

    def _is_revision(self, number: int, edit: Edit) -> bool:
        """Whether the previous request had sent the text without this edit."""
        step = self._basis.replay.steps[number]
        return number > 0 and edit.message < step.shared

    def _edit_key(self, span: EditSpan) -> EditKey:
        """Make the key of an edit. Segments share message objects, though not always at the same index."""
        edit = span.edit
        segment: RecordedSegment = self.session.segments[self.segment_of(span.first)]
        is_shared = not segment.is_compressed and 0 <= edit.message < len(segment.history)
        owner = id(segment.history[edit.message]) if is_shared else (id(segment), edit.message)
        return (owner, edit.strategy, edit.op, edit.path, edit.added)
