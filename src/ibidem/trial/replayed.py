"""Rewrite the requests of a recorded session with a profile.

Edits at arrival are final (invariant 2). So a profile with only such edits runs once per segment, and shorter requests
are prefixes of the result. Other profiles run on each request in order, with the recorded times and usage. Their
evicted texts are stored in memory only.
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
"""Labels of edits that only change the layout. All other edits omit a part of the text."""

MAX_SEGMENTS = 32
"""Maximum number of segments of a session to rewrite."""

Place = tuple[int, Path]
"""Index of a message, and path of a text in it."""


class RequestEdits(NamedTuple):
    """A recorded request with its position in the session and its rewritten texts."""

    segment: int
    number: int
    sent: RecordedRequest
    left_out: Mapping[Place, str]
    """Rewritten texts with omitted parts, by position."""
    first: int | None
    """Index of the first message with omitted text, or None."""


@dataclass(frozen=True, slots=True)
class ArmHistories:
    """History of a request in both variants."""

    original: list[Json]
    rewritten: list[Json]
    answer: Sequence[Json] = ()
    """The agent's next messages, if they were recorded."""


def replayed(session: Recording, profile: str) -> Iterator[RequestEdits]:
    """Yield the edits of each request of a session."""
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
    """Yield both histories of the requests at these positions (segment and number), in order."""
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
    """Return the indexes of the segments with the most requests.

    The number is limited because a client that rewinds often has many segments with the same history.
    """
    order = sorted(range(len(session.segments)), key=lambda at: -len(session.segments[at].requests))
    return sorted(at for at in order[:MAX_SEGMENTS] if session.segments[at].requests)


class _Turns:
    """Session that rewrites recorded requests one after the other, with their times and usage."""

    def __init__(self, session: Recording, profile: str) -> None:
        self._recording = session
        self._session = Session(profile, format=session.format, store=MemoryStore())

    def body(self, segment: RecordedSegment, sent: RecordedRequest) -> Json:
        """Return the recorded body of a request."""
        key = formats.named(self._recording.format).history_key
        model = {"model": sent.model} if sent.model else {}
        return {**self._recording.head, **model, key: segment.history[: sent.length]}

    def take(self, segment: RecordedSegment, sent: RecordedRequest) -> tuple[Any, Plan]:
        """Rewrite the next request. Return the new request and its plan."""
        found = self._session.compact(self.body(segment, sent), at=sent.at)
        if sent.answered is not None or sent.at is not None:
            # The recorded usage is that of the original request. The rewritten one would have had fewer tokens.
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
