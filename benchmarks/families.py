"""What profiles save by agent, model family and lifetime of the cache: `python -m benchmarks.families CORPUS`.

Recorded sessions at list prices, as `ibidem report` reckons them. Of each group: the bill; by how much the replay of
the unchanged session is off it (median, and within which 90 % of sessions are); and for each profile what it saves. For
those that look back also the share of what the same edits would have saved at the best moments (if the provider still
finds what stands before a change / if it finds nothing), by how much a session was dearer at its worst moment, and how
many were at their end.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from ibidem.recordings import LogError, Recording
from ibidem.recordings.discovery import find_logs, load_log
from ibidem.report.measure import ReportSettings, measure_session
from ibidem.report.session_result import Scenario, SessionResult

from .readers import read

FAMILY = re.compile(
    r"claude-(?:\d-\d-)?(?:opus|sonnet|haiku|fable|mythos)(?:-\d+)*?(?=-\d{8}|$|\[)|gpt-[\d.]+|gemini-[\d.]+-\w+"
)
LOOKING_BACK = ("balanced", "recoverable", "aggressive")
NOTHING = 1e-9
"""A share of the bill that is none."""


class Measured(NamedTuple):
    group: tuple[str, str, str]
    figures: SessionResult


def lifetime(session: Recording) -> str:
    """For how long the provider was asked to remember most of it."""
    usages = [sent.usage for segment in session.segments for sent in segment.requests if sent.usage]
    hour, short = sum(usage.written_1h for usage in usages), sum(usage.written for usage in usages)
    return "1 h" if hour > short else "5 min" if short else "automatic" if usages else "not told"


def family(model: str) -> str:
    found = FAMILY.search(model)
    return found.group() if found else model or "not named"


def measure(path: Path, profiles: tuple[str, ...], optimum: bool) -> list[Measured]:
    try:
        found = read(str(path), load_log(path))
    except LogError:
        return []
    settings = ReportSettings(profiles=profiles, optimum=optimum)
    measured = []
    for session in found:
        if session.length:
            group = (session.agent, family(session.models[0] if session.models else ""), lifetime(session))
            measured.append(Measured(group, measure_session(session, settings)))
    return measured


def errors(sessions: Sequence[SessionResult]) -> str:
    found = sorted(
        abs(each.recorded.baseline / each.recorded.cost - 1)
        for each in sessions
        if each.recorded and each.recorded.cost
    )
    if not found:
        return "            –"
    within = quantiles(found, n=10)[8] if len(found) > 1 else found[0]
    return f"{median(found):5.1%} {within:6.1%}"


def reached(sessions: Sequence[SessionResult], profile: str, world: str) -> float:
    pairs = [(each.baseline.cost, each.profiles[profile].worlds[world]) for each in sessions]
    possible = sum(base - (found.best if found.best is not None else found.cost) for base, found in pairs)
    return sum(base - found.cost for base, found in pairs) / possible if possible > 0 else 1.0


def cells(sessions: Sequence[SessionResult], profile: str, optimum: bool) -> str:
    base = sum(each.baseline.cost for each in sessions)
    saved = 1 - sum(each.profiles[profile].spent.cost for each in sessions) / base if base else 0.0
    if profile not in LOOKING_BACK:
        return f"{saved:6.1%}"
    worlds: list[tuple[float, Scenario]] = [
        (each.baseline.cost, world) for each in sessions for world in each.profiles[profile].worlds.values()
    ]
    worst = max((world.worst for _, world in worlds), default=0.0)
    dearer = sum(world.cost > cost * (1 + NOTHING) for cost, world in worlds)
    shares = " / ".join(f"{reached(sessions, profile, world):4.0%}" for world in ("hit", "miss")) if optimum else ""
    return f"{saved:6.1%} {shares} {worst:5.1%} {dearer}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="+")
    parser.add_argument("--profile", action="append")
    parser.add_argument("--optimum", action="store_true", help="add the share of the best moments that was reached")
    args = parser.parse_args()
    profiles = tuple(args.profile or ("lossless", "recoverable", "aggressive"))
    groups: dict[tuple[str, str, str], list[SessionResult]] = defaultdict(list)
    work = partial(measure, profiles=profiles, optimum=args.optimum)
    with ProcessPoolExecutor() as pool:
        for found in pool.map(work, [path for root in args.corpus for path in find_logs(root)]):
            for each in found:
                groups[each.group].append(each.figures)
    everything = [each for group in groups.values() for each in group]
    rows = sorted(groups.items(), key=lambda item: -sum(each.baseline.cost for each in item[1]))
    print(f"{'':43} {'n':>3} {'input $':>8}   error  90 %  ", *(f"{name:11}" for name in profiles), sep=" ")
    for group, sessions in [(("all", "", ""), everything), *rows]:
        name = f"{group[0]:12} {group[1]:20} {group[2]:9}"
        bill = sum(each.baseline.cost for each in sessions)
        figures = "  ".join(cells(sessions, profile, args.optimum) for profile in profiles)
        print(f"{name} {len(sessions):4} {bill:8.2f} {errors(sessions):>13}  {figures}", flush=True)


if __name__ == "__main__":
    main()
