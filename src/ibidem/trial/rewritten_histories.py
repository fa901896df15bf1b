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
from ..recordings.recording import Json, is_model_entry
from ..store.memory import MemoryStore
from ..strategies.profiles import profile_strategies
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
    request: RecordedRequest
    omitted_texts: Mapping[Place, str]
    """Rewritten texts with omitted parts, by position."""
    first_message: int | None
    """Index of the first message with omitted text, or None."""


@dataclass(frozen=True, slots=True)
class VariantHistories:
    """History of a request in both variants."""

    original: list[Json]
    rewritten: list[Json]
    next_messages: Sequence[Json] = ()
    """The agent's next messages, if they were recorded."""


def rewrite_requests(session: Recording, profile: str) -> Iterator[RequestEdits]:
    """Yield the edits of each request of a session."""
    final = all(strategy.final for strategy in profile_strategies(profile))
    sequence = _RequestSequence(session, profile)
    for at in _longest_segments(session):
        segment = session.segments[at]
        if final:
            longest = compact(
                sequence.recorded_body(segment, segment.requests[-1]), profile=profile, format=session.format
            )
            omitted_in_longest = _omitted_texts(longest.plan)
        for number, recorded_request in enumerate(segment.requests):
            omitted_texts = (
                omitted_in_longest if final else _omitted_texts(sequence.rewrite_next(segment, recorded_request)[1])
            )
            first = min((message for message, _ in omitted_texts if message < recorded_request.length), default=None)
            yield RequestEdits(at, number, recorded_request, omitted_texts, first)


def rewrite_histories(
    session: Recording, profile: str, positions: Collection[tuple[int, int]]
) -> Iterator[VariantHistories]:
    """Yield both histories of the requests at these positions (segment and number), in order."""
    final = all(strategy.final for strategy in profile_strategies(profile))
    sequence = _RequestSequence(session, profile)
    key = formats.format_named(session.format).history_key
    last = max(positions, default=(-1, -1))
    for at in _longest_segments(session):
        segment = session.segments[at]
        for number, recorded_request in enumerate(segment.requests):
            if (at, number) > last:
                return
            if (at, number) not in positions and final:
                continue
            body = sequence.recorded_body(segment, recorded_request)
            if final:
                request = compact(body, profile=profile, format=session.format).request
            else:
                request = sequence.rewrite_next(segment, recorded_request)[0]
            if (at, number) in positions:
                answer = tuple(takewhile(is_model_entry, segment.history[recorded_request.length :]))
                yield VariantHistories(body[key], request[key], answer)


def _longest_segments(session: Recording) -> list[int]:
    """Return the indexes of the segments with the most requests.

    The number is limited because a client that rewinds often has many segments with the same history.
    """
    order = sorted(range(len(session.segments)), key=lambda at: -len(session.segments[at].requests))
    return sorted(at for at in order[:MAX_SEGMENTS] if session.segments[at].requests)


class _RequestSequence:
    """Session that rewrites recorded requests one after the other, with their times and usage."""

    def __init__(self, session: Recording, profile: str) -> None:
        self._recording = session
        self._session = Session(profile, format=session.format, store=MemoryStore())

    def recorded_body(self, segment: RecordedSegment, recorded_request: RecordedRequest) -> Json:
        """Return the recorded body of a request."""
        key = formats.format_named(self._recording.format).history_key
        model = {"model": recorded_request.model} if recorded_request.model else {}
        return {**self._recording.head, **model, key: segment.history[: recorded_request.length]}

    def rewrite_next(self, segment: RecordedSegment, recorded_request: RecordedRequest) -> tuple[Any, Plan]:
        """Rewrite the next request. Return the new request and its plan."""
        compacted_request = self._session.compact(self.recorded_body(segment, recorded_request), at=recorded_request.at)
        if recorded_request.answered is not None or recorded_request.at is not None:
            # The recorded usage is that of the original request. The rewritten one would have had fewer tokens.
            saved_tokens = sum(edit.bytes_saved for edit in compacted_request.plan) // BYTES_PER_TOKEN
            usage = recorded_request.usage
            context = max(0, usage.input - saved_tokens) if usage else None
            cached_tokens = max(0, usage.read - saved_tokens) if usage else None
            self._session.answered(
                at=recorded_request.answered or recorded_request.at or 0.0, context=context, cached=cached_tokens
            )
        return compacted_request.request, compacted_request.plan


def _omitted_texts(plan: Plan) -> dict[Place, str]:
    return {(edit.message, edit.path): edit.added for edit in plan if _omits_text(edit)}


def _omits_text(edit: Edit) -> bool:
    return edit.op in ("set", "drop") and edit.strategy not in LAYOUT_LABELS and edit.message >= 0
