"""Haystack: its Agent component over the OpenAI generators, whose clients have our transport; no other code of ours."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, ClassVar

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task

OF_A_RUN = ("completion_start_time", "usage")


class Haystack(Framework):
    name: ClassVar[str] = "haystack"
    package: ClassVar[str] = "haystack-ai"
    requires: ClassVar[tuple[str, ...]] = ("haystack-ai",)
    seam: ClassVar[str] = "http_client_kwargs, with Transport"
    formats: ClassVar[tuple[str, ...]] = ("openai-chat", "openai-responses")
    caching: ClassVar[dict[str, OwnCaching]] = {
        format: OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h") for format in formats
    }
    example: ClassVar[str] = "with_haystack.py"
    variables: ClassVar[dict[str, str]] = {"HAYSTACK_TELEMETRY_ENABLED": "false"}

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.httpx import Transport

        return Transport(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.httpx import Transport

        return Transport(cache="auto")

    def run(self, task: Task) -> Ran:
        return asyncio.run(_run(task)) if task.mode == "async" else _run_sync(task)


def _run_sync(task: Task) -> Ran:
    agent, messages, texts = _agent(task), _beginning(task), []
    streams = {"streaming_callback": lambda chunk: None} if task.mode == "stream" else {}
    for number, prompt in enumerate(task.prompts):
        messages = agent.run([*messages, _message(prompt, None if number else task.image)], **streams)["messages"]
        texts.append(messages[-1].text)
    return Ran(texts, _plain(messages))


async def _run(task: Task) -> Ran:
    agent, messages, texts = _agent(task), _beginning(task), []
    for number, prompt in enumerate(task.prompts):
        ran = await agent.run_async([*messages, _message(prompt, None if number else task.image)])
        messages = ran["messages"]
        texts.append(messages[-1].text)
    await agent.chat_generator.close_async()
    return Ran(texts, _plain(messages))


def _beginning(task: Task) -> list[Any]:
    from haystack.dataclasses import ChatMessage

    return [ChatMessage.from_system(f"You are careful.{task.system}")]


def _plain(messages: list[Any]) -> Any:
    """Without times, and without what the provider counted: that is to be less."""
    plain = [message.to_dict() for message in messages]
    return [
        {**each, "meta": {key: value for key, value in each["meta"].items() if key not in OF_A_RUN}} for each in plain
    ]


def _agent(task: Task) -> Any:
    from haystack.components.agents import Agent

    return Agent(chat_generator=_generator(task), tools=[_tool(task)], max_agent_steps=MAX_TURNS)


def _generator(task: Task) -> Any:
    from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
    from haystack.utils import Secret

    kind: Any = OpenAIResponsesChatGenerator if task.format == "openai-responses" else OpenAIChatGenerator
    kept = {"prompt_cache_key": task.conversation, "prompt_cache_retention": "24h"}
    return kind(
        model="gpt-5",
        generation_kwargs=kept if task.caching else None,
        api_key=Secret.from_token(KEY),
        api_base_url=f"{task.url}/v1",
        http_client_kwargs={"transport": task.adapter} if task.adapter else None,
    )


def _tool(task: Task) -> Any:
    from haystack.tools import Tool

    path = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

    def read(path: str) -> str:
        return task.read(path)

    return Tool(name="read", description=DESCRIPTION, parameters=path, function=read)


def _message(prompt: str, image: bytes | None) -> Any:
    from haystack.dataclasses import ChatMessage, ImageContent

    if not image:
        return ChatMessage.from_user(prompt)
    shown = ImageContent(base64_image=base64.b64encode(image).decode(), mime_type="image/png")
    return ChatMessage.from_user(content_parts=[prompt, shown])


FRAMEWORK = Haystack()
