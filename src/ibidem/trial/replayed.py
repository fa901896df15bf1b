"""What a profile makes of the requests of a recorded session.

A profile of arrival edits is run once for a stretch of history: what it does to a request is what it does to a longer
one, cut off (law 2). Any other is run on every request in turn, with the times and counts that were recorded, as it
would have been. What it lets go is kept in memory and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from .. import formats
from ..engine.pipeline import compact
from ..engine.session import Session
from ..model import Path
from ..plan import Edit, Plan
from ..recordings import RecordedRequest, RecordedSegment, Recording
from ..recordings.recording import Json, by_model
from ..store.memory import MemoryStore
from ..strategies.profiles import named
from ..tokens import BYTES_PER_TOKEN

LAYOUT_LABELS = frozenset({"shapes"})
"""Edits that write all of a text in another layout. Every other one leaves something out of it."""

MAX_SEGMENTS = 32
"""Stretches of a session that are looked at."""

Place = tuple[int, Path]
"""A message, and a text in it."""


class RequestEdits(NamedTuple):
    """A request, by its place in the session, and what stands there instead of texts of it."""

    segment: int
    number: int
    sent: RecordedRequest
    left_out: Mapping[Place, str]
    """Texts of which something was left out, as they are sent."""
    first: int | None
    """The first message of which something was left out."""


@dataclass(frozen=True, slots=True)
class ArmHistories:
    """A request as it was recorded, and as it is rewritten: the histories alone."""

    original: list[Json]
    rewritten: list[Json]
    answer: Sequence[Json] = ()
    """What the agent said next, where that was recorded."""


def replayed(session: Recording, profile: str) -> Iterator[RequestEdits]:
    """Every request of a session."""
    final = all(each.final for each in named(profile))
    turns = _Turns(session, profile)
    for at in _looked_at(session):
        segment = session.segments[at]
        if final:
            longest = compact(turns.body(segment, segment.requests[-1]), profile=profile, format=session.format)
            known = _left_out(longest.plan)
        for number, sent in enumerate(segment.requests):
            left_out = known if final else _left_out(turns.take(segment, sent)[1])
            first = min((message for message, _ in left_out if message < sent.length), default=None)
            yield RequestEdits(at, number, sent, left_out, first)


def histories(session: Recording, profile: str, wanted: Collection[tuple[int, int]]) -> Iterator[ArmHistories]:
    """Of the requests at these places (segment and number), in their order."""
    final = all(each.final for each in named(profile))
    turns = _Turns(session, profile)
    key = formats.named(session.format).history_key
    last = max(wanted, default=(-1, -1))
    for at in _looked_at(session):
        segment = session.segments[at]
        for number, sent in enumerate(segment.requests):
            if (at, number) > last:
                return
            if (at, number) not in wanted and final:
                continue
            body = turns.body(segment, sent)
            if final:
                request = compact(body, profile=profile, format=session.format).request
            else:
                request = turns.take(segment, sent)[0]
            if (at, number) in wanted:
                answer = tuple(takewhile(by_model, segment.history[sent.length :]))
                yield ArmHistories(body[key], request[key], answer)


def _looked_at(session: Recording) -> list[int]:
    """The stretches with most requests: a client that goes back all the time would have all of it done over again."""
    order = sorted(range(len(session.segments)), key=lambda at: -len(session.segments[at].requests))
    return sorted(at for at in order[:MAX_SEGMENTS] if session.segments[at].requests)


class _Turns:
    """Requests one after the other, each with what is known of the one before."""

    def __init__(self, session: Recording, profile: str) -> None:
        self._recording = session
        self._session = Session(profile, format=session.format, store=MemoryStore())

    def body(self, segment: RecordedSegment, sent: RecordedRequest) -> Json:
        key = formats.named(self._recording.format).history_key
        model = {"model": sent.model} if sent.model else {}
        return {**self._recording.head, **model, key: segment.history[: sent.length]}

    def take(self, segment: RecordedSegment, sent: RecordedRequest) -> tuple[Any, Plan]:
        found = self._session.compact(self.body(segment, sent), at=sent.at)
        if sent.answered is not None or sent.at is not None:
            saved = sum(edit.bytes_saved for edit in found.plan) // BYTES_PER_TOKEN
            usage = sent.usage
            context = max(0, usage.input - saved) if usage else None
            cached = max(0, usage.read - saved) if usage else None
            self._session.answered(at=sent.answered or sent.at or 0.0, context=context, cached=cached)
        return found.request, found.plan


def _left_out(plan: Plan) -> dict[Place, str]:
    return {(edit.message, edit.path): edit.added for edit in plan if _leaves_out(edit)}


def _leaves_out(edit: Edit) -> bool:
    return edit.op in ("set", "drop") and edit.strategy not in LAYOUT_LABELS and edit.message >= 0
