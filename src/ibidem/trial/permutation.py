"""How often chance alone does as much: labels are shuffled among the answers to each point.

If the model answers a rewritten request as it does the original, the labels A and B say nothing about the answers to a
point, so every way of giving the same number of labels to the same answers was equally likely. That holds point by
point, whatever the points of a session have in common and however uneven the arms are, so the test is exact.

Statistics here are whole numbers in a unit that all points share. So "as much or more" is decided without rounding, and
ties count, as they must. Points with the same answers shuffle alike: their sum is worked out once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import comb, fsum, lcm
from random import Random
from typing import NamedTuple

DRAWS = 9_999
"""Shuffles where there are too many to go through them all."""
EXACT_WORK = 20_000
"""Products of two probabilities that are worth an exact result, for each step of adding up."""
BUNDLE = 32
"""Points that are added up before any is drawn."""

Chances = Mapping[int, float]
"""How likely each value is."""


class Shuffled(NamedTuple):
    """What the labels of one point can come to: values in `unit`ths, each with the number of ways to it."""

    unit: int
    ways: tuple[tuple[int, int], ...]

    @property
    def certain(self) -> bool:
        return len(self.ways) == 1


class PointTest(NamedTuple):
    """One point in a test: what was observed, in the unit of what could have been."""

    observed: int
    shuffled: Shuffled
    strength: int = 1
    """How much it counts in the sum. Any numbers do, as long as they do not depend on the answers."""


def count_test(original: Sequence[bool], rewritten: Sequence[bool]) -> PointTest:
    """Share of B that has it minus share of A that has it."""
    unit = lcm(len(original), len(rewritten))
    there = sum(original) + sum(rewritten)
    observed = sum(rewritten) * (unit // len(rewritten)) - sum(original) * (unit // len(original))
    return PointTest(observed, shuffled_counts(there, len(original), len(rewritten)))


def agreement_test(original: Sequence[str], rewritten: Sequence[str]) -> PointTest:
    """Share of pairs within A that agree minus share of pairs across A and B that do. A has two answers at least."""
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
    """Hypergeometric: `there` of all answers have it, and any of them may be A's."""
    unit = lcm(original, rewritten)
    ways = {}
    for in_b in range(max(0, there - original), min(there, rewritten) + 1):
        value = in_b * (unit // rewritten) - (there - in_b) * (unit // original)
        ways[value] = comb(rewritten, in_b) * comb(original, there - in_b)
    return Shuffled(unit, tuple(sorted(ways.items())))


@lru_cache(maxsize=4096)
def shuffled_agreement(several: tuple[int, ...], original: int, rewritten: int) -> Shuffled:
    """`several` has the sizes of the groups of equal answers. An answer that is alone agrees with none, whichever label
    it gets, so all of those are dealt together."""
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
    """The one-sided p: how likely shuffled labels come to as much as was observed, or more.

    Exact where that is quick, else (1 + as much) / (1 + draws), which is valid for any number of draws.
    """
    tests = list(points)
    unit = lcm(*(test.shuffled.unit for test in tests))
    # What the labels cannot change is on both sides alike, and leaves no trace in the comparison.
    open_tests = [test for test in tests if not test.shuffled.certain]
    observed = sum(test.observed * test.strength * (unit // test.shuffled.unit) for test in open_tests)
    counts = Counter((test.shuffled, test.strength * (unit // test.shuffled.unit)) for test in open_tests)
    kinds = sorted(counts.items())  # whatever order the points are in
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
    """The sum over several points that shuffle alike."""
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
