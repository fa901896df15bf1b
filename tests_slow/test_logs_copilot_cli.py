"""What Copilot CLI sends, and what our reader finds in its log: the same messages, request by request.

    python -m pytest tests_slow/test_logs_copilot_cli.py

It runs without an account against a provider of one's own. What is not the same:
- tools, and settings beside the messages, which the log does not hold;
- thoughts: the log has their text, the wire has them in the way of each provider; readers leave them out;
- the words of an error: the log has those for the screen, not those for the model;
- `refusal: null`, and notes for itself that the client leaves in messages when it resumes a session.
Through OpenAI's or Anthropic's own interfaces the same is sent in their shape; the reader tells chat messages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ibidem.testing import Answer, Calls, Says, Seen, Thinks, Upstream

from .wire_logs import Agent, Json, installed, sent, told, version

PATH = "/v1/chat/completions"
FILE = "".join(f"def function_{number}(argument): return argument * {number}\n" for number in range(60))
ERRORS = ("call_000005_0", "call_000006_0")
"""Results whose words are those for the screen."""
NOTES = ("refusal", "reasoning_content", "__copilotMessageSource")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("npm"), "copilot", "@github/copilot")


def bash(command: str) -> tuple[str, Json]:
    return "bash", {"command": command, "description": "a command", "mode": "sync", "initial_wait": 20}


def work(project: Path) -> list[Answer]:
    look = ("view", {"path": str(project / "a.py")})
    patch = (
        f"*** Begin Patch\n*** Update File: {project / 'a.py'}\n@@\n-{FILE.splitlines()[0]}\n+ZERO = 0\n*** End Patch"
    )
    return [
        Thinks("First the file.", Calls(look, says="I look.")),
        Calls(bash("sleep 1; echo slow"), look, bash("echo fast")),
        Calls(bash("ls no-such-file")),
        Calls(("apply_patch", {"input": patch})),
        Calls(("view", {"path": str(project / "missing.py")})),
        Calls(("no_such_tool", {"x": 1})),
        Calls(bash("seq 30000")),
        Says("So far."),
        Calls(bash("head -n 1 a.py")),
        Says("Done."),
    ]


def test_calls_that_run_and_fail_and_a_second_turn(programs: Path, tmp_path: Path, tally: Callable[..., None]) -> None:
    agent = Agent(programs, tmp_path, COPILOT_OFFLINE="true", COPILOT_MODEL="gpt-5.4", COPILOT_PROVIDER_API_KEY="sk-no")
    (agent.project / "a.py").write_text(FILE)
    left = iter(work(agent.project))

    def script(seen: Seen) -> Answer:
        return next(left, Says("Done.")) if seen.json.get("tools") else Says("ok")

    with Upstream(script) as upstream:
        agent.variables["COPILOT_PROVIDER_BASE_URL"] = f"{upstream.url}/v1"
        for asked in (["-p", "Look at a.py."], ["-p", "Go on.", "--continue"]):
            agent.run("copilot", *asked, "--allow-all-tools", "--no-color")
        bodies = [body for body in sent(upstream, PATH) if body.get("tools")]
    found = told((agent.home / ".copilot").rglob("events.jsonl"))
    assert len(bodies) == 10
    assert [body["model"] for _, body, _ in found] == [body["model"] for body in bodies]
    for (_, mine, _), theirs in zip(found, bodies, strict=True):
        assert [plain(message) for message in mine["messages"]] == [plain(message) for message in theirs["messages"]]
    assert all(usage for _, _, usage in found)
    tally("copilot cli", version=version(agent, "copilot"), requests=len(bodies))


def plain(message: Json) -> Json:
    kept = {key: value for key, value in message.items() if key not in NOTES}
    return kept | {"content": "an error"} if message.get("tool_call_id") in ERRORS else kept
