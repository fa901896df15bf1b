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


class Shuffled(NamedTuple):
    """Distribution of one point's statistic: its values in 1/`unit`, each with its number of permutations."""

    unit: int
    ways: tuple[tuple[int, int], ...]

    @property
    def certain(self) -> bool:
        """Whether all permutations have the same value."""
        return len(self.ways) == 1


class PointTest(NamedTuple):
    """One point in a test: its observed statistic, and the distribution of the statistic."""

    observed: int
    shuffled: Shuffled
    strength: int = 1
    """Weight in the sum. Any weights are valid if they do not depend on the samples."""


def count_test(original: Sequence[bool], rewritten: Sequence[bool]) -> PointTest:
    """Return the test of a rate: its share in B minus its share in A."""
    unit = lcm(len(original), len(rewritten))
    there = sum(original) + sum(rewritten)
    observed = sum(rewritten) * (unit // len(rewritten)) - sum(original) * (unit // len(original))
    return PointTest(observed, shuffled_counts(there, len(original), len(rewritten)))


def agreement_test(original: Sequence[str], rewritten: Sequence[str]) -> PointTest:
    """Return the test of the deficit: the share of equal pairs within A minus that across A and B.

    A needs at least two samples.
    """
    size, other = len(original), len(rewritten)
    both = Counter(original), Counter(rewritten)
    within = sum(comb(count, 2) for count in both[0].values())
    across = sum(count * both[1][action] for action, count in both[0].items())
    unit = lcm(comb(size, 2), size * other)
    observed = within * (unit // comb(size, 2)) - across * (unit // (size * other))
    sizes = (both[0] + both[1]).values()
    several = tuple(sorted(count for count in sizes if count > 1))
    return PointTest(observed, shuffled_agreement(several, size, other))


@lru_cache(maxsize=4096)
def shuffled_counts(there: int, original: int, rewritten: int) -> Shuffled:
    """Return the distribution of a rate difference if `positive_count` of all samples have the property.

    It is a hypergeometric distribution.
    """
    unit = lcm(original, rewritten)
    ways = {}
    for in_b in range(max(0, there - original), min(there, rewritten) + 1):
        value = in_b * (unit // rewritten) - (there - in_b) * (unit // original)
        ways[value] = comb(rewritten, in_b) * comb(original, there - in_b)
    return Shuffled(unit, tuple(sorted(ways.items())))


@lru_cache(maxsize=4096)
def shuffled_agreement(several: tuple[int, ...], original: int, rewritten: int) -> Shuffled:
    """Return the distribution of the deficit. `group_sizes` has the sizes of the groups of equal samples.

    Unique samples agree with no other sample under any label, so they are assigned together.
    """
    alone = original + rewritten - sum(several)
    states: Counter[tuple[int, int, int]] = Counter()  # answers with label A, pairs within A, pairs across
    for taken in range(min(alone, original) + 1):
        states[taken, 0, 0] += comb(alone, taken)
    for size in several:
        grown: Counter[tuple[int, int, int]] = Counter()
        for (taken, within, across), ways in states.items():
            for more in range(min(size, original - taken) + 1):
                grown[taken + more, within + comb(more, 2), across + more * (size - more)] += ways * comb(size, more)
        states = grown
    unit = lcm(comb(original, 2), original * rewritten)
    found: Counter[int] = Counter()
    for (taken, within, across), ways in states.items():
        if taken == original:
            found[within * (unit // comb(original, 2)) - across * (unit // (original * rewritten))] += ways
    return Shuffled(unit, tuple(sorted(found.items())))


def chance_of_more(points: Iterable[PointTest], rng: Random, draws: int = DRAWS) -> float:
    """Return the one-sided p value: the probability that permuted labels give at least the observed sum.

    It is exact if that is fast. If not, it is (1 + draws at least as large) / (1 + draws), which is always valid.
    """
    tests = list(points)
    unit = lcm(*(test.shuffled.unit for test in tests))
    # Points with one possible value add the same constant to the observed and to the permuted sums.
    open_tests = [test for test in tests if not test.shuffled.certain]
    observed = sum(test.observed * test.strength * (unit // test.shuffled.unit) for test in open_tests)
    counts = Counter((test.shuffled, test.strength * (unit // test.shuffled.unit)) for test in open_tests)
    kinds = sorted(counts.items())  # the result must not depend on the order of points
    parts = sorted((each for (kind, scale), count in kinds for each in _bundles(kind, count, scale)), key=len)
    whole: Chances = {0: 1.0}
    for place, part in enumerate(parts):
        if len(whole) * len(part) > EXACT_WORK:
            return _drawn([whole, *parts[place:]], observed, rng, draws)
        whole = _added(whole, part)
    return min(1.0, fsum(chance for value, chance in whole.items() if value >= observed))


def _drawn(parts: Sequence[Chances], observed: int, rng: Random, draws: int) -> float:
    columns = [rng.choices([*part], [*part.values()], k=draws) for part in parts]
    as_much: int = sum(sum(row) >= observed for row in zip(*columns, strict=True))
    return (1 + as_much) / (1 + draws)


def _bundles(kind: Shuffled, count: int, scale: int) -> Iterable[Chances]:
    while count > 0:
        yield _summed(kind, min(count, BUNDLE), scale)
        count -= BUNDLE


@lru_cache(maxsize=256)
def _summed(kind: Shuffled, count: int, scale: int) -> Chances:
    """Return the distribution of the sum over `count` points with the same distribution."""
    ways_in_all = sum(ways for _, ways in kind.ways)
    one = {value * scale: ways / ways_in_all for value, ways in kind.ways}
    whole: Chances = {0: 1.0}
    for _ in range(count):
        whole = _added(whole, one)
    return whole


def _added(left: Chances, right: Chances) -> Chances:
    found: dict[int, float] = {}
    for value, chance in left.items():
        for more, other in right.items():
            key = value + more
            found[key] = found.get(key, 0.0) + chance * other
    return found
