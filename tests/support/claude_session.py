"""A session in the shape of Claude Code 2.1.326: title request, main conversation, subagents, a tool list that grows.

The newest message carries the cache breakpoint. System messages in mid-conversation are blocks while they are the
newest, and strings from the next request on. `is_error` is in a result while it is the newest, and not afterwards.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.proxied import text

MODEL, SMALL_MODEL = "claude-opus-5-5", "claude-haiku-5-5"
SESSION_ID = "6b1f3c0e-2d0f-4d2b-9a61-0c5d6f3a7e11"
KEY_HEADERS = {"x-api-key": "sk-ant-api03-test", "x-claude-code-session-id": SESSION_ID, "user-agent": "claude-cli/2.1"}
PLAN_HEADERS = {
    **{name: value for name, value in KEY_HEADERS.items() if name != "x-api-key"},
    "authorization": "Bearer sk-ant-oat01-test",
    "anthropic-beta": "claude-code-20250219,oauth-2025-04-20,interleaved-thinking-2025-05-14",
}
BILLING = "x-anthropic-billing-header: cc_version=2.1.326.1e4; cc_entrypoint=cli;"


class ClientRequest(NamedTuple):
    """One request, and the seconds since the one before."""

    after: float
    headers: dict[str, str]
    body: dict[str, Any]


def _tool(name: str, lines: int = 6) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"file_path": {"type": "string"}}}
    return {"name": name, "description": text(random.Random(name), lines), "input_schema": schema}


TOOLS = [_tool(name) for name in ("Agent", "Bash", "Edit", "Read", "Skill", "ToolSearch", "Write")]
FOUND_TOOL = _tool("mcp__recs__search")


@dataclass
class Conversation:
    """One conversation of the session, as its client keeps it."""

    headers: dict[str, str]
    ttl: str = ""
    agent: str = ""
    """Id of the subagent; empty for the main conversation."""
    flips_is_error: bool = True
    messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=lambda: [*TOOLS])

    def __post_init__(self) -> None:
        self._rng = random.Random(self.agent)

    def say(self, role: str, *texts: str) -> None:
        self.messages.append({"role": role, "content": [{"type": "text", "text": each} for each in texts]})

    def call(self, name: str, arguments: dict[str, Any], output: Any) -> None:
        """The model thinks and calls a tool, and the tool answers."""
        ident = f"toolu_{self.agent}{len(self.messages):04}"
        seal = "".join(self._rng.choices(string.ascii_letters + string.digits, k=290 + self._rng.randrange(0, 2400)))
        self.messages += [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": seal},
                    {"type": "tool_use", "id": ident, "name": name, "input": arguments},
                ],
            },
            {"role": "user", "content": [{"tool_use_id": ident, "type": "tool_result", "content": output}]},
        ]

    def request(self, after: float = 12.0) -> ClientRequest:
        mark = {"type": "ephemeral", **({"ttl": self.ttl} if self.ttl else {})}
        messages = json.loads(json.dumps(self.messages))
        for message in messages[:-1]:
            if message["role"] == "system":
                message["content"] = message["content"][0]["text"]
        newest = messages[-1]["content"][-1]
        newest["cache_control"] = mark
        if self.flips_is_error and newest["type"] == "tool_result":
            newest["is_error"] = False
        prompt = text(random.Random(self.agent and "agent"), 60)
        system: list[dict[str, Any]] = [
            {"type": "text", "text": BILLING},
            *({"type": "text", "text": prompt[at::2]} for at in (0, 1)),
        ]
        for block in system[1:]:
            block["cache_control"] = mark
        head = {"model": MODEL, "max_tokens": 128_000, "thinking": {"type": "adaptive"}, "stream": True}
        tools = [each for each in self.tools if not self.agent or each["name"] != "Agent"]
        headers = {**self.headers, **({"x-claude-code-agent-id": self.agent} if self.agent else {})}
        return ClientRequest(after, headers, {**head, "tools": tools, "system": system, "messages": messages})


def title_request(headers: dict[str, str], first: str) -> ClientRequest:
    system = [{"type": "text", "text": BILLING}, {"type": "text", "text": "Name this session in five words."}]
    said = [{"role": "user", "content": [{"type": "text", "text": f"<session>{first}</session>"}]}]
    head = {"model": SMALL_MODEL, "max_tokens": 32_000, "stream": True}
    return ClientRequest(1.0, headers, {**head, "system": system, "messages": said})


class Files:
    """What tools return: files that are read again, in part or after an edit."""

    def __init__(self, seed: int, lines: int) -> None:
        self._rng = random.Random(seed)
        self.texts = {f"/src/part_{number}.py": text(self._rng, lines) for number in range(6)}

    def read(self) -> tuple[str, str]:
        path = self._rng.choice(sorted(self.texts))
        lines = self.texts[path].split("\n")
        if self._rng.random() < 0.4:
            lines[self._rng.randrange(len(lines))] = text(self._rng, 1)  # somebody edited it
            self.texts[path] = "\n".join(lines)
        return path, "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))


def session(
    turns: int = 4,
    steps: int = 8,
    agents: int = 2,
    *,
    headers: dict[str, str] = KEY_HEADERS,
    lines: int = 90,
    pause: float = 90.0,
    **more: Any,
) -> Iterator[ClientRequest]:
    """The requests of one session. `lines` is the length of a file, `pause` the seconds before the user speaks, and
    `more` goes to its conversations."""
    files, main = Files(turns + steps, lines), Conversation(headers, **more)
    first = "Make the importer accept empty rows."
    yield title_request(headers, first)
    main.say("user", "<system-reminder>Today is Wednesday.</system-reminder>", first)
    main.say("system", "# Environment\nWorking directory: /src. Platform: linux.")
    for turn in range(turns):
        yield main.request(pause)
        for step in range(steps):
            yield from _step(main, files, turn, step, agents, more)
            yield main.request()
        main.say("assistant", f"Done with part {turn}: the rows are accepted.")
        main.say("user", f"Good. Now do the same for part {turn + 1}.")
        if turn % 2:
            main.say("system", f"The user changed the file part_{turn}.py.")


def _step(
    main: Conversation, files: Files, turn: int, step: int, agents: int, more: dict[str, Any]
) -> Iterator[ClientRequest]:
    if turn == 1 and step == 0:
        reference = [{"type": "tool_reference", "tool_name": FOUND_TOOL["name"]}]
        main.call("ToolSearch", {"query": "records"}, reference)
        main.tools.append(FOUND_TOOL)
    elif step == 2 and turn < agents:
        agent = Conversation(main.headers, agent=f"a{turn}", **more)
        agent.say("user", f"Look for callers of the importer, part {turn}.")
        for _ in range(5):
            yield agent.request(4.0)
            path, output = files.read()
            agent.call("Read", {"file_path": path}, output)
        yield agent.request(4.0)
        main.call("Agent", {"prompt": "Look for callers."}, f"Found {turn + 2} callers.")
    else:
        path, output = files.read()
        main.call("Read", {"file_path": path}, output)
        if step == 4:
            main.say("system", f"{step + 1} steps done, keep the user informed.")
