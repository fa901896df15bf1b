"""Decision points: recorded requests and what the agent did next, picked by how much that has to do with a reference.

Most requests hold a reference somewhere, and few next actions have anything to do with one. So points are picked by
strata (`outcomes.Stratum`): half from those that must follow a reference, a quarter from other calls on such a file, a
quarter from the rest. Requests in which nothing is left out are no points: both arms would be one.

Sessions are drawn at random, each in proportion to the points that it has of what is wanted, and of each a few points
are taken: points of one session share their beginning, which is paid for once. Drawn so, the points of a stratum have
about the same chance each, and each stands for as many points of the recordings as any other of its stratum.
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
"""Of the points that are asked about."""
MAX_PER_SESSION = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPoint:
    """A request of a recorded session, by its place there, and what came next."""

    id: str
    session: str
    """Digests, which say nothing of what was said."""
    segment: int
    number: int
    length: int
    stratum: Stratum
    recorded: str
    """The class of what the agent did."""
    input: int | None = None
    output: int | None = None
    """Tokens that were counted for it, where the log says."""


@dataclass(frozen=True, slots=True)
class SessionSurvey:
    """A session and its points."""

    digest: str
    path: str
    """Of its log."""
    place: int
    """Among the sessions of that log."""
    agent: str
    format: str
    model: str
    """The one that most of its points were asked of; without points, most of its requests."""
    requests: int
    """That were answered, with or without something left out."""
    points: tuple[DecisionPoint, ...]
    host: str = ""
    """Where its requests went, if the recording says."""


def survey(session: Recording, place: int, profile: str) -> SessionSurvey:
    """The points of a session under a profile."""
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
    """A session is known by its id, and by what it begins with: its log may lie anywhere."""
    history = session.segments[0].history if session.segments else []
    return digest(session.format, session.id, session.name, to_json(history[:2]))


def beginnings(segment: RecordedSegment) -> dict[int, str]:
    """Digests of what its requests say, by their lengths."""
    lengths = {sent.length for sent in segment.requests}
    running, found = sha256(), dict[int, str]()
    for length, entry in enumerate(segment.history, 1):
        running.update(to_json(entry).encode("utf-8", "surrogatepass"))
        if length in lengths:
            found[length] = running.hexdigest()
    return found


def is_changed(session: Recording, points: Iterable[DecisionPoint]) -> bool:
    """Whether a session does not say any more what it said when these points were picked."""
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
    """Goes through a session with its requests, and knows what each of them shows."""

    def __init__(self, session: Recording) -> None:
        self._session = session
        self._dialect = formats.named(session.format)
        self._segment = -1
        self.beginnings: dict[int, str] = {}
        """Of the requests of this stretch."""
        self._messages: list[Message] = []
        self._shown = ShownFiles()
        self._taken = 0

    def answer(self, request: RequestEdits) -> list[ToolCall] | None:
        """The calls that were made next; None where nothing tells what came next."""
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


# ── picking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def population(surveys: Iterable[SessionSurvey]) -> Counter[Stratum]:
    """How many points there are of each stratum."""
    return Counter(point.stratum for each in surveys for point in each.points)


def choose(
    surveys: Sequence[SessionSurvey], most: int, seed: int, without: Container[str] = ()
) -> list[list[DecisionPoint]]:
    """Points to ask about, by session, ascending in each; in the order in which sessions were drawn. Any beginning of
    that order is a choice as well, of fewer points. `without` are the ids of points that may not be picked."""
    if without:
        surveys = [
            replace(each, points=tuple(point for point in each.points if point.id not in without)) for each in surveys
        ]
    chance = random.Random(seed)
    taken: Counter[Stratum] = Counter()
    picked: dict[str, list[DecisionPoint]] = {}
    order = _drawn(surveys, chance)
    for strict in (True, False):  # the second time also what is more than its share, if there is room
        for each in order:
            mine = picked.setdefault(each.digest, [])
            for point in _of_session(each, mine, taken, most, chance, strict=strict):
                mine.append(point)
    return [sorted(mine, key=lambda point: (point.segment, point.number)) for mine in picked.values() if mine]


def _drawn(surveys: Sequence[SessionSurvey], chance: random.Random) -> list[SessionSurvey]:
    """Without putting back, each with a chance in proportion to what it has of each stratum."""
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
    """What is missing most, as long as the session has it."""
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
