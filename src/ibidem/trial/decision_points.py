"""Select decision points: recorded requests with the agent's next action.

Most requests contain a reference, but few next actions depend on one. So points are selected by stratum
(`outcomes.Stratum`): half from actions that must follow a reference, a quarter from other actions on a file with a
reference, and a quarter from the rest. Unchanged requests are not decision points, because both variants are equal.

Sessions are drawn at random, with a probability in proportion to their points in each stratum. A few points of each
are used, because points of one session share a prefix, which is paid for once. So the points of a stratum have about
the same probability, and each represents the same number of recorded points.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from .. import formats
from ..model import Message, ToolCall, to_json
from ..recordings import RecordedSegment, Recording
from ..recordings.recording import is_model_entry
from .actions import classify_action, short_digest
from .file_views import VisibleFiles, named_files, parse_text_edits
from .outcomes import Stratum
from .rewritten_histories import RequestEdits, rewrite_requests

SHARES: Mapping[Stratum, float] = {Stratum.FOLLOWS: 0.5, Stratum.TOUCHES: 0.25, Stratum.ANY: 0.25}
"""Share of the selected points per stratum."""
MAX_PER_SESSION = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPoint:
    """Position of a request in a recorded session, with the class of the agent's next action."""

    id: str
    session: str
    """Digest of the session. Both digests contain no text."""
    segment: int
    number: int
    length: int
    stratum: Stratum
    recorded: str
    """Class of the recorded action."""
    input: int | None = None
    output: int | None = None
    """Input and output tokens by the provider's count, if the log has them."""


@dataclass(frozen=True, slots=True)
class SessionSurvey:
    """Decision points of a recorded session under a profile."""

    digest: str
    path: str
    """Path of the log."""
    place: int
    """Index of the session in the log."""
    agent: str
    format: str
    model: str
    """Model of most points, or of most requests if there are no points."""
    requests: int
    """Number of requests with a response, rewritten or not."""
    points: tuple[DecisionPoint, ...]
    host: str = ""
    """Host that the requests were sent to, if the recording has it."""


def survey_session(session: Recording, place: int, profile: str) -> SessionSurvey:
    """Find the decision points of a session under a profile. `place` is the session's index in its log."""
    name = session_digest(session)
    models: Counter[str] = Counter()
    others: Counter[str] = Counter()
    points, requests = [], 0
    walk = _SurveyWalk(session)
    for request in rewrite_requests(session, profile):
        calls = walk.next_calls(request)
        if calls is None:
            continue
        requests += 1
        others[request.request.model] += 1
        if request.first_message is None:
            continue
        models[request.request.model] += 1
        points.append(_make_point(name, request, calls, walk))
    counts = models or others
    model = max(counts, key=lambda model_name: (counts[model_name], model_name), default="")
    return SessionSurvey(
        name, session.path, place, session.agent, session.format, model, requests, tuple(points), session.host
    )


def session_digest(session: Recording) -> str:
    """Return a digest of a session's id and first messages. It does not depend on the path of the log."""
    history = session.segments[0].history if session.segments else []
    return short_digest(session.format, session.id, session.name, to_json(history[:2]))


def prefix_digests(segment: RecordedSegment) -> dict[int, str]:
    """Return a digest of the history of each request, by history length."""
    lengths = {request.length for request in segment.requests}
    running, digests = sha256(), dict[int, str]()
    for length, entry in enumerate(segment.history, 1):
        running.update(to_json(entry).encode("utf-8", "surrogatepass"))
        if length in lengths:
            digests[length] = running.hexdigest()
    return digests


def is_changed(session: Recording, points: Iterable[DecisionPoint]) -> bool:
    """Return whether the session's log has changed since these points were selected."""
    digests_by_segment: dict[int, dict[int, str]] = {}
    for point in points:
        segment = session.segments[point.segment] if point.segment < len(session.segments) else None
        if segment is None or point.number >= len(segment.requests):
            return True
        if point.segment not in digests_by_segment:
            digests_by_segment[point.segment] = prefix_digests(segment)
        length = segment.requests[point.number].length
        if point.id != _make_point_id(
            point.session, point.segment, point.number, digests_by_segment[point.segment].get(length, "")
        ):
            return True
    return False


def _make_point_id(session: str, segment: int, number: int, beginning: str) -> str:
    return short_digest(session, str(segment), str(number), beginning)


def _make_point(session: str, request: RequestEdits, calls: Sequence[ToolCall], walk: _SurveyWalk) -> DecisionPoint:
    request_sent, stratum = request.request, walk.point_stratum(request, calls)
    return DecisionPoint(
        id=_make_point_id(session, request.segment, request.number, walk.beginnings.get(request_sent.length, "")),
        session=session,
        segment=request.segment,
        number=request.number,
        length=request_sent.length,
        stratum=stratum,
        recorded=classify_action(calls),
        input=request_sent.usage.input if request_sent.usage else None,
        output=request_sent.usage.output if request_sent.usage else None,
    )


class _SurveyWalk:
    """Reads a session along with its requests, and tracks the files that each request shows."""

    def __init__(self, session: Recording) -> None:
        self._session = session
        self._dialect = formats.format_named(session.format)
        self._segment = -1
        self.beginnings: dict[int, str] = {}
        """Digests of the histories of the current segment, by length."""
        self._messages: list[Message] = []
        self._shown = VisibleFiles()
        self._taken = 0

    def next_calls(self, request: RequestEdits) -> list[ToolCall] | None:
        """Return the calls of the agent's next action, or None if the log has no next action."""
        history = self._session.segments[request.segment].history
        if request.segment != self._segment:
            self._segment, self._shown, self._taken = request.segment, VisibleFiles(), 0
            self.beginnings = prefix_digests(self._session.segments[request.segment])
            self._messages = [self._dialect.read_message(index, wire) for index, wire in enumerate(history)]
        length = request.request.length
        while self._taken < length:
            self._shown.add_message(self._messages[self._taken])
            self._taken += 1
        if not 0 < length < len(history) or is_model_entry(history[length - 1]) or not is_model_entry(history[length]):
            return None
        return [call for message in self._next_messages(length) for call in message.calls]

    def _next_messages(self, length: int) -> Iterator[Message]:
        for message in self._messages[length:]:
            if not is_model_entry(message.wire):
                return
            yield message

    def point_stratum(self, request: RequestEdits, calls: Iterable[ToolCall]) -> Stratum:
        """Return how much the next action depends on a reference."""
        highest = Stratum.ANY
        for call in calls:
            edits = list(parse_text_edits(call))
            for path in named_files(call):
                view = self._shown.last_view(path)
                sent_text = request.omitted_texts.get((view.message, view.path)) if view else None
                if view is None or sent_text is None:
                    continue
                highest = Stratum.TOUCHES
                quoted_lines = [line for edit in edits if edit.path == path for line in edit.old]
                if any(line in view.text and line not in sent_text for line in quoted_lines):
                    return Stratum.FOLLOWS
        return highest


# ── selection ───────────────────────────────────────────────────────────────────────────────────────────────────────


def count_points(surveys: Iterable[SessionSurvey]) -> Counter[Stratum]:
    """Return the number of points in each stratum."""
    return Counter(point.stratum for survey in surveys for point in survey.points)


def choose_points(
    surveys: Sequence[SessionSurvey], most: int, seed: int, without: Container[str] = ()
) -> list[list[DecisionPoint]]:
    """Select points by session, in the order in which sessions were drawn. Within a session, points are ascending.

    The first sessions alone are a valid selection, too. `without` has the ids of excluded points.
    """
    if without:
        surveys = [
            replace(each, points=tuple(point for point in each.points if point.id not in without)) for each in surveys
        ]
    chance = random.Random(seed)
    taken_counts: Counter[Stratum] = Counter()
    picked_points: dict[str, list[DecisionPoint]] = {}
    order = _shuffle_sessions(surveys, chance)
    for strict in (True, False):  # the second pass may exceed the share of a stratum, to reach the number of points
        for each in order:
            session_points = picked_points.setdefault(each.digest, [])
            for point in _draw_points(each, session_points, taken_counts, most, chance, strict=strict):
                session_points.append(point)
    return [sorted(mine, key=lambda point: (point.segment, point.number)) for mine in picked_points.values() if mine]


def _shuffle_sessions(surveys: Sequence[SessionSurvey], chance: random.Random) -> list[SessionSurvey]:
    """Return the sessions in random order, without replacement, weighted by their points in each stratum."""
    every = count_points(surveys)

    def session_weight(survey: SessionSurvey) -> float:
        return sum(SHARES[point.stratum] / every[point.stratum] for point in survey.points)

    surveys_with_points = sorted((each for each in surveys if each.points), key=lambda each: each.digest)
    keys = {each.digest: chance.random() ** (1 / session_weight(each)) for each in surveys_with_points}
    return sorted(surveys_with_points, key=lambda each: keys[each.digest], reverse=True)


def _draw_points(
    session: SessionSurvey,
    session_points: Sequence[DecisionPoint],
    taken_counts: Counter[Stratum],
    most: int,
    chance: random.Random,
    *,
    strict: bool,
) -> Iterator[DecisionPoint]:
    """Yield points of a session, each from the stratum that is furthest below its share."""
    picked_ids = {point.id for point in session_points}
    points_left = {name: [point for point in session.points if point.stratum == name] for name in Stratum}
    for points in points_left.values():
        points[:] = [point for point in points if point.id not in picked_ids]
        chance.shuffle(points)
    for _ in range(MAX_PER_SESSION - len(session_points)):
        total = sum(taken_counts.values())
        missing = {
            name: SHARES[name] * (total + 1) - taken_counts[name] for name, points in points_left.items() if points
        }
        next_stratum = max(missing, key=lambda name: missing[name], default=None)
        if total >= most or next_stratum is None or (strict and missing[next_stratum] <= -1):
            return
        taken_counts[next_stratum] += 1
        yield points_left[next_stratum].pop()
