"""What is asked in which order, what that costs if all goes well, and what a call can cost at the most.

Requests of a session begin with each other, in both arms (law 2). So each arm of a session is asked from its first
point to its last: a point writes only what is new into the provider's cache, and its other answers only read. The first
answer to a point is awaited up to its first byte, then the others are asked for together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from ..billing.prices import Price
from ..billing.usage import Usage
from ..recordings.recording import Json
from .bodies import Arm, Asker, EntrySizes, ThinkingRung
from .outcomes import Stratum
from .points import DecisionPoint
from .probes import Probe
from .replayed import ArmHistories

USUAL_OUTPUT = 400
"""Tokens of an answer, where the recordings do not tell."""
UNSURE_FACTOR = 2.0
"""So many times our tokens a provider counts at the most for what it has not counted yet: newer ones count 1.6."""
HIDDEN_TOKENS = 1000
"""Tokens that a provider may add to a request, for tools say."""
SURE_FACTOR = 1.1
"""And so many times what it was seen to count, should that be more."""
LEAST_FACTOR = 0.5
"""Of our tokens, what a request has at the least, whatever somebody between says that the provider counted."""
COUNTED_SPAN = 0.7, 1.8
"""Between which tokens of a provider for one of ours are believed."""


class CallKey(NamedTuple):
    """One answer that is asked for."""

    point: str
    arm: Arm
    sample: int
    probe: str = ""
    """Of a probe, whether it is asked `as sent` or `altered`; its number among those of the point is `sample`."""

    def __str__(self) -> str:
        return f"{self.point}/{self.arm}/{self.sample}" + (f"/{self.probe}" if self.probe else "")


AS_SENT, ALTERED = "as sent", "altered"


@dataclass(frozen=True, slots=True)
class PointSize:
    """Tokens of a point's requests, as we count them."""

    original: int
    rewritten: int
    shared: int
    """With which both begin, the head with them."""
    known_original: int
    known_rewritten: int
    """With which the point before it begins as well; the head at least."""
    goes_on: bool
    """All of the point before it stands at its beginning, in both arms."""

    def of(self, arm: Arm) -> int:
        return self.original if arm is Arm.ORIGINAL else self.rewritten

    def known(self, arm: Arm) -> int:
        return self.known_original if arm is Arm.ORIGINAL else self.known_rewritten


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The points of a session in their order, and their sizes."""

    session: str
    points: tuple[DecisionPoint, ...]
    sizes: tuple[PointSize, ...]
    head: int
    """Tokens that stand before the history."""
    head_name: str
    """Sessions with the same one share what stands there."""
    limit: int
    """Tokens of output that are allowed."""
    probes: tuple[tuple[Probe, ...], ...] = ()
    """Questions that are asked behind each point; empty where none are."""

    def cut(self) -> SessionPlan:
        """Without its last point."""
        return replace(self, points=self.points[:-1], sizes=self.sizes[:-1], probes=self.probes[:-1])


@dataclass(slots=True)
class Forecast:
    """What a plan comes to."""

    fresh: float = 0.0
    read: float = 0.0
    written: float = 0.0
    output: float = 0.0
    dollars: float = 0.0
    most: float = 0.0
    """Dollars if nothing is found in a cache and every answer is as long as it may be."""
    calls: int = 0
    probes: int = 0
    """Questions, of each arm."""

    @property
    def input(self) -> float:
        return self.fresh + self.read + self.written


@dataclass(slots=True)
class Forecaster:
    """Adds sessions up, in the order in which they are asked."""

    price: Price
    samples: int
    output: float
    factor: float = 1.0
    """Tokens of the provider for one of ours."""
    total: Forecast = field(default_factory=Forecast)
    heads: set[str] = field(default_factory=set)

    def add(self, plan: SessionPlan, arms: Iterable[Arm] = Arm) -> float:
        """Returns the dollars that it adds."""
        before = self.total.dollars
        for arm in arms:
            for at, size in enumerate(plan.sizes):
                self._ask(size.of(arm), self._known(plan, size, arm, first=at == 0), plan.limit)
                for _ in range(self.samples - 1):
                    self._ask(size.of(arm), size.of(arm), plan.limit)
                for probe in plan.probes[at] if plan.probes else ():
                    self._probe(plan, at, arm, probe)
        return self.total.dollars - before

    def _probe(self, plan: SessionPlan, at: int, arm: Arm, probe: Probe) -> None:
        """It only reads what was sent. Where a number is altered, what stands behind it is not known there."""
        size = plan.sizes[at]
        usual, self.output = self.output, float(probe.answer_tokens)
        tokens = size.of(arm) + probe.tokens // 2
        self._ask(tokens, size.of(arm), plan.limit)
        if arm is Arm.REWRITTEN and probe.altered is not None:
            before = plan.points[at - 1].length if at and size.goes_on else 0
            known = size.known(arm) if probe.altered.message >= before > 0 else plan.head
            self._ask(tokens, known, plan.limit)
        self.total.probes += 1
        self.output = usual

    def _known(self, plan: SessionPlan, size: PointSize, arm: Arm, *, first: bool) -> int:
        """Tokens that were sent before. Without marks any beginning is found, else what ended at one."""
        found = plan.head if plan.head_name in self.heads else 0
        self.heads.add(plan.head_name)
        marks = self.price.caching.marks
        if not first and (size.goes_on or not marks):
            found = max(found, size.known(arm))
        if arm is Arm.REWRITTEN and not marks:
            found = max(found, size.shared)
        return found

    def _ask(self, tokens: int, known: int, limit: int) -> None:
        usage = self.usage(tokens, known)
        rates = self.price.rates(usage.input)
        self.total.fresh += usage.fresh
        self.total.read += usage.read
        self.total.written += usage.written
        self.total.output += self.output
        self.total.dollars += rates.input_cost(usage) + self.output * rates.output
        self.total.most += most_of(self.price, usage.input, limit)
        self.total.calls += 1

    def usage(self, tokens: int, known: int) -> Usage:
        caching = self.price.caching
        size, read = round(tokens * self.factor), round(min(known, tokens) * self.factor)
        read = read - read % caching.step if read >= caching.minimum else 0
        if size < caching.minimum:
            return Usage(fresh=size)
        rates = self.price.rates(size)
        paid = rates.write > rates.fresh
        return Usage(fresh=0 if paid else size - read, read=read, written=size - read if paid else 0)


def most_of(price: Price, tokens: float, limit: int) -> float:
    """Dollars of a call of which nothing is found in a cache, and all of the output is used."""
    rates = price.rates(tokens)
    return tokens * max(rates.fresh, rates.write) + limit * rates.output


def paid_for(price: Price, usage: Usage) -> float:
    """Dollars of what a provider counted."""
    rates = price.rates(usage.input)
    return rates.input_cost(usage) + usage.output * rates.output


class Ceiling:
    """How many tokens a request can have at the most, by what was counted for others."""

    def __init__(self) -> None:
        self._factor = UNSURE_FACTOR
        self._counted: dict[tuple[str, Arm], tuple[int, int]] = {}

    def of(self, point: str, arm: Arm, tokens: int, before: str = "") -> float:
        """`before` is a point that this one begins with, all of it. The very request may have been counted already."""
        if (point, arm) in self._counted:
            return max(self._counted[point, arm][1], LEAST_FACTOR * tokens)
        ours, counted = self._counted.get((before, arm), (0, HIDDEN_TOKENS))
        return counted + self._factor * max(0, tokens - ours)

    def learn(self, point: str, arm: Arm, tokens: int, counted: int) -> None:
        self._counted.setdefault((point, arm), (tokens, counted))
        if tokens > HIDDEN_TOKENS:
            self._factor = max(self._factor, SURE_FACTOR * counted / tokens)


def sizes_of(
    asker: Asker, found: Sequence[ArmHistories], rung: ThinkingRung, counts: EntrySizes
) -> tuple[int, list[PointSize]]:
    """Tokens before the history, and those of each point."""
    fields = asker.fields(rung)
    head = counts.value({key: fields[key] for key in fields if key not in SETTINGS})
    sizes: list[PointSize] = []
    last: tuple[list[Json], list[Json]] = [], []
    for each in found:
        now = asker.entries(each.original, rung), asker.entries(each.rewritten, rung)
        totals = [head + counts.of(entries) for entries in now]
        shared = [head + counts.shared(*pair) for pair in zip(last, now, strict=True)]
        goes_on = bool(sizes) and (sizes[-1].original, sizes[-1].rewritten) == tuple(shared)
        size = PointSize(totals[0], totals[1], head + counts.shared(*now), shared[0], shared[1], goes_on)
        sizes.append(size)
        last = now
    return head, sizes


SETTINGS = frozenset({"model", "max_tokens", "stream", "stream_options", "prompt_cache_key", "store", "thinking"})
"""Fields that the model does not read."""


def counted_factor(points: Iterable[tuple[Sequence[DecisionPoint], Sequence[PointSize]]]) -> float:
    """Tokens of the provider for one of ours, by how both grow from the first point of a session to the last."""
    ratios = []
    for row, sizes in points:
        counted = [(point.input, size.original) for point, size in zip(row, sizes, strict=True) if point.input]
        if len(counted) > 1 and row[0].segment == row[-1].segment:
            (first, small), (last, large) = counted[0], counted[-1]
            if large - small > 1000 and last and first and last > first:
                ratios.append((last - first) / (large - small))
    low, high = COUNTED_SPAN
    return min(high, max(low, median(ratios))) if ratios else 1.0


def usual_output(points: Iterable[DecisionPoint]) -> float:
    counted = [point.output for point in points if point.output]
    return float(median(counted)) if counted else float(USUAL_OUTPUT)


def by_stratum(points: Iterable[DecisionPoint]) -> Mapping[Stratum, int]:
    found = dict.fromkeys(Stratum, 0)
    for point in points:
        found[point.stratum] += 1
    return found


def lanes(plan: SessionPlan, samples: int, arm: Arm) -> Iterator[list[CallKey]]:
    """The calls of an arm of a session: a row for each point, whose first is asked alone."""
    for point in plan.points:
        yield [CallKey(point.id, arm, sample) for sample in range(samples)]


def probe_lanes(plan: SessionPlan, place: int) -> list[list[CallKey]]:
    """The probes of a point, behind its own calls: a row for each request that they are asked behind."""
    found = list(enumerate(plan.probes[place] if plan.probes else ()))
    point = plan.points[place].id
    rows = [[CallKey(point, arm, number, AS_SENT) for number, _ in found] for arm in Arm]
    altered = [[CallKey(point, Arm.REWRITTEN, number, ALTERED)] for number, probe in found if probe.altered]
    return [row for row in (*rows, *altered) if row]
