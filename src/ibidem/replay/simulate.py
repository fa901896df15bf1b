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
from ..billing.calibration import Count, TokenWeights
from ..billing.revision_budget import CachePricing, PricedRevision, RequestContext, SavingsBalance
from ..engine import expansion, pipeline
from ..model import Conversation, Message
from ..plan import Edit, Plan
from ..recordings import RecordedRequest, RecordedSegment, Recording
from ..strategies.strategy import ConversationStart, Strategy, StrategyRun, StrategyState, is_incremental
from ..wire import open_document
from .cache_scenarios import PairedBalance, PairedContext, other_scenario
from .edit_lifespans import EditSpan, EditSpans, OpenEdit, edit_identity
from .eviction_windows import EvictionWindow, StateWatcher, TextStages
from .need import EvictedText, Need, find_needs, is_eviction
from .removed_tokens import EditSizes
from .replay_bill import ReportedUsage, shared_between
from .sent_views import SentView
from .shared_arrival import ArrivalLog, SharedArrival
from .verify import EXPANSION_DIFFERS, sampled_requests, verify_expansion


class _NullState(StrategyState):
    """Strategy state without edits, used if a strategy failed to start."""

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        return ()


class SimulatedRequest(NamedTuple):
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
        weights: TokenWeights,
        count: Count,
        economy: CachePricing | None = None,
        usage: ReportedUsage | None = None,
        groundwork: SharedArrival | None = None,
        other_usage: ReportedUsage | None = None,
        record_windows: bool = True,
        verify: bool = True,
        at_once: bool = True,
        texts: bool = True,
        need: bool = False,
    ) -> None:
        """Simulate all segments, or leave them to calls of `run_segment` in order (`at_once=False`).

        `other_usage`: usage reports of the other scenario. `record_windows`: also record `phases`. `verify`: expand
        everything. `texts`: keep the texts of edits, about as large as the session. `need`: also find `needs`.
        """
        self.points: list[PricedRevision] = []
        self.point_requests: list[int] = []
        """The request of each point, counted through the session; -1 if an earlier segment has the point already."""
        self.phases: list[EvictionWindow] = []
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
        self._told = usage or ReportedUsage()
        self._sizes = EditSizes(weights, count, self._told.thought)
        self._shared = groundwork or SharedArrival(messages)
        self._watched, self._verify, self._elsewhere = record_windows, verify, other_usage
        self._bank: PairedBalance | None = None
        self.agreed = self.agrees = True
        """The last segment (`agreed`) and all segments (`agrees`) would be sent in the same way in the other
        scenario."""
        self._counted = 0
        """Number of points before the last segment."""
        self._moments: dict[int, RequestContext] = {}
        self._last_segment = RecordedSegment()
        """The segment of `_moments`, whose keys are lengths of its history."""
        self._answered: float | None = None
        """Time of the last response."""
        self._failed = False
        """The last request was sent unchanged after an error, so the next one does not continue its edits."""
        self._strategies = tuple(strategies)
        self._economy = economy or CachePricing()
        self._lossless = all(each.lossless for each in strategies)
        self._session, self._messages = session, messages
        for number in range(len(messages)) if at_once else ():
            self.run_segment(number)

    def await_arrival(self, number: int) -> None:
        """Announce that a segment's arrival log will be read completely, if this profile needs it."""
        final = all(each.final for each in self._strategies)
        tape = self._shared_log(self._sent_last(number), number) if final else None
        if tape is not None:
            tape.awaited = True

    def run_segment(self, number: int) -> None:
        """Simulate the next segment."""
        segment, history = self._session.segments[number], self._messages[number]
        self._spans.start_segment(history[segment.inherited :], segment.is_compressed)
        self._sizes.start_segment()
        self._failed = False
        run: Callable[[Recording, int, Sequence[Message]], None]
        run = self._run_once if all(each.final for each in self._strategies) else self._run_each
        if is_incremental(self._strategies) and self._strategies[0].revises:
            run = self._run_incrementally
        self._bank, self._counted = None, len(self.points)
        run(self._session, number, history)
        self.agreed = not any(point.rewritten for point in self.points) or (self._bank is not None and self._bank.agree)
        self.agrees = self.agrees and self.agreed

    def run_alongside(self, other: Simulation, number: int) -> None:
        """Simulate the next segment after `other`, which compared its scenario with this one.

        If both scenarios lead to the same requests, the views and points of `other` are copied. Its `spans` are not.
        """
        segment = self._session.segments[number]
        before = self._shared_contexts(segment)
        if not other.agreed or any(
            moment != other_scenario(other._moments[length]) for length, moment in before.items()
        ):
            self.run_segment(number)
            return
        self.views += other.views[len(self.views) :]
        self.phases += other.phases[len(self.phases) :]
        self.points += other.points[other._counted :]
        self.point_requests += other.point_requests[other._counted :]
        self._moments = {length: other_scenario(moment) for length, moment in other._moments.items()}
        self._answered, self._last_segment = other._answered, segment

    def _compact_request(self, session: Recording, segment: RecordedSegment, length: int) -> pipeline.Compacted:
        key = formats.format_named(session.format).history_key
        body = {**session.head, key: segment.history[:length]}
        model = segment.requests[0].model or None
        result = pipeline.compact(body, strategies=self._strategies, format=session.format, model=model)
        self.failures.extend(result.stats.failures)
        return result

    def _run_once(self, session: Recording, number: int, history: Sequence[Message]) -> None:
        segment = session.segments[number]
        lengths = [sent.length for sent in segment.requests]
        start, last = len(self.views), lengths[-1]
        conv = self._sent_last(number)
        tape = self._shared_log(conv, number)
        plan = self._arrival_plan(conv, tape, segment.requests[0].model or None)
        if plan is None:
            tape, plan = None, self._compact_request(session, segment, last).plan
        if self._lossless and (tape is None or self._verify):
            self._expand_all(session, number, plan)
        elif self._lossless and tape is not None:
            self._expand_some(session, number, tape)
        edits = group_by_message(plan)
        view, tokens = self._make_view(edits, history)
        targets = self._shared.targets_in(number, last)
        for message, some in edits.items():
            first = start + bisect_right(lengths, message)
            for edit in some:
                self._spans.add(OpenEdit(first, edit, tokens[id(edit)]), start + len(lengths), targets, history)
        self.views.extend([view] * len(lengths))

    def _sent_last(self, number: int) -> Conversation:
        """Build the last request of a segment."""
        last = self._session.segments[number].requests[-1].length
        dialect = formats.format_named(self._session.format)
        return Conversation(tuple(self._messages[number][:last]), dialect, self._session.head)

    def _shared_log(self, conv: Conversation, number: int) -> ArrivalLog | None:
        """Get the shared arrival log; None unless the profile is one strategy that only makes arrival edits."""
        settings = getattr(self._strategies[0], "shared_arrival", None) if len(self._strategies) == 1 else None
        return None if settings is None else self._shared.get_log(number, settings, ConversationStart(conv).refers)

    def _arrival_plan(self, conv: Conversation, tape: ArrivalLog | None, model: str | None) -> Plan | None:
        """Make the plan from the arrival log; None if there is no log or it had an error."""
        edits = tape.edits_before(len(conv.messages)) if tape is not None else None
        strategy = self._strategies[0]
        return None if edits is None else Plan(tuple(pipeline.admissible_edits(conv, strategy, edits, model)))

    def _expand_all(self, session: Recording, number: int, plan: Plan) -> None:
        """Check invariant 6 for the last request of a segment, and so for all earlier ones (invariant 2)."""
        segment, key = session.segments[number], formats.format_named(session.format).history_key
        body = {**session.head, key: segment.history[: segment.requests[-1].length]}
        sent_body = open_document(body).write(plan.changes((key,)))
        self.expanded.update(range(len(self.views), len(self.views) + len(segment.requests)))
        if expansion.expand(sent_body, format=session.format) != body:
            self.failures.append(EXPANSION_DIFFERS)

    def _expand_some(self, session: Recording, number: int, tape: ArrivalLog) -> None:
        """Check invariant 6 for the new messages of sampled requests."""
        start = len(self.views)
        lengths = [0, *(sent.length for sent in session.segments[number].requests)]
        places = sampled_requests(session, number, start)
        self.expanded.update(start + place for place in places)
        added_ranges = [range(lengths[place], lengths[place + 1]) for place in places]
        if not verify_expansion(tape.sent_texts(), tape.fold.sources.tag, added_ranges):
            self.failures.append(EXPANSION_DIFFERS)

    def _run_each(self, session: Recording, number: int, history: Sequence[Message]) -> None:
        segment = session.segments[number]

        def simulate_requests() -> Iterator[SimulatedRequest]:
            for sent in segment.requests:
                result = self._compact_request(session, segment, sent.length)
                self._check_plan(result, history, sent.length)
                yield SimulatedRequest(result.plan.edits)

        self._add_requests(number, history, simulate_requests(), len(segment.requests))

    def _run_incrementally(self, recording: Recording, segment_number: int, history: Sequence[Message]) -> None:
        """Simulate a profile that revises. Each request gets its idle time, and the simulated usage of the previous
        one."""
        segment = recording.segments[segment_number]
        conv = Conversation(tuple(history), formats.format_named(recording.format), {})
        progress = self._start_strategy(conv, segment_number)
        inventory = progress.fold.inventory if self._watched else None
        watch = StateWatcher(progress, inventory) if inventory is not None else None
        first = len(self.views)
        moments = self._start_contexts(segment)

        def simulate_requests() -> Iterator[SimulatedRequest]:
            last: RecordedRequest | None = None
            for number, request in enumerate(segment.requests, first):
                idle = request.at - self._answered if self._answered and request.at is not None else None
                if last is None and not moments and segment.cause != "start":
                    idle = float("inf")  # after a compaction, little of the context is in the cache
                self._answered = request.at if request.answered is None else request.answered
                moment = self._told.request_context(number, self.views, progress.fold.spent)
                if request.length not in moments:
                    counts = (
                        (self._context_tokens(last), self._cached_tokens(self._told, number - 1))
                        if last
                        else (None, None)
                    )
                    lost = last is not None and _has_new_settings(recording, last, request)
                    moment = moment._replace(idle=idle, context=counts[0], cached=counts[1], new_settings=lost)
                    if self._elsewhere is not None and last:
                        moment = PairedContext.from_context(moment, self._cached_tokens(self._elsewhere, number - 1))
                    moments[request.length] = moment
                yield self._simulate_request(progress, conv, request, moments)
                if watch is not None:
                    watch.record_request(number)
                last = request

        self._add_requests(segment_number, history, simulate_requests(), len(segment.requests))
        self._add_points(progress.points, segment, first)
        if watch is not None:
            watch.finish_window(len(self.views))
            view = partial(self._view_at, partial(_edits_at, watch.staged_texts), history)
            self.phases.append(EvictionWindow(first, len(self.views), watch.staged_texts, watch.points, view))

    def _add_points(self, points: Iterable[PricedRevision], segment: RecordedSegment, first: int) -> None:
        lengths = [sent.length for sent in segment.requests]
        for point in points:
            number = first + min(bisect_left(lengths, point.length), len(lengths) - 1)
            self.points.append(point)
            self.point_requests.append(-1 if first and point.length <= segment.inherited else number)

    def _start_strategy(self, conv: Conversation, number: int) -> StrategyRun:
        try:
            bank = SavingsBalance if self._elsewhere is None else self._make_balance
            arrival = self._shared.arrival_factory(number)
            start = ConversationStart(replace(conv, messages=()), economy=self._economy, arrival=arrival, bank=bank)
            return StrategyRun(self._strategies[0].begin(start))
        except Exception as error:  # third-party strategies can raise anything
            self.failures.append(f"{type(error).__name__}: {error}")
            return StrategyRun(_NullState())

    def _simulate_request(
        self,
        progress: StrategyRun,
        conv: Conversation,
        recorded_request: RecordedRequest,
        moments: Mapping[int, RequestContext],
    ) -> SimulatedRequest:
        """Compute the edits of a request. Plans of third-party strategies are checked; ours, which have an inventory,
        are covered by tests of the invariants."""
        try:
            start = progress.length
            new_edits = progress.add_messages(conv.messages[start : recorded_request.length], moments)
            if progress.fold.inventory is not None:
                changes = progress.changes if progress.has_revised else {}
                is_behind = changes is not None and all(message >= start for message in changes)
                is_revised, self._failed = not is_behind or self._failed, False
                if is_revised or changes is None:
                    return SimulatedRequest(progress.plan.edits)
                edits = [edit for edit in new_edits if edit.message not in changes]
                return SimulatedRequest([*edits, *chain.from_iterable(changes.values())], more=True)
            request = replace(conv, messages=conv.messages[: recorded_request.length])
            return SimulatedRequest(
                pipeline.plan_request(request, self._strategies[0], progress.plan, recorded_request.model or None).edits
            )
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            self._failed = True
            return SimulatedRequest(())

    def _start_contexts(self, segment: RecordedSegment) -> dict[int, RequestContext]:
        """Start a segment with the contexts of shared requests: after a rewind, their decisions are still in effect."""
        self._moments, self._last_segment = self._shared_contexts(segment), segment
        return self._moments

    def _shared_contexts(self, segment: RecordedSegment) -> dict[int, RequestContext]:
        last = self._last_segment
        apart = last.is_compressed or segment.is_compressed
        longest = 0 if apart else min(len(last.history), len(segment.history))
        common = shared_between(last, segment, longest)
        return {length: moment for length, moment in self._moments.items() if length <= common}

    def _make_balance(self, economy: CachePricing, phi: float, credit: float) -> PairedBalance:
        self._bank = PairedBalance(economy, phi, credit)
        return self._bank

    def _cached_tokens(self, usage: ReportedUsage, number: int) -> int | None:
        """Compute the simulated cache read of a request; None if it is not reported."""
        if usage.reads is None:
            return None
        return usage.reads(number, self.views[number], self.views[number - 1] if number else None)

    @property
    def spans(self) -> list[EditSpan]:
        """Every edit, with the range of its requests."""
        return self._spans.all

    def _context_tokens(self, last: RecordedRequest) -> int | None:
        """Compute the input tokens of the previous request: the recorded tokens less the removed ones."""
        if last.usage is None:
            return None
        scale = self._told.scales[len(self.views) - 1] if self._told.scales else 1.0
        return max(0, round(last.usage.input - scale * self.views[-1].removed_before(last.length)))

    def _view_at(self, edits: Callable[[int], list[Edit]], history: Sequence[Message], point: int) -> SentView:
        return self._make_view(group_by_message(edits(point)), history)[0]

    def _add_requests(
        self, segment: int, history: Sequence[Message], turns: Iterable[SimulatedRequest], requests: int
    ) -> None:
        """Add the views and edits of requests whose plans can revise sent text."""
        targets = self._shared.targets_in(segment)
        open_edits: dict[tuple[Any, ...], OpenEdit] = {}
        evicted_texts: list[EvictedText] = []
        start = len(self.views)
        view = SentView()
        for number, turn in enumerate(turns, start):
            edits = group_by_message(turn.edits)
            changes, tokens = self._sizes.message_changes(edits, history)
            view = view.add_changes(changes) if turn.more else SentView(changes)
            self.views.append(view)
            now = {edit_identity(edit): edit for some in edits.values() for edit in some}
            for key in [] if turn.more else [key for key in open_edits if key not in now]:
                span = open_edits.pop(key)
                self._spans.add(span, number, targets, history)
                evicted_texts.append(EvictedText(span.first - start, number - start, span.edit, span.tokens))
            for key, edit in now.items():
                open_edits.setdefault(key, OpenEdit(number, edit, tokens[id(edit)]))
        for span in open_edits.values():
            self._spans.add(span, start + requests, targets, history)
            evicted_texts.append(EvictedText(span.first - start, requests, span.edit, span.tokens))
        if self._need:
            self._find_needs(segment, start, evicted_texts)

    def _find_needs(self, segment: int, start: int, evicted_texts: Sequence[EvictedText]) -> None:
        outputs = self._shared.read_outputs(segment, [sent.length for sent in self._session.segments[segment].requests])
        self.edits += outputs.edits
        self.evictions += len({(each.edit.message, each.edit.path) for each in evicted_texts if is_eviction(each.edit)})
        needs = find_needs(outputs, evicted_texts)
        self.needs += [need._replace(request=start + need.request) for need in needs]

    def _check_plan(self, result: pipeline.Compacted, history: Sequence[Message], length: int) -> None:
        """Check invariant 1 for a plan that changes the structure of messages."""
        if result.plan.structural and result.violations:
            before = Conversation(tuple(history[:length]), formats.format_named(result.format), {})
            old_rules = {violation.rule for violation in rules.violations(before)}
            new_rules = {violation.rule for violation in result.violations} - old_rules
            self.failures.extend(f"law 1: {rule}" for rule in sorted(new_rules))

    def _make_view(
        self, edits: Mapping[int, Sequence[Edit]], history: Sequence[Message]
    ) -> tuple[SentView, dict[int, float]]:
        changes, tokens = self._sizes.message_changes(edits, history)
        return SentView(changes), tokens


def _edits_at(staged_texts: Iterable[TextStages], point: int) -> list[Edit]:
    return [edit for staged in staged_texts if (edit := staged.edit_at(point)) is not None]


def group_by_message(edits: Iterable[Edit]) -> dict[int, list[Edit]]:
    """Group edits by message, in the order of the messages."""
    groups: dict[int, list[Edit]] = {}
    for edit in edits:
        groups.setdefault(edit.message, []).append(edit)
    return dict(sorted(groups.items()))


def _has_new_settings(recording: Recording, last: RecordedRequest, sent: RecordedRequest) -> bool:
    """Whether a request has another model or effort than the one before, so that its cache is empty."""
    settings = formats.format_named(recording.format).cache_settings({"model": "known"})  # only some formats have any
    changed = (sent.model != last.model and sent.model and last.model) or (
        sent.effort != last.effort and sent.effort and last.effort
    )
    return bool(settings and changed)
