"""What a profile does to every request of a recorded session, and for which tool and file.

A profile of arrival edits is run once per segment: what it does to a request is what it does to a longer one, cut off
(law 2). Any other is run on every request anew, as it would have been.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from .. import formats, rules
from ..billing.budget import Economy, Moment, Point
from ..billing.calibration import Count, Weights, weigh, weigh_thinking
from ..calls import file_of
from ..engine import expansion, pipeline
from ..model import Conversation, Kind, Message, Text, Thinking, ToolCall, ToolResult
from ..plan import Edit, Plan, target
from ..recordings import RecordedRequest, RecordedSegment, Recording
from ..strategies.strategy import Fold, Progress, Start, Strategy, grows
from .billing import MessageChange, SentView, Told, shared_entries
from .phases import FoldWatch, Phase, TextStages


class CallTarget(NamedTuple):
    """What a result was for."""

    tool: str = ""
    file: str = ""


class EditSpan(NamedTuple):
    """An edit, and the requests it was in: from `first` on and before `last`, counted through the session."""

    strategy: str
    asked: CallTarget
    tokens: float
    """Provider tokens that it takes out of each of them, before they are scaled."""
    taken: float
    """Of these, those that no earlier edit of the same text took out: a text may be folded, and let go later."""
    hits: int
    """None for an edit that was counted in an earlier segment, or made in a message of another session."""
    first: int
    last: int
    edit: Edit
    """Its texts, and why it was made."""


class _Silent(Fold):
    """In place of a fold that could not begin."""

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        return ()


class Simulation:
    """A session under a profile: a view of every request, and the edits behind them."""

    def __init__(
        self,
        session: Recording,
        messages: Sequence[Sequence[Message]],
        strategies: Sequence[Strategy],
        weights: Weights,
        count: Count,
        economy: Economy | None = None,
        told: Told | None = None,
    ) -> None:
        self.points: list[Point] = []
        self.point_requests: list[int] = []
        """The request of each point, counted through the session; -1 if it was told with an earlier segment."""
        self.phases: list[Phase] = []
        """Of profiles that look back."""
        self.views: list[SentView] = []
        self.spans: list[EditSpan] = []
        self.failures: list[str] = []
        """Laws that were broken, and requests that were left as they came because something went wrong."""
        self._weights, self._count, self._told = weights, count, told or Told()
        self._thought = self._told.thought or (lambda message: weigh(message, weights, count).thinking)
        self._moments: dict[int, Moment] = {}
        self._last_history: Sequence[object] = ()
        """Of the last segment; moments are by length of the history."""
        self._answered: float | None = None
        """When the last request was."""
        self._own: set[int] = set()
        """Messages that are the session's own, by identity: segments share those that they have in common."""
        self._taken_out: dict[tuple[Any, ...], float] = {}
        self._counted: set[tuple[Any, ...]] = set()
        self._strategies = tuple(strategies)
        self._economy = economy or Economy()
        self._lossless = all(each.lossless for each in strategies)
        run: Callable[[Recording, RecordedSegment, Sequence[Message]], None]
        run = self._once if all(each.final for each in strategies) else self._each
        if grows(strategies) and strategies[0].revises:
            run = self._grow
        for segment, history in zip(session.segments, messages, strict=True):
            self._own.update(map(id, history[segment.inherited :]))
            run(session, segment, history)

    def _compact(self, session: Recording, segment: RecordedSegment, length: int) -> pipeline.Compacted:
        key = formats.named(session.format).history_key
        body = {**session.head, key: segment.history[:length]}
        model = segment.requests[0].model or None
        result = pipeline.compact(body, strategies=self._strategies, format=session.format, model=model)
        self.failures.extend(result.stats.failures)
        return result

    def _once(self, session: Recording, segment: RecordedSegment, history: Sequence[Message]) -> None:
        last = segment.requests[-1].length
        result = self._compact(session, segment, last)
        body = {**session.head, formats.named(session.format).history_key: segment.history[:last]}
        if self._lossless and expansion.expand(result.request, format=session.format) != body:
            self.failures.append("law 6: what was sent does not give back what was said")
        edits = by_message(result.plan)
        view, tokens = self._view(edits, history)
        start = len(self.views)
        lengths = [sent.length for sent in segment.requests]
        asked = asked_in(history[:last])
        for message, some in edits.items():
            first = start + bisect_right(lengths, message)
            for edit in some:
                self._span((first, edit, tokens[id(edit)]), start + len(lengths), asked, history)
        self.views.extend([view] * len(lengths))

    def _each(self, session: Recording, segment: RecordedSegment, history: Sequence[Message]) -> None:
        def plans() -> Iterator[Plan]:
            for sent in segment.requests:
                result = self._compact(session, segment, sent.length)
                self._check(result, history, sent.length)
                yield result.plan

        self._follow(segment, history, plans())

    def _grow(self, recording: Recording, segment: RecordedSegment, history: Sequence[Message]) -> None:
        """Requests come with their pauses, and with what the provider would have said of the one before."""
        conv = Conversation(tuple(history), formats.named(recording.format), {})
        progress = self._begun(conv)
        inventory = progress.fold.inventory
        watch = FoldWatch(progress, inventory) if inventory is not None else None
        first = len(self.views)
        moments = self._begin_moments(segment)

        def plans() -> Iterator[Plan]:
            last: RecordedRequest | None = None
            for number, sent in enumerate(segment.requests, first):
                idle = sent.at - self._answered if self._answered and sent.at is not None else None
                if last is None and not moments and segment.cause != "start":
                    idle = float("inf")  # the client rewrote its context: little of it is in the cache
                self._answered = sent.at if sent.answered is None else sent.answered
                moment = self._told.moment(number, self.views, progress.fold.spent)
                if sent.length not in moments:
                    told = (self._context(last), self._cached(number - 1)) if last else (None, None)
                    moments[sent.length] = moment._replace(idle=idle, context=told[0], cached=told[1])
                yield self._taken(progress, conv, sent, moments)
                if watch is not None:
                    watch.look(number)
                last = sent

        self._follow(segment, history, plans())
        self._add_points(progress.points, segment, first)
        if watch is not None:
            watch.end(len(self.views))
            view = partial(self._view_at, partial(_edits_at, watch.staged_texts), history)
            self.phases.append(Phase(first, len(self.views), watch.staged_texts, watch.points, view))

    def _add_points(self, points: Iterable[Point], segment: RecordedSegment, first: int) -> None:
        lengths = [sent.length for sent in segment.requests]
        for point in points:
            number = first + min(bisect_left(lengths, point.length), len(lengths) - 1)
            self.points.append(point)
            self.point_requests.append(-1 if first and point.length <= segment.inherited else number)

    def _begun(self, conv: Conversation) -> Progress:
        try:
            return Progress(self._strategies[0].begin(Start(replace(conv, messages=()), economy=self._economy)))
        except Exception as error:  # it may be anybody's
            self.failures.append(f"{type(error).__name__}: {error}")
            return Progress(_Silent())

    def _taken(
        self, progress: Progress, conv: Conversation, sent: RecordedRequest, moments: Mapping[int, Moment]
    ) -> Plan:
        """What is sent. A strategy that shows its texts is one of ours, whose laws are tested; others are watched."""
        try:
            progress.take(conv.messages[progress.length : sent.length], moments)
            if progress.fold.inventory is not None:
                return progress.plan
            request = replace(conv, messages=conv.messages[: sent.length])
            return pipeline.planned_for(request, self._strategies[0], progress.plan, sent.model or None)
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return Plan()

    def _begin_moments(self, segment: RecordedSegment) -> dict[int, Moment]:
        """Of requests that were sent before, where a client went back: what was decided then is in what is sent now."""
        longest = min(len(self._last_history), len(segment.history))
        common = shared_entries(self._last_history, segment.history, longest)
        self._last_history = segment.history
        self._moments = {length: moment for length, moment in self._moments.items() if length <= common}
        return self._moments

    def _cached(self, number: int) -> int | None:
        """What the provider would have read of a request."""
        if self._told.reads is None:
            return None
        return self._told.reads(number, self.views[number], self.views[number - 1] if number else None)

    def _context(self, last: RecordedRequest) -> int | None:
        """Input tokens of the request before: what was recorded, less what was taken out of it."""
        if last.usage is None:
            return None
        scale = self._told.scales[len(self.views) - 1] if self._told.scales else 1.0
        return max(0, round(last.usage.input - scale * self.views[-1].before(last.length)))

    def _view_at(self, edits: Callable[[int], list[Edit]], history: Sequence[Message], point: int) -> SentView:
        return self._view(by_message(edits(point)), history)[0]

    def _follow(self, segment: RecordedSegment, history: Sequence[Message], plans: Iterable[Plan]) -> None:
        """Views of requests whose plans may change what was sent before."""
        asked = asked_in(history)
        running: dict[tuple[Any, ...], tuple[int, Edit, float]] = {}
        start = len(self.views)
        for number, plan in enumerate(plans, start):
            edits = by_message(plan)
            view, tokens = self._view(edits, history)
            self.views.append(view)
            now = {_identity(edit): edit for some in edits.values() for edit in some}
            for key in [key for key in running if key not in now]:
                self._span(running.pop(key), number, asked, history)
            for key, edit in now.items():
                running.setdefault(key, (number, edit, tokens[id(edit)]))
        for span in running.values():
            self._span(span, start + len(segment.requests), asked, history)

    def _span(
        self, span: tuple[int, Edit, float], last: int, asked: Mapping[str, CallTarget], history: Sequence[Message]
    ) -> None:
        first, edit, tokens = span
        message = history[edit.message] if 0 <= edit.message < len(history) else None
        what = _asked(message, edit, asked) if message else CallTarget()
        taken, hits = self._once_counted(edit, message, tokens)
        self.spans.append(EditSpan(edit.strategy, what, tokens, taken, hits, first, last, edit))

    def _once_counted(self, edit: Edit, message: Message | None, tokens: float) -> tuple[float, int]:
        """What an edit takes out that none before it did, and how often it hits."""
        if message is not None and id(message) not in self._own:
            return 0.0, 0
        owner = edit.message if message is None else id(message)
        place = (owner, edit.path, edit.added if edit.op in ("before", "after") else "")
        before = self._taken_out.get(place)
        self._taken_out[place] = tokens if before is None else max(before, tokens)
        known = (owner, *_identity(edit))
        hits = 0 if known in self._counted else edit.hits
        self._counted.add(known)
        return tokens if before is None else max(0.0, tokens - before), hits

    def _check(self, result: pipeline.Compacted, history: Sequence[Message], length: int) -> None:
        """Law 1, where a plan does more than put one text in another's place."""
        if result.plan.structural and result.violations:
            before = Conversation(tuple(history[:length]), formats.named(result.format), {})
            known = {violation.rule for violation in rules.violations(before)}
            broken = {violation.rule for violation in result.violations} - known
            self.failures.extend(f"law 1: {rule}" for rule in sorted(broken))

    def _view(
        self, edits: Mapping[int, Sequence[Edit]], history: Sequence[Message]
    ) -> tuple[SentView, dict[int, float]]:
        """The view, and the tokens that each edit removes (by its identity)."""
        tokens: dict[int, float] = {}
        changes = []
        for message, some in edits.items():
            for edit in some:
                tokens[id(edit)] = self._removed(edit, history[message] if 0 <= message < len(history) else None)
            key = hash(tuple((edit.op, edit.path, edit.added) for edit in some))
            changes.append(MessageChange(message, key, sum(tokens[id(edit)] for edit in some)))
        return SentView(changes), tokens

    def _removed(self, edit: Edit, message: Message | None) -> float:
        """Tokens that an edit removes, weighed. Thinking goes with what is sealed in it, not with its text alone."""
        kind = kind_of(message, edit) if message else "messages"
        going = _thinking_in(message, edit) if message else []
        told = {part.text for part in going}
        removed = sum(self._count(text) for text in edit.removed if text not in told)
        added = self._count(edit.added) if edit.added else 0
        return self._weights.of(kind) * (removed - added) + (self._thoughts(message, going) if message else 0.0)

    def _thoughts(self, message: Message, going: Sequence[Thinking]) -> float:
        if not going:
            return 0.0
        every = [part for part in message.parts if isinstance(part, Thinking)]
        sizes = {id(part): 1.0 + weigh_thinking(part, self._weights, self._count) for part in every}
        return self._thought(message) * sum(sizes[id(part)] for part in going) / sum(sizes.values())


def _thinking_in(message: Message, edit: Edit) -> list[Thinking]:
    """Thinking that an edit drops: a part, or all of a message that goes."""
    if edit.op != "drop":
        return []
    return [part for part in message.parts if isinstance(part, Thinking) and edit.path in ((), part.path)]


def _edits_at(staged_texts: Iterable[TextStages], point: int) -> list[Edit]:
    return [edit for staged in staged_texts if (edit := staged.at(point)) is not None]


def by_message(edits: Iterable[Edit]) -> dict[int, list[Edit]]:
    """Edits by the message they are in, in the order of the messages."""
    found: dict[int, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.message, []).append(edit)
    return dict(sorted(found.items()))


def asked_in(history: Iterable[Message]) -> dict[str, CallTarget]:
    """Call id → tool and file."""
    return {call.id: CallTarget(call.name, file_of(call)) for message in history for call in message.calls}


def _identity(edit: Edit) -> tuple[Any, ...]:
    return (edit.strategy, edit.op, edit.message, edit.path, edit.added)


def kind_of(message: Message, edit: Edit) -> Kind:
    """What an edit is of: results, say, are counted otherwise than prose."""
    found = target(message, edit) if edit.path else None
    return found.kind if found else "messages"


def _asked(message: Message, edit: Edit, asked: Mapping[str, CallTarget]) -> CallTarget:
    """What an edit of a result was for; for anything else, what was edited."""
    for part in message.parts:
        if isinstance(part, ToolResult) and any(isinstance(s, Text) and s.path == edit.path for s in part.segments):
            return asked.get(part.call_id, CallTarget(part.name))
        if isinstance(part, ToolCall) and edit.path in (part.path, part.input_path):
            return asked.get(part.id, CallTarget(part.name))
    return CallTarget()
