"""Strands Agents: OpenAI, Anthropic, and Bedrock by boto3."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import ibidem
from ibidem.errors import UsageError
from ibidem.testing import by_turn

from . import bedrock
from .caching import asked_by, marks_refused, sent
from .framework import DESCRIPTION, KEY, Framework, OwnCaching, Ran, Task
from .scenario import PICTURE, SCRIPT, Files


class Strands(Framework):
    name = "strands"
    package = "strands-agents"
    requires = ("strands-agents[anthropic,openai]>=1.62",)
    seam = "agent.add_middleware(InvokeModelStage, …)"
    formats = ("openai-chat", "anthropic", "bedrock")
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching("nothing", "tools 5m, system 5m, last message 5m"),
        "bedrock": OwnCaching("nothing", "tools 5m, system 5m, last message 5m"),
    }
    example = "with_strands.py"
    variables: ClassVar = {"OTEL_SDK_DISABLED": "true", "AWS_EC2_METADATA_DISABLED": "true"}

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.strands import middleware

        return middleware(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.strands import middleware

        return middleware(cache="auto")

    def run(self, task: Task) -> Ran:
        with _model(task) as model, tempfile.TemporaryDirectory() as folder:
            return _run(task, model, folder)

    def read_wire(self, body: Any, format: str) -> tuple[Any, str]:
        return (bedrock.as_anthropic(body), "anthropic") if format == "bedrock" else (body, format)

    def own(self) -> dict[str, Callable[[], None]]:
        return {
            "results of several texts": self._parts,
            "failed results stay": self._failed,
            "marks that are refused": lambda: marks_refused(self, "anthropic", "bedrock"),
            "settings of the model stay": self._settings,
            "at the input, as it is": self._at_input,
            "Converse: nothing is left to do": self._converse,
            "Bedrock checks signatures": bedrock.checks_signatures,
        }

    def _parts(self) -> None:
        for format in self.formats:
            after, before = self._alike(format, self.adapter(format), Parts)
            assert format == "openai-chat" or len(after[-1]) < 0.9 * len(before[-1]), "next to nothing was saved"

    def _failed(self) -> None:
        for format in self.formats:
            after, before = self._alike(format, self.adapter(format), Failing)
            assert after == before

    def _settings(self) -> None:
        """A lifetime is for the model's own settings, and where these ask for something nothing is added."""
        from ibidem.adapters.strands import middleware

        with contextlib.suppress(UsageError):
            middleware(cache="lifetime")
            raise AssertionError("taken")
        requests, _ = sent(self, "bedrock", caching=True, adapter=middleware(cache="auto"))
        theirs, _ = sent(self, "bedrock", caching=True)
        assert asked_by(requests) == asked_by(theirs) != "nothing"

    def _at_input(self) -> None:
        from ibidem.adapters.strands import middleware

        after, before = self._alike("bedrock", AtInput(middleware), Files)
        assert len(after[-1]) < 0.7 * len(before[-1])

    def _converse(self) -> None:
        """A proxy does not know Converse; what it would do with the same in a format that it knows."""
        after, _ = self._alike("bedrock", self.adapter("bedrock"), Files)
        for body in map(bedrock.as_anthropic, map(json.loads, after)):
            assert ibidem.compact(body, format="anthropic").request is body

    def _alike(self, format: str, adapter: Any, files: Callable[[], Any]) -> tuple[list[str], list[str]]:
        """What came with an adapter, which expands to what came without it."""
        from .contract import Contract

        contract, found = Contract(self), []
        for given in (adapter, None):
            task = replace(contract.task(format, adapter=given), read=files())
            seen, (ran,) = contract.sent(format, by_turn(SCRIPT), [task])
            found.append((contract.bodies(seen), ran.history))
        (after, kept), (before, expected) = found
        contract.alike(before, after, format)
        assert kept == expected
        return after, before


class AtInput(NamedTuple):
    """An adapter that is to stand before the call, not around it."""

    middleware: Any


class Failing(Files):
    """A tool that says at length what went wrong, each time the same."""

    def __call__(self, path: str) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return {"status": "error", "content": [{"text": super().__call__(path)}]}
        return "nothing"


class Parts:
    """A tool whose results have several texts, and other things among them."""

    def __init__(self) -> None:
        self._files = Files()
        self._shapes: Iterator[list[Any]] = itertools.cycle(([0, 1], [0, PICTURE, 1], [0, {"a": 1}, 1]))

    def __call__(self, path: str) -> Any:
        text = self._files(path)
        parts = [text[: len(text) // 2], text[len(text) // 2 :]]
        return {"status": "success", "content": [self._part(each, parts) for each in next(self._shapes)]}

    def _part(self, each: Any, parts: list[str]) -> dict[str, Any]:
        if isinstance(each, int):
            return {"text": parts[each]}
        return {"json": each} if isinstance(each, dict) else {"image": {"format": "png", "source": {"bytes": each}}}


@contextlib.contextmanager
def _model(task: Task) -> Iterator[Any]:
    streams = task.mode == "stream"
    match task.format:
        case "openai-chat":
            from strands.models.openai import OpenAIModel

            client = {"base_url": f"{task.url}/v1", "api_key": KEY}
            yield OpenAIModel(client_args=client, model_id="gpt-5.1", stream=streams)
        case "anthropic":
            import httpx
            from strands.models.anthropic import AnthropicModel

            # Strands makes a loop for each sync call; a connection that is kept would belong to one that is closed.
            limits = httpx.Limits(max_keepalive_connections=0)
            client = {"base_url": task.url, "api_key": KEY, "http_client": httpx.AsyncClient(limits=limits)}
            yield AnthropicModel(
                client_args=client, model_id="claude-sonnet-4-6", max_tokens=1000, **_kept(task.caching)
            )
        case _:
            with bedrock.Cloud(task.url) as cloud:
                yield _bedrock(cloud.url, streams, task.caching)


def _bedrock(url: str, streams: bool, caching: bool) -> Any:
    import boto3
    from strands.models.bedrock import BedrockModel

    session = boto3.Session(bedrock.ACCESS_KEY, bedrock.SECRET_KEY, region_name=bedrock.REGION)
    own = {"model_id": bedrock.MODEL, "streaming": streams, **_kept(caching)}
    return BedrockModel(boto_session=session, endpoint_url=url, **own)


def _kept(caching: bool) -> dict[str, Any]:
    from strands.models.model import CacheConfig

    return {"cache_config": CacheConfig(system_prompt_ttl=True, tools_ttl=True)} if caching else {}


def _run(task: Task, model: Any, folder: str) -> Ran:
    from strands import Agent, tool
    from strands.agent import NullConversationManager
    from strands.middleware import InvokeModelStage
    from strands.session.file_session_manager import FileSessionManager

    @tool(name="read", description=DESCRIPTION)
    def read(path: str) -> str:
        return task.read(path)

    sessions = FileSessionManager(task.conversation, storage_dir=folder)
    agent = Agent(
        model=model,
        tools=[read],
        system_prompt=f"You are careful.{task.system}",
        callback_handler=None,
        conversation_manager=NullConversationManager(),
        session_manager=sessions,
        agent_id="agent",
    )
    if isinstance(task.adapter, AtInput):
        agent.add_middleware(InvokeModelStage.Input, task.adapter.middleware)
    elif task.adapter is not None:
        agent.add_middleware(InvokeModelStage, task.adapter)
    asked = [_said(task, prompt, first=number == 0) for number, prompt in enumerate(task.prompts)]
    answers = [agent(said) for said in asked] if task.mode == "sync" else asyncio.run(_ask(agent, task, asked))
    stored = [message.to_message() for message in sessions.list_messages(task.conversation, "agent")]
    return Ran([str(answer).strip() for answer in answers], _plain([agent.messages, stored]))


def _said(task: Task, prompt: str, first: bool) -> list[Any]:
    shown = [{"image": {"format": "png", "source": {"bytes": task.image}}}] if first and task.image is not None else []
    return [{"text": prompt}, *shown]


async def _ask(agent: Any, task: Task, asked: list[Any]) -> list[Any]:
    answers = []
    for said in asked:
        if task.mode == "async":
            answers.append(await agent.invoke_async(said))
        else:
            answers += [event["result"] async for event in agent.stream_async(said) if "result" in event]
    return answers


def _plain(value: Any) -> Any:
    """JSON values, without what differs from run to run: times, counts, random ids."""
    if isinstance(value, dict):
        return {key: _plain(inside) for key, inside in value.items() if key not in ("metadata", "tracking_id")}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


FRAMEWORK = Strands()
