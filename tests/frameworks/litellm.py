"""LiteLLM: a tool loop of our own around its calls, since it is no agent framework.

`openai-chat`, `anthropic` and `gemini` are one call, `completion`, on three wires; `openai-responses` and
`anthropic-messages` are its two other calls; `router` is `completion` behind a `Router`. Histories hold what LiteLLM
gave, objects and all, as its own documentation has it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, ClassVar, NamedTuple

from tests.frameworks.caching import marks_refused
from tests.frameworks.framework import DESCRIPTION, KEY, Framework, OwnCaching, Ran, Task
from tests.frameworks.own.litellm import OWN

SYSTEM = "You read files."
TRIES = 3
"""Of one call, after all that LiteLLM tries by itself: some of its calls and streams try once."""
MARKED = [{"location": "message", "role": "system"}, {"location": "message", "index": -1}]
"""What LiteLLM is to mark, in its own words."""
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


class Reply(NamedTuple):
    text: str
    items: list[Any]
    """What is to be kept of it."""
    calls: list[tuple[str, str]]
    """Id and path."""


class Chat:
    """`completion`, on the wire of the model's provider."""

    def __init__(self, model: str, path: str) -> None:
        self.model, self.path = model, path

    def start(self, task: Task) -> list[Any]:
        return [{"role": "system", "content": SYSTEM + task.system}]

    def prompt(self, text: str, image: str | None) -> Any:
        if image is None:
            return {"role": "user", "content": text}
        return {
            "role": "user",
            "content": [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}],
        }

    def result(self, call: str, text: str) -> Any:
        return {"role": "tool", "tool_call_id": call, "content": text}

    def request(self, task: Task, history: list[Any]) -> dict[str, Any]:
        tool = {"name": "read", "description": DESCRIPTION, "parameters": PARAMETERS}
        tools = [{"type": "function", "function": tool}]
        return {**_common(self, task), "messages": history, "tools": tools, "num_retries": 2}

    def send(self, task: Task) -> Callable[..., Any]:
        import litellm

        return litellm.completion if task.adapter is None else task.adapter.completion

    def asend(self, task: Task) -> Callable[..., Any]:
        import litellm

        return litellm.acompletion

    async def gather(self, stream: AsyncIterator[Any], history: list[Any]) -> Any:
        import litellm

        return litellm.stream_chunk_builder([chunk async for chunk in stream], messages=history)

    def reply(self, response: Any) -> Reply:
        message = response.choices[0].message
        calls = [(call.id, json.loads(call.function.arguments)["path"]) for call in message.tool_calls or ()]
        return Reply(message.content or "", [message], calls)


class Routed(Chat):
    """Sync code has to start a loop for each call, as for `Messages`: a `Router`'s sync calls have no hook."""

    def send(self, task: Task) -> Callable[..., Any]:
        asend = self.asend(task)
        return lambda **request: asyncio.run(asend(**request))

    def asend(self, task: Task) -> Callable[..., Any]:
        import litellm

        params = {"model": self.model, "api_base": f"{task.url}{self.path}", "api_key": KEY}
        return litellm.Router([{"model_name": "routed", "litellm_params": params}], num_retries=2).acompletion

    def request(self, task: Task, history: list[Any]) -> dict[str, Any]:
        whole = super().request(task, history)
        return {name: whole[name] for name in ("messages", "tools", "litellm_session_id")} | {"model": "routed"}


class Responses:
    model, path = "openai/gpt-4.1", "/v1"

    def start(self, task: Task) -> list[Any]:
        return []

    def prompt(self, text: str, image: str | None) -> Any:
        if image is None:
            return {"role": "user", "content": text}
        parts = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": image}]
        return {"role": "user", "content": parts}

    def result(self, call: str, text: str) -> Any:
        return {"type": "function_call_output", "call_id": call, "output": text}

    def request(self, task: Task, history: list[Any]) -> dict[str, Any]:
        tools = [{"type": "function", "name": "read", "description": DESCRIPTION, "parameters": PARAMETERS}]
        return {
            **_common(self, task),
            "input": history,
            "tools": tools,
            "instructions": SYSTEM + task.system,
            "num_retries": 2,
        }

    def send(self, task: Task) -> Callable[..., Any]:
        import litellm

        return litellm.responses

    def asend(self, task: Task) -> Callable[..., Any]:
        import litellm

        return litellm.aresponses

    async def gather(self, stream: AsyncIterator[Any], history: list[Any]) -> Any:
        return [event async for event in stream][-1].response

    def reply(self, response: Any) -> Reply:
        calls = [item for item in response.output if item.type == "function_call"]
        said = [part.text for item in response.output if item.type == "message" for part in item.content]
        return Reply(
            "".join(said), list(response.output), [(each.call_id, json.loads(each.arguments)["path"]) for each in calls]
        )


class Messages:
    """Anthropic's own call; LiteLLM has it for async code alone."""

    model, path = "anthropic/claude-sonnet-4-5", ""

    def start(self, task: Task) -> list[Any]:
        return []

    def prompt(self, text: str, image: str | None) -> Any:
        if image is None:
            return {"role": "user", "content": text}
        source = {"type": "base64", "media_type": "image/png", "data": image.partition(",")[2]}
        return {"role": "user", "content": [{"type": "text", "text": text}, {"type": "image", "source": source}]}

    def result(self, call: str, text: str) -> Any:
        return {"type": "tool_result", "tool_use_id": call, "content": text}

    def request(self, task: Task, history: list[Any]) -> dict[str, Any]:
        tools = [{"name": "read", "description": DESCRIPTION, "input_schema": PARAMETERS}]
        messages = list(_batched(history))
        return {
            **_common(self, task),
            "messages": messages,
            "tools": tools,
            "system": SYSTEM + task.system,
            "max_tokens": 1000,
        }

    def send(self, task: Task) -> Callable[..., Any]:
        asend = self.asend(task)
        return lambda **request: asyncio.run(asend(**request))

    def asend(self, task: Task) -> Callable[..., Any]:
        import litellm

        return litellm.anthropic.messages.acreate

    async def gather(self, stream: AsyncIterator[Any], history: list[Any]) -> Any:
        return _message(b"".join([data async for data in stream]))

    def reply(self, response: Any) -> Reply:
        said = "".join(block["text"] for block in response["content"] if block["type"] == "text")
        calls = [(block["id"], block["input"]["path"]) for block in response["content"] if block["type"] == "tool_use"]
        return Reply(said, [{"role": "assistant", "content": response["content"]}], calls)


def _batched(history: list[Any]) -> Generator[Any]:
    """Results that follow each other belong into one message of the user."""
    batch: list[Any] = []
    for item in history:
        if item.get("type") == "tool_result":
            batch.append(item)
            continue
        if batch:
            yield {"role": "user", "content": batch}
            batch = []
        yield item
    if batch:
        yield {"role": "user", "content": batch}


def _message(events: bytes) -> Any:
    """What LiteLLM hands on of a stream is the provider's own text."""
    blocks: list[Any] = []
    for line in events.decode().splitlines():
        event = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
        if event.get("type") == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif event.get("type") == "content_block_delta":
            delta = event["delta"]
            if "text" in delta:
                blocks[-1]["text"] += delta["text"]
            blocks[-1]["json"] += delta.get("partial_json", "")
    for block in blocks:
        given = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(given or "{}")
    return {"content": blocks}


def _common(api: Any, task: Task) -> dict[str, Any]:
    base = f"{task.url}{api.path}"
    own = {"cache_control_injection_points": MARKED} if task.caching else {}
    return {"model": api.model, "api_base": base, "api_key": KEY, "litellm_session_id": task.conversation, **own}


APIS: dict[str, Any] = {
    "openai-chat": Chat("openai/gpt-4.1", "/v1"),
    "anthropic": Chat("anthropic/claude-sonnet-4-5", ""),
    "gemini": Chat("gemini/gemini-2.5-flash", "/v1beta"),
    "openai-responses": Responses(),
    "anthropic-messages": Messages(),
    "router": Routed("openai/gpt-4.1", "/v1"),
}


def conversed(api: Any, task: Task) -> Generator[list[Any], Reply, Ran]:
    """Gives the history for every call that is to be made, and takes what came back."""
    history, texts = api.start(task), []
    image = task.image and f"data:image/png;base64,{base64.b64encode(task.image).decode()}"
    for number, text in enumerate(task.prompts):
        history.append(api.prompt(text, image if number == 0 else None))
        while True:
            reply = yield history
            history.extend(reply.items)
            if not reply.calls:
                break
            history.extend(api.result(call, _called(task, path)) for call, path in reply.calls)
        texts.append(reply.text)
    return Ran(texts, json.loads(json.dumps(history, default=lambda value: value.model_dump())))


def _called(task: Task, path: str) -> str:
    try:
        return task.read(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def run_sync(api: Any, task: Task) -> Ran:
    import openai

    steps, send = conversed(api, task), api.send(task)
    history, left = next(steps), TRIES
    try:
        while True:
            try:
                response = send(**api.request(task, history))
            except openai.APIError:  # LiteLLM's own come from it
                if not (left := left - 1):
                    raise
                continue
            history, left = steps.send(api.reply(response)), TRIES
    except StopIteration as end:
        ran: Ran = end.value
        return ran


async def run_async(api: Any, task: Task) -> Ran:
    import openai

    steps, send = conversed(api, task), api.asend(task)
    history, left = next(steps), TRIES
    try:
        while True:
            try:
                response = await send(**api.request(task, history), stream=task.mode == "stream")
                if task.mode == "stream":
                    response = await api.gather(response, history)
            except openai.APIError:  # LiteLLM's own come from it
                if not (left := left - 1):
                    raise
                continue
            history, left = steps.send(api.reply(response)), TRIES
    except StopIteration as end:
        ran: Ran = end.value
        return ran


class LiteLLM(Framework):
    name: ClassVar[str] = "litellm"
    package: ClassVar[str] = "litellm"
    requires: ClassVar[tuple[str, ...]] = ("litellm[proxy]>=1.106", "tenacity")  # num_retries needs the latter
    seam: ClassVar[str] = "a CustomLogger hook; a wrapper of completion"
    formats: ClassVar[tuple[str, ...]] = tuple(APIS)
    caching: ClassVar[dict[str, OwnCaching]] = {"anthropic": OwnCaching("nothing", "system 5m, last message 5m")}
    example: ClassVar[str] = "with_litellm.py"
    variables: ClassVar[dict[str, str]] = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_LOG": "ERROR",
    }

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.litellm import IbidemCallback

        return IbidemCallback(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.litellm import IbidemCallback

        return IbidemCallback(cache="auto")

    def run(self, task: Task) -> Ran:
        import litellm

        litellm.suppress_debug_info = True  # it prints advice for every error
        wanted = [] if task.adapter is None else [task.adapter]
        if litellm.callbacks != wanted:
            litellm.logging_callback_manager._reset_all_callbacks()  # it holds 30 and no more
            litellm.callbacks = wanted
        api = APIS[task.format]
        return run_sync(api, task) if task.mode == "sync" else asyncio.run(run_async(api, task))

    def own(self) -> dict[str, Callable[[], None]]:
        return {**OWN, "marks that are refused": lambda: marks_refused(self, "anthropic", "openai-chat")}

    def read_wire(self, body: Any, format: str) -> tuple[Any, str]:
        return body, {"anthropic-messages": "anthropic", "router": "openai-chat"}.get(format, format)


FRAMEWORK = LiteLLM()
