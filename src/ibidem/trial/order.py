"""Order of the calls of a trial, their expected cost, and the maximum cost of a call.

Requests of a session are prefixes of each other, in both variants (invariant 2). So each variant of a session is sent
from its first point to its last. A point writes only its new part into the provider's cache, and its other samples
only read. They are sent in parallel after the first response byte of the first sample.
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
"""Expected output tokens of a call if the recordings have no usage."""
UNSURE_FACTOR = 2.0
"""Maximum provider tokens per estimated token of new text. Newer models count up to 1.6."""
HIDDEN_TOKENS = 1000
"""Tokens that a provider may add to a request, for example for tools."""
SURE_FACTOR = 1.1
"""Safety factor on the largest observed ratio of provider tokens to estimated tokens."""
LEAST_FACTOR = 0.5
"""Minimum provider tokens per estimated token. A gateway may report fewer."""
COUNTED_SPAN = 0.7, 1.8
"""Range of plausible provider tokens per estimated token."""


class CallKey(NamedTuple):
    """Key of one call: a sample of a point, or a probe."""

    point: str
    arm: Arm
    sample: int
    probe: str = ""
    """For a probe: `as sent` or `altered`. `sample` is then its number among the probes of the point."""

    def __str__(self) -> str:
        return f"{self.point}/{self.arm}/{self.sample}" + (f"/{self.probe}" if self.probe else "")


AS_SENT, ALTERED = "as sent", "altered"


@dataclass(frozen=True, slots=True)
class PointSize:
    """Estimated tokens of a point's requests."""

    original: int
    rewritten: int
    shared: int
    """Tokens of the prefix that both variants share, including the request parameters."""
    known_original: int
    known_rewritten: int
    """Tokens of the prefix that a variant shares with the point before, at least the request parameters."""
    goes_on: bool
    """The point before is a prefix of this one, in both variants."""

    def of(self, arm: Arm) -> int:
        """Return the tokens of the request in this variant."""
        return self.original if arm is Arm.ORIGINAL else self.rewritten

    def known(self, arm: Arm) -> int:
        """Return the tokens that this variant shares with the point before."""
        return self.known_original if arm is Arm.ORIGINAL else self.known_rewritten


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Points of a session in order, with their sizes and probes."""

    session: str
    points: tuple[DecisionPoint, ...]
    sizes: tuple[PointSize, ...]
    head: int
    """Tokens of the request parameters, which come before the history."""
    head_name: str
    """Digest of the request parameters. Sessions with the same digest share them in the provider's cache."""
    limit: int
    """Maximum output tokens."""
    probes: tuple[tuple[Probe, ...], ...] = ()
    """Probes of each point; empty without probes."""

    def cut(self) -> SessionPlan:
        """Return the plan without its last point."""
        return replace(self, points=self.points[:-1], sizes=self.sizes[:-1], probes=self.probes[:-1])


@dataclass(slots=True)
class Forecast:
    """Expected tokens, cost and calls of a plan."""

    fresh: float = 0.0
    read: float = 0.0
    written: float = 0.0
    output: float = 0.0
    dollars: float = 0.0
    most: float = 0.0
    """Maximum cost in dollars: without any cache reads, and with maximum output."""
    calls: int = 0
    probes: int = 0
    """Number of probes, counted in each variant."""

    @property
    def input(self) -> float:
        """All input tokens."""
        return self.fresh + self.read + self.written


@dataclass(slots=True)
class Forecaster:
    """Sums up the expected cost of sessions, in the order in which they are sent."""

    price: Price
    samples: int
    output: float
    factor: float = 1.0
    """Provider tokens per estimated token."""
    total: Forecast = field(default_factory=Forecast)
    heads: set[str] = field(default_factory=set)

    def add(self, plan: SessionPlan, arms: Iterable[Arm] = Arm) -> float:
        """Add the calls of a session. Return their expected cost in dollars."""
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
        """Add the calls of a probe. They read the point's request from the cache, or its part before an altered
        marker."""
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
        """Return the tokens that are in the provider's cache.

        With explicit breakpoints, the cached prefix must end at one. If not, any shared prefix is read.
        """
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
        """Return the expected usage of a request of which `cached_tokens` are in the cache."""
        caching = self.price.caching
        size, read = round(tokens * self.factor), round(min(known, tokens) * self.factor)
        read = read - read % caching.step if read >= caching.minimum else 0
        if size < caching.minimum:
            return Usage(fresh=size)
        rates = self.price.rates(size)
        paid = rates.write > rates.fresh
        return Usage(fresh=0 if paid else size - read, read=read, written=size - read if paid else 0)


def most_of(price: Price, tokens: float, limit: int) -> float:
    """Return the maximum cost of a call in dollars: without cache reads, and with `limit` output tokens."""
    rates = price.rates(tokens)
    return tokens * max(rates.fresh, rates.write) + limit * rates.output


def paid_for(price: Price, usage: Usage) -> float:
    """Return the cost of a call in dollars, from its usage."""
    rates = price.rates(usage.input)
    return rates.input_cost(usage) + usage.output * rates.output


class Ceiling:
    """Upper bound of a request's tokens, from the provider's counts for other requests."""

    def __init__(self) -> None:
        self._factor = UNSURE_FACTOR
        self._counted: dict[tuple[str, Arm], tuple[int, int]] = {}

    def of(self, point: str, arm: Arm, tokens: int, before: str = "") -> float:
        """Return the maximum provider tokens of a request. `prefix_key` is the key of an earlier request that is its
        prefix."""
        if (point, arm) in self._counted:
            return max(self._counted[point, arm][1], LEAST_FACTOR * tokens)
        ours, counted = self._counted.get((before, arm), (0, HIDDEN_TOKENS))
        return counted + self._factor * max(0, tokens - ours)

    def learn(self, point: str, arm: Arm, tokens: int, counted: int) -> None:
        """Store the provider's count of a request with `tokens` estimated tokens."""
        self._counted.setdefault((point, arm), (tokens, counted))
        if tokens > HIDDEN_TOKENS:
            self._factor = max(self._factor, SURE_FACTOR * counted / tokens)


def sizes_of(
    asker: Asker, found: Sequence[ArmHistories], rung: ThinkingRung, counts: EntrySizes
) -> tuple[int, list[PointSize]]:
    """Return the tokens of the request parameters, and the size of each point."""
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
"""Request fields that the model does not see, so that they have no tokens."""


def counted_factor(points: Iterable[tuple[Sequence[DecisionPoint], Sequence[PointSize]]]) -> float:
    """Return the provider tokens per estimated token, from the growth of both between a session's first and last
    point."""
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
    """Return the median of the recorded output tokens."""
    counted = [point.output for point in points if point.output]
    return float(median(counted)) if counted else float(USUAL_OUTPUT)


def by_stratum(points: Iterable[DecisionPoint]) -> Mapping[Stratum, int]:
    """Return the number of points in each stratum."""
    found = dict.fromkeys(Stratum, 0)
    for point in points:
        found[point.stratum] += 1
    return found


def lanes(plan: SessionPlan, samples: int, arm: Arm) -> Iterator[list[CallKey]]:
    """Yield the calls of each point of a session in one variant. The first call of a point is sent alone."""
    for point in plan.points:
        yield [CallKey(point.id, arm, sample) for sample in range(samples)]


def probe_lanes(plan: SessionPlan, place: int) -> list[list[CallKey]]:
    """Return the probe calls of a point, grouped by the request that they are appended to."""
    found = list(enumerate(plan.probes[place] if plan.probes else ()))
    point = plan.points[place].id
    rows = [[CallKey(point, arm, number, AS_SENT) for number, _ in found] for arm in Arm]
    altered = [[CallKey(point, Arm.REWRITTEN, number, ALTERED)] for number, probe in found if probe.altered]
    return [row for row in (*rows, *altered) if row]
