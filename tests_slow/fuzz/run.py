"""One fuzzing campaign: Atheris in a child process, then a replay of its corpus under coverage.py in another.

Nothing of `ibidem` is imported here at the top: it must be imported after Atheris or coverage.py is ready.
"""

from __future__ import annotations

import hashlib
import re
import resource
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
INPUTS = Path(__file__).parent / "inputs"
PACKAGE = ROOT / "src" / "ibidem"

SOURCES: dict[str, tuple[str, ...]] = {
    "wire": ("wire",),
    "markers": ("markers",),
    "logs": ("recordings",),
    "rejections": ("providers/rejections.py", "wire/content_encoding.py"),
    "recorded": (
        "recordings/proxy_recordings.py",
        "recordings/body_store.py",
        "recordings/proxy_json_log.py",
        "recordings/log_file.py",
    ),
    "framing": ("gateway/line_framing.py", "gateway/sse_framing.py", "gateway/jsonrpc.py", "gateway/mcp_session.py"),
}
"""Harnesses, and the files or folders below `src/ibidem` that each one tests."""

MAX_INPUT_BYTES = 8192
MEMORY_MIB = 1024
SLOW_SECONDS = 10
"""An input that takes longer is a failure."""


class Campaign(NamedTuple):
    """Result of one campaign."""

    executions: int
    corpus: int
    """Inputs that reached something new."""
    coverage: str
    failure: str
    """End of the output of the fuzzer if an input failed, with the path of the input; empty otherwise."""

    def __str__(self) -> str:
        found = "an input failed" if self.failure else "no input failed"
        return f"{self.executions:,} executions, {self.corpus:,} inputs in the corpus, {self.coverage}, {found}"


def campaign(name: str, corpus: Path, seconds: int) -> Campaign:
    """Fuzz for `seconds`. Starts from the inputs in `corpus`, the seeds and the committed inputs, and adds new ones."""
    corpus.mkdir(parents=True, exist_ok=True)
    for file in (INPUTS / name).glob("*"):
        shutil.copy(file, corpus)
    child = _child(name, corpus, seconds, "fuzz", timeout=seconds + 120)
    counts = re.findall(r"^#(\d+)|number_of_executed_units: (\d+)", child.stderr, re.MULTILINE)
    replayed = _child(name, corpus, seconds, "replay", timeout=600)
    # Atheris prints the traceback on standard output, and libFuzzer the path of the input on standard error.
    failure = (
        "\n".join([*child.stdout.splitlines()[-30:], *child.stderr.splitlines()[-10:]]) if child.returncode else ""
    )
    return Campaign(
        max((int(one or other) for one, other in counts), default=0),
        len(list(corpus.iterdir())),
        replayed.stdout.strip() or "coverage unknown: " + replayed.stderr[-300:],
        failure,
    )


def _child(name: str, corpus: Path, seconds: int, mode: str, timeout: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests_slow.fuzz", name, "--child", mode, "--corpus", str(corpus)]
    command += ["--seconds", str(seconds)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=timeout)


def fuzz(name: str, corpus: Path, seconds: int) -> None:
    """Run Atheris in this process, which ends with it."""
    import atheris

    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY_MIB << 20, 4 * MEMORY_MIB << 20))
    with atheris.instrument_imports(include=["ibidem"]):
        target = import_module("tests_slow.fuzz.targets").TARGETS[name]
    seeds = import_module("tests_slow.fuzz.seeds").SEEDS[name]
    for seed in seeds:
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    flags = [f"-max_total_time={seconds}", f"-max_len={MAX_INPUT_BYTES}", f"-rss_limit_mb={MEMORY_MIB}"]
    flags += [f"-timeout={SLOW_SECONDS}", "-print_final_stats=1", f"-artifact_prefix={corpus.parent}/failed-{name}-"]
    mutate = import_module("tests_slow.fuzz.mutate").mutate
    atheris.Setup([sys.argv[0], *flags, str(corpus)], target, custom_mutator=mutate)
    atheris.Fuzz()


def replay(name: str, corpus: Path) -> str:
    """Run every input of the corpus once, and return the line coverage of the sources of the harness."""
    import coverage

    paths = [PACKAGE / source for source in SOURCES[name]]
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    measured = coverage.Coverage(data_file=None, config_file=False, include=[str(file) for file in files])
    measured.start()
    target = import_module("tests_slow.fuzz.targets").TARGETS[name]
    measured.stop()
    _, imported = _lines(measured, files)
    measured.start()
    for file in sorted(corpus.iterdir()):
        try:
            target(file.read_bytes())
        except Exception as error:  # the fuzzer has reported it
            print(f"{file.name}: {type(error).__name__}", file=sys.stderr)
    measured.stop()
    total, run = _lines(measured, files)
    where = ", ".join(f"src/ibidem/{source}" for source in SOURCES[name])
    return f"{run - imported:,} of {total - imported:,} lines of {where}"


def _lines(measured: object, files: list[Path]) -> tuple[int, int]:
    """Return the number of executable lines and of lines that were run."""
    found = [measured.analysis2(str(file)) for file in files]  # type: ignore[attr-defined]
    return sum(len(each[1]) for each in found), sum(len(each[1]) - len(each[3]) for each in found)
