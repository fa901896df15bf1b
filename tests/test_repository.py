"""The repository checks itself: who may import whom, what the front door offers, what an import costs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import ibidem
from benchmarks import house
from ibidem.engine.journal import STATE_VERSION
from ibidem.report.export import JSON_SCHEMA
from ibidem.store.schema import MIGRATIONS
from ibidem.usage_db import GAINS_VERSION

from .__main__ import CHECKS, CI_CHECKS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "ibidem"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# From the values at the bottom to the doors at the top: a layer imports only from layers before it, and its own.
LAYERS = (
    "errors",  # what callers may catch
    "model",  # frozen values
    "wire",  # bytes and back
    "tokens",  # counts
    "formats",  # one provider's way of saying it
    "rules",  # what providers demand
    "environment",  # what this machine says
    "usage_db",  # cost and savings of requests through the proxy
    "billing",  # what it costs
    "tool_arguments",  # arguments of tool calls by name
    "plan",  # edits
    "store",  # where originals are kept
    "markers",  # what the model reads in place of a text
    "cache",  # the tool side
    "strategies",  # read a conversation, propose edits
    "engine",  # plan, check, write; growing conversations
    "providers",  # HTTP facts about providers
    "live",  # requests on their way out
    "recordings",  # what agents logged
    "replay",  # what that cost, and would have cost
    "testing",  # laws and upstreams, for everyone's tests
    "codetether",  # the two systems that are reproduced, by their own names
    "devboy",
    "__init__",  # the front door
    "render",  # numbers, tables and HTML
    "report",
    "trial",  # what a live model makes of it
    "proxy",
    "gateway",  # between an MCP client and its server
    "adapters",  # inside of other people's programs
    "cli",
)
STRANGERS = ({"formats"}, {"strategies"})
"""Formats and strategies never see each other: they meet in the engine."""


@cache
def modules() -> list[house.Module]:
    return house.modules(SOURCE.parent)


@cache
def nodes(module: house.Module) -> list[ast.AST]:
    return list(ast.walk(module.tree))


def layer(module: house.Module) -> str:
    return module.name.partition("/")[0].removesuffix(".py")


def imported_names(module: house.Module) -> Iterator[tuple[str, ...]]:
    """Yield the dotted names that a file imports from the package, anywhere in the file."""
    package = ("ibidem", *module.name.split("/")[:-1])
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            full = (*base, *(node.module.split(".") if node.module else ()))
            names = [(*full, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        yield from (name for name in names if name[0] == "ibidem")


def imported(module: house.Module) -> set[str]:
    """Return the layers of the package that a file imports from."""
    return {name[1] if len(name) > 1 and name[1] in LAYERS else "__init__" for name in imported_names(module)}


def test_imports_point_to_earlier_layers() -> None:
    for module in modules():
        own, others = layer(module), imported(module)
        for other in others - {own}:
            assert LAYERS.index(other) < LAYERS.index(own), f"{module.name} imports {other}"
        for here, there in (STRANGERS, STRANGERS[::-1]):
            assert own not in here or not others & there, module.name


BASE = ("__version__", "environment", "errors", "model", "plan", "wire")
"""Values and bytes at the bottom, which every package may use."""
SURFACES = {
    "gateway": (*BASE, "cache", "store", "providers.egress"),
    "trial": (
        *BASE,
        *("billing", "engine", "formats", "markers", "recordings", "render", "store", "tokens"),
        *("tool_arguments", "usage_db", "strategies.profiles"),
        *("report.log_sources.fetch", "report.log_summary.read_facts"),
        *("report.measure.ReportSettings", "report.measure.measure_log"),
    ),
}
"""All that a package may import from the others. A prefix of a dotted name allows everything below it."""


@pytest.mark.parametrize("package", SURFACES)
def test_a_package_imports_only_the_surface_it_is_given(package: str) -> None:
    allowed = tuple(f"{name}." for name in (package, *SURFACES[package]))
    for module in modules():
        if layer(module) == package:
            others = {".".join(name[1:]) for name in imported_names(module)}
            assert not [name for name in others if not f"{name}.".startswith(allowed)], module.name


ADAPTER_MODULES = (
    *("live", "providers.", "formats", "formats.", "model", "plan", "store", "store.", "wire.json_tree", "errors"),
    *(
        "billing.usage",
        "billing.cache_ttl",
        "billing.prices",
        "billing.thinking_size",
        "engine.session",
        "engine.breakpoint_placement",
    ),
    *("engine", "strategies", "adapters", "adapters."),
)
"""Modules that adapters may import: a name as it stands, or with a dot at its end all modules below it. So adapters use
what `live` exports and nothing below it, and nothing of the proxy."""


def imported_modules(module: house.Module) -> set[str]:
    """Return the modules of the package that a file imports from, without the name of the package."""
    package = ("ibidem", *module.name.split("/")[:-1])
    froms = (node for node in nodes(module) if isinstance(node, ast.ImportFrom))
    bases = ((package[: len(package) - node.level + 1] if node.level else (), node.module or "") for node in froms)
    names = (".".join((*base, *filter(None, [name]))) for base, name in bases)
    return {name.removeprefix("ibidem.") for name in names if name.startswith("ibidem.")}


def test_adapters_import_only_what_they_may() -> None:
    for module in modules():
        for name in imported_modules(module) if layer(module) == "adapters" else ():
            below = any(each.endswith(".") and name.startswith(each) for each in ADAPTER_MODULES)
            assert below or name in ADAPTER_MODULES, f"{module.name} imports {name}"


def test_live_uses_asyncio_in_its_pool_alone() -> None:
    for module in modules():
        if layer(module) == "live" and module.name != "live/pool.py":
            assert "asyncio" not in module.text, module.name


def test_the_tree_stays_one_that_can_be_read() -> None:
    files = modules()
    assert len(house.loose(files)) <= 9
    assert len(house.shared_names(files)) < 10
    assert not house.asked_types(files), "a strategy is asked what it does, not which one it is"
    assert not house.provider_names(files), "what is peculiar to a provider is in its file, or in a table"


def test_a_room_says_what_it_is_for() -> None:
    """Its primitives, and what may be touched: on less than a screen."""
    for module in modules():
        if module.name.endswith("__init__.py"):
            said = ast.get_docstring(module.tree) or ""
            assert 5 <= len(said.splitlines()) <= 20, module.name


def test_the_front_door_is_what_we_promise() -> None:
    assert sorted(ibidem.__all__) == [
        "BackReferences",
        "CachePricing",
        "Compacted",
        "ConversationStart",
        "Dedup",
        "DedupToolCalls",
        "Devboy",
        "DropMiddle",
        "Edit",
        "Evict",
        "FormatError",
        "HintStyle",
        "IbidemError",
        "IdleTimes",
        "Lingua",
        "PROFILES",
        "Plan",
        "PruneThinking",
        "RepairPairing",
        "Revision",
        "Session",
        "Snippet",
        "Stats",
        "Strategy",
        "StrategyState",
        "Violation",
        "__version__",
        "cache",
        "codetether",
        "compact",
        "detect",
        "devboy",
        "expand",
        "recall",
        "testing",
        "validate",
    ]
    assert all(hasattr(ibidem, name) for name in ibidem.__all__)


def test_old_public_names_still_work_and_name_the_new_one() -> None:
    for old, new in ibidem._RENAMED.items():
        with pytest.warns(DeprecationWarning, match=f"ibidem.{new};"):
            assert getattr(ibidem, old) is getattr(ibidem, new)


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


def test_tests_stand_where_their_modules_do() -> None:
    def folders(place: Path) -> set[str]:
        return {found.name for found in place.iterdir() if found.is_dir() and any(found.glob("*.py"))}

    tests = ROOT / "tests"
    assert folders(tests) - {"benchmarks", "support", "frameworks", "seeds"} == folders(SOURCE)
    assert all((tests / folder / "__init__.py").is_file() for folder in folders(tests))
    loose = {found.stem.removeprefix("test_") for found in tests.glob("test_*.py")}
    repository_tests = {"coverage_floor", "deploy", "docs", "repository", "wording"}
    assert loose - repository_tests <= {found.stem for found in SOURCE.glob("*.py")}


def test_source_keeps_its_bounds() -> None:
    """Tokens by package and the walk of a warm request. Run the command of tests/size.toml to change a bound."""
    command = [sys.executable, "-m", "benchmarks.house", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}see tests/size.toml"


def test_bound_is_raised_only_with_a_reason() -> None:
    before = "[tokens]\na = 300\nb = 200  # raised from 100: needed for b\n"
    lower: house.Bounds = {"tokens": {"a": 200, "b": 200, "new": 100}}
    assert house.exceeded(lower, tomllib.loads(before)) == ["tokens.new: 100, bound 0"]
    after = house.write_bounds(lower, before, "")
    assert tomllib.loads(after) == lower
    assert "b = 200  # raised from 100: needed for b\n" in after
    higher: house.Bounds = {"tokens": {"a": 400, "new": 100}}
    assert house.exceeded(higher, tomllib.loads(after)) == [
        "tokens.a: 400, bound 200",
        "tokens.b: there is no such package",
    ]
    with pytest.raises(ValueError, match=r"tokens\.a: 400 is above the bound of 200"):
        house.write_bounds(higher, after, "")
    assert "a = 400  # raised from 200: a new reader\n" in house.write_bounds(higher, after, "a new reader")


def test_functions_stay_short() -> None:
    for module in modules():
        for node in nodes(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{module.name}: {node.name}"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_tests_may_run_where_signals_are_ignored() -> None:
    """As `nohup` and a shell's `&` have it: commands that a test sends signals to get them all the same."""
    known = "tests/cli/test_wrap.py::test_the_command_finds_its_signals_as_without_us"
    ignoring = "import os, signal, sys; [signal.signal(each, signal.SIG_IGN) for each in (1, 2, 3)]; "
    ignoring += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", ignoring, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", known]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_there_is_one_test_command() -> None:
    """In the README, for contributors, and on CI, which ends with it."""
    pages = {name: (ROOT / name).read_text().splitlines() for name in ("README.md", "CONTRIBUTING.md", ".ci/run")}
    commands = {name: [line.strip() for line in lines if line.endswith("-m tests")] for name, lines in pages.items()}
    assert commands == {name: [pages[".ci/run"][-1]] for name in pages}


def test_every_check_is_run() -> None:
    assert CHECKS == ("ruff check .", "ruff format --check .", "mypy", "pytest")
    *others, fast, coverage_floor, slow = CI_CHECKS
    assert (*others, "pytest") == CHECKS
    assert fast.startswith("pytest --cov ")
    assert fast.endswith("-m 'not slow'")
    assert (coverage_floor, slow) == ("tests.coverage_floor", "pytest -m slow")
    mypy = PROJECT["tool"]["mypy"]
    assert mypy["strict"] is True
    assert {"ibidem", "tests"} <= {*mypy["packages"]}
    assert "-n auto" in PROJECT["tool"]["pytest"]["ini_options"]["addopts"]


def test_constraints_are_versions_of_all_that_we_ask_for() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    asked = [*PROJECT["project"]["dependencies"], *chain(*PROJECT["project"]["optional-dependencies"].values())]
    names = {re.split(r"[^\w.-]", each)[0] for each in asked} - {PROJECT["project"]["name"]}
    assert names <= {name.replace("_", "-").lower() for name in pinned}
    assert all(re.fullmatch(r"[\w.]+", version) for version in pinned.values())


def test_what_is_said_to_be_stable_carries_these_numbers() -> None:
    said = re.findall(r"^\| .* \| `.*`, now (\d+) \|", (ROOT / "docs" / "stability.md").read_text(), re.MULTILINE)
    assert [int(number) for number in said] == [JSON_SCHEMA, STATE_VERSION, len(MIGRATIONS), GAINS_VERSION]


ANOTHER_PROJECT = re.compile(
    r"\bibidem\[[a-z]|\binstall (?:-\S+ )*['\"]?ibidem(?!-llm|@ibidem)\b|\buvx ibidem(?!-llm)\b|\bibidem=="
)
"""The ways to ask an index for `ibidem`, which is not ours there. The plugin of that name in our own marketplace is."""


def test_nothing_says_to_install_another_project() -> None:
    assert PROJECT["project"]["name"] == "ibidem-llm"
    assert PROJECT["project"]["scripts"] == dict.fromkeys(("ibidem", "ibidem-llm"), "ibidem.cli:launch")
    for mistake in (
        "pip install -q {}",
        "pip install '{}[proxy]'",
        "uv tool install {}",
        "uvx {} report",
        "{}[dask]",
        "{}==1",
    ):
        assert ANOTHER_PROJECT.search(mistake.format("ibidem"))
        assert not ANOTHER_PROJECT.search(mistake.format("ibidem-llm"))
    for path in written():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not ANOTHER_PROJECT.search(line), f"{path.relative_to(ROOT)}:{number}: {line}"


def test_instructions_install_from_a_clone_until_a_release_is_published() -> None:
    instructions = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    for folder in ("src", "docs", "examples", "plugins", "deploy"):
        instructions += [path for path in written() if path.is_relative_to(ROOT / folder)]
    for path in instructions:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\binstall\b.*\bibidem-llm\b", line):
                # The command of the benchmark is the title of a measurement.
                known = "on PyPI" in line or "installed by `pip install" in line
                assert known, f"{path.relative_to(ROOT)}:{number}: {line}"


def written() -> Iterator[Path]:
    """Every text of the repository, and none that a tool left there."""
    folders = ("src", "tests", "tests_slow", "benchmarks", "deploy", "docs", "examples", "plugins", ".ci", ".github")
    for path in (*ROOT.iterdir(), *(path for folder in folders for path in (ROOT / folder).rglob("*"))):
        if path.is_file() and path.suffix in {
            "",
            ".conf",
            ".css",
            ".html",
            ".js",
            ".lua",
            ".md",
            ".py",
            ".toml",
            ".txt",
            ".yaml",
            ".yml",
        }:
            yield path


def test_only_the_edge_of_the_proxy_knows_sockets() -> None:
    """Everything else in it is values in, values out: no socket, no loop, no await."""
    sockets = {"aiohttp", "asyncio", "socket", "ssl", "selectors", "uvloop"}
    for module in modules():
        if layer(module) != "proxy":
            continue
        inside, path = nodes(module), Path(module.name)
        names = {alias.name for node in inside if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in inside if isinstance(node, ast.ImportFrom) and not node.level}
        knows = {name.partition(".")[0] for name in names} & sockets
        waits = any(isinstance(node, ast.Await | ast.AsyncFunctionDef) for node in inside)
        assert bool(knows or waits) is (path.parent.name == "edge" and path.name != "__init__.py"), module.name
