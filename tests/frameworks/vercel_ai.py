"""Vercel's AI SDK, which is JavaScript, through `ibidem proxy`. Node 20 or later, and npm, have to be there."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from ibidem.testing import Upstream, by_turn

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task
from .proxied import Proxies, state
from .scenario import ANSWERS, PROMPTS, SCRIPT, Files

PACKAGES = ("ai@6", "@ai-sdk/anthropic@3", "@ai-sdk/openai@3", "@ai-sdk/google@3", "zod@4")
AGENT = Path(__file__).with_suffix(".mjs").read_text()
FOLDER = Path(sys.prefix)
"""Where its packages are: beside those of this Python."""


def installed() -> Path:
    found = FOLDER / "node_modules" / "ai" / "package.json"
    if not found.exists():
        command = ["npm", "install", "--prefix", str(FOLDER), "--no-fund", "--no-audit", *PACKAGES]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=900)
    return found


class VercelAI(Framework):
    name = "vercel_ai"
    package = "ai"
    requires = ()
    seam = "baseURL"
    formats = ("anthropic", "openai-chat", "openai-responses", "gemini")
    modes = ("async", "stream")
    usage = True
    example = "with_vercel_ai.py"
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching("nothing", "request 5m"),
        "openai-chat": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
        "openai-responses": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
    }
    left_out: ClassVar[dict[str, str]] = {
        "fault of ours": "the proxy is a process of its own; tests/proxy/test_faults.py breaks it",
        "speed": "agent and proxy are processes of their own; benchmarks/proxy.py has what the proxy takes",
    }
    variables: ClassVar[dict[str, str]] = {"NODE_FOLDER": str(FOLDER)}

    def version(self) -> str:
        return str(json.loads(installed().read_text())["version"])

    def adapter(self, format: str, profile: str = "lossless") -> Proxies:
        return Proxies(profile)

    def caching_adapter(self, format: str) -> Proxies:
        return Proxies(cache="auto")

    def run(self, task: Task) -> Ran:
        installed()
        about = {
            "url": task.url if task.adapter is None else task.adapter.to(task.url),
            "format": task.format,
            "mode": task.mode,
            "prompts": task.prompts,
            "image": base64.b64encode(task.image).decode() if task.image else None,
            "description": DESCRIPTION,
            "key": KEY,
            "turns": MAX_TURNS,
            "system": task.system or None,
            "caching": task.caching,
        }
        command = ["node", "--input-type=module", "-e", AGENT]
        with subprocess.Popen(
            command, cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        ) as agent:
            assert agent.stdin is not None
            assert agent.stdout is not None
            print(json.dumps(about), file=agent.stdin, flush=True)
            for line in agent.stdout:
                told = json.loads(line)
                if "read" not in told:
                    return Ran(told["texts"], told["history"])
                print(json.dumps(read(task, told["read"])), file=agent.stdin, flush=True)
        raise RuntimeError("the agent came to no end")

    def own(self) -> dict[str, Callable[[], None]]:
        return {"the proxy reads what it cost": self.counted}

    def counted(self) -> None:
        for format in self.formats:
            proxies = self.adapter(format)
            with Upstream(by_turn(SCRIPT)) as upstream:
                ran = self.run(Task(upstream.url, format, "stream", PROMPTS, Files(), proxies))
                totals = state(proxies.to(upstream.url))["totals"]
            assert ran.texts == ANSWERS
            assert 0 < totals["paid"] < totals["would_have_paid"], (format, totals)


def read(task: Task, path: str) -> dict[str, Any]:
    try:
        return {"text": task.read(path)}
    except OSError as error:
        return {"error": str(error)}


FRAMEWORK = VercelAI()
