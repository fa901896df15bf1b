"""Google's Agent Development Kit: Gemini, with a session service that keeps what was said."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

from ibidem.testing import Answer, Fails, Thinks, Upstream, by_turn

from .caching import RULES
from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task
from .scenario import PROMPTS, SCRIPT, Files

APP, USER = "app", "somebody"
RANDOM = ("id", "invocation_id", "timestamp", "usage_metadata", "avg_logprobs", "response_id")
"""Of an event: what differs from run to run, or with what was sent."""


class GoogleADK(Framework):
    name = "google_adk"
    package = "google-adk"
    requires = ("google-adk>=2.13", "anthropic")
    seam = "App(plugins=[…]): before_model_callback"
    formats = ("gemini",)
    caching: ClassVar[dict[str, OwnCaching]] = (
        {"anthropic": OwnCaching("nothing", "tools 5m, system 5m, last message 5m")} if find_spec("anthropic") else {}
    )
    """Of its own class for Claude, which our plugin leaves alone; for Gemini see `resource`."""
    example = "with_google_adk.py"
    variables: ClassVar = {"OTEL_SDK_DISABLED": "true", "ADK_DISABLE_TELEMETRY": "1"}

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.google_adk import IbidemPlugin

        return IbidemPlugin(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.google_adk import IbidemPlugin

        return IbidemPlugin(cache="auto")

    def run(self, task: Task) -> Ran:
        runner = _runner(task)
        make = runner.session_service.create_session(app_name=APP, user_id=USER, session_id=task.conversation)
        asyncio.run(make)
        texts = [_asked(runner, task, said) for said in _said(task)]
        kept = runner.session_service.get_session(app_name=APP, user_id=USER, session_id=task.conversation)
        events = asyncio.run(kept).events
        return Ran(texts, [event.model_dump(mode="json", exclude=set(RANDOM), exclude_none=True) for event in events])

    def own(self) -> dict[str, Callable[[], None]]:
        return {
            "thoughts and their signatures stay": lambda: self._alike(self.adapter("gemini"), Files(), THOUGHTFUL),
            "results of several texts": lambda: self._alike(self.adapter("gemini"), Parts(), SCRIPT),
            "as a callback of the agent": lambda: self._alike(OfAgent(self.adapter("gemini")), Files(), SCRIPT),
            "other models are left alone": others,
            "requests that fail are forgotten": forgotten,
            "arguments and texts are changed in copies": copies,
            "its own caching makes a resource that Gemini keeps": resource,
        }

    def _alike(self, adapter: Any, read: Any, script: Sequence[Answer]) -> None:
        """What came with an adapter expands to what came without it."""
        from .contract import Contract

        contract, found = Contract(self), []
        for given in (adapter, None):
            task = replace(contract.task("gemini", adapter=given), read=copy.deepcopy(read))
            seen, (ran,) = contract.sent("gemini", by_turn(script), [task])
            found.append((contract.bodies(seen), ran.history))
        (after, kept), (before, expected) = found
        contract.alike(before, after, "gemini")
        contract.stable(after, "gemini")
        assert kept == expected
        assert len(after[-1]) < 0.7 * len(before[-1]), "next to nothing was saved"


THOUGHTFUL = [Thinks("Let me see.", then=answer) for answer in SCRIPT]


class OfAgent(NamedTuple):
    """A plugin that is to be called by the agent, not by the app."""

    plugin: Any


class Parts(Files):
    """Results as tools of MCP give them, with something among them that is no text."""

    def __call__(self, path: str) -> Any:
        lines = super().__call__(path).splitlines(keepends=True)
        texts = ["".join(lines[:50]), "".join(lines[50:])]
        return {"content": [{"type": "text", "text": text} for text in texts], "isError": False, "path": path}


def others() -> None:
    """Of requests for other models, and of those that go on from what a server keeps, nothing is touched."""
    from google.adk.models import LlmRequest
    from google.genai import types

    text = Files()("a.py")
    part = types.Part.from_function_response(name="read", response={"result": text})
    asked = [LlmRequest(model=name) for name in ("openai/gpt-5.1", "gemini/gemini-3-pro", "claude-sonnet-4-6", None)]
    asked.append(LlmRequest(model="gemini-3-pro-preview", previous_interaction_id="one"))
    for request in asked:
        contents = [types.Content(role="user", parts=[part]), types.Content(role="user", parts=[part])]
        request.contents = contents
        asyncio.run(FRAMEWORK.adapter("gemini").before_model_callback(callback_context=None, llm_request=request))
        assert request.contents is contents


def forgotten() -> None:
    """A long history is not held for an answer that never comes."""
    plugin = FRAMEWORK.adapter("gemini")
    with Upstream(by_turn([*SCRIPT[:3], Fails(400)])) as upstream:
        with contextlib.suppress(Exception):
            FRAMEWORK.run(Task(upstream.url, "gemini", "async", ("Look",), Files(), plugin))
        assert len(upstream.seen) == 4
    gc.collect()
    assert not plugin._under_way


def resource() -> None:
    """From the second request on, for half an hour, with tools and system; the scripted provider has no such thing."""
    with Upstream(by_turn(SCRIPT)) as upstream:
        FRAMEWORK.run(Task(upstream.url, "gemini", "sync", PROMPTS, Files(), system=RULES, caching=True))
        paths = [seen.path.rpartition("/")[2] for seen in upstream.seen]
        made = next(seen.json for seen in upstream.seen if seen.path.endswith("cachedContents"))
    assert paths.index("cachedContents") == 1, paths
    assert made["ttl"] == "1800s", made["ttl"]
    assert {"tools", "systemInstruction"} <= made.keys()


def copies() -> None:
    """What profiles that look back change beside results: written back, and what was given stays."""
    from google.genai import types

    from ibidem.adapters.google_adk import _changed_contents, _wire_part

    call = types.Part(function_call=types.FunctionCall(name="read", args={"path": "a.py"}), thought_signature=b"kept")
    content = types.Content(role="model", parts=[types.Part(text="long"), call, types.Part(text="hm", thought=True)])
    given = content.model_copy(deep=True)
    before = [{"role": "model", "parts": [_wire_part(part) for part in content.parts or ()]}]
    new = {"functionCall": {"name": "read", "args": {"path": "…"}}, "thoughtSignature": "signed"}
    after = [{"role": "model", "parts": [{"text": "short"}, new, before[0]["parts"][2]]}]
    (changed,) = _changed_contents([content], before, after)
    text, made, thought = changed.parts
    assert (text.text, made.function_call.args, made.thought_signature) == ("short", {"path": "…"}, b"kept")
    assert content.parts is not None
    assert thought is content.parts[2]
    assert content == given


def _runner(task: Task) -> Any:
    from google.adk.agents import LlmAgent
    from google.adk.agents.context_cache_config import ContextCacheConfig
    from google.adk.apps import App
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService

    def read(path: str) -> str:
        return task.read(path)

    read.__doc__ = DESCRIPTION
    by_agent = isinstance(task.adapter, OfAgent)
    agent = LlmAgent(
        name="agent",
        model=_claude(task.url) if task.format == "anthropic" else _gemini(task.url),
        instruction=f"You are careful.{task.system}",
        tools=[read],
        on_tool_error_callback=lambda tool, args, tool_context, error: {"error": str(error)},
        before_model_callback=[task.adapter.plugin.before_model_callback] if by_agent else None,
        after_model_callback=[task.adapter.plugin.after_model_callback] if by_agent else None,
    )
    app = App(
        name=APP,
        root_agent=agent,
        plugins=[] if task.adapter is None or by_agent else [task.adapter],
        context_cache_config=ContextCacheConfig() if task.caching else None,
    )
    return Runner(app=app, session_service=InMemorySessionService())


def _gemini(url: str) -> Any:
    from google.adk.models import Gemini
    from google.genai import types

    return Gemini(
        model="gemini-3-pro-preview",
        client_kwargs={"api_key": KEY, "vertexai": False},
        base_url=url,
        retry_options=types.HttpRetryOptions(attempts=3, initial_delay=0.1),
    )


def _claude(url: str) -> Any:
    from anthropic import AsyncAnthropic
    from google.adk.models.anthropic_llm import AnthropicLlm

    # Each prompt has a loop of its own here, and a connection belongs to one.
    client = AsyncAnthropic(base_url=url, api_key=KEY, default_headers={"connection": "close"})
    return AnthropicLlm(model="claude-sonnet-4-5", client=client)


def _said(task: Task) -> list[Any]:
    from google.genai import types

    said = [[types.Part(text=prompt)] for prompt in task.prompts]
    if task.image is not None:
        said[0].append(types.Part.from_bytes(data=task.image, mime_type="image/png"))
    return [types.Content(role="user", parts=parts) for parts in said]


def _asked(runner: Any, task: Task, said: Any) -> str:
    from google.adk.agents.run_config import RunConfig, StreamingMode

    mode = StreamingMode.SSE if task.mode == "stream" else StreamingMode.NONE
    config = RunConfig(streaming_mode=mode, max_llm_calls=MAX_TURNS)
    asked = {"user_id": USER, "session_id": task.conversation, "new_message": said, "run_config": config}
    events = list(runner.run(**asked)) if task.mode == "sync" else asyncio.run(_events(runner, asked))
    return "".join(part.text or "" for part in events[-1].content.parts)


async def _events(runner: Any, asked: dict[str, Any]) -> list[Any]:
    return [event async for event in runner.run_async(**asked)]


FRAMEWORK = GoogleADK()
