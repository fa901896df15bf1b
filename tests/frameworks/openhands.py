"""OpenHands SDK: its agent in a local conversation, on both calls of its `LLM`; chat completions on three wires."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from tests.frameworks.framework import KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task

ENDPOINTS = {
    "openai-chat": ("openai/gpt-4.1", "/v1"),
    "anthropic": ("anthropic/claude-sonnet-4-5", ""),
    "gemini": ("gemini/gemini-2.5-flash", "/v1beta"),
    "openai-responses": ("openai/gpt-4.1", "/v1"),
}
RETAINED = "prompt_cache_key, prompt_cache_retention=24h"
VARIES = ("id", "timestamp", "parent_id", "action_id", "llm_response_id", "key", "value")
"""Of events: random ids, times, and what was counted."""


def _conversation(task: Task) -> Any:
    from openhands.sdk import LLM, Agent, Conversation

    from tests.frameworks.own.openhands import tool

    model, path = ENDPOINTS[task.format]
    streams = task.mode == "stream"
    mode = "responses" if task.format == "openai-responses" else "chat"
    settings = {"model": model, "base_url": f"{task.url}{path}", "api_key": KEY, "api_mode": mode, "stream": streams}
    llm = (task.adapter or LLM)(**settings, usage_id="agent", retry_min_wait=0, retry_max_wait=1)
    return Conversation(
        agent=Agent(
            llm=llm,
            tools=[tool(f"{task.url} {task.conversation}", task.read)],
            include_default_tools=[],
            system_prompt=f"You read files.{task.system}",
        ),
        workspace=tempfile.gettempdir(),
        conversation_id=uuid5(NAMESPACE_URL, task.conversation),
        token_callbacks=[lambda chunk: None] if streams else None,
        visualizer=None,
        stuck_detection=False,
        max_iteration_per_run=MAX_TURNS,
    )


def _message(text: str, image: bytes | None) -> Any:
    from openhands.sdk import ImageContent, Message, TextContent

    content: list[Any] = [TextContent(text=text)]
    if image is not None:
        content.append(ImageContent(image_urls=[f"data:image/png;base64,{base64.b64encode(image).decode()}"]))
    return Message(role="user", content=content)


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(each) for name, each in value.items() if name not in VARIES}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


class OpenHands(Framework):
    name: ClassVar[str] = "openhands"
    package: ClassVar[str] = "openhands-sdk"
    requires: ClassVar[tuple[str, ...]] = ("openhands-sdk>=1.58,<1.59",)
    seam: ClassVar[str] = "LLM subclass (private methods)"
    formats: ClassVar[tuple[str, ...]] = tuple(ENDPOINTS)
    python: ClassVar[tuple[int, int]] = (3, 12)
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching("system 5m, last message 5m", "system 5m, last message 5m"),
        "openai-chat": OwnCaching("prompt_cache_key", "prompt_cache_key"),
        "openai-responses": OwnCaching(RETAINED, RETAINED),
    }
    example: ClassVar[str] = "with_openhands.py"
    variables: ClassVar[dict[str, str]] = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LOG_LEVEL": "CRITICAL",  # it prints what a tool raised
        "OPENHANDS_SUPPRESS_BANNER": "1",
    }

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.openhands import IbidemLLM

        return partial(IbidemLLM, ibidem_profile=profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.openhands import IbidemLLM

        return partial(IbidemLLM, ibidem_cache="auto")

    def own(self) -> dict[str, Callable[[], None]]:
        from tests.frameworks.own.openhands import resumed

        return {"a conversation that is kept has no marker, and goes on as it was": resumed}

    def run(self, task: Task) -> Ran:
        from openhands.sdk.conversation.response_utils import get_agent_final_response

        conversation, texts = _conversation(task), []
        for number, text in enumerate(task.prompts):
            conversation.send_message(_message(text, task.image if number == 0 else None))
            if task.mode == "sync":
                conversation.run()
            else:
                asyncio.run(conversation.arun())
            texts.append(get_agent_final_response(conversation.state.events))
        events = [event.model_dump(mode="json") for event in conversation.state.events]
        conversation.close()
        return Ran(texts, json.loads(json.dumps(_lasting(events))))


FRAMEWORK = OpenHands()
