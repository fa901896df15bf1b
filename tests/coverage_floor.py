"""Print line and branch coverage of each package, and fail if a package is below its floor in `coverage_floor.toml`.

`python -m tests` runs this on CI, after pytest has written the data file. Child processes are not measured.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FLOORS = Path(__file__).with_suffix(".toml")
TOP = "ibidem"
"""Name of the row for modules that are in no package."""


class Coverage(NamedTuple):
    """Counts of one package."""

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    @property
    def percentages(self) -> tuple[float, float]:
        return percentage(self.lines_run, self.lines), percentage(self.branches_run, self.branches)


def percentage(part: int, whole: int) -> float:
    """Return a percentage with one decimal, rounded down. Rounding up could pass a floor that is not reached."""
    return math.floor(1000 * part / whole) / 10 if whole else 100.0


def measure() -> dict[str, Coverage]:
    """Read the data of the last run and return the counts of each package: the first folder below `src/ibidem`."""
    import coverage

    measured = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    return by_package({name: file["summary"] for name, file in files.items()})


def by_package(summaries: Mapping[str, Mapping[str, int]]) -> dict[str, Coverage]:
    """Add up the summaries of files, by package."""
    packages: dict[str, Coverage] = defaultdict(Coverage)
    keys = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    for name, summary in summaries.items():
        inside = Path(name).as_posix().rpartition("src/ibidem/")[2].split("/")
        package = inside[0] if len(inside) > 1 else TOP
        packages[package] = Coverage(*(old + summary[key] for old, key in zip(packages[package], keys, strict=True)))
    return dict(sorted(packages.items()))


def problems(packages: Mapping[str, Coverage], floors: Mapping[str, list[float]]) -> list[str]:
    """Return a message, with the fix, for each package that is below its floor or has no row, and each row too many."""
    where = FLOORS.relative_to(ROOT)
    messages = [f"{where}: no package {name}. Delete its row." for name in floors if name not in packages]
    for name, package in packages.items():
        row = f"{name} = {[*package.percentages]}"
        if name not in floors:
            messages.append(f"{where}: no row for package {name}. Add: {row}")
            continue
        for kind, reached, floor in zip(("line", "branch"), package.percentages, floors[name], strict=True):
            if reached < floor:
                fix = f"Test the code that was added, or lower the floor in {where}: {row}"
                messages.append(f"{name}: {kind} coverage {reached}% is below {floor}%. {fix}")
    return messages


def main() -> int:
    packages, floors = measure(), tomllib.loads(FLOORS.read_text())
    print(f"{'package':<12} {'lines':>7} {'floor':>7}   {'branches':>8} {'floor':>7}")
    for name, package in packages.items():
        reached, floor = package.percentages, floors.get(name, ["none", "none"])
        print(f"{name:<12} {reached[0]:>6}% {floor[0]:>6}%   {reached[1]:>7}% {floor[1]:>6}%")
    found = problems(packages, floors)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
