"""What it weighs: `python -m benchmarks.weight`. On disk, at a start, and in memory while nobody uses it.

Installs this tree in a new environment, as a user would, and measures there: the files of each package, first without
the extras; processor time of whole processes, the smallest of 15 runs that are taken in turns, as multiples of
`python -c pass`; memory of `ibidem proxy` as Linux counts it: PSS leaves to others their part of what is shared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ibidem.testing import Says, Upstream

ROOT = Path(__file__).parent.parent
OURS = "ibidem-llm"
RUNS = 15
LISTED_BYTES = 10**6
"""Packages below that are summed up."""
SETTLED_SECONDS = 2.0
"""Seconds after which a proxy that was started, or asked something, does nothing more."""

DISK_AIM_MB = 60
VERSION_AIM = 7.0
MEMORY_AIMS_MB = {"idle": 60, "after the first rewritten request": 125}

SIZES = """
import json
from importlib.metadata import distributions
found = {}
for each in distributions():
    files = [(str(file), file.locate()) for file in each.files or ()]
    sizes = [("__pycache__" in name, path.stat().st_size) for name, path in files if path.is_file()]
    found[each.name] = [each.version, sum(s for made, s in sizes if not made), sum(s for _, s in sizes)]
print(json.dumps(found))
"""


class Package(NamedTuple):
    version: str
    shipped: int
    """Bytes that are in its wheel."""
    installed: int
    """With the bytecode that pip makes of it."""


def packages(python: Path) -> dict[str, Package]:
    found = json.loads(subprocess.check_output([python, "-c", SIZES]))
    return {name: Package(*fields) for name, fields in found.items()}


@contextmanager
def environment() -> Iterator[tuple[Path, dict[str, Package]]]:
    """The Python of a new environment with the proxy in it; and what came with the core alone."""
    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder, "bin", "python")
        before = packages(python)
        core: dict[str, Package] = {}
        for extra in ("", "[proxy]"):
            command = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", f"{ROOT}{extra}"]
            subprocess.run(command, check=True, env=_compiling(), stderr=subprocess.DEVNULL)
            core = core or {name: each for name, each in packages(python).items() if name not in before}
        yield python, core


def _compiling() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}


def print_disk(core: dict[str, Package]) -> None:
    rows = [(f"{name} {each.version}", each) for name, each in core.items() if name != OURS]
    rows.sort(key=lambda row: -row[1].shipped)
    small = [each for _, each in rows if each.shipped < LISTED_BYTES]
    print(f"{'installed by `pip install ibidem-llm`, MB':44}  wheels  with bytecode  aim")
    for name, each in rows:
        if each.shipped >= LISTED_BYTES:
            print(_disk_row(name, [each]))
    print(_disk_row(f"{len(small)} smaller ones", small))
    print(f"{_disk_row('what it depends on', [each for _, each in rows])}{DISK_AIM_MB:>5}")
    print(_disk_row("itself", [core[OURS]]))


def _disk_row(name: str, found: list[Package]) -> str:
    shipped, installed = sum(each.shipped for each in found), sum(each.installed for each in found)
    return f"{name:44}  {shipped / 1e6:6.1f}  {installed / 1e6:13.1f}"


def print_starts(python: Path) -> None:
    command = python.with_name("ibidem")
    commands: dict[str, list[Path | str]] = {
        "python -c pass": [python, "-c", "pass"],
        "python -c 'import ibidem'": [python, "-c", "import ibidem"],
        "ibidem --version": [command, "--version"],
        "ibidem --help": [command, "--help"],
    }
    turns = [{name: _seconds(command) for name, command in commands.items()} for _ in range(RUNS)]
    best = {name: min(turn[name] for turn in turns) for name in commands}
    print(f"\n{'processor time of a start':44}      ms       x floor  aim")
    for name, took in best.items():
        aim = f"{VERSION_AIM:>5}" if name == "ibidem --version" else ""
        print(f"{name:44}  {took * 1e3:6.1f}  {took / best['python -c pass']:12.1f}{aim}")


def _seconds(command: list[Path | str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True, env=_compiling())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def print_memory(python: Path) -> None:
    with Upstream(lambda _: Says("ok")) as provider, _proxy(python, provider.url) as (url, pid):
        idle = _memory(pid)
        body = request()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/messages", body)) as answer:
            answer.read()
        assert len(provider.seen[0].body) < len(body), "it was not rewritten"
        rows = {"idle": idle, "after the first rewritten request": _memory(pid)}
    print(f"\n{'memory of `ibidem proxy`, MB':44}     RSS           PSS  aim")
    for name, (rss, pss) in rows.items():
        print(f"{name:44}  {rss:6.1f}  {pss:12.1f}{MEMORY_AIMS_MB[name]:>5}")


@contextmanager
def _proxy(python: Path, provider: str) -> Iterator[tuple[str, int]]:
    with TemporaryDirectory() as home:
        command = [str(python.with_name("ibidem")), "proxy", "--port", "0", "--upstream", f"anthropic={provider}"]
        env = {**_compiling(), "HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as started:
            assert started.stdout is not None
            try:
                yield started.stdout.readline().split()[-1], started.pid
            finally:
                started.terminate()


def _memory(pid: int) -> tuple[float, float]:
    time.sleep(SETTLED_SECONDS)
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines[1:]}
    return sizes["Rss:"], sizes["Pss:"]


def request() -> bytes:
    """A file that was read twice."""
    text = "\n".join(f"{number:6}→  line {number} of a file: a rare word, xqzvb{number}" for number in range(300))
    messages: list[dict[str, object]] = [{"role": "user", "content": "read it twice"}]
    for ident in ("a", "b"):
        call = {"type": "tool_use", "id": ident, "name": "Read", "input": {"file_path": "/f.py"}}
        result = {"type": "tool_result", "tool_use_id": ident, "content": text}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 1, "messages": messages}).encode()


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with environment() as (python, core):
        print_disk(core)
        print_starts(python)
        print_memory(python)


if __name__ == "__main__":
    main()
