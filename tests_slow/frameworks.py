"""Every adapter in its real framework: installed, put to the contract and measured; prints the tables of the docs.

    python -m tests_slow.frameworks [NAME…]

Each framework has an environment of its own, made anew unless IBIDEM_TEST_FRAMEWORKS names a folder to keep them in.
IBIDEM_TEST_PYTHON names another Python for those that need a later one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.frameworks.contract import framework_named
from tests.frameworks.framework import Framework

ROOT = Path(__file__).parent.parent
MINUTES = 25
"""That one framework may take, once it is installed."""
HEADS = (
    ("framework", "version", "bytes saved", "`expand`", "history unchanged", "modes", "hook point"),
    ("framework", "wires", "usage", "added processor time", "added time"),
)
"""Of the two tables: one would be too wide to be read."""
Row = tuple[str, ...]


def names() -> list[str]:
    return sorted(
        path.stem for path in (ROOT / "tests" / "frameworks").glob("*.py") if "\nFRAMEWORK =" in path.read_text()
    )


def python_for(framework: Framework) -> str:
    """An interpreter that is new enough; empty if there is none."""
    if sys.version_info >= framework.python:
        return sys.executable
    return os.environ.get("IBIDEM_TEST_PYTHON", "")


def environment(framework: Framework, folder: Path, python: str) -> Path:
    """Its own interpreter, with all that it needs."""
    made = folder / framework.name
    interpreter = made / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not interpreter.exists():
        subprocess.run([python, "-m", "venv", str(made)], check=True)
    command = [str(interpreter), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*command, *framework.requires, f"{ROOT}[proxy,testing]"], check=True, stderr=subprocess.DEVNULL)
    return interpreter


def findings(framework: Framework, interpreter: Path, log: Path) -> dict[str, Any]:
    """What the contract found out, in a process of its own."""
    variables = {**os.environ, **framework.variables, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    command = [str(interpreter), "-W", "ignore", "-m", "tests.frameworks.contract"]
    with log.open("w") as told:
        ran = subprocess.run(
            [*command, framework.module, "--json", "--speed"],
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            timeout=60 * MINUTES,
            env=variables,
            cwd=ROOT,
        )
    lines = ran.stdout.strip().splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def rows(framework: Framework, found: dict[str, Any]) -> tuple[Row, Row]:
    """One of each table."""
    reduced = [f"{100 * share:.0f}" for share in found["reduced"].values()]
    between = "–".join(dict.fromkeys((min(reduced, key=int), max(reduced, key=int)))) if reduced else ""
    checks = found["checks"]
    names = [f"{format} {mode}" for format in framework.formats for mode in framework.modes]
    ran = [checks[name] for name in names if not checks[name].startswith("not: ")]
    modes = [mode for mode in framework.modes if any(mode in each for each in found["formats"].values())]
    good = "yes" if ran and all(told == "ok" for told in ran) else "**no**"
    first = (framework.name, found["version"], f"{between} %", good, good, ", ".join(modes), framework.seam)
    usage = "yes" if found["usage"] else "no"
    return first, (framework.name, ", ".join(found["formats"]), usage, *added(framework, found["speed"]))


def added(framework: Framework, speed: dict[str, Any]) -> tuple[str, str]:
    if not speed:
        return "–", "–"
    pairs = (("added", "own"), ("clock_added", "clock"))
    first, second = (f"{speed[more]:.1f} ms, {100 * speed[more] / speed[own]:.0f} %" for more, own in pairs)
    return f"{first} ({speed['format']})" if len(framework.formats) > 1 else first, second


def printed(tables: list[tuple[Row, Row]]) -> str:
    whole = []
    for head, rows in zip(HEADS, zip(*tables, strict=True), strict=True):
        lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
        whole.append("\n".join((lines[0], "|---" * len(head) + "|", *lines[1:])))
    return "\n\n".join(whole)


def put_to_the_contract(framework: Framework, folder: Path) -> tuple[tuple[Row, Row], bool]:
    """Its rows, and whether all went well."""
    python = python_for(framework)
    if not python:
        told = f"not run here: needs Python {'.'.join(map(str, framework.python))}"
        return ((framework.name, told, *[""] * 5), (framework.name, told, *[""] * 3)), True
    start, log = time.monotonic(), folder / f"{framework.name}.log"
    found = findings(framework, environment(framework, folder, python), log)
    wrong = {name: told for name, told in found["checks"].items() if told != "ok"}
    took = time.monotonic() - start
    print(f"{framework.name}: {len(found['checks'])} checks, {took:.0f} s", file=sys.stderr)
    for name, told in wrong.items():
        print(f"  {name}: {told}", file=sys.stderr)
    return rows(framework, found), not any(not told.startswith("not: ") for told in wrong.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests_slow.frameworks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names())}; all without")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(names())):
        parser.error(f"unknown: {', '.join(unknown)}: use one of {', '.join(names())}")
    tables, good = [], True
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(os.environ.get("IBIDEM_TEST_FRAMEWORKS") or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.names or names():
            try:
                told, well = put_to_the_contract(framework_named(name), folder)
                tables.append(told)
                good = good and well
            except (subprocess.SubprocessError, OSError, ValueError, LookupError) as error:
                print(f"{name}: {error}: see {folder / name}.log", file=sys.stderr)
                good = False
    if tables:
        print(printed(tables))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
