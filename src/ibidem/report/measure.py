"""One log → its figures. A pure function of the bytes and the settings: it runs anywhere, and can be remembered."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import msgspec

from .. import formats, recordings, rules
from ..billing.budget import Economy
from ..billing.calibration import Count, Weights
from ..billing.prices import Price, Prices, economy_of
from ..model import Conversation, Message, Text
from ..recordings import Recording
from ..replay.billing import AfterBreak, Bill, Replay, SentView, Told, messages_of
from ..replay.caching import CachingName, cached_bill, pauses_of, recorded_as
from ..replay.hindsight import best as best_moments
from ..replay.simulate import CallTarget, Simulation, asked_in
from ..strategies import profiles
from ..strategies.strategy import Strategy
from ..tokens import counter, remembering
from .asked import asked_for
from .figures import (
    FileFigures,
    ProfileOutcome,
    Recorded,
    Results,
    Saved,
    SessionFigures,
    Spent,
    Unread,
    World,
    worst_share,
)
from .missed import cached_in

UNDONE_LABEL = "taken back"
"""Where the price is put of a change that only undid an earlier one."""

UNNAMED_MODEL = "(not named)"
"""A model that the log does not tell."""


class ReportSettings(msgspec.Struct, frozen=True):
    """What a report is asked to compare, and at which prices."""

    profiles: tuple[str, ...] = ("lossless",)
    model: str | None = None
    """Price everything as this model."""
    prices: dict[str, Price] = {}
    """Of one's own, by model."""
    optimum: bool = False
    """Also work out the best moments for what profiles let go of."""
    caching: tuple[CachingName, ...] = ("recorded",)
    """How caching is asked for, each with every profile."""

    @property
    def ways(self) -> tuple[CachingName, ...]:
        """Those to tell: none where it is as recorded, which is told anyway."""
        return () if self.caching == ("recorded",) else self.caching


WORLDS: tuple[AfterBreak, ...] = ("hit", "miss")


def measure_log(path: str, data: bytes, settings: ReportSettings, known: frozenset[str] = frozenset()) -> FileFigures:
    """The sessions in a log. Answers in `known` are in another file already: a session that was resumed."""
    try:
        found = recordings.read(path, data)
    except recordings.LogError as error:
        return FileFigures(unread=[Unread(path, str(error).removeprefix(f"{path}: "))], size=len(data))
    figures = [measure_session(session, settings) for each in found if (session := without(each, known)).length]
    return FileFigures(figures, size=len(data))


def without(session: Recording, known: frozenset[str]) -> Recording:
    """The session without requests that were counted elsewhere. Their history stays: it was sent again."""
    if known:
        for segment in session.segments:
            old = [sent.length for sent in segment.requests if sent.answer and sent.answer in known]
            segment.inherited = max([segment.inherited, *old])
            segment.requests = [sent for sent in segment.requests if not sent.answer or sent.answer not in known]
        session.segments = [segment for segment in session.segments if segment.requests]
    return session


def answers_in(session: Recording) -> Iterator[str]:
    return (sent.answer for segment in session.segments for sent in segment.requests if sent.answer)


class Basis(NamedTuple):
    """A session as every profile finds it: its requests, what its provider charges, and how tokens are counted."""

    replay: Replay
    economy: Economy
    count: Count


def basis_of(session: Recording, settings: ReportSettings) -> Basis:
    count = remembering(counter(session.models[0] if session.models else None))
    replay = Replay(session, Prices(settings.prices, settings.model), count, messages_of(session))
    long = any(step.sent.usage and step.sent.usage.written_1h for step in replay.steps)
    economy = replace(economy_of(replay.steps[0].price, long), keeps_thinking=replay.keeps_thinking)
    return Basis(replay, economy, count)


def measure_session(session: Recording, settings: ReportSettings) -> SessionFigures:
    replay, economy, count = basis_of(session, settings)
    messages = replay.messages
    baseline = replay.bill()
    invalid, accepted, violations = _invalid(session, messages)
    tools, files = _results(session, messages, replay.weights, count)

    simulations: dict[str, Simulation] = {}

    def simulate(strategies: Sequence[Strategy], economy: Economy, told: Told) -> Simulation:
        return Simulation(session, messages, strategies, replay.weights, count, economy, told)

    def simulated(strategies: Sequence[Strategy], world: AfterBreak) -> Simulation:
        return simulate(strategies, economy, replay.told(world))

    def outcome(name: str) -> ProfileOutcome:
        strategies = profiles.named(name)
        simulation = simulations[name] = simulated(strategies, "hit")
        found = _outcome(replay, baseline, simulation)
        if not all(each.final for each in strategies):
            told = any(point.rewritten for point in simulation.points)  # else the worlds do not differ
            worlds = {"hit": simulation, "miss": simulated(strategies, "miss") if told else simulation}
            found.worlds = {world: _world(replay, baseline, worlds[world], world, settings.optimum) for world in WORLDS}
        return found

    outcomes = {name: outcome(name) for name in settings.profiles}
    pauses = pauses_of(session)
    return SessionFigures(
        path=session.path,
        agent=session.agent,
        name=session.name,
        project=session.project,
        model=session.models[0] if session.models else "",
        models=session.models,
        priced_as={step.sent.model or UNNAMED_MODEL: step.price.model for step in replay.steps if step.price.assumed},
        started=next((step.sent.at for step in replay.steps if step.sent.at is not None), None),
        requests=session.length,
        restarts=dict(Counter(segment.cause for segment in session.segments if segment.cause != "start")),
        skipped=[(skipped.line, skipped.why) for skipped in session.skipped],
        invalid=invalid,
        accepted=accepted,
        violations=violations,
        baseline=_spent(baseline),
        recorded=_recorded(replay, baseline),
        thinking=replay.thinking(),
        cached=cached_in(replay, messages, Prices(settings.prices)),
        caching={name: asked_for(name, replay, baseline, economy, simulations, simulate) for name in settings.ways},
        unasked=not any(step.price.caching.marks for step in replay.steps),
        spoken=pauses.spoken,
        looped=pauses.looped,
        profiles=outcomes,
        tools=tools,
        files=files,
    )


def _spent(bill: Bill) -> Spent:
    return Spent(bill.cost, bill.tokens, bill.read, bill.peak, bill.breaks)


def _recorded(replay: Replay, baseline: Bill) -> Recorded | None:
    found = replay.recorded()
    known = [number for number, cost in enumerate(found) if cost is not None]
    if not known:
        return None
    bare = recorded_as(replay) == "none"  # by the rules, what nothing marks is not kept where marks are wanted
    by_rule = (cached_bill(replay, None, "none") if bare else replay.bill(by_rule=True)).costs
    return Recorded(
        sum(cost for cost in found if cost is not None),
        len(known),
        sum(baseline.costs[number] for number in known),
        sum(by_rule[number] for number in known),
    )


def _outcome(replay: Replay, baseline: Bill, simulation: Simulation) -> ProfileOutcome:
    bill = replay.bill(simulation.views)
    outcome = ProfileOutcome(
        _spent(bill),
        worst=worst_share(baseline.costs, bill.costs),
        law_failures=len(simulation.failures),
        failures=sorted(set(simulation.failures))[:20],
        points=dict(Counter(point.reason for point in simulation.points)),
    )
    for step, view, before, after in zip(replay.steps, simulation.views, baseline.costs, bill.costs, strict=True):
        if before != after and not view.before(step.sent.length):
            # Only what was taken back broke the cache: no text to put it down to.
            outcome.strategies.setdefault(UNDONE_LABEL, Saved()).add(1, 0.0, before - after)
    earned = earned_by_token(replay, simulation.views, baseline, bill)
    for span in simulation.spans:
        cost = span.tokens * (earned[span.last] - earned[span.first])
        once = (span.hits, span.taken)
        outcome.strategies.setdefault(span.strategy, Saved()).add(*once, cost)
        if span.asked.tool:
            outcome.tools.setdefault(span.asked.tool, Saved()).add(*once, cost)
        if span.asked.file:
            outcome.files.setdefault(span.asked.file, Saved()).add(*once, cost)
    return outcome


def earned_by_token(replay: Replay, views: Sequence[SentView], baseline: Bill, bill: Bill) -> list[float]:
    """Dollars that a removed token saved in the requests before each, and in all: what edits saved adds up to that."""
    rates = []
    for step, view, before, after in zip(replay.steps, views, baseline.costs, bill.costs, strict=True):
        removed = view.before(step.sent.length)
        rates.append((before - after) / removed if removed else 0.0)
    return [0.0, *accumulate(rates)]


def _world(replay: Replay, baseline: Bill, simulation: Simulation, world: AfterBreak, hindsight: bool) -> World:
    bill = replay.bill(simulation.views, after_break=world)
    best = best_moments(replay, simulation.phases, after_break=world).cost if hindsight and simulation.phases else None
    return World(bill.cost, bill.rewrites, worst_share(baseline.costs, bill.costs), best)


def _invalid(session: Recording, messages: Sequence[Sequence[Message]]) -> tuple[int, int, dict[str, int]]:
    """Requests that break a rule of their provider, those among them that it counted, and how many break which rule.
    What is wrong in a history is wrong in every longer one."""
    dialect = formats.named(session.format)
    invalid, accepted, broken = 0, 0, Counter[str]()
    for segment, history in zip(session.segments, messages, strict=True):
        lengths = [sent.length for sent in segment.requests]
        found: dict[str, int] = {}
        whole = Conversation(tuple(history[: lengths[-1]]), dialect, session.head)
        for violation in rules.violations(whole):
            index = re.search(r"\[(\d+)\]", violation.position)
            place = int(index[1]) if index else 0
            found[violation.rule] = min(place, found.get(violation.rule, place))
        reach = {rule: len(lengths) - bisect_right(lengths, place) for rule, place in found.items()}
        wrong = segment.requests[len(lengths) - max(reach.values(), default=0) :]
        invalid += len(wrong)
        accepted += sum(sent.usage is not None for sent in wrong)
        broken.update(reach)
    return invalid, accepted, dict(broken)


def _results(
    session: Recording, messages: Sequence[Sequence[Message]], weights: Weights, count: Count
) -> tuple[dict[str, Results], dict[str, Results]]:
    """Tool results by tool and by file."""
    tools: dict[str, Results] = {}
    files: dict[str, Results] = {}
    for segment, history in zip(session.segments, messages, strict=True):
        sent = history[: segment.requests[-1].length]
        asked = asked_in(sent)
        for message in sent[segment.inherited :]:
            for result in message.results:
                what = asked.get(result.call_id, CallTarget(result.name))
                tokens = weights.result * sum(count(part.text) for part in result.segments if isinstance(part, Text))
                for table, name in ((tools, what.tool), (files, what.file)):
                    if name:
                        found = table.setdefault(name, Results())
                        found.count += 1
                        found.tokens += tokens
    return tools, files
