"""A model that asks for what was left out: Claude Code, `ibidem wrap`, `ibidem recall-server`, and a scripted model.

Claude Code is installed from npm, which takes a while: set IBIDEM_TEST_CLIENTS to a folder to keep it.

    python -m pytest tests_slow/test_recall.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ibidem.testing import Answer, Calls, Says, Seen, Upstream

from .conftest import Tally
from .test_clients import PATIENCE, QUIET

PLUGIN = Path(__file__).parents[1] / "plugins" / "claude-code"
END = "Now I know what it was."
LINES = 1500
FILE = "".join(f"value_{n} = compute({n * 31}, 'name {n * 17 % 97}')\n" for n in range(LINES))
PARTS = [f"sed -n {first},{first + 600}p b.py" for first in (1, 2, 3, 4, 5)]
MARKER = re.compile(r"\[ibidem \d{3} (?P<ref>[0-9a-f]{12}): (?P<lines>\d+) lines? left out[^\]]*\]")


def results(seen: Seen) -> list[Any]:
    """What the tools answered, as the provider sees it."""
    blocks = [block for message in seen.json["messages"] for block in _blocks(message)]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def _blocks(message: Any) -> list[Any]:
    return message["content"] if isinstance(message["content"], list) else []


class Model:
    """Reads a file, changes it, goes on; asks once for what was left out, and ends when it has it."""

    def __init__(self, file: Path, looks_for: str = "") -> None:
        """`looks_for` is a tool that it loads first, where the client does not offer it from the start."""
        self.file, self.looks_for, self.looked = str(file), looks_for, 0
        self.asked: tuple[str, str] | None = None
        """The tool by the name that the marker gives it, and the reference."""
        self.given: Any = None

    def __call__(self, seen: Seen) -> Answer:
        if not seen.json.get("tools"):
            return Says("ok")
        said = results(seen)
        if self.asked is not None:
            self.given = said[-1]
            return Says(END)
        marker = MARKER.search(json.dumps(said, ensure_ascii=False))
        way = re.search(r", ([\w-]+) gives it back\]", marker[0]) if marker else None
        if marker and way:
            self.asked = way[1], marker["ref"]
            return Calls((way[1], {"ref": marker["ref"]}))
        if len(said) > 20:
            return Says("Nothing was left out.")
        return self._goes_on(len(said) - self.looked)

    def _goes_on(self, turn: int) -> Answer:
        """Another file is looked at several times first: what that saves pays for what goes."""
        if self.looks_for:
            found, self.looks_for, self.looked = self.looks_for, "", 1
            return Calls(("ToolSearch", {"query": f"select:{found}"}))
        if turn == len(PARTS):
            return Calls(("Read", {"file_path": self.file}))
        if turn == len(PARTS) + 1:
            return Calls(("Edit", {"file_path": self.file, "old_string": "a_value_7 =", "new_string": "a_seven ="}))
        command = PARTS[turn] if turn < len(PARTS) else f"echo step {turn}"
        return Calls(("Bash", {"command": command, "description": "Go on"}))


@pytest.mark.parametrize("by", ["server", "plugin"])
def test_a_model_that_asks_gets_the_text_and_where_it_stood(
    tmp_path: Path, programs: Path, by: str, tally: Tally
) -> None:
    home, project, store = tmp_path / "home", tmp_path / "project", tmp_path / "store.sqlite3"
    for folder in (home, project, tmp_path / "bin"):
        folder.mkdir()
    command = tmp_path / "bin" / "ibidem"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ibidem.cli "$@"\n')
    command.chmod(0o755)
    for name in ("a.py", "b.py"):
        (project / name).write_text(FILE.replace("value", f"{name[0]}_value"))
    own = {
        "PATH": os.pathsep.join([str(command.parent), str(programs), os.environ.get("PATH", "")]),
        "HOME": str(home),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "IBIDEM_STORE": str(store),
        "ANTHROPIC_API_KEY": "sk-ant-opens-nothing",
        **QUIET,
    }
    name, options = "mcp__plugin_ibidem_ibidem__recall", ["--plugin-dir", str(PLUGIN)]
    if by == "server":
        name, options = "mcp__ibidem__recall", []
        server = json.dumps({"command": "ibidem", "args": ["recall-server"], "alwaysLoad": True})
        subprocess.run(
            ["claude", "mcp", "add-json", "--scope", "user", "ibidem", server], env=own, check=True, timeout=60
        )
    model = Model(project / "a.py", name if by == "plugin" else "")
    with Upstream(model) as upstream:
        wrap = [sys.executable, "-m", "ibidem.cli", "wrap", "--profile", "recoverable", "--store", str(store)]
        claude = ["claude", "-p", "Change a.py.", "--output-format", "json"]
        allowed = ["--allowedTools", f"Read,Edit,Bash,{name}"]
        ended = subprocess.run(
            [*wrap, "--upstream", f"anthropic={upstream.url}", "--", *claude, *options, *allowed],
            cwd=project,
            env=own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert ended.returncode == 0, ended
    assert json.loads(ended.stdout)["result"] == END, (ended, model.asked)
    assert model.asked is not None
    tool, ref = model.asked
    assert tool == name
    text, note = (block["text"] for block in model.given)
    assert "a_value_7 = compute(217" in text
    assert text.count("\n") >= LINES - 1
    assert note.startswith(
        f"(These {text.count(chr(10)) + 1} lines stood where the marker with {ref} is: the result of Read("
    )
    assert note.endswith("(the file was changed later).)")
    tally(f"recall, {by}", asked=1, lines_back=text.count("\n") + 1)
