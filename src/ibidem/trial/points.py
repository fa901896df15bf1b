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
from ..recordings.recording import by_model
from .actions import action_of, digest
from .files import ShownFiles, named_files, text_edits
from .outcomes import Stratum
from .replayed import RequestEdits, replayed

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


def survey(session: Recording, place: int, profile: str) -> SessionSurvey:
    """Find the decision points of a session under a profile. `place` is the session's index in its log."""
    name = session_digest(session)
    models: Counter[str] = Counter()
    others: Counter[str] = Counter()
    points, requests = [], 0
    looking = _Looking(session)
    for request in replayed(session, profile):
        calls = looking.answer(request)
        if calls is None:
            continue
        requests += 1
        others[request.sent.model] += 1
        if request.first is None:
            continue
        models[request.sent.model] += 1
        points.append(_point(name, request, calls, looking))
    counts = models or others
    model = max(counts, key=lambda each: (counts[each], each), default="")
    return SessionSurvey(
        name, session.path, place, session.agent, session.format, model, requests, tuple(points), session.host
    )


def session_digest(session: Recording) -> str:
    """Return a digest of a session's id and first messages. It does not depend on the path of the log."""
    history = session.segments[0].history if session.segments else []
    return digest(session.format, session.id, session.name, to_json(history[:2]))


def beginnings(segment: RecordedSegment) -> dict[int, str]:
    """Return a digest of the history of each request, by history length."""
    lengths = {sent.length for sent in segment.requests}
    running, found = sha256(), dict[int, str]()
    for length, entry in enumerate(segment.history, 1):
        running.update(to_json(entry).encode("utf-8", "surrogatepass"))
        if length in lengths:
            found[length] = running.hexdigest()
    return found


def is_changed(session: Recording, points: Iterable[DecisionPoint]) -> bool:
    """Return whether the session's log has changed since these points were selected."""
    known: dict[int, dict[int, str]] = {}
    for point in points:
        segment = session.segments[point.segment] if point.segment < len(session.segments) else None
        if segment is None or point.number >= len(segment.requests):
            return True
        if point.segment not in known:
            known[point.segment] = beginnings(segment)
        length = segment.requests[point.number].length
        if point.id != _point_id(point.session, point.segment, point.number, known[point.segment].get(length, "")):
            return True
    return False


def _point_id(session: str, segment: int, number: int, beginning: str) -> str:
    return digest(session, str(segment), str(number), beginning)


def _point(session: str, request: RequestEdits, calls: Sequence[ToolCall], looking: _Looking) -> DecisionPoint:
    sent, stratum = request.sent, looking.stratum(request, calls)
    return DecisionPoint(
        id=_point_id(session, request.segment, request.number, looking.beginnings.get(sent.length, "")),
        session=session,
        segment=request.segment,
        number=request.number,
        length=sent.length,
        stratum=stratum,
        recorded=action_of(calls),
        input=sent.usage.input if sent.usage else None,
        output=sent.usage.output if sent.usage else None,
    )


class _Looking:
    """Reads a session along with its requests, and tracks the files that each request shows."""

    def __init__(self, session: Recording) -> None:
        self._session = session
        self._dialect = formats.named(session.format)
        self._segment = -1
        self.beginnings: dict[int, str] = {}
        """Digests of the histories of the current segment, by length."""
        self._messages: list[Message] = []
        self._shown = ShownFiles()
        self._taken = 0

    def answer(self, request: RequestEdits) -> list[ToolCall] | None:
        """Return the calls of the agent's next action, or None if the log has no next action."""
        history = self._session.segments[request.segment].history
        if request.segment != self._segment:
            self._segment, self._shown, self._taken = request.segment, ShownFiles(), 0
            self.beginnings = beginnings(self._session.segments[request.segment])
            self._messages = [self._dialect.read(index, wire) for index, wire in enumerate(history)]
        length = request.sent.length
        while self._taken < length:
            self._shown.take(self._messages[self._taken])
            self._taken += 1
        if not 0 < length < len(history) or by_model(history[length - 1]) or not by_model(history[length]):
            return None
        return [call for message in self._next(length) for call in message.calls]

    def _next(self, length: int) -> Iterator[Message]:
        for message in self._messages[length:]:
            if not by_model(message.wire):
                return
            yield message

    def stratum(self, request: RequestEdits, calls: Iterable[ToolCall]) -> Stratum:
        """Return how much the next action depends on a reference."""
        found = Stratum.ANY
        for call in calls:
            edits = list(text_edits(call))
            for path in named_files(call):
                view = self._shown.last_view(path)
                sent = request.left_out.get((view.message, view.path)) if view else None
                if view is None or sent is None:
                    continue
                found = Stratum.TOUCHES
                quoted = [line for edit in edits if edit.path == path for line in edit.old]
                if any(line in view.text and line not in sent for line in quoted):
                    return Stratum.FOLLOWS
        return found


# ── selection ───────────────────────────────────────────────────────────────────────────────────────────────────────


def population(surveys: Iterable[SessionSurvey]) -> Counter[Stratum]:
    """Return the number of points in each stratum."""
    return Counter(point.stratum for each in surveys for point in each.points)


def choose(
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
    taken: Counter[Stratum] = Counter()
    picked: dict[str, list[DecisionPoint]] = {}
    order = _drawn(surveys, chance)
    for strict in (True, False):  # the second pass may exceed the share of a stratum, to reach the number of points
        for each in order:
            mine = picked.setdefault(each.digest, [])
            for point in _of_session(each, mine, taken, most, chance, strict=strict):
                mine.append(point)
    return [sorted(mine, key=lambda point: (point.segment, point.number)) for mine in picked.values() if mine]


def _drawn(surveys: Sequence[SessionSurvey], chance: random.Random) -> list[SessionSurvey]:
    """Return the sessions in random order, without replacement, weighted by their points in each stratum."""
    every = population(surveys)

    def worth(each: SessionSurvey) -> float:
        return sum(SHARES[point.stratum] / every[point.stratum] for point in each.points)

    having = sorted((each for each in surveys if each.points), key=lambda each: each.digest)
    keys = {each.digest: chance.random() ** (1 / worth(each)) for each in having}
    return sorted(having, key=lambda each: keys[each.digest], reverse=True)


def _of_session(
    session: SessionSurvey,
    mine: Sequence[DecisionPoint],
    taken: Counter[Stratum],
    most: int,
    chance: random.Random,
    *,
    strict: bool,
) -> Iterator[DecisionPoint]:
    """Yield points of a session, each from the stratum that is furthest below its share."""
    known = {point.id for point in mine}
    left = {name: [point for point in session.points if point.stratum == name] for name in Stratum}
    for points in left.values():
        points[:] = [point for point in points if point.id not in known]
        chance.shuffle(points)
    for _ in range(MAX_PER_SESSION - len(mine)):
        total = sum(taken.values())
        missing = {name: SHARES[name] * (total + 1) - taken[name] for name, points in left.items() if points}
        wanted = max(missing, key=lambda name: missing[name], default=None)
        if total >= most or wanted is None or (strict and missing[wanted] <= -1):
            return
        taken[wanted] += 1
        yield left[wanted].pop()
