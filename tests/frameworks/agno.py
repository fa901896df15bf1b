"""Agno: an agent whose model has clients with our transport; no code of ours but that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from ibidem.testing import Upstream, by_turn

from .caching import RULES, asks, marks
from .framework import DESCRIPTION, KEY, Framework, OwnCaching, Ran, Task
from .scenario import PROMPTS, SCRIPT, Files

OF_A_RUN = ("id", "created_at", "metrics")


class Agno(Framework):
    name: ClassVar[str] = "agno"
    package: ClassVar[str] = "agno"
    requires: ClassVar[tuple[str, ...]] = ("agno", "anthropic", "openai", "google-genai")
    seam: ClassVar[str] = "clients of the SDKs, with Transport"
    formats: ClassVar[tuple[str, ...]] = ("anthropic", "openai-chat", "openai-responses", "gemini")
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching("nothing", "tools 5m, system 5m, request 5m"),
        "openai-chat": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
        "openai-responses": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
    }
    example: ClassVar[str] = "with_agno.py"
    variables: ClassVar[dict[str, str]] = {"AGNO_TELEMETRY": "false"}

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.httpx import Transport

        return Transport(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.httpx import Transport

        return Transport(cache="auto")

    def run(self, task: Task) -> Ran:
        return asyncio.run(_run(task)) if task.mode == "async" else _run_sync(task, _agent(task))

    def own(self) -> dict[str, Callable[[], None]]:
        return {
            "its flags for the cache leave the conversation out": flags,
            "an hour for the system prompt does not go with a mark on tools": hour,
        }


def flags() -> None:
    assert {asks(body) for body in _sent(request_params=None)} == {"tools 5m, system 5m"}


def hour() -> None:
    """Tools come first, and what is kept for an hour must not come behind what is kept for less: it is refused."""
    both = _sent(extended_cache_time=True, request_params=None)
    assert [marks(body) for body in both] == [[("tools", "5m"), ("system", "1h")]], "no more than one was sent"
    alone = _sent(extended_cache_time=True, cache_tools=False, request_params=None)
    assert [marks(body) for body in alone] == [[("system", "1h")]] * len(SCRIPT)


def _sent(**settings: Any) -> list[Any]:
    """Requests of a run with Agno's settings for the cache, but for these."""
    with Upstream(by_turn(SCRIPT)) as upstream:
        task = Task(upstream.url, "anthropic", "sync", PROMPTS, Files(), system=RULES, caching=True)
        agent = _agent(task)
        for name, value in settings.items():
            setattr(agent.model, name, value)
        with suppress(StopIteration):  # there is no answer
            _run_sync(task, agent)
        return [seen.json for seen in upstream.seen]


def _run_sync(task: Task, agent: Any) -> Ran:
    texts = []
    for number, prompt in enumerate(task.prompts):
        images = _images(task, number)
        if task.mode == "stream":
            events = agent.run(prompt, images=images, stream=True, yield_run_output=True)
            texts.append(_last(list(events)[-1]))
        else:
            texts.append(_last(agent.run(prompt, images=images)))
    return Ran(texts, _history(agent))


async def _run(task: Task) -> Ran:
    agent, texts = _agent(task), []
    for number, prompt in enumerate(task.prompts):
        texts.append(_last(await agent.arun(prompt, images=_images(task, number))))
    model = agent.model
    await (model.client.aio.aclose() if task.format == "gemini" else model.async_client.close())
    return Ran(texts, _history(agent))


def _agent(task: Task) -> Any:
    from agno.agent import Agent
    from agno.db.in_memory import InMemoryDb
    from agno.tools.function import Function

    def read(path: str) -> str:
        return task.read(path)

    logging.getLogger("agno").disabled = True  # a tool that raises is told on standard output
    return Agent(
        model=_model(task),
        session_id=task.conversation,
        instructions=f"You are careful.{task.system}",
        tools=[Function(name="read", description=DESCRIPTION, entrypoint=read)],
        db=InMemoryDb(),
        add_history_to_context=True,
        telemetry=False,
    )


def _model(task: Task) -> Any:
    if task.format == "anthropic":
        return _anthropic(task)
    return _gemini(task) if task.format == "gemini" else _openai(task)


def _anthropic(task: Task) -> Any:
    from agno.models.anthropic import Claude
    from anthropic import Anthropic, AsyncAnthropic, DefaultAsyncHttpxClient, DefaultHttpxClient

    at: dict[str, Any] = {"base_url": task.url, "api_key": KEY}
    if task.mode == "async":
        client = DefaultAsyncHttpxClient(transport=task.adapter) if task.adapter else None
        return Claude("claude-opus-4-5", async_client=AsyncAnthropic(**at, http_client=client), **_marks(task))
    client = DefaultHttpxClient(transport=task.adapter) if task.adapter else None
    return Claude("claude-opus-4-5", client=Anthropic(**at, http_client=client), **_marks(task))


def _marks(task: Task) -> dict[str, Any]:
    """Agno's own settings: its two flags leave the conversation out, which a field of the request covers."""
    whole = {"request_params": {"cache_control": {"type": "ephemeral"}}}
    return {"cache_system_prompt": True, "cache_tools": True, **whole} if task.caching else {}


def _kept(task: Task) -> dict[str, Any] | None:
    return {"prompt_cache_key": task.conversation, "prompt_cache_retention": "24h"} if task.caching else None


def _openai(task: Task) -> Any:
    from agno.models.openai import OpenAIChat, OpenAIResponses
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

    at: dict[str, Any] = {"base_url": f"{task.url}/v1", "api_key": KEY}
    if task.mode == "async":
        client = DefaultAsyncHttpxClient(transport=task.adapter) if task.adapter else None
        clients: dict[str, Any] = {"async_client": AsyncOpenAI(**at, http_client=client)}
    else:
        client = DefaultHttpxClient(transport=task.adapter) if task.adapter else None
        clients = {"client": OpenAI(**at, http_client=client)}
    if task.format == "openai-chat":
        return OpenAIChat("gpt-5", request_params=_kept(task), **clients)
    return OpenAIResponses(
        "gpt-5", store=False, request_params=_kept(task), **clients
    )  # else the provider keeps the history


def _gemini(task: Task) -> Any:
    from agno.models.google import Gemini
    from google import genai
    from google.genai.types import HttpOptions, HttpRetryOptions

    through = {"transport": task.adapter} if task.adapter else {}
    options = HttpOptions(
        base_url=task.url,
        client_args=through,
        async_client_args=through,
        retry_options=HttpRetryOptions(attempts=3, initial_delay=0.01, http_status_codes=[429, 503, 529]),
    )
    return Gemini("gemini-3-pro", client=genai.Client(api_key=KEY, http_options=options))


def _images(task: Task, number: int) -> Any:
    from agno.media import Image

    if not task.image or number:
        return None
    return [Image(id="picture", content=task.image, mime_type="image/png", format="png")]


def _last(output: Any) -> str:
    """The agent's own content is all that the model said in a run."""
    return next(message.content for message in reversed(output.messages) if message.role in ("assistant", "model"))


def _history(agent: Any) -> Any:
    """What the database has of the session, without ids and times."""
    session = agent.get_session()
    return [
        [{key: value for key, value in message.to_dict().items() if key not in OF_A_RUN} for message in run.messages]
        for run in session.runs
    ]


FRAMEWORK = Agno()
