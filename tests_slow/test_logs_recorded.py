"""Claude Code through `ibidem wrap --record`: its own log and our recording tell the same requests.

    python -m pytest tests_slow/test_logs_recorded.py

What is not the same is listed in test_logs_claude_code.py: cache marks, a text alone as a string or a block, the first
block of the system prompt, and requests on the side, which only the recording has.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ibidem import recordings
from ibidem.recordings import proxy_recordings
from ibidem.recordings.log_file import read_log
from ibidem.testing import Calls, Upstream

from .test_logs_claude_code import FILE, PATH, QUIET, SUMMARY, bash, logs, options, plain, scripted, work
from .wire_logs import Agent, Json, installed, sent, told, version

MODEL = "claude-opus-4-8"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("npm"), "claude", "@anthropic-ai/claude-code")


@pytest.fixture
def claude(programs: Path, tmp_path: Path) -> Agent:
    agent = Agent(programs, tmp_path, PYTHONPATH=os.environ.get("PYTHONPATH", ""), **QUIET)
    (agent.project / "a.py").write_text(FILE)
    (agent.project / "b.py").write_text("B = 1\n")
    (agent.project / "sub").mkdir()
    (agent.project / "sub" / "c.py").write_text("C = 1\n")
    return agent


def in_order(found: list[tuple[float, Json]]) -> list[Json]:
    return [body for _, body in sorted(found, key=lambda each: each[0])]


def is_turn(body: Json) -> bool:
    """Not one on the side, nor the one that asks for a summary."""
    return bool(body.get("tools")) and SUMMARY not in json.dumps(body["messages"][-2:])


@pytest.mark.parametrize("observes", [True, False], ids=["observed", "rewritten"])
def test_the_log_and_the_recording_tell_the_same_requests(
    claude: Agent, tmp_path: Path, observes: bool, tally: Callable[..., None]
) -> None:
    folder = tmp_path / "record"
    wrap = [sys.executable, "-m", "ibidem.cli", "wrap", "--store", "memory:", "--record", str(folder)]
    wrap += ["--observe"] if observes else []
    again = [Calls(bash(command)) for command in ("cat a.py", "head -n 50 a.py", "tail -n 50 a.py")]
    with Upstream(scripted([*again, *work(claude.project)])) as upstream:
        wrap += ["--upstream", f"anthropic={upstream.url}", "--", "claude", "-p"]
        claude.run(*wrap, "Look at @b.py", *options(MODEL))
        claude.run(*wrap, "Go on.", "-c", *options(MODEL))
        wire = sent(upstream, PATH)
    files = sorted(folder.glob("*.jsonl.gz"))
    exact, found = [], []
    for path in files:
        exact += [
            (row["at"], bodies) for row, bodies in proxy_recordings.read_bodies(read_log(str(path), path.read_bytes()))
        ]
        for session in recordings.read(str(path), path.read_bytes()):
            assert (session.agent, bool(session.id), session.skipped) == ("claude-code", True, [])
            found += [(about.answered or 0.0, body) for body, about in session.requests()]
    exact.sort(key=lambda each: each[0])
    assert sorted(bodies.sent_body for _, bodies in exact) == sorted(json_bytes(upstream))
    assert len(exact) == len(wire)
    assert all(bodies.sent_body is bodies.client_body for _, bodies in exact) is observes
    mine = [body for body in in_order(found) if is_turn(body)]
    theirs = [body for _, body, _ in told(logs(claude))]
    assert [plain(body["messages"]) for body in mine] == [plain(body["messages"]) for body in theirs]
    assert [body["model"] for body in mine] == [body["model"] for body in theirs]
    ids = {session.id for path in files for session in recordings.read(str(path), path.read_bytes())}
    logged = {session.id for path in logs(claude) for session in recordings.read(str(path), path.read_bytes())}
    assert ids & logged, "a session has the id in both"
    tally("claude code, recorded", version=version(claude, "claude"), requests=len(mine))


def json_bytes(upstream: Upstream) -> list[bytes]:
    return [each.text for each in upstream.seen if each.method == "POST" and each.path == PATH]
