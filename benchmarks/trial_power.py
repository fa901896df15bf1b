"""What a trial would find in a model whose faults are known: `python -m benchmarks.trial_power --seeds 400`.

Each row is one made-up model, asked by that many made-up trials. *alarm* is what decides (either outcome after Holm's
correction); O1 and O2 are what found it; O4 is told beside, at 5 %. *early* is the bet that stops a trial, at any
moment of it. *covered* are 95 % intervals that hold the true value; their half-width is in points of 100.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from random import Random
from statistics import fmean
from typing import NamedTuple

from ibidem.trial.estimates import Estimate
from ibidem.trial.evalue import bet_payoff
from ibidem.trial.outcomes import PointResult
from ibidem.trial.page import write_trial_page
from ibidem.trial.trial_statistics import HARM_ENOUGH, LEVEL, TrialStatistics, compute_statistics
from ibidem.trial.verdict import TrialConditions
from tests.support.reader import FaultyReader

SHOWN_SEED = 1
DRAWS = 999
"""Shuffles where they are not all gone through: the level of the test holds for any number."""


class Run(NamedTuple):
    """One trial."""

    judgement: TrialStatistics
    stopped: bool
    """The bet was won at some moment."""


@dataclass(frozen=True)
class Simulated:
    """Trials of one made-up model."""

    reader: FaultyReader
    runs: Sequence[Run]

    def share(self, what: Callable[[Run], bool]) -> float:
        return fmean(what(run) for run in self.runs)

    @property
    def alarm(self) -> float:
        return self.share(lambda run: run.judgement.has_alarm)

    @property
    def agreement(self) -> float:
        return self.share(lambda run: run.judgement.agreement.has_alarm)

    @property
    def looks(self) -> float:
        return self.share(lambda run: run.judgement.looks.has_alarm)

    @property
    def matches(self) -> float:
        return self.share(lambda run: (run.judgement.matches.p or 0.0) <= LEVEL)

    @property
    def early(self) -> float:
        return self.share(lambda run: run.stopped)

    @property
    def either(self) -> float:
        return self.share(lambda run: run.stopped or run.judgement.has_alarm)

    def estimates(self, weighted: bool) -> tuple[list[Estimate], list[Estimate]]:
        """Of O1 and O2, where there are intervals."""
        told = [(run.judgement.agreement, run.judgement.looks) for run in self.runs]
        columns = (
            [each.weighted if weighted else each.unweighted for each in column] for column in zip(*told, strict=True)
        )
        first, second = ([each for each in column if each and each.low is not None] for column in columns)
        return first, second

    def covered(self, weighted: bool = False) -> tuple[float, float]:
        truth = self.reader.truth()[2 * weighted :]
        first, second = self.estimates(weighted)
        return _covered(first, truth[0]), _covered(second, truth[1])

    def half_widths(self, weighted: bool = False) -> tuple[float, float]:
        first, second = self.estimates(weighted)
        return _half_width(first), _half_width(second)


def _covered(estimates: Iterable[Estimate], truth: float) -> float:
    return fmean((each.low or 0.0) <= truth <= (each.high or 0.0) for each in estimates)


def _half_width(estimates: Iterable[Estimate]) -> float:
    return 100 * fmean(((each.high or 0.0) - (each.low or 0.0)) / 2 for each in estimates)


def simulate(
    reader: FaultyReader,
    seeds: Iterable[int],
    change: Callable[[list[PointResult], int], list[PointResult]] = lambda points, seed: points,
) -> Simulated:
    """`change` is what happens to the answers before they are judged."""
    runs = []
    for seed in seeds:
        points = change(reader.draw(seed), seed)
        runs.append(Run(compute_statistics(points, seed=seed, draws=DRAWS), ever_stopped(points)))
    return Simulated(reader, runs)


def ever_stopped(points: Iterable[PointResult]) -> bool:
    """Whether `harm` was enough after any of these points; counted on instead of from the start each time."""

    def vote(point: PointResult) -> int:
        pairs = zip(point.original, point.rewritten, strict=False)
        return sum(after.looks_again - before.looks_again for before, after in pairs)

    votes = [vote(point) for point in points]
    wins, losses = accumulate(each > 0 for each in votes), accumulate(each < 0 for each in votes)
    return any(bet_payoff(won, lost) >= HARM_ENOUGH for won, lost in zip(wins, losses, strict=True))


def dropped(points: list[PointResult], seed: int) -> list[PointResult]:
    """One answer in five is lost in arm A, none in B: arms are uneven, and some are empty."""
    rng = Random(seed)
    return [replace(each, original=tuple(kept for kept in each.original if rng.random() < 0.8)) for each in points]


SIZES = ((100, 2), (100, 4), (200, 2), (200, 4), (400, 4))
ODD: tuple[tuple[str, FaultyReader], ...] = (
    ("no fault, sessions differ more", FaultyReader(samples=4, spread=0.2)),
    ("no fault, 5 sessions", FaultyReader(points=25, samples=4)),
    ("no fault, strata", FaultyReader(samples=4, mixed=True)),
    ("more decided", FaultyReader(samples=4, decided=0.5)),
    ("10 %, strata", FaultyReader(samples=4, fails=0.1, mixed=True)),
    ("10 %, sessions differ more", FaultyReader(samples=4, fails=0.1, spread=0.2)),
    ("10 %, 5 sessions", FaultyReader(points=25, samples=4, fails=0.1)),
    ("10 %, fails always or never", FaultyReader(fails=0.1, stuck=True)),
    ("10 %, fails always or never", FaultyReader(samples=4, fails=0.1, stuck=True)),
    ("10 %, at random", FaultyReader(fails=0.1, at_random=True)),
    ("10 %, at random", FaultyReader(samples=4, fails=0.1, at_random=True)),
    ("5 %, sessions differ more", FaultyReader(samples=4, fails=0.05, spread=0.2)),
    ("5 %, and looks are rare", FaultyReader(points=100, samples=4, rereads=0.005, fails=0.05, spread=0.2)),
    ("3 %, and looks are rare", FaultyReader(samples=4, rereads=0.005, fails=0.03, spread=0.2)),
)

HEAD = (
    "model                              N  K  alarm    O1    O2    O4  early  either  covered O1, O2  half-width O1, O2"
)


def rows(name: str, done: Simulated) -> Iterator[str]:
    reader = done.reader
    rates = " ".join(f"{rate:5.3f}" for rate in (done.alarm, done.agreement, done.looks, done.matches))
    start = f"{name:32} {reader.points:3}  {reader.samples}  {rates}  {done.early:5.3f}   {done.either:5.3f}"
    yield f"{start}    {_intervals(done, False)}"
    if reader.mixed:
        yield f"{'  weighted back':{len(start)}}    {_intervals(done, True)}"


def _intervals(done: Simulated, weighted: bool) -> str:
    covered, half = done.covered(weighted), done.half_widths(weighted)
    return f"{covered[0]:5.3f}, {covered[1]:5.3f}         {half[0]:4.1f}, {half[1]:4.1f}"


def picture(file: Path) -> None:
    """The page of one made-up trial. Needs Chromium, and `pip install playwright`."""
    from playwright.sync_api import sync_playwright

    reader = FaultyReader(samples=4, fails=0.1, mixed=True)
    setting = TrialConditions(
        model="a made-up model",
        date="2026-01-01",
        profile="lossless",
        samples=reader.samples,
        margin=11.2,
        spent=0.0,
        planned=reader.points,
        simulated=True,
    )
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        source = Path(place, "page.html")
        with source.open("w", encoding="utf-8") as stream:
            write_trial_page(compute_statistics(reader.draw(SHOWN_SEED), seed=SHOWN_SEED), setting, stream)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 1200})
        page.goto(source.as_uri())
        page.screenshot(path=file)
        browser.close()


def show(name: str, done: Simulated) -> None:
    print(*rows(name, done), sep="\n", flush=True)


def tabulate(seeds: Sequence[int]) -> None:
    print(HEAD)
    for fails in (0.0, 0.05, 0.1, 0.2):
        for points, samples in SIZES:
            reader = FaultyReader(points=points, samples=samples, fails=fails)
            show(f"fails in {100 * fails:.0f} %" if fails else "no fault", simulate(reader, seeds))
    for name, reader in ODD:
        show(name, simulate(reader, seeds))
    for samples in (2, 4):
        show("no fault, answers lost in A", simulate(FaultyReader(samples=samples), seeds, dropped))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="only make the picture of a page")
    options = parser.parse_args()
    if options.picture:
        picture(options.picture)
    else:
        tabulate(range(options.seeds))


if __name__ == "__main__":
    main()
