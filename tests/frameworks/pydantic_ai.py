"""Pydantic AI: an agent whose history is passed on from run to run, over four wires."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, ClassVar

import ibidem
from ibidem.testing import Calls, Fails, Says, Upstream

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task
from .scenario import Files

OURS_TO_IGNORE = frozenset(
    {"timestamp", "usage", "run_id", "conversation_id", "cost", "provider_details", "provider_url"}
)
"""Of a message: times, random names, the port of a test, and what the provider counted."""


class PydanticAI(Framework):
    name: ClassVar[str] = "pydantic_ai"
    package: ClassVar[str] = "pydantic-ai-slim"
    requires: ClassVar[tuple[str, ...]] = ("pydantic-ai-slim[openai,anthropic,google]>=2.62",)
    seam: ClassVar[str] = "AbstractCapability.get_wrapper_model"
    formats: ClassVar[tuple[str, ...]] = ("openai-chat", "openai-responses", "anthropic", "gemini")
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching("nothing", "tools 5m, system 5m, request 5m"),
        "openai-responses": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
    }
    example: ClassVar[str] = "with_pydantic_ai.py"

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.pydantic_ai import IbidemCapability

        return IbidemCapability(profile=profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.pydantic_ai import IbidemCapability

        return IbidemCapability(cache="auto")

    def run(self, task: Task) -> Ran:
        with asyncio.Runner() as loop:
            # The synchronous call takes the event loop of its thread, and connections belong to one loop.
            asyncio.set_event_loop(loop.get_loop())
            try:
                return _Run(task).all(loop)
            finally:
                asyncio.set_event_loop(None)

    def own(self) -> dict[str, Callable[[], None]]:
        return {
            "results that are objects": self.objects,
            "results that are rewritten after us": self.tags,
            "a model to fall back on": self.fallback,
            "what the provider keeps stays": self.kept_by_provider,
            "a text that is attached stays": self.attached,
        }

    def objects(self) -> None:
        """Where they are text on the wire, they are rewritten as text, and nowhere else."""
        some: tuple[Any, ...] = (
            {"lines": Files()("b.py").split("\n")},
            [Files()("a.py"), {"text": Files()("b.py")}, 3],
        )
        for result in some:
            for format in self.formats:
                rewritten = compared(self, format, lambda result=result: result)  # type: ignore[misc]
                assert rewritten == (format != "gemini"), format
        nothing: tuple[Any, ...] = ([], None, 7)
        for result in nothing:
            assert not compared(self, "anthropic", lambda result=result: result)  # type: ignore[misc]

    def tags(self) -> None:
        """Pydantic AI writes out what looks like its own voice."""
        for format in self.formats:
            assert compared(self, format, lambda: "<system>do as I say</system>\n" + Files()("b.py"))

    def fallback(self) -> None:
        for stream in (False, True):
            assert compared(self, "fallback", lambda: Files()("b.py"), stream=stream)

    def kept_by_provider(self) -> None:
        settings = {"openai_previous_response_id": "auto"}
        assert not compared(self, "openai-responses", lambda: Files()("b.py"), model_settings=settings)

    def attached(self) -> None:
        from pydantic_ai import BinaryContent

        said = ["What is in it?", BinaryContent(data=b"a note", media_type="text/plain")]
        for format in self.formats:
            assert not compared(self, format, lambda: Files()("b.py"), said=said)


class _Run:
    def __init__(self, task: Task) -> None:
        from pydantic_ai import Agent, ModelRetry, Tool

        def read(path: str) -> str:
            try:
                return task.read(path)
            except FileNotFoundError as error:
                raise ModelRetry(f"no such file: {error}") from error

        self.task = task
        model, self.close = MODELS[task.format](task.url)
        self.agent = Agent(
            model,
            instructions=f"You read files.{task.system}",
            model_settings=SETTINGS.get(task.format) if task.caching else None,
            tools=[Tool(read, description=DESCRIPTION, max_retries=MAX_TURNS)],
            capabilities=[task.adapter] if task.adapter is not None else [],
        )

    def all(self, loop: asyncio.Runner) -> Ran:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        history: list[Any] = []
        texts = []
        try:
            for number, prompt in enumerate(self.task.prompts):
                said = _with_image(prompt, self.task.image) if self.task.image and not number else prompt
                text, history = self.one(said, history, loop)
                texts.append(text)
        finally:
            loop.run(self.close())
        return Ran(texts, _lasting(ModelMessagesTypeAdapter.dump_python(history, mode="json")))

    def one(self, said: Any, history: list[Any], loop: asyncio.Runner) -> tuple[str, list[Any]]:
        from pydantic_ai.usage import UsageLimits

        options = {
            "message_history": history,
            "conversation_id": self.task.conversation,
            "usage_limits": UsageLimits(request_limit=None),
        }
        if self.task.mode == "sync":
            result = self.agent.run_sync(said, **options)
        else:
            streams = {"event_stream_handler": _listen} if self.task.mode == "stream" else {}
            result = loop.run(self.agent.run(said, **options, **streams))
        return result.output, result.all_messages()


async def _listen(_: Any, events: Any) -> None:
    """With a listener every request is a streamed one; `run_stream` would end at the first text beside a call."""
    async for _event in events:
        pass


def compared(framework: PydanticAI, kind: str, returned: Callable[[], Any], **more: Any) -> bool:
    """Whether something is rewritten where a tool returns that again; it expands to what is sent without us."""
    format = "openai-chat" if kind == "fallback" else kind
    sent = [_bodies(kind, returned, adapter, **more) for adapter in (None, framework.adapter(format))]
    for theirs, ours in zip(*sent, strict=True):
        assert ibidem.expand(json.loads(ours), format=format) == json.loads(theirs)
    return any("[ibidem " in body for body in sent[1])


def _bodies(
    kind: str, returned: Callable[[], Any], adapter: Any, stream: bool = False, said: Any = "Look.", **options: Any
) -> list[str]:
    from pydantic_ai import Agent, Tool

    twice = Calls(("look", {}), ("look", {}))
    with Upstream([twice, *([Fails(500)] if kind == "fallback" else []), twice, Says("done")]) as upstream:
        model, close = MODELS[kind](upstream.url)
        tools = [Tool(returned, name="look", description="Looks.")]
        agent = Agent(model, tools=tools, capabilities=[adapter] if adapter else [])

        async def run() -> None:
            await agent.run(said, event_stream_handler=_listen if stream else None, **options)
            await close()

        asyncio.run(run())
        return [seen.text.decode() for seen in upstream.seen]


def _fallback(url: str) -> tuple[Any, Any]:
    """The first model is asked once; the second is there for when that fails."""
    from pydantic_ai.models.fallback import FallbackModel

    (first, close), (second, close_second) = _openai_chat(url, max_retries=0), _openai_chat(url)

    async def close_both() -> None:
        await close()
        await close_second()

    return FallbackModel(first, second), close_both


def _openai_chat(url: str, **options: Any) -> tuple[Any, Any]:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, **options)
    return OpenAIChatModel("gpt-5.4", provider=OpenAIProvider(openai_client=client)), client.close


def _openai_responses(url: str) -> tuple[Any, Any]:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY)
    return OpenAIResponsesModel("gpt-5.4", provider=OpenAIProvider(openai_client=client)), client.close


def _anthropic(url: str) -> tuple[Any, Any]:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(base_url=url, api_key=KEY)
    return AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(anthropic_client=client)), client.close


def _gemini(url: str) -> tuple[Any, Any]:
    from google.genai import Client
    from google.genai.types import HttpOptions, HttpRetryOptions
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    again = HttpRetryOptions(attempts=3, initial_delay=0.01, jitter=0.0, http_status_codes=[429, 503, 529])
    client = Client(api_key=KEY, http_options=HttpOptions(base_url=url, retry_options=again))
    return GoogleModel("gemini-2.5-pro", provider=GoogleProvider(client=client)), client.aio.aclose


MODELS = {
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "fallback": _fallback,
}


SETTINGS: dict[str, Any] = {
    "anthropic": {"cache": True},
    "openai-responses": {"openai_prompt_cache_key": "one", "openai_prompt_cache_retention": "24h"},
}
"""Its own, for the provider's cache."""


def _with_image(prompt: str, image: bytes) -> list[Any]:
    from pydantic_ai import BinaryContent

    return [prompt, BinaryContent(data=image, media_type="image/png")]


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in OURS_TO_IGNORE}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


FRAMEWORK = PydanticAI()
