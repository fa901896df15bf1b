"""OpenAI Agents SDK: the Runner with a session in memory, over both of OpenAI's wires."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any, ClassVar

import ibidem
from ibidem.testing import Calls, Says, Upstream, by_turn

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task
from .scenario import PROMPTS, SCRIPT, Files

MODEL = "gpt-5.4"
AS_OPENAI = "at the provider's own address"
"""A conversation whose client believes that it speaks to OpenAI."""


class OpenAIAgents(Framework):
    name: ClassVar[str] = "openai_agents"
    package: ClassVar[str] = "openai-agents"
    requires: ClassVar[tuple[str, ...]] = ("openai-agents",)
    seam: ClassVar[str] = "RunConfig.call_model_input_filter"
    formats: ClassVar[tuple[str, ...]] = ("openai-chat", "openai-responses")
    caching: ClassVar[dict[str, OwnCaching]] = {
        format: OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h") for format in formats
    }
    """The key comes by itself where the address is OpenAI's own (`key_for_openai`)."""
    example: ClassVar[str] = "with_openai_agents.py"
    variables: ClassVar[dict[str, str]] = {"OPENAI_AGENTS_DISABLE_TRACING": "1"}

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.openai_agents import input_filter

        return input_filter(profile=profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.openai_agents import input_filter

        return input_filter(cache="auto")

    def own(self) -> dict[str, Callable[[], None]]:
        return {
            "the bare function is a filter": self.bare_function,
            "another filter comes first": self.after_another,
            "what the provider keeps stays": self.kept_by_provider,
            "a handoff that leaves a summary": self.handed_off,
            "OpenAI itself is told a key of the session": self.key_for_openai,
        }

    def key_for_openai(self) -> None:
        """The SDK does so by the address alone."""
        for format in self.formats:
            with self.provider(format, by_turn(SCRIPT)) as upstream:
                self.run(Task(upstream.url, format, "sync", PROMPTS, Files(), conversation=AS_OPENAI))
                keys = {seen.json["prompt_cache_key"] for seen in upstream.seen}
            assert len(keys) == 1, keys

    def bare_function(self) -> None:
        from ibidem.adapters.openai_agents import input_filter

        assert "[ibidem " in self.bodies(input_filter)[-1]

    def after_another(self) -> None:
        """What the SDK's own trimmer leaves is rewritten, and expands to just that."""
        from agents.extensions import ToolOutputTrimmer

        from ibidem.adapters.openai_agents import input_filter

        trimmer = ToolOutputTrimmer(recent_turns=1)
        alone, both = self.bodies(trimmer), self.bodies(input_filter(after=trimmer))
        assert any("[ibidem " in each for each in both)
        assert "[Trimmed" in both[-1]
        for theirs, ours in zip(alone, both, strict=True):
            assert ibidem.expand(json.loads(ours), format="openai-responses") == json.loads(theirs)

    def kept_by_provider(self) -> None:
        """A request with new items alone: its first result is not the first that the model knows."""
        bodies = self.bodies(self.adapter("openai-responses"), script=SCRIPT, auto_previous_response_id=True)
        assert "previous_response_id" in bodies[-1]
        assert not any("[ibidem " in each for each in bodies)

    def handed_off(self) -> None:
        """Without a word of the user, what markers go by is another text on each wire."""
        sent = [_handed_off(adapter) for adapter in (None, self.adapter("openai-chat"))]
        for theirs, ours in zip(*sent, strict=True):
            assert ibidem.expand(ours, format="openai-chat") == theirs
        assert not any(message["role"] == "user" for message in sent[0][-1]["messages"])

    def bodies(self, chosen: Any, script: Any = None, **options: Any) -> list[str]:
        """What is sent with a filter."""
        with self.provider("openai-responses", script or by_turn(SCRIPT)) as upstream:
            self.run(Task(upstream.url, "openai-responses", "sync", PROMPTS, Files(), chosen), **options)
            return [seen.text.decode() for seen in upstream.seen]

    def run(self, task: Task, **options: Any) -> Ran:
        from agents import SQLiteSession

        with closing(SQLiteSession(task.conversation)) as session, asyncio.Runner() as loop:
            # The SDK's synchronous call takes the event loop of its thread, and connections belong to one loop.
            asyncio.set_event_loop(loop.get_loop())
            options = options or {"session": session}  # it has either: what the provider keeps is in no session
            try:
                return _Run(task, session, options).all(loop)
            finally:
                asyncio.set_event_loop(None)


class _Run:
    def __init__(self, task: Task, session: Any, options: dict[str, Any]) -> None:
        from agents import (
            Agent,
            ModelSettings,
            OpenAIChatCompletionsModel,
            OpenAIResponsesModel,
            RunConfig,
            function_tool,
        )

        def read(path: str) -> str:
            return task.read(path)

        self.task, self.session, self.options = task, session, options
        self.client = _as_openai(task.url) if task.conversation == AS_OPENAI else _openai(task.url)
        model = {"openai-chat": OpenAIChatCompletionsModel, "openai-responses": OpenAIResponsesModel}[task.format]
        self.agent = Agent(
            name="reader",
            instructions=f"You read files.{task.system}",
            model=model(MODEL, openai_client=self.client),
            model_settings=_caching(task) if task.caching else ModelSettings(),
            tools=[function_tool(read, description_override=DESCRIPTION)],
        )
        self.hooks = _hooks() if task.adapter is not None else None
        self.config = RunConfig(call_model_input_filter=task.adapter, tracing_disabled=True)

    def all(self, loop: asyncio.Runner) -> Ran:
        results = []
        try:
            for number, prompt in enumerate(self.task.prompts):
                said = _with_image(prompt, self.task.image) if self.task.image and not number else prompt
                results.append(self.one(said, loop))
            kept = loop.run(self.session.get_items())
        finally:
            loop.run(self.client.close())
        texts = [str(result.final_output) for result in results]
        return Ran(texts, {"session": kept, "results": [result.to_input_list() for result in results]})

    def one(self, said: Any, loop: asyncio.Runner) -> Any:
        from agents import Runner

        options = {"run_config": self.config, "hooks": self.hooks, "max_turns": MAX_TURNS, **self.options}
        if self.task.mode == "sync":
            return Runner.run_sync(self.agent, said, **options)
        if self.task.mode == "async":
            return loop.run(Runner.run(self.agent, said, **options))
        return loop.run(self.stream(said, options))

    async def stream(self, said: Any, options: dict[str, Any]) -> Any:
        from agents import Runner

        result = Runner.run_streamed(self.agent, said, **options)
        async for _ in result.stream_events():
            pass
        return result


def _handed_off(adapter: Any) -> list[Any]:
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
    from openai import AsyncOpenAI

    def read(path: str) -> str:
        return Files()(path)

    async def run(url: str) -> None:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
            model = OpenAIChatCompletionsModel(MODEL, openai_client=client)
            reader = Agent(name="reader", instructions="You read files.", model=model, tools=[function_tool(read)])
            first = Agent(name="first", model=model, handoffs=[reader])
            config = RunConfig(call_model_input_filter=adapter, tracing_disabled=True, nest_handoff_history=True)
            await Runner.run(first, "Look.", run_config=config)

    reads = Calls(("read", {"path": "b.py"}))
    with Upstream([Calls(("transfer_to_reader", {})), reads, reads, Says("done")]) as upstream:
        asyncio.run(run(upstream.url))
        return [seen.json for seen in upstream.seen]


def _openai(url: str) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY)


def _as_openai(url: str) -> Any:
    """A client with OpenAI's own address, whose requests all go to this one."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    host, port = url.removeprefix("http://").split(":")

    async def divert(request: Any) -> None:
        request.url = request.url.copy_with(scheme="http", host=host, port=int(port))

    return AsyncOpenAI(api_key=KEY, http_client=DefaultAsyncHttpxClient(event_hooks={"request": [divert]}))


def _caching(task: Task) -> Any:
    """The SDK's own settings."""
    from agents import ModelSettings

    return ModelSettings(prompt_cache_retention="24h", extra_args={"prompt_cache_key": task.conversation})


def _hooks() -> Any:
    from ibidem.adapters.openai_agents import UsageHooks

    return UsageHooks()


def _with_image(prompt: str, image: bytes) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    picture = {"type": "input_image", "image_url": url, "detail": "auto"}
    return [{"role": "user", "content": [{"type": "input_text", "text": prompt}, picture]}]


FRAMEWORK = OpenAIAgents()
