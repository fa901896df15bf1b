"""Inspect: an evaluation of one sample, which a ReAct agent solves, over three wires."""

from __future__ import annotations

import asyncio
import base64
import tempfile
import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, ClassVar

from ibidem.billing.cache_ttl import CacheMode
from ibidem.testing import Upstream, by_turn

from .framework import DESCRIPTION, KEY, Framework, OwnCaching, Ran, Task
from .scenario import PROMPTS, SCRIPT, Files

RANDOM = frozenset({"id", "model", "timestamp"})
"""Of a message: names that are made up for it, and the port of a test."""

MARKED = " or ".join(
    f"tools {{0}}, system {{0}}, {place} message {{0}}, request {{0}}" for place in ("earlier", "last")
)
"""What is asked for: the message is the last one that the user or a result has said."""

_one_evaluation = threading.Lock()
"""Inspect has no two evaluations in one process at the same time: their samples are what runs at once."""

_numbers = count(1)


class Inspect(Framework):
    name: ClassVar[str] = "inspect_ai"
    package: ClassVar[str] = "inspect_ai"
    requires: ClassVar[tuple[str, ...]] = ("inspect_ai", "openai", "anthropic")
    seam: ClassVar[str] = "Hooks.on_before_model_generate"
    formats: ClassVar[tuple[str, ...]] = ("openai-chat", "openai-responses", "anthropic")
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching(MARKED.format("5m"), MARKED.format("1h")),
        "openai-chat": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
        "openai-responses": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
    }
    example: ClassVar[str] = "with_inspect_ai.py"
    variables: ClassVar[dict[str, str]] = {"INSPECT_DISPLAY": "none", "INSPECT_EVAL_LOG_REALTIME": "false"}

    def caching_adapter(self, format: str) -> Any:
        return self.adapter(format, cache="auto")

    def adapter(self, format: str, profile: str = "lossless", cache: CacheMode = "off") -> Any:
        """The name of the tasks that are rewritten: hooks hear of every task of the process."""
        from inspect_ai.hooks import hooks

        from ibidem.adapters.inspect_ai import IbidemHooks

        name, chosen, mode = f"rewritten{next(_numbers)}", profile, cache

        @hooks(name=name, description="Nothing is said twice.")
        class Rewriting(IbidemHooks):
            profile = chosen
            cache = mode

            def rewrites(self, data: Any, sample: Any) -> bool:
                return bool(data.task_name == name)

        return name

    def own(self) -> dict[str, Callable[[], None]]:
        return {"two arms in one evaluation": self.two_arms}

    def two_arms(self) -> None:
        """One epoch as it is, the other rewritten, of two samples at once: samples stay, model events say what went."""
        from inspect_ai.hooks import hooks

        from ibidem.adapters.inspect_ai import IbidemHooks

        @hooks(name="second_epoch", description="Nothing is said twice.")
        class SecondEpoch(IbidemHooks):
            def rewrites(self, data: Any, sample: Any) -> bool:
                return data.task_name == "two arms" and sample.epoch == 2

        with Upstream(by_turn(SCRIPT)) as upstream, tempfile.TemporaryDirectory() as folder:
            task = Task(upstream.url, "openai-chat", "sync", PROMPTS, Files())
            work = _work(task, name="two arms", samples=("one", "two"), epochs=2)
            found = list(_evaluated(task, folder, work).samples)
            bodies = [seen.text.decode() for seen in upstream.seen]
        assert len(bodies) == len(found) * len(SCRIPT) == 4 * len(SCRIPT)
        assert 0 < sum("[ibidem " in body for body in bodies) <= 2 * len(SCRIPT)
        for sample in found:
            assert not any("[ibidem " in message.text for message in sample.messages)
            asked = [each for event in sample.events if event.event == "model" for each in event.input]
            assert any("[ibidem " in message.text for message in asked) == (sample.epoch == 2)

    def run(self, task: Task) -> Ran:
        with _one_evaluation, tempfile.TemporaryDirectory() as folder:
            return _told(_evaluated(task, folder))


def _evaluated(task: Task, folder: str, work: Any = None) -> Any:
    import inspect_ai

    options = {"model": _model(task), "log_dir": folder, "score": False, "fail_on_error": True}
    work = work or _work(task)
    if task.mode == "async":
        (log,) = asyncio.run(inspect_ai.eval_async(work, **options))
    else:
        (log,) = inspect_ai.eval(work, **options)
    if log.status != "success":
        raise RuntimeError(log.error.traceback if log.error else log.status)
    return log


def _model(task: Task) -> Any:
    from inspect_ai.model import GenerateConfig, get_model

    config = GenerateConfig(max_tokens=4096)  # with more, Anthropic's SDK wants a stream
    options: dict[str, Any] = {"config": config, "api_key": KEY, "memoize": False, "streaming": task.mode == "stream"}
    if task.format == "anthropic":
        kept: dict[str, Any] = {"cache_ttl": "1h"} if task.caching else {}
        return get_model("anthropic/claude-sonnet-4-5", base_url=task.url, **options, **kept)
    if task.caching:
        options |= {"prompt_cache_key": task.conversation, "prompt_cache_retention": "24h"}
    options["responses_api"] = task.format == "openai-responses"
    return get_model("openai/gpt-4.1", base_url=f"{task.url}/v1", **options)


def _work(task: Task, name: str = "plain", samples: Sequence[str] = (), **options: Any) -> Any:
    import inspect_ai
    from inspect_ai.agent import as_solver, react
    from inspect_ai.dataset import Sample
    from inspect_ai.solver import system_message, user_message
    from inspect_ai.tool import ToolDef

    async def read(path: str) -> str:
        return task.read(path)

    tool = ToolDef(read, name="read", description=DESCRIPTION, parameters={"path": "A file."})
    agent = as_solver(react(prompt=None, tools=[tool], submit=False))
    steps = [system_message(task.system), agent] if task.system else [agent]
    for prompt in task.prompts[1:]:
        steps += [user_message(prompt), agent]
    said = _said(task.prompts[0], task.image)
    dataset = [Sample(input=said, id=each) for each in samples or (task.conversation,)]
    return inspect_ai.Task(name=task.adapter or name, dataset=dataset, solver=steps, **options)


def _said(prompt: str, image: bytes | None) -> Any:
    from inspect_ai.model import ChatMessageUser, ContentImage, ContentText

    if image is None:
        return prompt
    picture = ContentImage(image=f"data:image/png;base64,{base64.b64encode(image).decode()}")
    return [ChatMessageUser(content=[ContentText(text=prompt), picture])]


def _told(log: Any) -> Ran:
    messages = log.samples[0].messages
    answers = [message.text for message in messages if message.role == "assistant" and not message.tool_calls]
    return Ran(answers, [_lasting(message.model_dump(mode="json")) for message in messages])


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in RANDOM}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


FRAMEWORK = Inspect()
