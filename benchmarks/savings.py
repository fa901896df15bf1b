"""What the default profile saves on recorded sessions: `python -m benchmarks.savings CORPUS`.

Tokens (o200k) of the tool results in each session's whole history, before and after. `--knobs` shows what each setting
is worth; `--markers` prints the forms of markers with their price in tokens, and needs no corpus.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import ibidem
from ibidem import testing
from ibidem.formats import FORMATS
from ibidem.markers.backref import ABOVE, Marker, Source
from ibidem.model import Text
from ibidem.tokens import counter_for

from .corpus import Recorded, sessions

LABELS = ibidem.BackReferences.labels
SMALL = 5000
"""Tokens of results below which a session is not named as the worst."""

KNOBS: dict[str, dict[str, object]] = {
    "default": {},
    "no dedup": {"dedup": False},
    "no spans": {"spans": False},
    "no shapes": {"shapes": False},
    "no fields": {"fields": False},
    "inside 60": {"inside": 60},
    "diffs": {"diffs": True},
    "numbers sparse": {"numbers": "sparse"},
    "min_gain 0": {"min_gain": 0},
    "min_gain 10": {"min_gain": 10},
    "max_distance 50k": {"max_distance": 50_000},
    "max_distance 25k": {"max_distance": 25_000},
    "no repeat guard": {"repeat_guard": 0},
}


def measure(session: Recorded, settings: dict[str, Any]) -> tuple[str, str, int, Counter[str], int]:
    """Folder, name, tokens of results, tokens saved by strategy, and how many edits made something larger."""
    count = counter_for()
    request = {FORMATS[session.format].history_key: session.history}
    strategy = ibidem.BackReferences(**settings)
    result = ibidem.compact(request, strategies=[strategy], format=session.format)
    segments = [
        segment
        for message in testing.read(request, session.format).messages
        for part in message.results
        for segment in part.segments
    ]
    before = sum(count(segment.text) for segment in segments if isinstance(segment, Text))
    saved: Counter[str] = Counter()
    larger = 0
    for edit in result.plan:
        gain = count(edit.removed[0]) - count(edit.added)
        saved[edit.strategy] += gain
        larger += gain < 0
    return session.folder, session.name, before, saved, larger


def table(pool: ProcessPoolExecutor, recorded: list[Recorded]) -> None:
    outcomes = list(pool.map(partial(measure, settings={}), recorded, chunksize=4))
    sparse = list(pool.map(partial(measure, settings={"numbers": "sparse"}), recorded, chunksize=4))
    print(f"{'':14} {'tokens':>10} {'saved':>7}", *(f"{name:>7}" for name in LABELS), f"{'sparse':>7} {'larger':>7}")
    for folder in sorted({outcome[0] for outcome in outcomes}):
        rows = [outcome for outcome in outcomes if outcome[0] == folder]
        total = sum(row[2] for row in rows) or 1
        saved: Counter[str] = sum((row[3] for row in rows), Counter())
        thin = sum(sum(row[3].values()) for row in sparse if row[0] == folder)
        shares = [f"{saved[name] / total:7.1%}" for name in LABELS]
        larger = sum(row[4] for row in rows)
        print(f"{folder:14} {total:10,} {saved.total() / total:7.1%}", *shares, f"{thin / total:7.1%} {larger:7}")
    worst = sorted((row[3].total() / row[2], row[1]) for row in outcomes if row[2] >= SMALL)
    print("\nthe two worst sessions:", *(f"  {share:.1%}  {name}" for share, name in worst[:2]), sep="\n")


def knobs(pool: ProcessPoolExecutor, recorded: list[Recorded]) -> None:
    folders = sorted({session.folder for session in recorded})
    print(f"{'':18}", *(f"{folder:>12}" for folder in folders))
    for name, settings in KNOBS.items():
        totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for folder, _, before, saved, _ in pool.map(partial(measure, settings=settings), recorded, chunksize=4):
            totals[folder][0] += before
            totals[folder][1] += saved.total()
        print(f"{name:18}", *(f"{totals[f][1] / (totals[f][0] or 1):12.1%}" for f in folders), flush=True)


def markers() -> None:
    count = counter_for()
    read, call = Source("result", 14), Source("call", 13, "content")
    lines: dict[str, Any] = {"source": read, "unit": "line", "first": 120, "last": 340}
    written: dict[str, Any] = {"source": call, "unit": "line", "first": 1, "last": 80}
    known: dict[str, Any] = {"tag": "731", "digest": "482913"}
    forms = {
        "a whole result": Marker(**known, source=read, label="Read(src/app.py)"),
        "lines of a result": Marker(**known, **lines, label="Read(src/app.py)"),
        "the second such call": Marker(**known, **lines, label="2nd Read(src/app.py)"),
        "numbered lines": Marker(**known, **lines, own=118, label="Read(src/app.py)"),
        "numbered lines in place": Marker(**known, **lines, own=120, label="Read(src/app.py)"),
        "an argument of a call": Marker(**known, **written, label="Write(src/app.py)"),
        "below the first of a part": Marker("731", **lines),
        "below the first, numbered": Marker("731", **lines, own=118),
        "below the first, numbered in place": Marker("731", **lines, own=120),
        "below one for the same source": Marker("731", **lines, omits_source=True),
        "below one for the same source, numbered": Marker("731", **lines, own=118, omits_source=True),
        "below one for the same source, in place": Marker("731", **lines, own=120, omits_source=True),
        "lines as a diff shows them": Marker(**known, **lines, label="Read(src/app.py)", view="with -"),
        "lines of the part itself": Marker(**known, source=ABOVE, unit="line", first=12, last=40),
        "lines of the part itself, below the first": Marker("731", source=ABOVE, unit="line", first=12, last=40),
        "lines of the part itself, numbered": Marker("731", source=ABOVE, unit="line", first=12, last=40, own=118),
        "items of one long line": Marker("731", source=read, unit="item", first=5, last=60),
        "all but a few lines": Marker(**known, flags="x", source=read, label="get_order", but=True),
        "folded only": Marker(**known, flags="n"),
        "the first of a conversation": Marker(**known, source=read, label="Read(src/app.py)", explains=True),
    }
    for name, marker in forms.items():
        print(f"{count(str(marker)):3}  {name}: {marker}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--folder", action="append", help="only this folder of the corpus")
    parser.add_argument("--knobs", action="store_true", help="what each setting is worth")
    parser.add_argument("--markers", action="store_true", help="the forms of markers and their tokens")
    args = parser.parse_args()
    if args.markers:
        markers()
    if args.corpus:
        recorded = list(sessions(args.corpus, args.folder))
        with ProcessPoolExecutor() as pool:
            (knobs if args.knobs else table)(pool, recorded)


if __name__ == "__main__":
    main()
