"""What Claude Code sends, and what our reader finds in its log: the same messages, request by request.

    python -m pytest tests_slow/test_logs_claude_code.py

What is not the same:
- cache marks: they move from request to request, so readers leave them out;
- a text alone may be a string or a block, which is the same to the provider;
- of the system prompt the first block, which counts the client's use;
- the request that makes a compaction's summary is not in the log, nor are those on the side (titles and the like).
Older releases did not log their requests, only lines. What the lines alone tell is compared too: every answer, result
and word of the user where it was sent, and what the client added in the message where it added it, but for the fixed
sentences around it.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from ibidem import rules
from ibidem.formats import format_named, parse_request
from ibidem.testing import Answer, Calls, Says, Seen, Thinks, Upstream

from .wire_logs import PATIENCE, Agent, Json, installed, sent, told, version

PATH = "/v1/messages"
MODELS = ("claude-sonnet-4-5", "claude-opus-4-8", "claude-opus-5-5")
"""Reminders stand in user messages for one, in system messages for the others; the last also gets its effort in one."""
SUMMARY = "Respond with TEXT ONLY"
"""Words of the request for a summary."""
SUBTASK = "Look for the letter q."
FILE = "".join(f"def function_{number}(argument): return argument * {number}\n" for number in range(60))
QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "ANTHROPIC_API_KEY": "sk-ant-opens-nothing",
}
HOOKS = {
    "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "echo said by a hook"}]}],
    "PreToolUse": [
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "if grep -q forbidden; then exit 2; fi"}]}
    ],
    "PostToolUse": [
        {
            "matcher": "Edit",
            "hooks": [
                {
                    "type": "command",
                    "command": "echo '"
                    + json.dumps(
                        {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "edited"}}
                    )
                    + "'",
                }
            ],
        }
    ],
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("npm"), "claude", "@anthropic-ai/claude-code")


@pytest.fixture
def claude(programs: Path, tmp_path: Path) -> Agent:
    agent = Agent(programs, tmp_path, **QUIET)
    project = agent.project
    for folder in ("sub", ".claude"):
        (project / folder).mkdir()
    (project / "a.py").write_text(FILE)
    (project / "b.py").write_text("B = 1\n")
    (project / "sub" / "c.py").write_text("C = 1\n")
    (project / "CLAUDE.md").write_text("Be careful.\n")
    (project / "sub" / "CLAUDE.md").write_text("Be more careful here.\n")
    (project / ".claude" / "settings.json").write_text(json.dumps({"hooks": HOOKS}))
    return agent


def options(model: str) -> list[str]:
    return ["--output-format", "json", "--allowedTools", "Read,Bash,Edit,Agent", "--model", model]


def bash(command: str) -> tuple[str, Json]:
    return "Bash", {"command": command, "description": "a command"}


def work(project: Path) -> list[Answer]:
    def read(name: str) -> tuple[str, Json]:
        return "Read", {"file_path": str(project / name)}

    line = "def function_0(argument): return argument * 0\n"
    edit = {"file_path": str(project / "a.py"), "old_string": line, "new_string": "ZERO = 0\n"}
    agent = {"description": "search", "prompt": SUBTASK, "subagent_type": "general-purpose", "run_in_background": False}
    return [
        Thinks("First the file.", Calls(read("a.py"), says="I look.")),
        Thinks("Three at once.", Calls(read("b.py"), bash("head -n 3 a.py"), read("sub/c.py"))),
        Calls(bash("ls no-such-file")),
        Calls(("Edit", edit)),
        Calls(bash("echo forbidden")),
        Calls(("NoSuchTool", {"x": 1})),
        Calls(bash("seq 30000")),
        Calls(bash("true")),
        Calls(("Agent", agent)),
        Thinks("Done.", Says("So far.")),
    ]


def scripted(answers: list[Answer]) -> Callable[[Seen], Answer]:
    """In turn, for the conversation; what is asked on the side is answered on the side."""
    left = iter(answers)

    def script(seen: Seen) -> Answer:
        body = seen.json
        if not body.get("tools"):
            return Says("ok")
        if SUMMARY in json.dumps(body["messages"][-2:]):
            return Says("<analysis>Well.</analysis><summary>We looked at files.</summary>")
        if SUBTASK in json.dumps(body["messages"][0]):
            return Says("No q.")
        return next(left, Says("Done."))

    return script


def logs(agent: Agent) -> Iterator[Path]:
    return (agent.home / ".claude" / "projects").rglob("*.jsonl")


def bodies(upstream: Upstream) -> list[Json]:
    found = sent(upstream, PATH)
    return [body for body in found if body.get("tools") and SUMMARY not in json.dumps(body["messages"][-2:])]


def plain(value: Any) -> Any:
    """Without cache marks, texts as blocks."""
    if isinstance(value, dict):
        kept = {key: plain(each) for key, each in value.items() if key != "cache_control"}
        if "role" in kept and isinstance(kept["content"], str):
            kept["content"] = [{"type": "text", "text": kept["content"]}]
        return kept
    return [plain(each) for each in value] if isinstance(value, list) else value


def without_requests(data: bytes) -> bytes:
    return b"\n".join(line for line in data.split(b"\n") if not line.startswith(b'{"type":"api-request'))


def same(agent: Agent, wire: list[Json]) -> None:
    found = [body for _, body, _ in told(logs(agent))]
    assert [plain(body["messages"]) for body in found] == [plain(body["messages"]) for body in wire]
    assert [body["model"] for body in found] == [body["model"] for body in wire]
    assert [plain(body["tools"]) for body in found] == [plain(body["tools"]) for body in wire]
    assert [plain(body["system"]) for body in found] == [plain(body["system"])[1:] for body in wire]


class Run:
    """What is said between two answers, or in one."""

    def __init__(self, messages: list[Json]) -> None:
        blocks = [block for message in messages for block in plain(message)["content"]]
        self.own = (
            [_own(block) for block in blocks if not _is_reminder(block)] if _role(messages[0]) == "user" else blocks
        )
        self.reminders = [block["text"] for block in blocks if _is_reminder(block)]
        self.everything = json.dumps([plain(message) for message in messages], ensure_ascii=False)


def _role(message: Json) -> str:
    return "user" if message["role"] == "system" else str(message["role"])


REMINDER = re.compile(r"\s*<system-reminder>\n(.*?)\n</system-reminder>\s*", re.DOTALL)


def _is_reminder(block: Json) -> bool:
    return bool(block.get("type") == "text" and REMINDER.match(block["text"]))


def _own(block: Json) -> Json:
    """A result without the reminders that were joined to it, and without white space at the end of texts."""
    if block["type"] == "text":
        return {**block, "text": block["text"].rstrip()}
    if block["type"] != "tool_result":
        return block
    inner = block["content"]
    if isinstance(inner, str):
        return {**block, "content": REMINDER.sub("", inner).rstrip()}
    texts = [{**each, "text": REMINDER.sub("", each["text"]).rstrip()} if "text" in each else each for each in inner]
    return {**block, "content": [each for each in texts if each.get("text") != ""]}


def runs(messages: list[Json]) -> list[Run]:
    """System messages are reminders, all of them."""
    wrapped = [
        {"role": "user", "content": [{"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}]}
        if message["role"] == "system"
        else message
        for message in messages
        for text in ([block["text"] for block in plain(message)["content"]] if message["role"] == "system" else [""])
    ]
    return [Run(list(group)) for _, group in groupby(wrapped, key=_role)]


def same_by_lines(agent: Agent, wire: list[Json]) -> None:
    found = [body for _, body, _ in told(logs(agent), without_requests)]
    assert len(found) == len(wire)
    for body, other in zip(found, wire, strict=True):
        mine, theirs = runs(body["messages"]), runs(other["messages"])
        assert [run.own for run in mine] == [run.own for run in theirs]
        for one, another in zip(mine, theirs, strict=True):
            for reminder in one.reminders:
                for text in REMINDER.findall(reminder):
                    for part in text.split("\n\n"):
                        assert json.dumps(part, ensure_ascii=False)[1:-1] in another.everything


@pytest.mark.parametrize("model", MODELS)
def test_tools_reminders_thinking_a_sub_agent_a_compaction_and_further_turns(
    claude: Agent, model: str, tally: Callable[..., None]
) -> None:
    more = [Calls(("Read", {"file_path": str(claude.project / "a.py")})), Says("Done.")]
    with Upstream(scripted([*work(claude.project), Says("Twice."), *more])) as upstream:
        claude.variables["ANTHROPIC_BASE_URL"] = upstream.url
        for prompt, again in (("Look at @b.py", []), ("Go on.", ["-c"]), ("/compact", ["-c"]), ("And now?", ["-c"])):
            claude.run("claude", "-p", prompt, *again, *options(model))
        wire = bodies(upstream)
    assert len(wire) == 14
    same(claude, wire)
    same_by_lines(claude, wire)
    broken = {
        violation.rule
        for body in wire
        for violation in rules.violations(parse_request(body, format_named("anthropic")))
    }
    assert broken <= {"alternating-roles"}
    tally(f"claude code with {model}", version=version(claude, "claude"), requests=len(wire))


@pytest.mark.parametrize("model", MODELS)
def test_what_the_user_says_while_the_model_is_at_work(claude: Agent, model: str) -> None:
    with Upstream(scripted([Calls(bash("for n in 1 2 3 4 5 6; do sleep 0.5; done")), Says("Done.")])) as upstream:
        variables = {**claude.variables, "ANTHROPIC_BASE_URL": upstream.url}
        command = ["claude", "-p", "--input-format", "stream-json", "--verbose", *options(model)]
        command[command.index("json")] = "stream-json"
        pipe = subprocess.PIPE
        running = subprocess.Popen(command, cwd=claude.project, env=variables, stdin=pipe, stdout=pipe, text=True)
        assert running.stdin
        for number, words in enumerate(("Look.", "And quickly, please.")):
            upstream.wait_for(number, PATIENCE)
            time.sleep(number)
            running.stdin.write(json.dumps({"type": "user", "message": {"role": "user", "content": words}}) + "\n")
            running.stdin.flush()
        running.communicate(timeout=PATIENCE)
        wire = bodies(upstream)
    assert len(wire) == 2
    assert "And quickly, please." in json.dumps(wire[1]["messages"])
    same(claude, wire)
    same_by_lines(claude, wire)
