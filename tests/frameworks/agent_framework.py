"""Microsoft Agent Framework: an agent with a session, over the Chat Completions client and the Responses client."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, ClassVar

import ibidem
from ibidem.testing import Upstream

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task
from .scenario import PICTURE, PROMPTS, SCRIPT, Files

RANDOM_ID = re.compile("^af-call-[0-9a-f]{32}$")


class AgentFramework(Framework):
    name: ClassVar[str] = "agent_framework"
    package: ClassVar[str] = "agent-framework-core"
    requires: ClassVar[tuple[str, ...]] = ("agent-framework-core", "agent-framework-openai")
    seam: ClassVar[str] = "ChatMiddleware.process"
    formats: ClassVar[tuple[str, ...]] = ("openai-chat", "openai-responses")
    modes: ClassVar[tuple[str, ...]] = ("async", "stream")
    caching: ClassVar[dict[str, OwnCaching]] = {
        format: OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h", grows=False) for format in formats
    }
    """What a run has said is written in another way in the next one: with the agent's name, and other ids of calls."""
    example: ClassVar[str] = "with_agent_framework.py"
    variables: ClassVar[dict[str, str]] = {
        "AGENT_FRAMEWORK_USER_AGENT_DISABLED": "true",
        "ENABLE_INSTRUMENTATION": "false",
    }

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.agent_framework import IbidemChatMiddleware

        return IbidemChatMiddleware(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.agent_framework import IbidemChatMiddleware

        return IbidemChatMiddleware(cache="auto")

    def run(self, task: Task) -> Ran:
        # A provider that stores keeps the history itself, and a request has new items only.
        kept = {"prompt_cache_key": task.conversation, "prompt_cache_retention": "24h"}
        return asyncio.run(_run(task, {}, {"store": False, **(kept if task.caching else {})}))

    def same(self, body: Any) -> Any:
        """Without the agent's name and the ids of calls, which change between two prompts, with us or without."""
        key = "messages" if "messages" in body else "input"
        return {**body, key: [_nameless(each) for each in body[key]]}

    def own(self) -> dict[str, Callable[[], None]]:
        return {
            "a client that compacts is left alone": self._compacts,
            "a history that the provider keeps is left alone": self._stored,
            "results of several parts expand": self._parts,
        }

    def _compacts(self) -> None:
        from agent_framework import SlidingWindowStrategy

        for format in self.formats:
            sent = self._sent(format, Files, agent={"compaction_strategy": SlidingWindowStrategy(keep_last_groups=3)})
            assert sent[0] == sent[1]

    def _stored(self) -> None:
        sent = self._sent("openai-responses", Files, options={})
        assert sent[0] == sent[1]
        assert "previous_response_id" in sent[0][1], sent[0][1].keys()

    def _parts(self) -> None:
        from agent_framework import Content

        text = Files()("b.py")
        shown = Content.from_data(PICTURE, "image/png")
        for parts in ([text, shown, text[:3000]], [text, "", text]):
            told = [Content.from_text(each) if isinstance(each, str) else each for each in parts]
            for format in self.formats:
                bare, ours = self._sent(format, lambda told=told: lambda path: told)  # type: ignore[misc]
                assert len(str(ours[-1])) < 0.7 * len(str(bare[-1]))
                assert [ibidem.expand(each, format=format) for each in ours] == bare

    def _sent(
        self, format: str, files: Callable[[], Any], agent: Any = None, options: Any = None
    ) -> tuple[list[Any], list[Any]]:
        """What came to the provider, without us and with us."""
        found = []
        for adapter in (None, self.adapter(format)):
            with Upstream(SCRIPT) as upstream:
                task = Task(upstream.url, format, "async", PROMPTS, files(), adapter)
                asyncio.run(_run(task, agent or {}, {"store": False} if options is None else options))
                found.append([seen.json for seen in upstream.seen])
        return found[0], found[1]


def _nameless(item: Any) -> Any:
    left_out = "name" if item.get("role") == "assistant" else "id" if item.get("type") == "function_call" else ""
    return {key: value for key, value in item.items() if key != left_out}


async def _run(task: Task, more: Any, options: Any) -> Ran:
    from agent_framework import Agent, Content, FunctionTool, Message
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=f"{task.url}/v1", api_key=KEY) as sdk:
        tool = FunctionTool(name="read", description=DESCRIPTION, func=_read(task))
        agent = Agent(
            _client(task.format, sdk),
            f"You are careful.{task.system}",
            id="agent",
            tools=[tool],
            default_options=options,
            **more,
            middleware=[task.adapter] if task.adapter else None,
        )
        session = agent.create_session(session_id=task.conversation)
        texts = []
        for number, prompt in enumerate(task.prompts):
            said: list[Any] = [prompt]
            if task.image and not number:
                said.append(Content.from_data(task.image, "image/png"))
            asked = Message("user", said)
            if task.mode == "stream":
                stream = agent.run(asked, session=session, stream=True)
                async for _ in stream:
                    pass
                answer = await stream.get_final_response()
            else:
                answer = await agent.run(asked, session=session)
            texts.append(answer.messages[-1].text)
        return Ran(texts, _without_random_ids(session.to_dict()))


def _without_random_ids(value: Any) -> Any:
    """The framework gives each call an id of its own, which never leaves the process."""
    if isinstance(value, dict):
        return {
            key: RANDOM_ID.sub("id", each) if isinstance(each, str) else _without_random_ids(each)
            for key, each in value.items()
        }
    return [_without_random_ids(each) for each in value] if isinstance(value, list) else value


def _client(format: str, sdk: Any) -> Any:
    from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

    kind = OpenAIChatClient if format == "openai-responses" else OpenAIChatCompletionClient
    limits = {"max_iterations": MAX_TURNS, "max_consecutive_errors_per_request": MAX_TURNS}
    return kind("gpt-5", async_client=sdk, function_invocation_configuration=limits)


def _read(task: Task) -> Any:
    def read(path: str) -> Any:
        return task.read(path)

    return read


FRAMEWORK = AgentFramework()
