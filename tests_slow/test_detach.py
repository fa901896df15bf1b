"""Claude Code itself continues a conversation without Ibidem, after `ibidem detach`.

    python -m pytest tests_slow/test_detach.py

The mock provider signs thinking over everything that was sent before it, as newer models do. It compares a string and a
list of one text block as equal: Claude Code sends the same system message both ways.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ibidem.cli.running_clients import RECENT_SECONDS
from ibidem.testing import Answer, Calls, Fails, Says, Seen, Thinks, Upstream
from ibidem.testing.answers import ThinkingPart
from ibidem.testing.signing import REFUSAL, has_valid_thinking, signature_of

from .conftest import Tally
from .test_clients import FILE, QUIET
from .test_logs_claude_code import plain
from .wire_logs import Agent

MODEL = "claude-opus-5-5"
REWRITTEN = "[ibidem "
OPTIONS = ("--output-format", "json", "--allowedTools", "Read,Bash", "--model", MODEL)


class Provider:
    """Signs thinking as `ibidem.testing.Signing` does, and does not tell apart spellings of one message."""

    def __init__(self, script: Callable[[Seen], Answer]) -> None:
        self._script = script
        self.rejected = 0
        self.accepted: list[str] = []

    def __call__(self, seen: Seen) -> Answer:
        if not seen.json.get("tools"):
            return Says("ok")
        body = plain(seen.json)
        if not has_valid_thinking(body):
            self.rejected += 1
            return Fails(400, message=REFUSAL)
        self.accepted.append(json.dumps(body["messages"]))
        answer, signature = self._script(seen), signature_of(body)
        signed = (
            part._replace(signature=signature) if isinstance(part, ThinkingPart) else part for part in answer.parts
        )
        return replace(answer, parts=tuple(signed))


def script(project: Path) -> Callable[[Seen], Answer]:
    read = Calls(("Read", {"file_path": str(project / "a.py")}), says="Let me look.")
    more = [Calls(("Bash", {"command": f"{tool} -n 140 a.py", "description": "Show"})) for tool in ("head", "tail")]
    turns = [Thinks(f"Step {number}.", then) for number, then in enumerate([read, *more, Says("Done.")])]

    def answer(seen: Seen) -> Answer:
        asked = sum(message["role"] == "assistant" for message in seen.json["messages"])
        return turns[asked] if asked < len(turns) else Thinks("On.", Says("Continued."))

    return answer


@pytest.fixture
def claude(programs: Path, tmp_path: Path) -> Agent:
    own = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "ANTHROPIC_API_KEY": "sk-ant-opens-nothing"}
    agent = Agent(programs, tmp_path, **QUIET, **own)
    (agent.project / "a.py").write_text(FILE)
    return agent


def asked(claude: Agent, *command: str) -> tuple[dict[str, Any], str]:
    """What Claude Code tells of its answer, and standard error."""
    ended = subprocess.run(
        command, cwd=claude.project, env=claude.variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return json.loads(ended.stdout), ended.stderr


def detach(claude: Agent, *words: str) -> str:
    return claude.run(sys.executable, "-m", "ibidem.cli", "detach", *words)


def test_claude_code_continues_without_ibidem(claude: Agent, tally: Tally) -> None:
    provider = Provider(script(claude.project))
    with Upstream(provider) as upstream:
        wrap = (sys.executable, "-m", "ibidem.cli", "wrap", "--store", "memory:", "--upstream")
        begun = ("claude", "-p", "Look at a.py, three times.", *OPTIONS)
        first, said = asked(claude, *wrap, f"anthropic={upstream.url}", "--", *begun)
        session = first["session_id"]
        assert (first["result"], provider.rejected) == ("Done.", 0)
        assert REWRITTEN in provider.accepted[-1]
        assert said.splitlines()[-1].endswith(f"run: ibidem detach {session}")
        claude.variables["ANTHROPIC_BASE_URL"] = upstream.url
        resume = ("claude", "-p", "Go on.", "--resume", session, *OPTIONS)
        log = next((claude.home / ".claude" / "projects").glob("*/*.jsonl"))
        kept = shutil.copy2(log, log.with_suffix(".kept"))

        told, _ = asked(claude, *resume)
        assert (told["is_error"], told["api_error_status"]) == (True, 400)
        before = provider.rejected
        assert before > 0

        shutil.copy2(kept, log)
        time.sleep(RECENT_SECONDS)
        assert "Removed 4 thinking blocks" in detach(claude, session[:8])
        for number in (1, 2):  # the second time with thinking that was signed since
            told, _ = asked(claude, *resume)
            assert (told["result"], told["is_error"], provider.rejected) == ("Continued.", False, before)
            sent = provider.accepted[-1]
            assert REWRITTEN not in sent
            assert sent.count("def function_77(argument)") == 3
            assert sent.count('"type": "thinking"') == number - 1
    tally("claude code, detached", requests=len(provider.accepted), rejected_before=before, rejected_after=0)
