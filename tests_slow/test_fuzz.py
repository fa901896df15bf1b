"""Coverage-guided fuzzing, for a short time each; `python -m tests_slow.fuzz NAME --seconds 600` takes longer."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from .fuzz import run, targets

SECONDS = 20
MISSING = [name for name in ("atheris", "coverage") if find_spec(name) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: pip install {' '.join(MISSING)}")
@pytest.mark.parametrize("name", run.SOURCES)
def test_no_input_fails(name: str, tmp_path: Path, tally: Callable[..., None]) -> None:
    result = run.campaign(name, tmp_path / "corpus", SECONDS)
    assert not result.failure, result.failure
    assert result.executions > 0
    tally(f"fuzzing, {name}", executions=result.executions, corpus=result.corpus, coverage=result.coverage)


def test_sources_of_every_harness_exist() -> None:
    assert [each for names in run.SOURCES.values() for each in names if not (run.PACKAGE / each).exists()] == []


@pytest.mark.parametrize("name", run.SOURCES)
def test_committed_inputs_pass(name: str) -> None:
    for file in sorted((run.INPUTS / name).glob("*")):
        targets.TARGETS[name](file.read_bytes())
