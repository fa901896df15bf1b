"""The Claude Agent SDK, which runs Claude Code, through `ibidem proxy` by `options.env`."""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ibidem.testing import Answer, Seen, Upstream, by_turn
from ibidem.testing.answers import CallPart

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task
from .proxied import Proxies, state
from .scenario import ANSWERS, PROMPTS, SCRIPT, Files

TOOL = "mcp__files__read"
"""As Claude Code calls the tool of an MCP server."""
FOLDER = Path(tempfile.mkdtemp(prefix="ibidem-agent-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
DIFFERS = re.compile(r"\d+ tokens left|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
QUIET = {
    "ANTHROPIC_API_KEY": KEY,
    "HOME": str(FOLDER),
    "TMPDIR": str(FOLDER),
    "CLAUDE_CONFIG_DIR": str(FOLDER / ".claude"),
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "ENABLE_TOOL_SEARCH": "false",
}


class ClaudeAgentSDK(Framework):
    name = "claude_agent_sdk"
    package = "claude-agent-sdk"
    requires = ("claude-agent-sdk",)
    seam = 'ClaudeAgentOptions(env={"ANTHROPIC_BASE_URL": …})'
    formats = ("anthropic",)
    modes = ("async", "stream")
    usage = True
    example = "with_claude_agent_sdk.py"
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching("system 5m, last message 5m", "system 1h, last message 1h")
    }
    left_out: ClassVar[dict[str, str]] = {
        "fault of ours": "the proxy is a process of its own; tests/proxy/test_faults.py breaks it",
        "speed": "agent and proxy are processes of their own; benchmarks/proxy.py has what the proxy takes",
    }

    def adapter(self, format: str, profile: str = "lossless") -> Proxies:
        return Proxies(profile)

    def caching_adapter(self, format: str) -> Proxies:
        return Proxies(cache="auto")

    def provider(self, format: str, script: Callable[[Seen], Answer]) -> AbstractContextManager[Any]:
        """One that knows what the tool is called here."""

        def renamed(seen: Seen) -> Answer:
            answer = script(seen)
            parts = (part._replace(tool=TOOL) if isinstance(part, CallPart) else part for part in answer.parts)
            return replace(answer, parts=tuple(parts))

        return Upstream(renamed)

    def is_request(self, seen: Seen) -> bool:
        return super().is_request(seen) and bool(seen.json.get("tools"))

    def run(self, task: Task) -> Ran:
        return asyncio.run(_run(task))

    def same(self, body: Any) -> Any:
        return cleaned(body)

    def own(self) -> dict[str, Callable[[], None]]:
        return {"the proxy reads what it cost": self.counted}

    def counted(self) -> None:
        proxies = self.adapter("anthropic")
        with self.provider("anthropic", by_turn(SCRIPT)) as upstream:
            ran = self.run(Task(upstream.url, "anthropic", "stream", PROMPTS, Files(), proxies))
            totals = state(proxies.to(upstream.url))["totals"]
        assert ran.texts == ANSWERS
        assert 0 < totals["paid"] < totals["would_have_paid"], totals


async def _run(task: Task) -> Ran:
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, create_sdk_mcp_server, tool

    @tool("read", DESCRIPTION, {"path": str})
    async def read(given: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"content": [{"type": "text", "text": task.read(given["path"])}]}
        except OSError as error:
            return {"content": [{"type": "text", "text": str(error)}], "is_error": True}

    url = task.url if task.adapter is None else task.adapter.to(task.url)
    kept = {"ENABLE_PROMPT_CACHING_1H": "1"} if task.caching else {}
    options = ClaudeAgentOptions(
        env={**QUIET, **kept, "ANTHROPIC_BASE_URL": url},
        mcp_servers={"files": create_sdk_mcp_server("files", tools=[read])},
        tools=[],
        allowed_tools=[TOOL],
        system_prompt=f"You look at files.{task.system}",
        model="claude-sonnet-4-5",
        max_turns=MAX_TURNS,
        include_partial_messages=task.mode == "stream",
        setting_sources=[],
        cwd=FOLDER,
    )
    texts: list[str] = []
    ident = ""
    async with ClaudeSDKClient(options) as client:
        for number, prompt in enumerate(task.prompts):
            await client.query(_said(prompt, None if number else task.image))
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    texts.append(message.result or "")
                    ident = message.session_id
    return Ran(texts, history(ident))


async def _said(text: str, image: bytes | None) -> AsyncIterator[dict[str, Any]]:
    content: list[Any] = [{"type": "text", "text": text}]
    if image:
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(image).decode()}
        content.insert(0, {"type": "image", "source": source})
    yield {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}


def history(ident: str) -> list[Any]:
    """Messages as Claude Code keeps them."""
    (log,) = FOLDER.glob(f".claude/projects/*/{ident}.jsonl")
    lines = map(json.loads, log.read_text().splitlines())
    said = [line["message"] for line in lines if line.get("type") in ("user", "assistant")]
    return [{"role": each["role"], "content": settled(each["content"])} for each in said]


def settled(value: Any) -> Any:
    """Without ids of sessions, and without how many tokens are left to the model: with us those are more."""
    return json.loads(DIFFERS.sub("…", json.dumps(value)))


def cleaned(body: Any) -> Any:
    """Without what counts a client's use."""
    found = settled(body)
    found.pop("metadata", None)
    if isinstance(found.get("system"), list):
        found["system"] = [each for each in found["system"] if "billing-header" not in each.get("text", "")]
    return found


FRAMEWORK = ClaudeAgentSDK()
