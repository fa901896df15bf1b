"""Permutation test: the probability that chance alone has an effect of the observed size.

If the model treats the rewritten request like the original, every assignment of the labels A and B to the samples of a
point is equally likely. This holds for each point. It does not assume independent points or equal numbers of samples,
so the test is exact.

Statistics are integers in a common unit, so ties are exact and count as "at least as large". Points with the same
samples have the same distribution, so their sum is computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import comb, fsum, lcm
from random import Random
from typing import NamedTuple

DRAWS = 9_999
"""Number of random permutations if an exact computation is too slow."""
EXACT_WORK = 20_000
"""Maximum products of two probabilities per convolution in an exact computation."""
BUNDLE = 32
"""Number of equal points that are summed exactly before sampling."""

Chances = Mapping[int, float]
"""Probability of each value."""


class PermutationDistribution(NamedTuple):
    """Distribution of one point's statistic: its values in 1/`unit`, each with its number of permutations."""

    unit: int
    ways: tuple[tuple[int, int], ...]

    @property
    def is_certain(self) -> bool:
        """Whether all permutations have the same value."""
        return len(self.ways) == 1


class PointTest(NamedTuple):
    """One point in a test: its observed statistic, and the distribution of the statistic."""

    observed: int
    distribution: PermutationDistribution
    strength: int = 1
    """Weight in the sum. Any weights are valid if they do not depend on the samples."""


def make_rate_test(original_flags: Sequence[bool], rewritten_flags: Sequence[bool]) -> PointTest:
    """Return the test of a rate: its share in B minus its share in A."""
    unit = lcm(len(original_flags), len(rewritten_flags))
    positive_count = sum(original_flags) + sum(rewritten_flags)
    observed_value = sum(rewritten_flags) * (unit // len(rewritten_flags)) - sum(original_flags) * (
        unit // len(original_flags)
    )
    return PointTest(observed_value, rate_distribution(positive_count, len(original_flags), len(rewritten_flags)))


def make_agreement_test(original_actions: Sequence[str], rewritten_actions: Sequence[str]) -> PointTest:
    """Return the test of the deficit: the share of equal pairs within A minus that across A and B.

    A needs at least two samples.
    """
    size, other = len(original_actions), len(rewritten_actions)
    both = Counter(original_actions), Counter(rewritten_actions)
    within = sum(comb(count, 2) for count in both[0].values())
    across = sum(count * both[1][action] for action, count in both[0].items())
    unit = lcm(comb(size, 2), size * other)
    observed_value = within * (unit // comb(size, 2)) - across * (unit // (size * other))
    sizes = (both[0] + both[1]).values()
    group_sizes = tuple(sorted(count for count in sizes if count > 1))
    return PointTest(observed_value, agreement_distribution(group_sizes, size, other))


@lru_cache(maxsize=4096)
def rate_distribution(positive_count: int, original_count: int, rewritten_count: int) -> PermutationDistribution:
    """Return the distribution of a rate difference if `positive_count` of all samples have the property.

    It is a hypergeometric distribution.
    """
    unit = lcm(original_count, rewritten_count)
    ways = {}
    for in_b in range(max(0, positive_count - original_count), min(positive_count, rewritten_count) + 1):
        value = in_b * (unit // rewritten_count) - (positive_count - in_b) * (unit // original_count)
        ways[value] = comb(rewritten_count, in_b) * comb(original_count, positive_count - in_b)
    return PermutationDistribution(unit, tuple(sorted(ways.items())))


@lru_cache(maxsize=4096)
def agreement_distribution(
    group_sizes: tuple[int, ...], original_count: int, rewritten_count: int
) -> PermutationDistribution:
    """Return the distribution of the deficit. `group_sizes` has the sizes of the groups of equal samples.

    Unique samples agree with no other sample under any label, so they are assigned together.
    """
    alone = original_count + rewritten_count - sum(group_sizes)
    states: Counter[tuple[int, int, int]] = Counter()  # answers with label A, pairs within A, pairs across
    for assigned_count in range(min(alone, original_count) + 1):
        states[assigned_count, 0, 0] += comb(alone, assigned_count)
    for size in group_sizes:
        next_states: Counter[tuple[int, int, int]] = Counter()
        for (assigned_count, within, across), ways in states.items():
            for more in range(min(size, original_count - assigned_count) + 1):
                next_states[assigned_count + more, within + comb(more, 2), across + more * (size - more)] += (
                    ways * comb(size, more)
                )
        states = next_states
    unit = lcm(comb(original_count, 2), original_count * rewritten_count)
    value_ways: Counter[int] = Counter()
    for (assigned_count, within, across), ways in states.items():
        if assigned_count == original_count:
            value_ways[
                within * (unit // comb(original_count, 2)) - across * (unit // (original_count * rewritten_count))
            ] += ways
    return PermutationDistribution(unit, tuple(sorted(value_ways.items())))


def one_sided_p(points: Iterable[PointTest], rng: Random, draws: int = DRAWS) -> float:
    """Return the one-sided p value: the probability that permuted labels give at least the observed sum.

    It is exact if that is fast. If not, it is (1 + draws at least as large) / (1 + draws), which is always valid.
    """
    tests = list(points)
    unit = lcm(*(test.distribution.unit for test in tests))
    # Points with one possible value add the same constant to the observed and to the permuted sums.
    open_tests = [test for test in tests if not test.distribution.is_certain]
    observed_sum = sum(test.observed * test.strength * (unit // test.distribution.unit) for test in open_tests)
    counts = Counter((test.distribution, test.strength * (unit // test.distribution.unit)) for test in open_tests)
    kinds = sorted(counts.items())  # the result must not depend on the order of points
    parts = sorted((chances for (kind, scale), count in kinds for chances in _bundle_sums(kind, count, scale)), key=len)
    whole: Chances = {0: 1.0}
    for place, part in enumerate(parts):
        if len(whole) * len(part) > EXACT_WORK:
            return _sample_p([whole, *parts[place:]], observed_sum, rng, draws)
        whole = _convolve(whole, part)
    return min(1.0, fsum(chance for value, chance in whole.items() if value >= observed_sum))


def _sample_p(parts: Sequence[Chances], observed_sum: int, rng: Random, draws: int) -> float:
    columns = [rng.choices([*part], [*part.values()], k=draws) for part in parts]
    as_much: int = sum(sum(row) >= observed_sum for row in zip(*columns, strict=True))
    return (1 + as_much) / (1 + draws)


def _bundle_sums(kind: PermutationDistribution, count: int, scale: int) -> Iterable[Chances]:
    while count > 0:
        yield _sum_distribution(kind, min(count, BUNDLE), scale)
        count -= BUNDLE


@lru_cache(maxsize=256)
def _sum_distribution(kind: PermutationDistribution, count: int, scale: int) -> Chances:
    """Return the distribution of the sum over `count` points with the same distribution."""
    ways_in_all = sum(ways for _, ways in kind.ways)
    chances = {value * scale: ways / ways_in_all for value, ways in kind.ways}
    whole: Chances = {0: 1.0}
    for _ in range(count):
        whole = _convolve(whole, chances)
    return whole


def _convolve(first: Chances, second: Chances) -> Chances:
    sums: dict[int, float] = {}
    for value, chance in first.items():
        for more, other in second.items():
            key = value + more
            sums[key] = sums.get(key, 0.0) + chance * other
    return sums
