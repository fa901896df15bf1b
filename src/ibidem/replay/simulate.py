"""Simulate a profile on every request of a recorded session, with its edits by tool and file.

A profile with only arrival edits runs once per segment: its edits of a request are a prefix of those of a longer one
(invariant 2). Other profiles run on every request.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from .. import formats, rules
from ..billing.budget import Bank, Economy, Moment, Point
from ..billing.calibration import Count, Weights
from ..engine import expansion, pipeline
from ..model import Conversation, Message
from ..plan import Edit, Plan
from ..recordings import RecordedRequest, RecordedSegment, Recording
from ..strategies.strategy import Fold, Progress, Start, Strategy, grows
from ..wire import open_document
from .billing import Told, shared_between
from .groundwork import ArrivalTape, Groundwork
from .need import Evicted, Need, find_needs, is_eviction
from .phases import FoldWatch, Phase, TextStages
from .removed import EditSizes
from .spans import EditSpan, EditSpans, SpanBegun, identity
from .verify import NOT_GIVEN_BACK, all_given_back, chosen_requests
from .views import SentView
from .worlds import TwoBanks, WorldsMoment, there


class _Silent(Fold):
    """Strategy state without edits, used if a strategy failed to start."""

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        return ()


class Turn(NamedTuple):
    """The edits of a simulated request."""

    edits: Sequence[Edit]
    more: bool = False
    """The edits are added to those of the previous request, and are all in later messages."""


class Simulation:
    """A session with a profile: the view of every request, and its edits."""

    def __init__(
        self,
        session: Recording,
        messages: Sequence[Sequence[Message]],
        strategies: Sequence[Strategy],
        weights: Weights,
        count: Count,
        economy: Economy | None = None,
        told: Told | None = None,
        groundwork: Groundwork | None = None,
        elsewhere: Told | None = None,
        watched: bool = True,
        verify: bool = True,
        at_once: bool = True,
        texts: bool = True,
        need: bool = False,
    ) -> None:
        """Simulate all segments, or leave them to calls of `run_segment` in order (`at_once=False`).

        `elsewhere`: usage reports of the other scenario. `watched`: also record `phases`. `verify`: expand everything.
        `texts`: keep the texts of edits, which are about as large as the session. `need`: also find `needs`.
        """
        self.points: list[Point] = []
        self.point_requests: list[int] = []
        """The request of each point, counted through the session; -1 if an earlier segment has the point already."""
        self.phases: list[Phase] = []
        """Eviction windows; empty for profiles that never revise."""
        self.views: list[SentView] = []
        self._spans = EditSpans(texts)
        self.needs: list[Need] = []
        self.edits = self.evictions = 0
        """Requests that need evicted text; edits in recorded outputs; and texts that were evicted, each once."""
        self._need = need
        self.failures: list[str] = []
        """Violated invariants, and errors that left requests unchanged."""
        self.expanded: set[int] = set()
        """Requests whose new messages were expanded and compared with the original."""
        self._told = told or Told()
        self._sizes = EditSizes(weights, count, self._told.thought)
        self._shared = groundwork or Groundwork(messages)
        self._watched, self._verify, self._elsewhere = watched, verify, elsewhere
        self._bank: TwoBanks | None = None
        self.agreed = self.agrees = True
        """The last segment (`agreed`) and all segments (`agrees`) would be sent in the same way in the other
        scenario."""
        self._counted = 0
        """Number of points before the last segment."""
        self._moments: dict[int, Moment] = {}
        self._last_segment = RecordedSegment()
        """The segment of `_moments`, whose keys are lengths of its history."""
        self._answered: float | None = None
        """Time of the last response."""
        self._failed = False
        """The last request was sent unchanged after an error, so the next one does not continue its edits."""
        self._strategies = tuple(strategies)
        self._economy = economy or Economy()
        self._lossless = all(each.lossless for each in strategies)
        self._session, self._messages = session, messages
        for number in range(len(messages)) if at_once else ():
            self.run(number)

    def awaits(self, number: int) -> None:
        """Announce that a segment's arrival log will be read completely, if this profile needs it."""
        final = all(each.final for each in self._strategies)
        tape = self._tape(self._sent_last(number), number) if final else None
        if tape is not None:
            tape.awaited = True

    def run(self, number: int) -> None:
        """Simulate the next segment."""
        segment, history = self._session.segments[number], self._messages[number]
        self._spans.owns(history[segment.inherited :], segment.apart)
        self._sizes.forget()
        self._failed = False
        run: Callable[[Recording, int, Sequence[Message]], None]
        run = self._once if all(each.final for each in self._strategies) else self._each
        if grows(self._strategies) and self._strategies[0].revises:
            run = self._grow
        self._bank, self._counted = None, len(self.points)
        run(self._session, number, history)
        self.agreed = not any(point.rewritten for point in self.points) or (self._bank is not None and self._bank.agree)
        self.agrees = self.agrees and self.agreed

    def run_beside(self, other: Simulation, number: int) -> None:
        """Simulate the next segment after `other`, which compared its scenario with this one.

        If both scenarios lead to the same requests, the views and points of `other` are copied. Its `spans` are not.
        """
        segment = self._session.segments[number]
        before = self._moments_of(segment)
        if not other.agreed or any(moment != there(other._moments[length]) for length, moment in before.items()):
            self.run(number)
            return
        self.views += other.views[len(self.views) :]
        self.phases += other.phases[len(self.phases) :]
        self.points += other.points[other._counted :]
        self.point_requests += other.point_requests[other._counted :]
        self._moments = {length: there(moment) for length, moment in other._moments.items()}
        self._answered, self._last_segment = other._answered, segment

    def _compact(self, session: Recording, segment: RecordedSegment, length: int) -> pipeline.Compacted:
        key = formats.named(session.format).history_key
        body = {**session.head, key: segment.history[:length]}
        model = segment.requests[0].model or None
        result = pipeline.compact(body, strategies=self._strategies, format=session.format, model=model)
        self.failures.extend(result.stats.failures)
        return result

    def _once(self, session: Recording, number: int, history: Sequence[Message]) -> None:
        segment = session.segments[number]
        lengths = [sent.length for sent in segment.requests]
        start, last = len(self.views), lengths[-1]
        conv = self._sent_last(number)
        tape = self._tape(conv, number)
        plan = self._arrival(conv, tape, segment.requests[0].model or None)
        if plan is None:
            tape, plan = None, self._compact(session, segment, last).plan
        if self._lossless and (tape is None or self._verify):
            self._expand_all(session, number, plan)
        elif self._lossless and tape is not None:
            self._expand_some(session, number, tape)
        edits = by_message(plan)
        view, tokens = self._view(edits, history)
        asked = self._shared.asked(number, last)
        for message, some in edits.items():
            first = start + bisect_right(lengths, message)
            for edit in some:
                self._spans.add(SpanBegun(first, edit, tokens[id(edit)]), start + len(lengths), asked, history)
        self.views.extend([view] * len(lengths))

    def _sent_last(self, number: int) -> Conversation:
        """Build the last request of a segment."""
        last = self._session.segments[number].requests[-1].length
        dialect = formats.named(self._session.format)
        return Conversation(tuple(self._messages[number][:last]), dialect, self._session.head)

    def _tape(self, conv: Conversation, number: int) -> ArrivalTape | None:
        """Get the shared arrival log; None unless the profile is one strategy that only makes arrival edits."""
        settings = getattr(self._strategies[0], "shared_arrival", None) if len(self._strategies) == 1 else None
        return None if settings is None else self._shared.tape(number, settings, Start(conv).refers)

    def _arrival(self, conv: Conversation, tape: ArrivalTape | None, model: str | None) -> Plan | None:
        """Make the plan from the arrival log; None if there is no log or it had an error."""
        edits = tape.edits(len(conv.messages)) if tape is not None else None
        strategy = self._strategies[0]
        return None if edits is None else Plan(tuple(pipeline.admitted(conv, strategy, edits, model)))

    def _expand_all(self, session: Recording, number: int, plan: Plan) -> None:
        """Check invariant 6 for the last request of a segment, and so for all earlier ones (invariant 2)."""
        segment, key = session.segments[number], formats.named(session.format).history_key
        body = {**session.head, key: segment.history[: segment.requests[-1].length]}
        sent = open_document(body).write(plan.changes((key,)))
        self.expanded.update(range(len(self.views), len(self.views) + len(segment.requests)))
        if expansion.expand(sent, format=session.format) != body:
            self.failures.append(NOT_GIVEN_BACK)

    def _expand_some(self, session: Recording, number: int, tape: ArrivalTape) -> None:
        """Check invariant 6 for the new messages of sampled requests."""
        start = len(self.views)
        lengths = [0, *(sent.length for sent in session.segments[number].requests)]
        places = chosen_requests(session, number, start)
        self.expanded.update(start + place for place in places)
        added = [range(lengths[place], lengths[place + 1]) for place in places]
        if not all_given_back(tape.said(), tape.fold.sources.tag, added):
            self.failures.append(NOT_GIVEN_BACK)

    def _each(self, session: Recording, number: int, history: Sequence[Message]) -> None:
        segment = session.segments[number]

        def turns() -> Iterator[Turn]:
            for sent in segment.requests:
                result = self._compact(session, segment, sent.length)
                self._check(result, history, sent.length)
                yield Turn(result.plan.edits)

        self._follow(number, history, turns(), len(segment.requests))

    def _grow(self, recording: Recording, segment_number: int, history: Sequence[Message]) -> None:
        """Simulate a profile that revises. Each request gets its idle time, and the simulated usage of the previous
        one."""
        segment = recording.segments[segment_number]
        conv = Conversation(tuple(history), formats.named(recording.format), {})
        progress = self._begun(conv, segment_number)
        inventory = progress.fold.inventory if self._watched else None
        watch = FoldWatch(progress, inventory) if inventory is not None else None
        first = len(self.views)
        moments = self._begin_moments(segment)

        def turns() -> Iterator[Turn]:
            last: RecordedRequest | None = None
            for number, sent in enumerate(segment.requests, first):
                idle = sent.at - self._answered if self._answered and sent.at is not None else None
                if last is None and not moments and segment.cause != "start":
                    idle = float("inf")  # after a compaction, little of the context is in the cache
                self._answered = sent.at if sent.answered is None else sent.answered
                moment = self._told.moment(number, self.views, progress.fold.spent)
                if sent.length not in moments:
                    told = (self._context(last), self._cached(self._told, number - 1)) if last else (None, None)
                    lost = last is not None and _has_new_settings(recording, last, sent)
                    moment = moment._replace(idle=idle, context=told[0], cached=told[1], new_settings=lost)
                    if self._elsewhere is not None and last:
                        moment = WorldsMoment.of(moment, self._cached(self._elsewhere, number - 1))
                    moments[sent.length] = moment
                yield self._taken(progress, conv, sent, moments)
                if watch is not None:
                    watch.look(number)
                last = sent

        self._follow(segment_number, history, turns(), len(segment.requests))
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

    def _begun(self, conv: Conversation, number: int) -> Progress:
        try:
            bank = Bank if self._elsewhere is None else self._begin_bank
            arrival = self._shared.arrival(number)
            start = Start(replace(conv, messages=()), economy=self._economy, arrival=arrival, bank=bank)
            return Progress(self._strategies[0].begin(start))
        except Exception as error:  # third-party strategies can raise anything
            self.failures.append(f"{type(error).__name__}: {error}")
            return Progress(_Silent())

    def _taken(
        self, progress: Progress, conv: Conversation, sent: RecordedRequest, moments: Mapping[int, Moment]
    ) -> Turn:
        """Compute the edits of a request. Plans of third-party strategies are checked; ours, which have an inventory,
        are covered by tests of the invariants."""
        try:
            start = progress.length
            arrived = progress.take(conv.messages[start : sent.length], moments)
            if progress.fold.inventory is not None:
                changes = progress.changes if progress.revised else {}
                is_behind = changes is not None and all(message >= start for message in changes)
                anew, self._failed = not is_behind or self._failed, False
                if anew or changes is None:
                    return Turn(progress.plan.edits)
                edits = [edit for edit in arrived if edit.message not in changes]
                return Turn([*edits, *chain.from_iterable(changes.values())], more=True)
            request = replace(conv, messages=conv.messages[: sent.length])
            return Turn(pipeline.planned_for(request, self._strategies[0], progress.plan, sent.model or None).edits)
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            self._failed = True
            return Turn(())

    def _begin_moments(self, segment: RecordedSegment) -> dict[int, Moment]:
        """Start a segment with the contexts of shared requests: after a rewind, their decisions are still in effect."""
        self._moments, self._last_segment = self._moments_of(segment), segment
        return self._moments

    def _moments_of(self, segment: RecordedSegment) -> dict[int, Moment]:
        last = self._last_segment
        apart = last.apart or segment.apart
        longest = 0 if apart else min(len(last.history), len(segment.history))
        common = shared_between(last, segment, longest)
        return {length: moment for length, moment in self._moments.items() if length <= common}

    def _begin_bank(self, economy: Economy, phi: float, credit: float) -> TwoBanks:
        self._bank = TwoBanks(economy, phi, credit)
        return self._bank

    def _cached(self, told: Told, number: int) -> int | None:
        """Compute the simulated cache read of a request; None if it is not reported."""
        if told.reads is None:
            return None
        return told.reads(number, self.views[number], self.views[number - 1] if number else None)

    @property
    def spans(self) -> list[EditSpan]:
        """Every edit, with the range of its requests."""
        return self._spans.all

    def _context(self, last: RecordedRequest) -> int | None:
        """Compute the input tokens of the previous request: the recorded tokens less the removed ones."""
        if last.usage is None:
            return None
        scale = self._told.scales[len(self.views) - 1] if self._told.scales else 1.0
        return max(0, round(last.usage.input - scale * self.views[-1].before(last.length)))

    def _view_at(self, edits: Callable[[int], list[Edit]], history: Sequence[Message], point: int) -> SentView:
        return self._view(by_message(edits(point)), history)[0]

    def _follow(self, segment: int, history: Sequence[Message], turns: Iterable[Turn], requests: int) -> None:
        """Add the views and edits of requests whose plans can revise sent text."""
        asked = self._shared.asked(segment)
        running: dict[tuple[Any, ...], SpanBegun] = {}
        evicted: list[Evicted] = []
        start = len(self.views)
        view = SentView()
        for number, turn in enumerate(turns, start):
            edits = by_message(turn.edits)
            changes, tokens = self._sizes.changes(edits, history)
            view = view.extended(changes) if turn.more else SentView(changes)
            self.views.append(view)
            now = {identity(edit): edit for some in edits.values() for edit in some}
            for key in [] if turn.more else [key for key in running if key not in now]:
                span = running.pop(key)
                self._spans.add(span, number, asked, history)
                evicted.append(Evicted(span.first - start, number - start, span.edit, span.tokens))
            for key, edit in now.items():
                running.setdefault(key, SpanBegun(number, edit, tokens[id(edit)]))
        for span in running.values():
            self._spans.add(span, start + requests, asked, history)
            evicted.append(Evicted(span.first - start, requests, span.edit, span.tokens))
        if self._need:
            self._find_needs(segment, start, evicted)

    def _find_needs(self, segment: int, start: int, evicted: Sequence[Evicted]) -> None:
        outputs = self._shared.outputs(segment, [sent.length for sent in self._session.segments[segment].requests])
        self.edits += outputs.edits
        self.evictions += len({(each.edit.message, each.edit.path) for each in evicted if is_eviction(each.edit)})
        needs = find_needs(outputs, evicted)
        self.needs += [need._replace(request=start + need.request) for need in needs]

    def _check(self, result: pipeline.Compacted, history: Sequence[Message], length: int) -> None:
        """Check invariant 1 for a plan that changes the structure of messages."""
        if result.plan.structural and result.violations:
            before = Conversation(tuple(history[:length]), formats.named(result.format), {})
            known = {violation.rule for violation in rules.violations(before)}
            broken = {violation.rule for violation in result.violations} - known
            self.failures.extend(f"law 1: {rule}" for rule in sorted(broken))

    def _view(
        self, edits: Mapping[int, Sequence[Edit]], history: Sequence[Message]
    ) -> tuple[SentView, dict[int, float]]:
        changes, tokens = self._sizes.changes(edits, history)
        return SentView(changes), tokens


def _edits_at(staged_texts: Iterable[TextStages], point: int) -> list[Edit]:
    return [edit for staged in staged_texts if (edit := staged.at(point)) is not None]


def by_message(edits: Iterable[Edit]) -> dict[int, list[Edit]]:
    """Group edits by message, in the order of the messages."""
    found: dict[int, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.message, []).append(edit)
    return dict(sorted(found.items()))


def _has_new_settings(recording: Recording, last: RecordedRequest, sent: RecordedRequest) -> bool:
    """Whether a request has another model or effort than the one before, so that its cache is empty."""
    settings = formats.named(recording.format).cache_settings({"model": "known"})  # only some formats have any
    changed = (sent.model != last.model and sent.model and last.model) or (
        sent.effort != last.effort and sent.effort and last.effort
    )
    return bool(settings and changed)
