"""LangChain: agents of `create_agent`, on LangGraph, with a checkpoint of the conversation in memory."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, ClassVar

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task
from .own.langchain import own

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}
KEPT = ("type", "content", "tool_calls", "invalid_tool_calls", "tool_call_id", "status", "name", "artifact")
"""Of a message; the others tell what a single answer was like: its id, its usage, its model."""


class LangChain(Framework):
    name = "langchain"
    package = "langchain"
    requires = ("langchain>=1.4", "langchain-openai", "langchain-anthropic", "langchain-google-genai")
    seam = "AgentMiddleware.wrap_model_call"
    formats = ("anthropic", "openai-chat", "openai-responses", "gemini")
    example = "with_langchain.py"
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching("nothing", "tools 5m, system 5m, request 5m"),
        "openai-responses": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
    }
    variables: ClassVar[dict[str, str]] = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.langchain import IbidemMiddleware

        return IbidemMiddleware(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.langchain import IbidemMiddleware

        return IbidemMiddleware(cache="auto")

    def run(self, task: Task) -> Ran:
        agent, config = self.agent(task), _config(task)
        texts = []
        for prompt in _prompts(task):
            if task.mode == "stream":
                for _ in agent.stream(prompt, config, stream_mode="messages"):
                    pass
            elif task.mode == "async":
                in_loop(agent.ainvoke(prompt, config))
            else:
                agent.invoke(prompt, config)
            texts.append(agent.get_state(config).values["messages"][-1].text)
        return Ran(texts, _kept(agent, config))

    def own(self) -> dict[str, Callable[[], None]]:
        return own(self)

    def agent(self, task: Task) -> Any:
        from langchain.agents import create_agent
        from langchain.agents.middleware import ToolRetryMiddleware
        from langgraph.checkpoint.memory import InMemorySaver

        told = ToolRetryMiddleware(max_retries=0, on_failure="continue")
        ours = [] if task.adapter is None else [task.adapter]
        return create_agent(
            model(task),
            [tool(task)],
            system_prompt=f"Be brief.{task.system}",
            middleware=[told, *caching(task), *ours],
            checkpointer=InMemorySaver(),
        )


def caching(task: Task) -> list[Any]:
    """LangChain's own way."""
    if not task.caching or task.format != "anthropic":
        return []
    from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware

    return [AnthropicPromptCachingMiddleware()]


def model(task: Task) -> Any:
    """As a user makes it, but for the address."""
    name = MODELS[task.format]
    if task.format == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=name, base_url=task.url, api_key=KEY)
    if task.format == "gemini":
        from langchain_google_genai import ChatGoogleGenerativeAI

        return ChatGoogleGenerativeAI(model=name, base_url=task.url, api_key=KEY)
    from langchain_openai import ChatOpenAI

    kept = {"prompt_cache_key": task.conversation, "prompt_cache_retention": "24h"}
    return ChatOpenAI(
        model=name,
        base_url=f"{task.url}/v1",
        api_key=KEY,
        use_responses_api=task.format == "openai-responses",
        stream_usage=True,
        model_kwargs=kept if task.caching else {},
    )


def tool(task: Task) -> Any:
    from langchain.tools import tool

    @tool(description=DESCRIPTION)
    def read(path: str) -> str:
        return task.read(path)

    return read


def in_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """In the one loop of this process: LangChain keeps a provider's async client for all agents, and that one loop."""
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="langchain", daemon=True).start()
    return loop


def _config(task: Task) -> dict[str, Any]:
    return {"configurable": {"thread_id": task.conversation}, "recursion_limit": 4 * MAX_TURNS}


def _prompts(task: Task) -> list[dict[str, Any]]:
    said: list[Any] = list(task.prompts)
    if task.image is not None:
        shown = {"type": "image", "mime_type": "image/png", "base64": base64.b64encode(task.image).decode()}
        said[0] = [{"type": "text", "text": said[0]}, shown]
    return [{"messages": [{"role": "user", "content": content}]} for content in said]


def _kept(agent: Any, config: dict[str, Any]) -> list[Any]:
    """The messages of the last checkpoint."""
    dumped = [message.model_dump(mode="json") for message in agent.get_state(config).values["messages"]]
    return [{key: message[key] for key in KEPT if key in message} for message in dumped]


FRAMEWORK = LangChain()
