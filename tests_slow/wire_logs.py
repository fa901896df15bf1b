"""Agents run against a scripted provider, and what they sent beside what our readers find in their own logs.

They are installed from npm in their newest release: set IBIDEM_TEST_CLIENTS to a folder to keep them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ibidem import recordings
from ibidem.testing import Upstream

PATIENCE = 300
Json = dict[str, Any]


class Told(NamedTuple):
    """A request as a log tells it."""

    session: str
    body: Json
    usage: bool


class Agent:
    """An agent with a home and a project of its own, and nothing of this machine's but the programs."""

    def __init__(self, programs: Path, folder: Path, **variables: str) -> None:
        self.home, self.project = folder / "home", folder / "project"
        for each in (self.home, self.project):
            each.mkdir(parents=True, exist_ok=True)
        paths = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
        self.variables = {"PATH": paths, "HOME": str(self.home), **variables}

    def run(self, *command: str) -> str:
        ended = subprocess.run(
            command,
            cwd=self.project,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ended.returncode == 0, ended
        return ended.stdout

    def stop(self, *command: str, when: Callable[[], object], after: float, how: signal.Signals) -> None:
        """Start it, wait, and end it with all that it started."""
        started = subprocess.Popen(
            command,
            cwd=self.project,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            when()
            time.sleep(after)
        finally:
            os.killpg(started.pid, how)
            started.wait(PATIENCE)


def installed(folder: Path, program: str, package: str) -> Path:
    """The folder of the program. Its tag is named: else npm takes an old release that an old Node may run."""
    kept = os.environ.get("IBIDEM_TEST_CLIENTS")
    folder = Path(kept) if kept else folder
    found = folder / "node_modules" / ".bin"
    if not (found / program).exists():
        npm = shutil.which("npm")
        assert npm, "these tests need npm"
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(folder), "--no-fund", "--no-audit", f"{package}@latest"]
        subprocess.run(command, check=True, timeout=1800)
    return found


def version(agent: Agent, program: str) -> str:
    found = re.search(r"\d+\.\d+\.\d+", agent.run(program, "--version"))
    return found[0] if found else ""


def sent(upstream: Upstream, path: str) -> list[Json]:
    """The bodies that came, in order."""
    return [each.json for each in upstream.seen if each.method == "POST" and each.path == path]


def told(logs: Iterator[Path], change: Callable[[bytes], bytes] = bytes) -> list[Told]:
    """The requests that all logs tell, in the order of their answers."""
    found = []
    for path in sorted(logs):
        for session in recordings.read(str(path), change(path.read_bytes())):
            assert not session.skipped, session.skipped
            for body, about in session.requests():
                found.append((about.answered or 0.0, Told(session.name, body, about.usage is not None)))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]
