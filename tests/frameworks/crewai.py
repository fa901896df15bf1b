"""CrewAI: an agent of its own, without a crew around it, which may go on from the messages that it gave back."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import ibidem
from ibidem.testing import Calls, Fails, Says, Seen, Upstream, by_turn

from .framework import DESCRIPTION, KEY, MAX_TURNS, Framework, OwnCaching, Ran, Task

MODELS = {
    "anthropic": "anthropic/claude-sonnet-4-5",
    "openai-chat": "openai/gpt-4.1",
    "openai-responses": "openai/gpt-4.1",
}
PROMPT_MARKED = "system 5m, earlier message 5m or system 5m, last message 5m"
"""The newest prompt, wherever it stands; what comes behind it is not."""


class CrewAI(Framework):
    name = "crewai"
    package = "crewai"
    requires = ("crewai[anthropic]>=1.15",)
    seam = "LLM(interceptor=…)"
    formats = ("openai-chat", "openai-responses", "anthropic")
    images = False
    caching: ClassVar[dict[str, OwnCaching]] = {"anthropic": OwnCaching(PROMPT_MARKED, PROMPT_MARKED, grows=False)}
    left_out: ClassVar[dict[str, str]] = {
        "openai-responses stream": "CrewAI leaves out the calls of an answer that is streamed over the Responses API"
    }
    example = "with_crewai.py"
    variables: ClassVar[dict[str, str]] = {
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_DISABLE_TRACKING": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "CREWAI_DISABLE_VERSION_CHECK": "true",
        "CREWAI_STORAGE_DIR": os.path.join(tempfile.gettempdir(), "crewai"),
        "OTEL_SDK_DISABLED": "true",
    }

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.crewai import IbidemInterceptor

        return IbidemInterceptor(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.crewai import IbidemInterceptor

        return IbidemInterceptor(cache="auto")

    def is_request(self, seen: Seen) -> bool:
        """It also asks how many tokens a result or a request has."""
        return super().is_request(seen) and not seen.path.endswith("/count_tokens")

    def same(self, body: Any) -> Any:
        """The newest prompt for Anthropic is a block with a mark for the cache, older ones are mere texts."""
        return {**body, "messages": [_as_text(each) for each in body["messages"]]} if "messages" in body else body

    def own(self) -> dict[str, Callable[[], None]]:
        return {"calls without an agent": self._direct, "copies and crews": self._crew, "refusals": self._refused}

    def _refused(self) -> None:
        """What a provider refuses is not sent to it again."""

        async def twice(call: Callable[[Any], Any]) -> Any:
            found: Any = None
            for _ in range(2):
                with suppress(Exception):
                    found = call(_history())
                    found = await found if inspect.isawaitable(found) else found
            return found

        for name in ("call", "acall"):
            with Upstream(lambda seen: Fails(400) if b"[ibidem " in seen.text else Says("done")) as upstream:
                llm = _llm(Task(upstream.url, "openai-chat", "sync", (), str, self.adapter("openai-chat")))
                assert asyncio.run(twice(getattr(llm, name))) == "done"
                assert [b"[ibidem " in seen.text for seen in upstream.seen] == [True, False], name

    def _direct(self) -> None:
        """Agents call a model in threads; who awaits `acall` has the async client, with and without streams."""
        from ibidem.adapters.crewai import IbidemInterceptor

        for format in self.formats:
            for mode in ("sync", "stream"):
                told: list[Any] = []
                adapter = IbidemInterceptor(on_usage=told.append)
                with Upstream([Says("done")]) as upstream:
                    llm = _llm(Task(upstream.url, format, mode, (), str, adapter))
                    assert asyncio.run(llm.acall(_history())) == "done"
                    body = upstream.seen[-1].text
                whole = json.dumps(ibidem.expand(json.loads(body), format=format))
                assert whole.count(json.dumps(CODE)) == 2, (format, mode)
                assert len(body) < 0.7 * len(whole), (format, mode)
                assert [each.format for each in told] == [format], (format, mode)

    def _crew(self) -> None:
        """A crew for each of several inputs, which CrewAI copies, with all of its agents, for each of them."""
        from crewai import Crew
        from crewai import Task as Work

        adapter = self.adapter("openai-chat")
        with Upstream(by_turn([Calls(("read", {"path": "a"}))] * 2 + [Says("done")])) as upstream:
            agent = _agent(Task(upstream.url, "openai-chat", "sync", (), lambda path: CODE, adapter))
            work = Work(description="Look at {it}.", expected_output="A word.", agent=agent)
            crew = Crew(agents=[agent], tasks=[work], memory=False)
            assert [str(each) for each in crew.kickoff_for_each([{"it": "one"}, {"it": "two"}])] == ["done"] * 2
            bodies = [each.json for each in upstream.seen]
        assert len(bodies) == 6
        for body in (bodies[2], bodies[5]):
            whole = ibidem.expand(body, format="openai-chat")
            assert [each["content"] for each in whole["messages"] if each["role"] == "tool"] == [CODE] * 2
            assert "[ibidem " in json.dumps(body)

    def run(self, task: Task) -> Ran:
        agent = _agent(task)
        messages: list[Any] = []
        texts = []
        for prompt in task.prompts:
            messages.append({"role": "user", "content": prompt})
            output = asyncio.run(agent.akickoff(messages)) if task.mode == "async" else agent.kickoff(messages)
            messages = [message for message in output.messages if message["role"] != "system"]
            texts.append(output.raw)
        return Ran(texts, messages)


CODE = "\n".join(f"def function_{number}(): return {number * 7919 % 1000}" for number in range(90))


def _history() -> list[Any]:
    history: list[Any] = [{"role": "user", "content": "go"}]
    for number in "12":
        function = {"name": "read", "arguments": '{"path": "a.py"}'}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"call_{number}", "name": "read", "content": CODE})
    return history


def _as_text(message: Any) -> Any:
    content = message["content"]
    is_one = isinstance(content, list) and len(content) == 1 and content[0]["type"] == "text"
    return {**message, "content": content[0]["text"]} if is_one else message


def _agent(task: Task) -> Any:
    from crewai import Agent

    return Agent(
        role="reader",
        goal="to read files",
        backstory=f"It reads.{task.system}",
        llm=_llm(task),
        tools=[_tool(task)],
        max_iter=MAX_TURNS,
    )


def _llm(task: Task) -> Any:
    """It shows neither its steps nor how it counts tokens: what is printed is for the contract."""
    from crewai import LLM
    from crewai.events.utils.console_formatter import set_suppress_console_output

    set_suppress_console_output(True)
    logging.getLogger("crewai").setLevel(logging.ERROR)

    url = task.url if task.format == "anthropic" else f"{task.url}/v1"
    more = {"api": "responses"} if task.format == "openai-responses" else {}
    return LLM(
        model=MODELS[task.format],
        base_url=url,
        api_key=KEY,
        stream=task.mode == "stream",
        interceptor=task.adapter,
        **more,
    )


def _tool(task: Task) -> Any:
    from crewai.tools import tool

    def read(path: str) -> str:
        return task.read(path)

    read.__doc__ = DESCRIPTION
    return tool("read")(read)


FRAMEWORK = CrewAI()
