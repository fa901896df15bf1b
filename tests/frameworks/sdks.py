"""The providers' own SDKs with `ibidem.adapters.httpx.Transport`, and a loop that calls the tool."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

from .caching import marks_refused
from .framework import DESCRIPTION, KEY, Framework, Ran, Task

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

Call = tuple[str, str, dict[str, Any]]
"""Id, tool, arguments."""


async def value(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


async def items(found: Any) -> AsyncIterator[Any]:
    if hasattr(found, "__aiter__"):
        async for each in found:
            yield each
    else:
        for each in found:
            yield each


def failure(task: Task, path: str) -> tuple[str, bool]:
    """What the tool says, and whether that is an error."""
    try:
        return task.read(path), False
    except OSError as error:
        return f"Error: {error}", True


class Anthropic:
    def __init__(self, task: Task) -> None:
        import anthropic

        plain = "async" not in task.mode
        client = anthropic.DefaultHttpxClient if plain else anthropic.DefaultAsyncHttpxClient
        made: Any = anthropic.Anthropic if plain else anthropic.AsyncAnthropic
        own = {} if task.adapter is None else {"http_client": client(transport=task.adapter)}
        self.client = made(base_url=task.url, api_key=KEY, **own)
        self.stream = "stream" in task.mode
        self.history: list[Any] = []
        self.system = task.system

    def say(self, text: str, image: bytes | None) -> None:
        content: list[Any] = [{"type": "text", "text": text}]
        if image:
            source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(image).decode()}
            content.insert(0, {"type": "image", "source": source})
        self.history.append({"role": "user", "content": content if image else text})

    async def ask(self) -> tuple[str, list[Call]]:
        tool = {"name": "read", "description": DESCRIPTION, "input_schema": SCHEMA}
        asked: Any = {"model": "claude-test", "max_tokens": 999, "tools": [tool], "messages": self.history}
        asked |= {"system": self.system} if self.system else {}
        if self.stream:
            manager = self.client.messages.stream(**asked)
            if hasattr(manager, "__aenter__"):
                async with manager as events:
                    message = await events.get_final_message()
            else:
                with manager as events:
                    message = events.get_final_message()
        else:
            message = await value(self.client.messages.create(**asked))
        content = message.model_dump(exclude_none=True, exclude={"content": {"__all__": {"parsed_output"}}})["content"]
        self.history.append({"role": "assistant", "content": content})
        text = "".join(block["text"] for block in content if block["type"] == "text")
        return text, [(b["id"], b["name"], b["input"]) for b in content if b["type"] == "tool_use"]

    def answer(self, results: list[tuple[Call, str, bool]]) -> None:
        blocks = [
            {"type": "tool_result", "tool_use_id": call[0], "content": text, **({"is_error": True} if wrong else {})}
            for call, text, wrong in results
        ]
        self.history.append({"role": "user", "content": blocks})


class OpenAIChat:
    def __init__(self, task: Task) -> None:
        import openai

        plain = "async" not in task.mode
        client = openai.DefaultHttpxClient if plain else openai.DefaultAsyncHttpxClient
        made: Any = openai.OpenAI if plain else openai.AsyncOpenAI
        own = {} if task.adapter is None else {"http_client": client(transport=task.adapter)}
        self.client = made(base_url=f"{task.url}/v1", api_key=KEY, **own)
        self.stream = "stream" in task.mode
        self.history: list[Any] = [{"role": "system", "content": task.system}] if task.system else []

    def say(self, text: str, image: bytes | None) -> None:
        content: list[Any] = [{"type": "text", "text": text}]
        if image:
            url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
            content.append({"type": "image_url", "image_url": {"url": url}})
        self.history.append({"role": "user", "content": content if image else text})

    async def ask(self) -> tuple[str, list[Call]]:
        tool = {"type": "function", "function": {"name": "read", "description": DESCRIPTION, "parameters": SCHEMA}}
        asked: Any = {"model": "gpt-test", "tools": [tool], "messages": self.history}
        if self.stream:
            told = {"stream": True, "stream_options": {"include_usage": True}}
            text, calls = await _joined(items(await value(self.client.chat.completions.create(**asked, **told))))
        else:
            message = (await value(self.client.chat.completions.create(**asked))).choices[0].message
            text, calls = (
                message.content,
                [
                    {"id": c.id, "name": c.function.name, "arguments": c.function.arguments}
                    for c in message.tool_calls or []
                ],
            )
        said: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            said["tool_calls"] = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in calls
            ]
        self.history.append(said)
        return text or "", [(c["id"], c["name"], json.loads(c["arguments"])) for c in calls]

    def answer(self, results: list[tuple[Call, str, bool]]) -> None:
        self.history.extend({"role": "tool", "tool_call_id": call[0], "content": text} for call, text, _ in results)


async def _joined(chunks: AsyncIterator[Any]) -> tuple[str | None, list[dict[str, str]]]:
    text: str | None = None
    calls: list[dict[str, str]] = []
    async for chunk in chunks:
        for choice in chunk.choices:
            text = (text or "") + choice.delta.content if choice.delta.content else text
            for call in choice.delta.tool_calls or []:
                if call.id:
                    calls.append({"id": call.id, "name": call.function.name, "arguments": ""})
                calls[-1]["arguments"] += call.function.arguments or ""
    return text, calls


class OpenAIResponses(OpenAIChat):
    def say(self, text: str, image: bytes | None) -> None:
        content: list[Any] = [{"type": "input_text", "text": text}]
        if image:
            url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
            content.append({"type": "input_image", "image_url": url, "detail": "auto"})
        self.history.append({"role": "user", "content": content if image else text})

    async def ask(self) -> tuple[str, list[Call]]:
        tool = {"type": "function", "name": "read", "description": DESCRIPTION, "parameters": SCHEMA, "strict": False}
        asked: Any = {"model": "gpt-test", "tools": [tool], "input": self.history, "store": False}
        if self.stream:
            events = items(await value(self.client.responses.create(**asked, stream=True)))
            response = [event.response async for event in events if event.type == "response.completed"][-1]
        else:
            response = await value(self.client.responses.create(**asked))
        output = response.model_dump(exclude_none=True)["output"]
        self.history.extend(output)
        calls = [item for item in output if item["type"] == "function_call"]
        return response.output_text, [(c["call_id"], c["name"], json.loads(c["arguments"])) for c in calls]

    def answer(self, results: list[tuple[Call, str, bool]]) -> None:
        for call, text, _ in results:
            self.history.append({"type": "function_call_output", "call_id": call[0], "output": text})


class Gemini:
    def __init__(self, task: Task) -> None:
        from google import genai

        given: Any = {"transport": task.adapter}
        own = {} if task.adapter is None else {"client_args": given, "async_client_args": given}
        again = genai.types.HttpRetryOptions(attempts=3, initial_delay=0.01)
        options = genai.types.HttpOptions(base_url=task.url, retry_options=again, **own)
        self.client = genai.Client(api_key=KEY, http_options=options)
        self.models: Any = self.client.aio.models if "async" in task.mode else self.client.models
        self.stream = "stream" in task.mode
        self.history: list[Any] = []
        self.system = {"system_instruction": task.system} if task.system else {}

    def say(self, text: str, image: bytes | None) -> None:
        parts: list[Any] = [{"text": text}]
        if image:
            parts.append({"inline_data": {"mime_type": "image/png", "data": image}})
        self.history.append({"role": "user", "parts": parts})

    async def ask(self) -> tuple[str, list[Call]]:
        declared = {"name": "read", "description": DESCRIPTION, "parameters_json_schema": SCHEMA}
        config = {"tools": [{"function_declarations": [declared]}], "automatic_function_calling": {"disable": True}}
        config |= self.system
        asked: Any = {"model": "gemini-test", "contents": self.history, "config": config}
        if self.stream:
            chunks = [each async for each in items(await value(self.models.generate_content_stream(**asked)))]
        else:
            chunks = [await value(self.models.generate_content(**asked))]
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
        self.history.append({"role": "model", "parts": [part.model_dump(exclude_none=True) for part in parts]})
        calls = [part.function_call for part in parts if part.function_call]
        return "".join(part.text for part in parts if part.text), [(c.id, c.name, c.args) for c in calls]

    def answer(self, results: list[tuple[Call, str, bool]]) -> None:
        made = [{"id": c[0], "name": c[1], "response": {"error" if wrong else "output": t}} for c, t, wrong in results]
        self.history.append({"role": "user", "parts": [{"function_response": each} for each in made]})


AGENTS: dict[str, Any] = {
    "anthropic": Anthropic,
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "gemini": Gemini,
}


class SDKs(Framework):
    name = "httpx"
    package = "httpx2"
    requires = ("anthropic>=2.8", "openai>=3.49", "google-genai>=3.1", "aiohttp")
    seam = "transport= of an httpx2 client"
    formats = tuple(AGENTS)
    modes = ("sync", "async", "stream", "async stream")
    example: ClassVar[str] = "with_sdks.py"

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.httpx import Transport

        return Transport(profile)

    def caching_adapter(self, format: str) -> Any:
        from ibidem.adapters.httpx import Transport

        return Transport(cache="auto")

    def run(self, task: Task) -> Ran:
        return asyncio.run(self._run(task))

    def own(self) -> dict[str, Callable[[], None]]:
        return {"marks that are refused": lambda: marks_refused(self, "anthropic")}

    async def _run(self, task: Task) -> Ran:
        agent = AGENTS[task.format](task)
        texts = []
        for number, prompt in enumerate(task.prompts):
            agent.say(prompt, None if number else task.image)
            while True:
                text, calls = await agent.ask()
                if not calls:
                    break
                agent.answer([(call, *failure(task, call[2]["path"])) for call in calls])
            texts.append(text)
        if task.format != "gemini":
            await value(agent.client.close())
        return Ran(texts, json.loads(json.dumps(agent.history, default=repr)))


FRAMEWORK = SDKs()
