"""A reader with known faults: a made-up model whose answers are drawn from distributions that are written down here.

It has six actions, of which one reads again what stands in the request. To an original request it mostly does the usual
thing for that point. To a rewritten one it does the same, but where the action depends on a reference it fails to
follow it with a known probability, and reads again or acts at random. Sessions differ in all of this. Since the
distributions are known, so are the true values of what the statistics estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from ibidem.trial.outcomes import PointResult, Sample, Stratum

READS = "Read the file again"
EDITS = "Edit"
OTHERS = (EDITS, "Bash", "Grep", "Write", "says")
ACTIONS = (READS, *OTHERS)
PER_SESSION = 5

MIXED = ((Stratum.FOLLOWS, 0.5, 0.06), (Stratum.TOUCHES, 0.25, 0.17), (Stratum.ANY, 0.25, 0.77))
"""Strata as a trial picks them: each with its share of the points that are asked, and of the recordings."""


@dataclass(frozen=True, slots=True)
class FaultyReader:
    """The model, and how it is asked. With nothing said, rewriting makes no difference to it."""

    points: int = 200
    samples: int = 2
    usual: float = 0.826
    """How often it does the usual thing; with the other numbers this makes two answers differ in 30 % of cases."""
    rereads: float = 0.077
    fails: float = 0.0
    """How often it does not follow a reference that its action depends on."""
    at_random: bool = False
    """When it fails it takes any action but to read; else it reads again."""
    stuck: bool = False
    """It fails in all answers to a point or in none, instead of each time anew."""
    decided: float = 0.0
    """How much of what is not usual becomes usual with rewritten requests."""
    spread: float = 0.04
    """How alike points of a session are: the share of variance that is between sessions."""
    mixed: bool = False
    """Points are of all strata, as a trial picks them; else every one depends on a reference."""
    broken: float = 0.02
    """How often an edit is of a text that is not shown; when it fails at random, every edit is."""

    def draw(self, seed: int) -> list[PointResult]:
        rng = Random(seed)
        found: list[PointResult] = []
        while len(found) < self.points:
            session = _Session.of(self, rng)
            many = min(PER_SESSION, self.points - len(found))
            found += [self._point(session, f"s{len(found)}", f"p{len(found) + place}", rng) for place in range(many)]
        return found

    def truth(self, seed: int = 1, sessions: int = 10_000) -> tuple[float, float, float, float]:
        """What O1 and O2 estimate: over the points that are asked, then over the recordings. No answer is drawn."""
        rng = Random(seed)
        rows = []
        for _ in range(sessions):
            session = _Session.of(self, rng)
            stratum, weight = self._stratum(rng)
            before = self._original(session)
            after = self._rewritten(session, before, session.fails if stratum == Stratum.FOLLOWS else 0.0)
            deficit = sum(p * (p - q) for p, q in zip(before, after, strict=True))
            rows.append((deficit, after[0] - before[0], weight))
        weights = fmean(weight for *_, weight in rows)
        asked = fmean(row[0] for row in rows), fmean(row[1] for row in rows)
        weighted = fmean(row[0] * row[2] for row in rows) / weights, fmean(row[1] * row[2] for row in rows) / weights
        return (*asked, *weighted)

    def _stratum(self, rng: Random) -> tuple[Stratum, float]:
        if not self.mixed:
            return Stratum.FOLLOWS, 1.0
        (stratum, asked, recorded), *_ = rng.choices(MIXED, [asked for _, asked, _ in MIXED])
        return stratum, recorded / asked

    def _point(self, session: _Session, name: str, point: str, rng: Random) -> PointResult:
        stratum, weight = self._stratum(rng)
        actions = [READS, *rng.sample(OTHERS, len(OTHERS))]  # the usual one comes second
        before = self._original(session)
        fails = session.fails if stratum == Stratum.FOLLOWS else 0.0
        if self.stuck:
            fails = float(rng.random() < fails)
        after = self._rewritten(session, before, fails)
        (recorded,) = rng.choices(actions, before)
        return PointResult(
            point=point,
            session=name,
            stratum=stratum,
            weight=weight,
            recorded=recorded,
            original=self._answers(actions, before, self.broken, recorded, rng),
            rewritten=self._answers(
                actions, after, self.broken + (1 - self.broken) * fails * self.at_random, recorded, rng
            ),
        )

    def _answers(
        self, actions: Sequence[str], chances: Sequence[float], broken: float, recorded: str, rng: Random
    ) -> tuple[Sample, ...]:
        """To read and to edit is to be on the same file, and every edit is the recorded one."""
        on_file = (READS, EDITS)
        return tuple(
            Sample(
                action,
                action == READS,
                rng.random() < broken if action == EDITS else None,
                int(rng.lognormvariate(5.5, 0.8)),
                action in on_file if recorded in on_file else None,
                float(action == EDITS) if recorded == EDITS else None,
            )
            for action in rng.choices(actions, chances, k=self.samples)
        )

    def _original(self, session: _Session) -> list[float]:
        rest = (1 - session.rereads) * (1 - session.usual) / (len(ACTIONS) - 2)
        return [session.rereads, (1 - session.rereads) * session.usual, *[rest] * (len(ACTIONS) - 2)]

    def _rewritten(self, session: _Session, before: Sequence[float], fails: float) -> list[float]:
        firm = [chance * (1 - self.decided) for chance in before]
        firm[1] += self.decided
        otherwise = [0.0, *[1 / len(OTHERS)] * len(OTHERS)] if self.at_random else [1.0, *[0.0] * len(OTHERS)]
        return [(1 - fails) * chance + fails * other for chance, other in zip(firm, otherwise, strict=True)]


@dataclass(frozen=True, slots=True)
class _Session:
    usual: float
    """Of what does not read again."""
    rereads: float
    fails: float

    @classmethod
    def of(cls, reader: FaultyReader, rng: Random) -> _Session:
        usual = reader.usual / (1 - reader.rereads)
        return cls(*(_varied(mean, reader.spread, rng) for mean in (usual, reader.rereads, reader.fails)))


def _varied(mean: float, spread: float, rng: Random) -> float:
    """Beta-distributed between sessions: answers of a session are then correlated by `spread`."""
    if not (spread and 0 < mean < 1):
        return mean
    size = (1 - spread) / spread
    return rng.betavariate(mean * size, (1 - mean) * size)


def swapped(points: Sequence[PointResult]) -> list[PointResult]:
    """What would have been had the labels been the other way round."""
    return [replace(point, original=point.rewritten, rewritten=point.original) for point in points]
