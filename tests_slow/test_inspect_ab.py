"""`examples/inspect_ab.py` in Inspect itself: a model that reads references as well, and one that cannot."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ibidem.testing import Calls, Says, Upstream, by_turn
from ibidem.testing.answers import Answer
from ibidem.testing.requests_seen import Seen
from tests.frameworks.contract import framework_named

from .frameworks import ROOT, environment, python_for

TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import ToolDef

async def read(path: str) -> str:
    return "\\n".join(f"def function_{number}(): ...  # {path}" for number in range(60))

@task
def functions():
    tool = ToolDef(read, name="read", description="Reads a file.", parameters={"path": "A file."})
    samples = [Sample(id=f"s{number}", input=f"{number}: What is in app.py?", target="Sixty") for number in range(20)]
    return Task(dataset=samples, solver=[use_tools(tool.as_tool()), generate()], scorer=includes())
"""
READS = Calls(("read", {"path": "app.py"}))
WITHIN = r"\(95 % ([+-][\d.,]+)…([+-][\d.,]+)\)"


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    framework = framework_named("inspect_ai")
    folder = os.environ.get("IBIDEM_TEST_FRAMEWORKS") or tmp_path_factory.mktemp("frameworks")
    return environment(framework, Path(folder), python_for(framework))


def compared(interpreter: Path, folder: Path, blind: bool) -> str:
    """What is printed of a model that is `blind` for references, or is not."""
    (folder / "task.py").write_text(TASK)

    def script(seen: Seen) -> Answer:
        said = "Nothing." if blind and b"[ibidem " in seen.text else "Sixty functions."
        return by_turn([READS, READS, Says(said)])(seen)

    with Upstream(script) as provider:
        known = {**os.environ, **framework_named("inspect_ai").variables, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        known |= {"OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "any"}
        command = [str(interpreter), str(ROOT / "examples" / "inspect_ab.py"), "task.py@functions"]
        command += ["--model", "openai/gpt-4.1", "--limit", "12", "--epochs", "2", "--log-dir", "logs"]
        done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        assert len(provider.seen) == 12 * 2 * 2 * 3, "samples, epochs, arms and requests"
    return done.stdout


@pytest.mark.parametrize("blind", [False, True], ids=["reads references", "does not"])
def test_both_arms_are_compared_on_the_same_samples(interpreter: Path, tmp_path: Path, blind: bool) -> None:
    told = compared(interpreter, tmp_path, blind)
    assert "12 samples, 2 of each per variant" in told
    score = re.search(rf"score includes +1\.000 → ([\d.]+) +([+-][\d.]+) {WITHIN}", told)
    tokens = re.search(rf"input tokens +([\d,]+) → ([\d,]+) +-[\d,]+ {WITHIN}", told)
    assert score is not None, told
    assert tokens is not None, told
    assert (score[1], score[2]) == (("0.000", "-1.000") if blind else ("1.000", "+0.000"))
    assert (float(score[4]) < 0) == blind, "an interval that holds nothing where nothing differs"
    assert float(score[3]) < 0, "twelve samples do not exclude every drop"
    assert int(tokens[2].replace(",", "")) < int(tokens[1].replace(",", ""))
