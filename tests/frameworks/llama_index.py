"""LlamaIndex: a function agent with a context and a memory, over its Chat Completions and Responses models."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any, ClassVar

import ibidem
from ibidem.testing import Upstream, by_turn

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task
from .scenario import PICTURE, PROMPTS, SCRIPT, Files

WINDOW = 100_000_000
"""Tokens that the memory may have: it drops old messages above, and a long run is to be seen whole."""


class LlamaIndex(Framework):
    name: ClassVar[str] = "llama_index"
    package: ClassVar[str] = "llama-index-core"
    requires: ClassVar[tuple[str, ...]] = ("llama-index-core", "llama-index-llms-openai")
    seam: ClassVar[str] = "FunctionAgent subclass (private methods)"
    formats: ClassVar[tuple[str, ...]] = ("openai-chat", "openai-responses")
    modes: ClassVar[tuple[str, ...]] = ("async", "stream")
    caching: ClassVar[dict[str, OwnCaching]] = {
        format: OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h") for format in formats
    }
    example: ClassVar[str] = "with_llama_index.py"

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.llama_index import IbidemAgent

        return lambda **agent: IbidemAgent(profile=profile, **agent)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.llama_index import IbidemAgent

        return IbidemAgent(llm=_model(Task("", format, "async", (), Files()), None), cache="auto")

    def run(self, task: Task) -> Ran:
        return asyncio.run(_run(task))

    def own(self) -> dict[str, Callable[[], None]]:
        return {
            "one agent serves contexts at the same time": lambda: asyncio.run(_at_once(self)),
            "results of several parts expand": self._parts,
        }

    def _parts(self) -> None:
        from llama_index.core.llms import ImageBlock, TextBlock

        text = Files()("b.py")
        picture = ImageBlock(image=base64.b64encode(PICTURE), image_mimetype="image/png")
        for parts in ([text, picture, text[:3000]], [text, "", text]):
            told = [TextBlock(text=each) if isinstance(each, str) else each for each in parts]
            for format in self.formats:
                sent = []
                for adapter in (None, self.adapter(format)):
                    with Upstream(SCRIPT) as upstream:
                        self.run(Task(upstream.url, format, "async", PROMPTS, lambda path, told=told: told, adapter))  # type: ignore[misc]
                        sent.append([seen.json for seen in upstream.seen])
                assert len(str(sent[1][-1])) < 0.7 * len(str(sent[0][-1]))
                assert [ibidem.expand(each, format=format) for each in sent[1]] == sent[0]


async def _at_once(framework: LlamaIndex) -> None:
    """Each conversation is as it would be alone, though all go through one object."""
    import httpx
    from llama_index.core.workflow import Context

    from .contract import renumbered

    async def sent(owners: tuple[str, ...]) -> list[str]:
        with Upstream(by_turn(SCRIPT)) as upstream:
            async with httpx.AsyncClient() as client:
                adapter = framework.adapter("openai-chat")
                task = Task(upstream.url, "openai-chat", "stream", (), lambda path: Files()(path), adapter)
                agent = _agent(task, _model(task, client))
                runs = [agent.run(user_msg=f"I am {owner}.", ctx=Context(agent), max_iterations=99) for owner in owners]
                await asyncio.gather(*runs)
            return sorted(renumbered(seen.text.decode()) for seen in upstream.seen if "I am one." in str(seen.body))

    alone = await sent(("one",))
    assert "[ibidem " in str(alone)
    assert await sent(("one", "two", "three")) == alone


async def _run(task: Task) -> Ran:
    import httpx

    async with httpx.AsyncClient() as client:
        return await _converse(task, _model(task, client))


async def _converse(task: Task, model: Any) -> Ran:
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.core.workflow import Context

    agent = _agent(task, model)
    context, memory = Context(agent), ChatMemoryBuffer(token_limit=WINDOW)
    texts = []
    for number, prompt in enumerate(task.prompts):
        said = _message(prompt, None if number else task.image)
        handler = agent.run(user_msg=said, ctx=context, memory=memory, max_iterations=MAX_TURNS)
        async for _ in handler.stream_events():
            pass
        texts.append((await handler).response.content)
    return Ran(texts, {"memory": _plain(memory.get_all()), "context": context.to_dict()["state"]})


def _agent(task: Task, model: Any) -> Any:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.tools import FunctionTool

    async def read(path: str) -> Any:
        return task.read(path)

    return (task.adapter or FunctionAgent)(
        name="agent",
        system_prompt=f"You are careful.{task.system}",
        tools=[FunctionTool.from_defaults(async_fn=read, name="read", description=DESCRIPTION)],
        llm=model,
        streaming=task.mode == "stream",
    )


def _model(task: Task, client: Any) -> Any:
    from llama_index.llms.openai import OpenAI, OpenAIResponses

    kind = OpenAIResponses if task.format == "openai-responses" else OpenAI
    kept = {"prompt_cache_key": task.conversation, "prompt_cache_retention": "24h"}
    settings: Any = {"additional_kwargs": kept} if task.caching else {}
    return kind(model="gpt-4.1", api_base=f"{task.url}/v1", api_key=KEY, async_http_client=client, **settings)


def _message(prompt: str, image: bytes | None) -> Any:
    from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock

    blocks: list[Any] = [TextBlock(text=prompt)]
    if image:
        blocks.append(ImageBlock(image=base64.b64encode(image), image_mimetype="image/png"))
    return ChatMessage(role="user", blocks=blocks)


def _plain(messages: list[Any]) -> Any:
    return json.loads(json.dumps([message.model_dump(mode="json") for message in messages], default=str))


FRAMEWORK = LlamaIndex()
