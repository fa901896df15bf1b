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
from .decision_points import DecisionPoint
from .outcomes import Stratum
from .probes import Probe
from .request_builder import EntrySizes, RequestBuilder, ThinkingLevel, Variant
from .rewritten_histories import VariantHistories

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
    variant: Variant
    sample: int
    probe: str = ""
    """For a probe: `as sent` or `altered`. `sample` is then its number among the probes of the point."""

    def __str__(self) -> str:
        return f"{self.point}/{self.variant}/{self.sample}" + (f"/{self.probe}" if self.probe else "")


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
    extends_previous: bool
    """The point before is a prefix of this one, in both variants."""

    def variant_tokens(self, variant: Variant) -> int:
        """Return the tokens of the request in this variant."""
        return self.original if variant is Variant.ORIGINAL else self.rewritten

    def shared_tokens(self, variant: Variant) -> int:
        """Return the tokens that this variant shares with the point before."""
        return self.known_original if variant is Variant.ORIGINAL else self.known_rewritten


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Points of a session in order, with their sizes and probes."""

    session: str
    points: tuple[DecisionPoint, ...]
    sizes: tuple[PointSize, ...]
    parameter_tokens: int
    """Tokens of the request parameters, which come before the history."""
    parameter_digest: str
    """Digest of the request parameters. Sessions with the same digest share them in the provider's cache."""
    output_limit: int
    """Maximum output tokens."""
    probes: tuple[tuple[Probe, ...], ...] = ()
    """Probes of each point; empty without probes."""

    def drop_last_point(self) -> SessionPlan:
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
    max_dollars: float = 0.0
    """Maximum cost in dollars: without any cache reads, and with maximum output."""
    calls: int = 0
    probes: int = 0
    """Number of probes, counted in each variant."""

    @property
    def input_tokens(self) -> float:
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
    sent_parameters: set[str] = field(default_factory=set)

    def add_session(self, plan: SessionPlan, variants: Iterable[Variant] = Variant) -> float:
        """Add the calls of a session. Return their expected cost in dollars."""
        before = self.total.dollars
        for variant in variants:
            for at, size in enumerate(plan.sizes):
                self._add_call(
                    size.variant_tokens(variant),
                    self._cached_tokens(plan, size, variant, first=at == 0),
                    plan.output_limit,
                )
                for _ in range(self.samples - 1):
                    self._add_call(size.variant_tokens(variant), size.variant_tokens(variant), plan.output_limit)
                for probe in plan.probes[at] if plan.probes else ():
                    self._add_probe(plan, at, variant, probe)
        return self.total.dollars - before

    def _add_probe(self, plan: SessionPlan, at: int, variant: Variant, probe: Probe) -> None:
        """Add the calls of a probe. They read the point's request from the cache, or its part before an altered
        marker."""
        size = plan.sizes[at]
        usual, self.output = self.output, float(probe.answer_tokens)
        tokens = size.variant_tokens(variant) + probe.question_tokens // 2
        self._add_call(tokens, size.variant_tokens(variant), plan.output_limit)
        if variant is Variant.REWRITTEN and probe.altered is not None:
            before = plan.points[at - 1].length if at and size.extends_previous else 0
            cached_tokens = (
                size.shared_tokens(variant) if probe.altered.message >= before > 0 else plan.parameter_tokens
            )
            self._add_call(tokens, cached_tokens, plan.output_limit)
        self.total.probes += 1
        self.output = usual

    def _cached_tokens(self, plan: SessionPlan, size: PointSize, variant: Variant, *, first: bool) -> int:
        """Return the tokens that are in the provider's cache.

        With explicit breakpoints, the cached prefix must end at one. If not, any shared prefix is read.
        """
        cached_tokens = plan.parameter_tokens if plan.parameter_digest in self.sent_parameters else 0
        self.sent_parameters.add(plan.parameter_digest)
        marks = self.price.caching.marks
        if not first and (size.extends_previous or not marks):
            cached_tokens = max(cached_tokens, size.shared_tokens(variant))
        if variant is Variant.REWRITTEN and not marks:
            cached_tokens = max(cached_tokens, size.shared)
        return cached_tokens

    def _add_call(self, tokens: int, cached_tokens: int, limit: int) -> None:
        usage = self.expected_usage(tokens, cached_tokens)
        rates = self.price.rates(usage.input)
        self.total.fresh += usage.fresh
        self.total.read += usage.read
        self.total.written += usage.written
        self.total.output += self.output
        self.total.dollars += rates.input_cost(usage) + self.output * rates.output
        self.total.max_dollars += max_call_cost(self.price, usage.input, limit)
        self.total.calls += 1

    def expected_usage(self, tokens: int, cached_tokens: int) -> Usage:
        """Return the expected usage of a request of which `cached_tokens` are in the cache."""
        caching = self.price.caching
        size, read = round(tokens * self.factor), round(min(cached_tokens, tokens) * self.factor)
        read = read - read % caching.step if read >= caching.minimum else 0
        if size < caching.minimum:
            return Usage(fresh=size)
        rates = self.price.rates(size)
        is_write_billed = rates.write > rates.fresh
        return Usage(
            fresh=0 if is_write_billed else size - read, read=read, written=size - read if is_write_billed else 0
        )


def max_call_cost(price: Price, tokens: float, limit: int) -> float:
    """Return the maximum cost of a call in dollars: without cache reads, and with `limit` output tokens."""
    rates = price.rates(tokens)
    return tokens * max(rates.fresh, rates.write) + limit * rates.output


def call_cost(price: Price, usage: Usage) -> float:
    """Return the cost of a call in dollars, from its usage."""
    rates = price.rates(usage.input)
    return rates.input_cost(usage) + usage.output * rates.output


class TokenCeiling:
    """Upper bound of a request's tokens, from the provider's counts for other requests."""

    def __init__(self) -> None:
        self._factor = UNSURE_FACTOR
        self._counted: dict[tuple[str, Variant], tuple[int, int]] = {}

    def max_tokens(self, point: str, variant: Variant, tokens: int, prefix_key: str = "") -> float:
        """Return the maximum provider tokens of a request. `prefix_key` is the key of an earlier request that is its
        prefix."""
        if (point, variant) in self._counted:
            return max(self._counted[point, variant][1], LEAST_FACTOR * tokens)
        estimated_tokens, provider_tokens = self._counted.get((prefix_key, variant), (0, HIDDEN_TOKENS))
        return provider_tokens + self._factor * max(0, tokens - estimated_tokens)

    def add_count(self, point: str, variant: Variant, tokens: int, provider_tokens: int) -> None:
        """Store the provider's count of a request with `tokens` estimated tokens."""
        self._counted.setdefault((point, variant), (tokens, provider_tokens))
        if tokens > HIDDEN_TOKENS:
            self._factor = max(self._factor, SURE_FACTOR * provider_tokens / tokens)


def count_point_sizes(
    builder: RequestBuilder, histories: Sequence[VariantHistories], level: ThinkingLevel, counts: EntrySizes
) -> tuple[int, list[PointSize]]:
    """Return the tokens of the request parameters, and the size of each point."""
    fields = builder.request_fields(level)
    parameter_tokens = counts.count_value({key: fields[key] for key in fields if key not in SETTINGS})
    sizes: list[PointSize] = []
    last: tuple[list[Json], list[Json]] = [], []
    for history_pair in histories:
        now = builder.sent_entries(history_pair.original, level), builder.sent_entries(history_pair.rewritten, level)
        totals = [parameter_tokens + counts.count_entries(entries) for entries in now]
        shared_tokens = [parameter_tokens + counts.count_shared(*pair) for pair in zip(last, now, strict=True)]
        extends_previous = bool(sizes) and (sizes[-1].original, sizes[-1].rewritten) == tuple(shared_tokens)
        size = PointSize(
            totals[0],
            totals[1],
            parameter_tokens + counts.count_shared(*now),
            shared_tokens[0],
            shared_tokens[1],
            extends_previous,
        )
        sizes.append(size)
        last = now
    return parameter_tokens, sizes


SETTINGS = frozenset({"model", "max_tokens", "stream", "stream_options", "prompt_cache_key", "store", "thinking"})
"""Request fields that the model does not see, so that they have no tokens."""


def estimate_token_factor(points: Iterable[tuple[Sequence[DecisionPoint], Sequence[PointSize]]]) -> float:
    """Return the provider tokens per estimated token, from the growth of both between a session's first and last
    point."""
    ratios = []
    for row, sizes in points:
        known_counts = [(point.input, size.original) for point, size in zip(row, sizes, strict=True) if point.input]
        if len(known_counts) > 1 and row[0].segment == row[-1].segment:
            (first, small), (last, large) = known_counts[0], known_counts[-1]
            if large - small > 1000 and last and first and last > first:
                ratios.append((last - first) / (large - small))
    low, high = COUNTED_SPAN
    return min(high, max(low, median(ratios))) if ratios else 1.0


def median_output(points: Iterable[DecisionPoint]) -> float:
    """Return the median of the recorded output tokens."""
    output_tokens = [point.output for point in points if point.output]
    return float(median(output_tokens)) if output_tokens else float(USUAL_OUTPUT)


def count_by_stratum(points: Iterable[DecisionPoint]) -> Mapping[Stratum, int]:
    """Return the number of points in each stratum."""
    counts = dict.fromkeys(Stratum, 0)
    for point in points:
        counts[point.stratum] += 1
    return counts


def schedule_samples(plan: SessionPlan, samples: int, variant: Variant) -> Iterator[list[CallKey]]:
    """Yield the calls of each point of a session in one variant. The first call of a point is sent alone."""
    for point in plan.points:
        yield [CallKey(point.id, variant, sample) for sample in range(samples)]


def schedule_probes(plan: SessionPlan, place: int) -> list[list[CallKey]]:
    """Return the probe calls of a point, grouped by the request that they are appended to."""
    numbered_probes = list(enumerate(plan.probes[place] if plan.probes else ()))
    point = plan.points[place].id
    rows = [[CallKey(point, variant, number, AS_SENT) for number, _ in numbered_probes] for variant in Variant]
    altered_rows = [
        [CallKey(point, Variant.REWRITTEN, number, ALTERED)] for number, probe in numbered_probes if probe.altered
    ]
    return [row for row in (*rows, *altered_rows) if row]
