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
from ..billing.budget import Economy
from ..billing.calibration import Count, Weights
from ..billing.prices import Price, Prices, economy_of
from ..model import Conversation, Message, Text
from ..recordings import LogBytes, Recording
from ..replay.billing import AfterBreak, Bill, Replay, Told
from ..replay.caching import CachingName, Keeping, cached_bill, pauses_of, recorded_as
from ..replay.groundwork import CallTarget, Groundwork
from ..replay.hindsight import best as best_moments
from ..replay.histories import CountsByHash, Histories
from ..replay.simulate import Simulation
from ..replay.views import SentView
from ..strategies import profiles
from ..strategies.strategy import Strategy
from ..tokens import DEFAULT_ENCODING, Remembering, TokenNotes, counter, encoding_of, noting
from .log_summary import moment
from .miss_counts import cache_use_of
from .selection import EVERYTHING, RequestFilter
from .session_result import (
    NOTHING_DONE,
    BilledCheck,
    FileFigures,
    ProfileOutcome,
    Removal,
    Scenario,
    SendCost,
    SessionFigures,
    ToolResultTotals,
    UnreadFile,
    merge,
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
    def ways(self) -> tuple[CachingName, ...]:
        """Caching modes to report; none if only `recorded` was requested, which every report has."""
        return () if self.caching == ("recorded",) else self.caching


WORLDS: tuple[AfterBreak, ...] = ("hit", "miss")


def measure_log(
    path: str,
    data: LogBytes,
    settings: ReportSettings,
    known: frozenset[str] = frozenset(),
    chosen: Mapping[str, RequestFilter] | None = None,
) -> FileFigures:
    """Measure the sessions in a log.

    Responses in `known` were counted in another file already, because the session was resumed. `chosen` selects the
    requests of each session by its name; sessions that it does not name are left out. None selects everything.
    """
    with _seldom_collected():
        try:
            found = recordings.read(path, data)
        except recordings.LogError as error:
            return FileFigures(unread=[UnreadFile(path, str(error).removeprefix(f"{path}: "))], size=len(data))
        figures = []
        for each in found:
            session, which = drop_counted_requests(each, known), EVERYTHING if chosen is None else chosen.get(each.name)
            if which and any(which.takes(sent) for segment in session.segments for sent in segment.requests):
                figures.append(measure_session(session, settings, which))
        return FileFigures(figures, size=len(data))


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Pause Python's garbage collector, which takes a fifth of the time here. Nearly all objects are freed by reference
    counts."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def drop_counted_requests(session: Recording, known: frozenset[str]) -> Recording:
    """Remove requests that another file has already. Their messages stay in the history: later requests send them."""
    if known:
        for segment in session.segments:
            old = [sent.length for sent in segment.requests if sent.answer and sent.answer in known]
            segment.inherited = max([segment.inherited, *old])
            segment.requests = [sent for sent in segment.requests if not sent.answer or sent.answer not in known]
        session.segments = [segment for segment in session.segments if segment.requests]
    return session


def answers_in(session: Recording) -> Iterator[str]:
    """Yield the ids of a session's responses."""
    return (sent.answer for segment in session.segments for sent in segment.requests if sent.answer)


class SessionBasis(NamedTuple):
    """The parts of a session that all profiles share: its requests, cache pricing and token counter."""

    replay: Replay
    economy: Economy
    count: Remembering


def basis_of(session: Recording, settings: ReportSettings) -> SessionBasis:
    """Prepare a session for simulations."""
    exact = counter(session.models[0] if session.models else None)
    count = Remembering(CountsByHash(exact) if any(segment.apart for segment in session.segments) else exact)
    messages = Histories(session, count.known.clear, settings.optimum)  # token counts are dropped with their texts
    replay = Replay(session, Prices(settings.prices, settings.model), count, messages)
    long = any(step.sent.usage and step.sent.usage.written_1h for step in replay.steps)
    economy = replace(economy_of(replay.steps[0].price, long), keeps_thinking=replay.keeps_thinking)
    return SessionBasis(replay, economy, count)


def measure_session(session: Recording, settings: ReportSettings, chosen: RequestFilter = EVERYTHING) -> SessionFigures:
    """Measure a session. Only the chosen requests count, but the whole conversation is replayed."""
    measured = _MeasuredSession(session, settings, chosen)
    with noting(measured.usual_notes):
        return measured.figures()


class _MeasuredSession:
    """State for measuring one session: its simulations and bills."""

    def __init__(self, session: Recording, settings: ReportSettings, chosen: RequestFilter) -> None:
        self.session, self.settings = session, settings
        self.replay, self.economy, self.count = basis_of(session, settings)
        usual = encoding_of(session.models[0] if session.models else None) == DEFAULT_ENCODING
        self.notes = TokenNotes(self.count.count, self.count.known)
        self.usual_notes = self.notes if usual else TokenNotes(counter(), {})
        """Counts in the default encoding, whatever the encoding of the session's model."""
        self.messages = self.replay.messages
        self.groundwork = Groundwork(self.messages, self.count.known if usual else {})
        self.counted = [chosen.takes(step.sent) for step in self.replay.steps]
        self.baseline = self.over(self.replay.bill())
        self.simulations: dict[str, Simulation] = {}
        self.missing: dict[str, Simulation] = {}
        """Simulations of profiles that evict, in the scenario `miss`."""
        self.bills = {NOTHING_DONE: self.baseline}

    def over(self, bill: Bill) -> Bill:
        """Limit a bill to the chosen requests."""
        return bill if all(self.counted) else bill.over(self.counted)

    def figures(self) -> SessionFigures:
        session, replay, settings = self.session, self.replay, self.settings
        self.simulate_all()
        outcomes = {name: self.outcome(name) for name in settings.profiles}
        steps = list(compress(replay.steps, self.counted))
        models = list(dict.fromkeys(step.sent.model for step in steps if step.sent.model))
        places = {model: place for place, model in enumerate(models)}
        times = [moment(step.sent) for step in steps]
        invalid, accepted, violations = invalid_in(session, self.messages, self.counted)
        tools, files = _results(session, self.groundwork, replay.weights, self.count, self.counted)
        pauses = pauses_of(session, self.messages)
        return SessionFigures(
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
            accepted=accepted,
            violations=violations,
            baseline=_spent(self.baseline),
            recorded=self.recorded(),
            thinking=replay.thinking(self.counted),
            cached=cache_use_of(replay, self.messages, Prices(settings.prices), self.counted),
            caching={name: self.asked_for(name) for name in settings.ways},
            unasked=not any(step.price.caching.marks for step in replay.steps),
            spoken=pauses.spoken,
            looped=pauses.looped,
            profiles=outcomes,
            tools=tools,
            files=files,
            times=times,
            asked=[places.get(step.sent.model, -1) for step in steps],
            costs={name: self.by_request(bill.costs) for name, bill in self.bills.items()},
            sizes={name: self.by_request([each.size for each in bill.charges]) for name, bill in self.bills.items()},
            windows={step.sent.model: step.price.window for step in steps if step.price.window},
        )

    def by_request(self, numbers: Sequence[float]) -> list[float]:
        return list(compress(numbers, self.counted))

    def simulate(
        self,
        strategies: Sequence[Strategy],
        economy: Economy,
        told: Told,
        elsewhere: Told | None = None,
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
            told,
            self.groundwork,
            elsewhere,
            watched=self.settings.optimum,
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
        hit, miss = self.replay.told("hit"), self.replay.told("miss")
        chosen = {name: profiles.named(name) for name in self.settings.profiles}
        final = [name for name, strategies in chosen.items() if all(each.final for each in strategies)]
        for name, strategies in chosen.items():
            self.simulations[name] = self.simulate(strategies, self.economy, hit, miss, at_once=False, need=True)
            if name not in final:
                self.missing[name] = self.simulate(strategies, self.economy, miss, at_once=False)
        for number in range(len(self.messages)):
            for name in final:
                self.simulations[name].awaits(number)
            for name in (*self.missing, *final):
                self.simulations[name].run(number)
                if name in self.missing:
                    self.missing[name].run_beside(self.simulations[name], number)
            self.groundwork.done()
            self.notes.forget()
            self.usual_notes.forget()

    def outcome(self, name: str) -> ProfileOutcome:
        simulation = self.simulations[name]
        bill = self.bills[name] = self.over(self.replay.bill(simulation.views))
        found = _outcome(self.replay, self.baseline, bill, simulation, self.counted)
        if name in self.missing:
            missing = self.missing[name]
            missed = self.over(self.replay.bill(missing.views, after_break="miss"))
            found.needs, found.need_cost = self.needs(simulation, bill)
            found.worlds = {"hit": self.world(simulation, bill, "hit"), "miss": self.world(missing, missed, "miss")}
        return found

    def needs(self, simulation: Simulation, bill: Bill) -> tuple[int, float]:
        """Count the requests that need evicted text, and price one more request for each: it reads the context again
        and writes the fetched text."""
        needs, cost = [need for need in simulation.needs if self.counted[need.request]], 0.0
        for need in needs:
            step = self.replay.steps[need.request]
            cost += step.rates.read * bill.charges[need.request].size + step.write * step.scale * need.tokens
        return len(needs), cost

    def world(self, simulation: Simulation, bill: Bill, world: AfterBreak) -> Scenario:
        best = None
        if self.settings.optimum and simulation.phases and all(self.counted):  # an optimum needs the whole session
            best = best_moments(self.replay, simulation.phases, after_break=world).cost
        return Scenario(bill.cost, bill.rewrites, worst_share(self.baseline.costs, bill.costs), best)

    def asked_for(self, caching: CachingName) -> dict[str, Scenario]:
        bills = bill_what_if(caching, self.replay, self.economy, self.simulations, self.simulate)
        return {
            way: Scenario(bill.cost, bill.rewrites, worst_share(self.baseline.costs, bill.costs))
            for way, bill in ((way, self.over(bill)) for way, bill in bills.items())
        }

    def recorded(self) -> BilledCheck | None:
        replay, found = self.replay, self.replay.recorded()
        known = [number for number, cost in enumerate(found) if cost is not None and self.counted[number]]
        if not known:
            return None
        bare = recorded_as(replay) == "none"  # by the rules, a provider that needs breakpoints cached nothing
        by_rule = (cached_bill(replay, None, "none") if bare else replay.bill(by_rule=True)).costs
        costs = self.baseline.costs
        return BilledCheck(
            sum(found[number] or 0.0 for number in known),
            len(known),
            sum(costs[number] for number in known),
            sum(by_rule[number] for number in known),
        )


def _spent(bill: Bill) -> SendCost:
    return SendCost(bill.cost, bill.tokens, bill.read, bill.peak, bill.breaks)


def _outcome(
    replay: Replay, baseline: Bill, bill: Bill, simulation: Simulation, counted: Sequence[bool]
) -> ProfileOutcome:
    whole, before = all(counted), [0, *accumulate(counted)]
    made = zip(simulation.points, simulation.point_requests, strict=True)
    outcome = ProfileOutcome(
        _spent(bill),
        worst=worst_share(baseline.costs, bill.costs),
        law_failures=len(simulation.failures),
        failures=sorted(set(simulation.failures))[:20],
        restored=sum(counted[number] for number in simulation.expanded),
        points=dict(Counter(point.reason for point, request in made if whole or (request >= 0 and counted[request]))),
    )
    for step, view, old, new in zip(replay.steps, simulation.views, baseline.costs, bill.costs, strict=True):
        if old != new and not view.before(step.sent.length):
            # The revision only undid earlier edits, so there is no edit to attribute the cost to.
            outcome.strategies.setdefault(UNDONE_LABEL, Removal()).add(Removal(1, 0.0, old - new))
    earned = earned_by_token(replay, simulation.views, baseline, bill)
    for span in simulation.spans:
        if not whole and before[span.first] == before[span.last]:
            continue
        cost = span.tokens * (earned[span.last] - earned[span.first])
        once = (span.hits, span.taken) if whole or counted[span.first] else (0, 0.0)
        removal = Removal(*once, cost)
        for table, name in (
            (outcome.strategies, span.strategy),
            (outcome.tools, span.asked.tool),
            (outcome.files, span.asked.file),
        ):
            if name:
                merge(table, {name: removal}, Removal)
    return outcome


def earned_by_token(replay: Replay, views: Sequence[SentView], baseline: Bill, bill: Bill) -> list[float]:
    """Add up the dollars saved per removed token. Entry n covers the requests before n, the last entry all requests.

    With these, the savings of single edits add up to the saving of the session.
    """
    rates = []
    for step, view, before, after in zip(replay.steps, views, baseline.costs, bill.costs, strict=True):
        removed = view.before(step.sent.length)
        rates.append((before - after) / removed if removed else 0.0)
    return [0.0, *accumulate(rates)]


def _results(
    session: Recording,
    groundwork: Groundwork,
    weights: Weights,
    count: Count,
    counted: Sequence[bool],
) -> tuple[dict[str, ToolResultTotals], dict[str, ToolResultTotals]]:
    """Add up tool results by tool and by file, if a chosen request was the first to send them."""
    tools: dict[str, ToolResultTotals] = {}
    files: dict[str, ToolResultTotals] = {}
    rest = iter(counted)
    for number, (segment, history) in enumerate(zip(session.segments, groundwork.messages, strict=True)):
        here = list(islice(rest, len(segment.requests)))
        lengths = [request.length for request in segment.requests]
        sent = history[: lengths[-1]]
        asked = groundwork.asked(number, lengths[-1])
        for place, message in enumerate(sent[segment.inherited :], segment.inherited):
            if not here[bisect_right(lengths, place)]:
                continue
            for result in message.results:
                what = asked.get(result.call_id, CallTarget(result.name))
                tokens = weights.result * sum(count(part.text) for part in result.segments if isinstance(part, Text))
                for table, name in ((tools, what.tool), (files, what.file)):
                    if name:
                        table.setdefault(name, ToolResultTotals()).add(ToolResultTotals(1, tokens))
    return tools, files


# --- other caching modes -------------------------------------------------------------------------

Simulate = Callable[[Sequence[Strategy], Economy, Told], Simulation]


def bill_what_if(
    caching: CachingName,
    replay: Replay,
    economy: Economy,
    simulations: Mapping[str, Simulation],
    simulate: Simulate,
) -> dict[str, Bill]:
    """Price a session in another caching mode, without Ibidem and with every profile. Profiles that revise are
    simulated again: their decisions depend on cache pricing. `auto` starts without the user's other idle times."""
    found = {NOTHING_DONE: cached_bill(replay, None, caching)}
    for name, simulation in simulations.items():
        strategies = profiles.named(name)
        if caching == "recorded" or all(each.final for each in strategies):
            found[name] = cached_bill(replay, simulation.views, caching)
        else:
            keeping = Keeping(replay, caching)
            simulated = simulate(strategies, _economy(caching, replay, economy), keeping.told())
            found[name] = keeping.finish(simulated.views)
    return found


def _economy(caching: CachingName, replay: Replay, recorded: Economy) -> Economy:
    """Choose the cache pricing for revisions: that of the requested TTL."""
    if caching == "auto":
        return recorded
    return replace(economy_of(replay.steps[0].price, caching == "1h"), keeps_thinking=recorded.keeps_thinking)


# --- invalid requests ----------------------------------------------------------------------------


def invalid_in(
    session: Recording, messages: Sequence[Sequence[Message]], counted: Sequence[bool]
) -> tuple[int, int, dict[str, int]]:
    """Count invalid requests, those with recorded usage, and invalid requests by rule. A violation in a history is in
    every later request too."""
    dialect = formats.named(session.format)
    invalid, accepted, broken = 0, 0, Counter[str]()
    rest = iter(counted)
    for segment, history in zip(session.segments, messages, strict=True):
        here = list(islice(rest, len(segment.requests)))
        lengths = [sent.length for sent in segment.requests]
        found: dict[str, int] = {}
        whole = Conversation(tuple(history[: lengths[-1]]), dialect, session.head)
        for violation in rules.violations(whole):
            index = re.search(r"\[(\d+)\]", violation.position)
            place = int(index[1]) if index else 0
            found[violation.rule] = min(place, found.get(violation.rule, place))
        first = {rule: bisect_right(lengths, place) for rule, place in found.items()}
        start = min(first.values(), default=len(lengths))
        wrong = list(compress(segment.requests[start:], here[start:]))
        invalid += len(wrong)
        accepted += sum(sent.usage is not None for sent in wrong)
        broken.update({rule: sum(here[number:]) for rule, number in first.items()})
    return invalid, accepted, {rule: number for rule, number in broken.items() if number}
