"""The repository checks itself: who may import whom, what the front door offers, what an import costs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ibidem

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "ibidem"

# From the values at the bottom to the doors at the top: a layer imports only from layers before it, and its own.
LAYERS = (
    "model",  # frozen values
    "wire",  # bytes and back
    "tokens",  # counts
    "formats",  # one provider's way of saying it
    "rules",  # what providers demand
    "environment",  # what this machine says
    "billing",  # what it costs
    "calls",  # what tools were asked for
    "plan",  # edits
    "store",  # where originals are kept
    "markers",  # what the model reads in place of a text
    "cache",  # the tool side
    "strategies",  # read a conversation, propose edits
    "engine",  # plan, check, write; growing conversations
    "recordings",  # what agents logged
    "replay",  # what that cost, and would have cost
    "testing",  # laws and upstreams, for everyone's tests
    "__init__",  # the front door
    "report",
    "proxy",
    "cli",
)
STRANGERS = ({"formats"}, {"strategies"})
"""Formats and strategies never see each other: they meet in the engine."""


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Layers of the package that a file imports from, wherever in the file the import stands."""
    package = ("ibidem", *path.relative_to(SOURCE).parts[:-1])
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            full = (*base, *(node.module.split(".") if node.module else ()))
            names = [(*full, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "ibidem":
                found.add(name[1] if len(name) > 1 and name[1] in LAYERS else "__init__")
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_to_earlier_layers(path: Path) -> None:
    own = layer(path)
    for other in imported(path) - {own}:
        assert LAYERS.index(other) < LAYERS.index(own), f"{own} imports {other}"
    for here, there in (STRANGERS, STRANGERS[::-1]):
        if own in here:
            assert not imported(path) & there


def test_the_front_door_is_what_we_promise() -> None:
    assert sorted(ibidem.__all__) == [
        "BackReferences",
        "Compacted",
        "Dedup",
        "DedupToolCalls",
        "Devboy",
        "DropMiddle",
        "Economy",
        "Edit",
        "Evict",
        "FormatError",
        "HintStyle",
        "IbidemError",
        "Lingua",
        "PROFILES",
        "Plan",
        "PruneThinking",
        "RepairPairing",
        "Session",
        "Snippet",
        "Stats",
        "Strategy",
        "Violation",
        "__version__",
        "cache",
        "compact",
        "detect",
        "expand",
        "recall",
        "testing",
        "validate",
    ]
    assert all(hasattr(ibidem, name) for name in ibidem.__all__)


def test_an_import_loads_nothing_heavy() -> None:
    code = "import sys, json; before = set(sys.modules); import ibidem; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"msgspec", "splintr", "click", "rich", "hypothesis", "asyncio", "sqlite3", "ssl"}
    assert not heavy & set(loaded)


def test_an_import_is_quick() -> None:
    """Quicker than that of `asyncio`, which takes four times as long."""

    def seconds(module: str) -> float:
        code = f"import time, json; start = time.process_time(); import {module}; print(time.process_time() - start)"
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    runs = [(seconds("ibidem"), seconds("asyncio")) for _ in range(5)]
    ours, theirs = (min(column) for column in zip(*runs, strict=True))
    assert ours < theirs


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 420
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, node.name


def test_the_readme_shows_what_its_first_command_prints() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "ibidem.cli", "compact"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "120"},
    ).stdout
    assert printed.rstrip() in (ROOT / "README.md").read_text()


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_tests_may_run_where_signals_are_ignored() -> None:
    """As `nohup` and a shell's `&` have it: commands that a test sends signals to get them all the same."""
    known = "tests/cli/test_wrap.py::test_the_command_finds_its_signals_as_without_us"
    ignoring = "import os, signal, sys; [signal.signal(each, signal.SIG_IGN) for each in (1, 2, 3)]; "
    ignoring += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", ignoring, "-m", "pytest", "-p", "no:cacheprovider", known]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_ci_runs_the_readmes_test_command() -> None:
    command = next(line.strip() for line in (ROOT / "README.md").read_text().splitlines() if line.endswith("-m pytest"))
    assert command in (ROOT / ".ci" / "run").read_text()


def test_the_readme_shows_what_its_report_prints(tmp_path: Path) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "ibidem.cli", "report", "--profile", "lossless", "--profile", "codetether"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100", "HOME": str(tmp_path), "USERPROFILE": str(tmp_path)},
    ).stdout
    assert printed.rstrip() in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", sorted((SOURCE / "proxy").rglob("*.py")), ids=lambda path: path.name)
def test_only_the_edge_of_the_proxy_knows_sockets(path: Path) -> None:
    """Everything else in it is values in, values out: no socket, no loop, no await."""
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    knows = {name.partition(".")[0] for name in names} & {"aiohttp", "asyncio", "socket", "ssl", "selectors", "uvloop"}
    waits = any(isinstance(node, ast.Await | ast.AsyncFunctionDef) for node in ast.walk(tree))
    assert bool(knows or waits) is (path.parent.name == "edge" and path.name != "__init__.py")
