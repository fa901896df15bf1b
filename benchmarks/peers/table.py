"""What is printed: a row for every peer and setting, and under the table what has to be known to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .pricing import Outcome
from .sessions import Sampled

OURS = ("ibidem lossless (default)", "ibidem recoverable")
HEADINGS = (
    *("", "version", "sessions", "bill", "on a miss", "worst", "changed", "back", "x floor", "MB", "failed"),
    "ibidem there",
)


@dataclass(frozen=True)
class Row:
    name: str
    version: str = ""
    megabytes: float = 0.0
    outcomes: tuple[Outcome, ...] = ()
    missing: tuple[str, ...] = ()
    """What the peer could not load."""
    problem: str = ""
    """Why there is nothing else."""


def lines(rows: Sequence[Row], sessions: Sequence[Sampled], total: int, *, offline: bool) -> Iterator[str]:
    agents = Counter(one.recording.agent for one in sessions)
    base = sum(one.replay.bill().cost for one in sessions)
    requests = sum(len(one.replay.steps) for one in sessions)
    yield (
        f"{len(sessions)} of {total} sessions, {requests:,} requests, ${base:.2f} for input with nothing done: "
        + ", ".join(f"{agent} {number}" for agent, number in sorted(agents.items()))
    )
    yield "no network" if offline else "the network could not be taken away: proxies were set to where nobody listens"
    table = [HEADINGS, *(_cells(row, rows) for row in rows if not row.problem)]
    widths = [max(len(cells[place]) for cells in table) for place in range(len(HEADINGS))]
    for cells in table:
        yield "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
    for row in rows:
        yield from _notes(row)


def _cells(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    some = row.outcomes
    base = sum(each.base for each in some)
    hit, miss = sum(each.hit for each in some), sum(each.miss for each in some)
    worst = max((each.hit / each.base for each in some if each.base), default=1.0)
    turns, changed = sum(each.turns for each in some), sum(each.changed_turns for each in some)
    done = [each for each in some if not each.failed]
    floor = sum(each.floor for each in done)
    return (
        row.name,
        row.version,
        str(len(some)),
        f"{hit / base:.3f}" if base else "–",
        f"{miss / base:.3f}" if base else "–",
        f"{worst:.3f}",
        f"{changed:,} ({changed / turns:.0%})" if turns else "–",
        _back(done),
        f"{sum(each.seconds for each in done) / floor:.1f}" if floor else "–",
        f"{row.megabytes:.0f}",
        str(len(some) - len(done)),
        " / ".join(f"{share:.3f}" if (share := _share(row, other)) is not None else "–" for other in _ours(rows)),
    )


def _ours(rows: Sequence[Row]) -> list[Row]:
    return [row for name in OURS for row in rows if row.name == name]


def _share(row: Row, ours: Row) -> float | None:
    """Our bill on the sessions of another row."""
    names = {each.session for each in row.outcomes}
    there = [each for each in ours.outcomes if each.session in names]
    base = sum(each.base for each in there)
    return sum(each.hit for each in there) / base if base and len(there) == len(names) else None


def _back(done: Sequence[Outcome]) -> str:
    """Of the texts that are not as recorded, the share that the peer gives back."""
    changed = sum(each.texts for each in done)
    if not changed:
        return "–"
    if any(each.texts and each.restored is None for each in done):
        return "no way"
    return f"{sum(each.restored or 0 for each in done) / changed:.0%}"


def _notes(row: Row) -> Iterator[str]:
    if row.problem:
        yield f"{row.name}: {row.problem}"
    if row.missing:
        yield f"{row.name}: could not load {', '.join(row.missing)}"
    if lost := sum(each.marks_lost for each in row.outcomes):
        yield f"{row.name}: {lost:,} requests came out with fewer cache marks than they went in with"
    for why, number in Counter(each.failed for each in row.outcomes if each.failed).most_common(3):
        yield f"{row.name}: {number} sessions count as sent unchanged: {plain(why)}"


def plain(text: str) -> str:
    """What a peer said, on one line and without anything that a terminal obeys."""
    return "".join(each if each.isprintable() else " " for each in text)[:160]
