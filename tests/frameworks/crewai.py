"""CrewAI: an agent of its own, without a crew around it, which may go on from the messages that it gave back."""

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import Any, ClassVar

from ibidem.testing import Seen

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, Ran, Task

MODELS = {
    "anthropic": "anthropic/claude-sonnet-4-5",
    "openai-chat": "openai/gpt-4.1",
    "openai-responses": "openai/gpt-4.1",
}


class CrewAI(Framework):
    name = "crewai"
    package = "crewai"
    requires = ("crewai[anthropic]>=1.15",)
    seam = "LLM(interceptor=…)"
    formats = ("anthropic", "openai-chat", "openai-responses")
    images = False
    left_out: ClassVar[dict[str, str]] = {
        "openai-responses stream": "CrewAI leaves out the calls of an answer that is streamed over the Responses API"
    }
    example = "with_crewai.py"
    variables: ClassVar[dict[str, str]] = {
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_DISABLE_TRACKING": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "CREWAI_DISABLE_VERSION_CHECK": "true",
        "CREWAI_STORAGE_DIR": os.path.join(tempfile.gettempdir(), "crewai"),
        "OTEL_SDK_DISABLED": "true",
    }

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.crewai import IbidemInterceptor

        return IbidemInterceptor(profile)

    def is_request(self, seen: Seen) -> bool:
        """It also asks how many tokens a result or a request has."""
        return super().is_request(seen) and not seen.path.endswith("/count_tokens")

    def same(self, body: Any) -> Any:
        """The newest prompt for Anthropic is a block with a mark for the cache, older ones are mere texts."""
        return {**body, "messages": [_as_text(each) for each in body["messages"]]} if "messages" in body else body

    def run(self, task: Task) -> Ran:
        from crewai_core.printer import set_suppress_console_output

        set_suppress_console_output(True)
        agent = _agent(task)
        messages: list[Any] = []
        texts = []
        for prompt in task.prompts:
            messages.append({"role": "user", "content": prompt})
            output = asyncio.run(agent.akickoff(messages)) if task.mode == "async" else agent.kickoff(messages)
            messages = [message for message in output.messages if message["role"] != "system"]
            texts.append(output.raw)
        return Ran(texts, messages)


def _as_text(message: Any) -> Any:
    content = message["content"]
    is_one = isinstance(content, list) and len(content) == 1 and content[0]["type"] == "text"
    return {**message, "content": content[0]["text"]} if is_one else message


def _agent(task: Task) -> Any:
    from crewai import Agent

    return Agent(
        role="reader",
        goal="to read files",
        backstory="It reads.",
        llm=_llm(task),
        tools=[_tool(task)],
        max_iter=MAX_TURNS,
    )


def _llm(task: Task) -> Any:
    from crewai import LLM

    url = task.url if task.format == "anthropic" else f"{task.url}/v1"
    more = {"api": "responses"} if task.format == "openai-responses" else {}
    return LLM(
        model=MODELS[task.format],
        base_url=url,
        api_key=KEY,
        stream=task.mode == "stream",
        interceptor=task.adapter,
        **more,
    )


def _tool(task: Task) -> Any:
    from crewai.tools import tool

    def read(path: str) -> str:
        return task.read(path)

    read.__doc__ = DESCRIPTION
    return tool("read")(read)


FRAMEWORK = CrewAI()
