"""Replay the sessions of one log under profiles and caching modes.

`measure_log` is a pure function of the bytes and the settings, so any worker can run it and its results can be cached.
"""

from __future__ import annotations

import gc
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, compress, islice
from typing import NamedTuple

import msgspec

from .. import formats, recordings, rules
from ..billing.calibration import Count, TokenWeights
from ..billing.prices import Price, Prices, cache_pricing_for
from ..billing.revision_budget import CachePricing
from ..model import Conversation, Message, Text
from ..recordings import LogBytes, Recording
from ..replay.caching_replay import CachePolicyRun, CachingName, bill_with_caching, count_idle_times, recorded_caching
from ..replay.histories import CountsByHash, Histories
from ..replay.offline_optimum import find_optimum as best_moments
from ..replay.replay_bill import AfterBreak, Bill, Replay, ReportedUsage
from ..replay.sent_views import SentView
from ..replay.shared_arrival import CallTarget, SharedArrival
from ..replay.simulate import Simulation
from ..strategies import profiles
from ..strategies.strategy import Strategy
from ..tokens import DEFAULT_ENCODING, CachedCounter, EstimateLog, collect_estimates, counter_for, encoding_for
from .log_summary import request_time
from .miss_counts import cache_use_of
from .selection import EVERYTHING, RequestFilter
from .session_result import (
    NOTHING_DONE,
    BilledCheck,
    FileResult,
    ProfileOutcome,
    Removal,
    Scenario,
    SendCost,
    SessionResult,
    ToolResultTotals,
    UnreadFile,
    merge_totals,
    worst_share,
)

UNDONE_LABEL = "taken back"
"""Row for the cost of revisions that only undid earlier edits."""

UNNAMED_MODEL = "(not named)"
"""Name of a model that the log does not name."""


class ReportSettings(msgspec.Struct, frozen=True):
    """Profiles, prices and options of a report."""

    profiles: tuple[str, ...] = ("lossless",)
    model: str | None = None
    """Model whose prices apply to all requests; None to price each request as its own model."""
    prices: dict[str, Price] = {}
    """The user's prices by model. They override the price list."""
    optimum: bool = False
    """Also compute the offline optimum: the best times for the evictions of each profile."""
    caching: tuple[CachingName, ...] = ("recorded",)
    """Caching modes to compare, each with every profile."""
    verify: bool = False
    """Expand every request, not only a sample (`replay.verify`)."""

    @property
    def caching_modes(self) -> tuple[CachingName, ...]:
        """Caching modes to report; none if only `recorded` was requested, which every report has."""
        return () if self.caching == ("recorded",) else self.caching


SCENARIOS: tuple[AfterBreak, ...] = ("hit", "miss")


def measure_log(
    path: str,
    data: LogBytes,
    settings: ReportSettings,
    earlier_ids: frozenset[str] = frozenset(),
    filters: Mapping[str, RequestFilter] | None = None,
) -> FileResult:
    """Measure the sessions in a log.

    Responses in `earlier_ids` were counted in another file already, because the session was resumed. `filters` selects
    the requests of each session by its name; sessions that it does not name are left out. None selects everything.
    """
    with _pause_gc():
        try:
            sessions = recordings.read(path, data)
        except recordings.LogError as error:
            return FileResult(unread=[UnreadFile(path, str(error).removeprefix(f"{path}: "))], size=len(data))
        figures = []
        for each in sessions:
            session, request_filter = (
                drop_counted_requests(each, earlier_ids),
                EVERYTHING if filters is None else filters.get(each.name),
            )
            if request_filter and any(
                request_filter.matches_recorded(sent) for segment in session.segments for sent in segment.requests
            ):
                figures.append(measure_session(session, settings, request_filter))
        return FileResult(figures, size=len(data))


@contextmanager
def _pause_gc() -> Iterator[None]:
    """Pause Python's garbage collector, which takes a fifth of the time here. Nearly all objects are freed by reference
    counts."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def drop_counted_requests(session: Recording, earlier_ids: frozenset[str]) -> Recording:
    """Remove requests that another file has already. Their messages stay in the history: later requests send them."""
    if earlier_ids:
        for segment in session.segments:
            old = [sent.length for sent in segment.requests if sent.answer and sent.answer in earlier_ids]
            segment.inherited = max([segment.inherited, *old])
            segment.requests = [sent for sent in segment.requests if not sent.answer or sent.answer not in earlier_ids]
        session.segments = [segment for segment in session.segments if segment.requests]
    return session


def response_ids(session: Recording) -> Iterator[str]:
    """Yield the ids of a session's responses."""
    return (sent.answer for segment in session.segments for sent in segment.requests if sent.answer)


class SessionBasis(NamedTuple):
    """The parts of a session that all profiles share: its requests, cache pricing and token counter."""

    replay: Replay
    economy: CachePricing
    count: CachedCounter


def prepare_session(session: Recording, settings: ReportSettings) -> SessionBasis:
    """Prepare a session for simulations."""
    exact = counter_for(session.models[0] if session.models else None)
    count = CachedCounter(CountsByHash(exact) if any(segment.is_compressed for segment in session.segments) else exact)
    messages = Histories(session, count.counts.clear, settings.optimum)  # token counts are dropped with their texts
    replay = Replay(session, Prices(settings.prices, settings.model), count, messages)
    long = any(step.sent.usage and step.sent.usage.written_1h for step in replay.steps)
    economy = replace(cache_pricing_for(replay.steps[0].price, long), keeps_thinking=replay.keeps_thinking)
    return SessionBasis(replay, economy, count)


def measure_session(
    session: Recording, settings: ReportSettings, request_filter: RequestFilter = EVERYTHING
) -> SessionResult:
    """Measure a session. Only the chosen requests count, but the whole conversation is replayed."""
    state = _MeasuredSession(session, settings, request_filter)
    with collect_estimates(state.usual_notes):
        return state.make_result()


class _MeasuredSession:
    """State for measuring one session: its simulations and bills."""

    def __init__(self, session: Recording, settings: ReportSettings, request_filter: RequestFilter) -> None:
        self.session, self.settings = session, settings
        self.replay, self.economy, self.count = prepare_session(session, settings)
        usual = encoding_for(session.models[0] if session.models else None) == DEFAULT_ENCODING
        self.notes = EstimateLog(self.count.count, self.count.counts)
        self.usual_notes = self.notes if usual else EstimateLog(counter_for(), {})
        """Counts in the default encoding, whatever the encoding of the session's model."""
        self.messages = self.replay.messages
        self.groundwork = SharedArrival(self.messages, self.count.counts if usual else {})
        self.counted = [request_filter.matches_recorded(step.sent) for step in self.replay.steps]
        self.baseline = self.counted_part(self.replay.bill())
        self.simulations: dict[str, Simulation] = {}
        self.missing: dict[str, Simulation] = {}
        """Simulations of profiles that evict, in the scenario `miss`."""
        self.bills = {NOTHING_DONE: self.baseline}

    def counted_part(self, bill: Bill) -> Bill:
        """Limit a bill to the chosen requests."""
        return bill if all(self.counted) else bill.counted_part(self.counted)

    def make_result(self) -> SessionResult:
        session, replay, settings = self.session, self.replay, self.settings
        self.simulate_all()
        outcomes = {name: self.profile_outcome(name) for name in settings.profiles}
        steps = list(compress(replay.steps, self.counted))
        models = list(dict.fromkeys(step.sent.model for step in steps if step.sent.model))
        places = {model: place for place, model in enumerate(models)}
        times = [request_time(step.sent) for step in steps]
        invalid, accepted_count, violations = count_invalid_requests(session, self.messages, self.counted)
        tools, files = _tool_result_totals(session, self.groundwork, replay.weights, self.count, self.counted)
        idle_times = count_idle_times(session, self.messages)
        return SessionResult(
            path=session.path,
            agent=session.agent,
            name=session.name,
            project=session.project,
            id=session.id,
            title=session.title,
            model=models[0] if models else "",
            models=models,
            priced_as={step.sent.model or UNNAMED_MODEL: step.price.model for step in steps if step.price.assumed},
            started=next((step.sent.at for step in steps if step.sent.at is not None), None),
            requests=len(steps),
            restarts=dict(Counter(segment.cause for segment in session.segments if segment.cause != "start")),
            skipped=[(skipped.line, skipped.why) for skipped in session.skipped],
            invalid=invalid,
            accepted=accepted_count,
            violations=violations,
            baseline=_send_cost(self.baseline),
            recorded=self.check_against_recorded(),
            thinking=replay.thinking_cost(self.counted),
            cached=cache_use_of(replay, self.messages, Prices(settings.prices), self.counted),
            caching={name: self.price_caching_mode(name) for name in settings.caching_modes},
            unasked=not any(step.price.caching.marks for step in replay.steps),
            spoken=idle_times.spoken,
            looped=idle_times.looped,
            profiles=outcomes,
            tools=tools,
            files=files,
            times=times,
            asked=[places.get(step.sent.model, -1) for step in steps],
            costs={name: self.select_counted(bill.costs) for name, bill in self.bills.items()},
            sizes={
                name: self.select_counted([each.size for each in bill.charges]) for name, bill in self.bills.items()
            },
            windows={step.sent.model: step.price.window for step in steps if step.price.window},
        )

    def select_counted(self, numbers: Sequence[float]) -> list[float]:
        return list(compress(numbers, self.counted))

    def run_simulation(
        self,
        strategies: Sequence[Strategy],
        economy: CachePricing,
        usage: ReportedUsage,
        other_usage: ReportedUsage | None = None,
        at_once: bool = True,
        need: bool = False,
    ) -> Simulation:
        return Simulation(
            self.session,
            self.messages,
            strategies,
            self.replay.weights,
            self.notes,
            economy,
            usage,
            self.groundwork,
            other_usage,
            record_windows=self.settings.optimum,
            verify=self.settings.verify,
            at_once=at_once,
            texts=False,
            need=need,
        )

    def simulate_all(self) -> None:
        """Simulate every profile in the scenarios `hit` and `miss`, segment by segment.

        Only one segment's shared work is in memory at a time. Profiles that evict run first: they also compute the
        arrival edits that the others read.
        """
        hit, miss = self.replay.reported_usage("hit"), self.replay.reported_usage("miss")
        strategies_by_profile = {name: profiles.profile_strategies(name) for name in self.settings.profiles}
        final = [name for name, strategies in strategies_by_profile.items() if all(each.final for each in strategies)]
        for name, strategies in strategies_by_profile.items():
            self.simulations[name] = self.run_simulation(strategies, self.economy, hit, miss, at_once=False, need=True)
            if name not in final:
                self.missing[name] = self.run_simulation(strategies, self.economy, miss, at_once=False)
        for number in range(len(self.messages)):
            for name in final:
                self.simulations[name].await_arrival(number)
            for name in (*self.missing, *final):
                self.simulations[name].run_segment(number)
                if name in self.missing:
                    self.missing[name].run_alongside(self.simulations[name], number)
            self.groundwork.drop_segment()
            self.notes.clear()
            self.usual_notes.clear()

    def profile_outcome(self, name: str) -> ProfileOutcome:
        simulation = self.simulations[name]
        bill = self.bills[name] = self.counted_part(self.replay.bill(simulation.views))
        result = _profile_outcome(self.replay, self.baseline, bill, simulation, self.counted)
        if name in self.missing:
            missing = self.missing[name]
            miss_bill = self.counted_part(self.replay.bill(missing.views, after_break="miss"))
            result.needs, result.need_cost = self.count_needs(simulation, bill)
            result.worlds = {
                "hit": self.price_scenario(simulation, bill, "hit"),
                "miss": self.price_scenario(missing, miss_bill, "miss"),
            }
        return result

    def count_needs(self, simulation: Simulation, bill: Bill) -> tuple[int, float]:
        """Count the requests that need evicted text, and price one more request for each: it reads the context again
        and writes the fetched text."""
        needs, cost = [need for need in simulation.needs if self.counted[need.request]], 0.0
        for need in needs:
            step = self.replay.steps[need.request]
            cost += step.rates.read * bill.charges[need.request].size + step.write * step.scale * need.tokens
        return len(needs), cost

    def price_scenario(self, simulation: Simulation, bill: Bill, world: AfterBreak) -> Scenario:
        best = None
        if self.settings.optimum and simulation.phases and all(self.counted):  # an optimum needs the whole session
            best = best_moments(self.replay, simulation.phases, after_break=world).cost
        return Scenario(bill.cost, bill.rewrites, worst_share(self.baseline.costs, bill.costs), best)

    def price_caching_mode(self, caching: CachingName) -> dict[str, Scenario]:
        bills = bill_what_if(caching, self.replay, self.economy, self.simulations, self.run_simulation)
        return {
            way: Scenario(bill.cost, bill.rewrites, worst_share(self.baseline.costs, bill.costs))
            for way, bill in ((way, self.counted_part(bill)) for way, bill in bills.items())
        }

    def check_against_recorded(self) -> BilledCheck | None:
        replay, recorded_costs = self.replay, self.replay.recorded_costs()
        numbers = [number for number, cost in enumerate(recorded_costs) if cost is not None and self.counted[number]]
        if not numbers:
            return None
        was_uncached = (
            recorded_caching(replay) == "none"
        )  # by the rules, a provider that needs breakpoints cached nothing
        by_rule = (bill_with_caching(replay, None, "none") if was_uncached else replay.bill(by_rule=True)).costs
        costs = self.baseline.costs
        return BilledCheck(
            sum(recorded_costs[number] or 0.0 for number in numbers),
            len(numbers),
            sum(costs[number] for number in numbers),
            sum(by_rule[number] for number in numbers),
        )


def _send_cost(bill: Bill) -> SendCost:
    return SendCost(bill.cost, bill.tokens, bill.read, bill.peak, bill.breaks)


def _profile_outcome(
    replay: Replay, baseline: Bill, bill: Bill, simulation: Simulation, is_counted: Sequence[bool]
) -> ProfileOutcome:
    counts_all, before = all(is_counted), [0, *accumulate(is_counted)]
    revisions = zip(simulation.points, simulation.point_requests, strict=True)
    outcome = ProfileOutcome(
        _send_cost(bill),
        worst=worst_share(baseline.costs, bill.costs),
        law_failures=len(simulation.failures),
        failures=sorted(set(simulation.failures))[:20],
        restored=sum(is_counted[number] for number in simulation.expanded),
        points=dict(
            Counter(
                point.reason for point, request in revisions if counts_all or (request >= 0 and is_counted[request])
            )
        ),
    )
    for step, view, old, new in zip(replay.steps, simulation.views, baseline.costs, bill.costs, strict=True):
        if old != new and not view.removed_before(step.sent.length):
            # The revision only undid earlier edits, so there is no edit to attribute the cost to.
            outcome.strategies.setdefault(UNDONE_LABEL, Removal()).add(Removal(1, 0.0, old - new))
    savings = savings_by_token(replay, simulation.views, baseline, bill)
    for span in simulation.spans:
        if not counts_all and before[span.first] == before[span.last]:
            continue
        cost = span.tokens * (savings[span.last] - savings[span.first])
        once = (span.hits, span.taken) if counts_all or is_counted[span.first] else (0, 0.0)
        removal = Removal(*once, cost)
        for table, name in (
            (outcome.strategies, span.strategy),
            (outcome.tools, span.asked.tool),
            (outcome.files, span.asked.file),
        ):
            if name:
                merge_totals(table, {name: removal}, Removal)
    return outcome


def savings_by_token(replay: Replay, views: Sequence[SentView], baseline: Bill, bill: Bill) -> list[float]:
    """Add up the dollars saved per removed token. Entry n covers the requests before n, the last entry all requests.

    With these, the savings of single edits add up to the saving of the session.
    """
    rates = []
    for step, view, before, after in zip(replay.steps, views, baseline.costs, bill.costs, strict=True):
        removed_tokens = view.removed_before(step.sent.length)
        rates.append((before - after) / removed_tokens if removed_tokens else 0.0)
    return [0.0, *accumulate(rates)]


def _tool_result_totals(
    session: Recording,
    groundwork: SharedArrival,
    weights: TokenWeights,
    count: Count,
    is_counted: Sequence[bool],
) -> tuple[dict[str, ToolResultTotals], dict[str, ToolResultTotals]]:
    """Add up tool results by tool and by file, if a chosen request was the first to send them."""
    tools: dict[str, ToolResultTotals] = {}
    files: dict[str, ToolResultTotals] = {}
    flags = iter(is_counted)
    for number, (segment, history) in enumerate(zip(session.segments, groundwork.messages, strict=True)):
        here = list(islice(flags, len(segment.requests)))
        lengths = [request.length for request in segment.requests]
        sent = history[: lengths[-1]]
        targets = groundwork.targets_in(number, lengths[-1])
        for place, message in enumerate(sent[segment.inherited :], segment.inherited):
            if not here[bisect_right(lengths, place)]:
                continue
            for result in message.results:
                target = targets.get(result.call_id, CallTarget(result.name))
                tokens = weights.result * sum(count(part.text) for part in result.segments if isinstance(part, Text))
                for table, name in ((tools, target.tool), (files, target.file)):
                    if name:
                        table.setdefault(name, ToolResultTotals()).add(ToolResultTotals(1, tokens))
    return tools, files


# --- other caching modes -------------------------------------------------------------------------

Simulate = Callable[[Sequence[Strategy], CachePricing, ReportedUsage], Simulation]


def bill_what_if(
    caching: CachingName,
    replay: Replay,
    economy: CachePricing,
    simulations: Mapping[str, Simulation],
    simulate: Simulate,
) -> dict[str, Bill]:
    """Price a session in another caching mode, without Ibidem and with every profile. Profiles that revise are
    simulated again: their decisions depend on cache pricing. `auto` starts without the user's other idle times."""
    bills = {NOTHING_DONE: bill_with_caching(replay, None, caching)}
    for name, simulation in simulations.items():
        strategies = profiles.profile_strategies(name)
        if caching == "recorded" or all(each.final for each in strategies):
            bills[name] = bill_with_caching(replay, simulation.views, caching)
        else:
            policy_run = CachePolicyRun(replay, caching)
            rerun = simulate(strategies, _pricing_for_mode(caching, replay, economy), policy_run.reported_usage())
            bills[name] = policy_run.serve_rest(rerun.views)
    return bills


def _pricing_for_mode(caching: CachingName, replay: Replay, recorded_pricing: CachePricing) -> CachePricing:
    """Choose the cache pricing for revisions: that of the requested TTL."""
    if caching == "auto":
        return recorded_pricing
    return replace(
        cache_pricing_for(replay.steps[0].price, caching == "1h"), keeps_thinking=recorded_pricing.keeps_thinking
    )


# --- invalid requests ----------------------------------------------------------------------------


def count_invalid_requests(
    session: Recording, messages: Sequence[Sequence[Message]], is_counted: Sequence[bool]
) -> tuple[int, int, dict[str, int]]:
    """Count invalid requests, those with recorded usage, and invalid requests by rule. A violation in a history is in
    every later request too."""
    dialect = formats.format_named(session.format)
    invalid, accepted_count, counts_by_rule = 0, 0, Counter[str]()
    flags = iter(is_counted)
    for segment, history in zip(session.segments, messages, strict=True):
        here = list(islice(flags, len(segment.requests)))
        lengths = [sent.length for sent in segment.requests]
        first_places: dict[str, int] = {}
        whole = Conversation(tuple(history[: lengths[-1]]), dialect, session.head)
        for violation in rules.violations(whole):
            index = re.search(r"\[(\d+)\]", violation.position)
            place = int(index[1]) if index else 0
            first_places[violation.rule] = min(place, first_places.get(violation.rule, place))
        first = {rule: bisect_right(lengths, place) for rule, place in first_places.items()}
        start = min(first.values(), default=len(lengths))
        violating = list(compress(segment.requests[start:], here[start:]))
        invalid += len(violating)
        accepted_count += sum(sent.usage is not None for sent in violating)
        counts_by_rule.update({rule: sum(here[number:]) for rule, number in first.items()})
    return invalid, accepted_count, {rule: number for rule, number in counts_by_rule.items() if number}
