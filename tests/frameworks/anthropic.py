"""Anthropic's SDK in a loop as its users write it: the API itself, Bedrock (signed requests), and Vertex."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import Any, ClassVar

from . import bedrock
from .framework import DESCRIPTION, KEY, Framework, Ran, Task

TOOL = {
    "name": "read",
    "description": DESCRIPTION,
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


class Anthropic(Framework):
    name = "anthropic"
    package = "anthropic"
    requires = ("anthropic[bedrock,vertex]>=2.8",)
    seam = "Anthropic(middleware=[…])"
    formats = ("anthropic", "bedrock", "vertex")
    example = "with_anthropic.py"
    variables: ClassVar = {"AWS_EC2_METADATA_DISABLED": "true"}

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from ibidem.adapters.anthropic import middleware

        return middleware(profile=profile)

    def run(self, task: Task) -> Ran:
        chat = Chat(task)
        with contextlib.ExitStack() as stack:
            url = task.url if task.format == "anthropic" else stack.enter_context(bedrock.Cloud(task.url)).url
            if task.mode == "async":
                return asyncio.run(chat.arun(url))
            return chat.run(url)

    def read_wire(self, body: Any, format: str) -> tuple[Any, str]:
        return body, "anthropic"


def _client(task: Task, url: str, asynchronous: bool) -> Any:
    import anthropic

    given: dict[str, Any] = {"base_url": url} | ({"middleware": [task.adapter]} if task.adapter is not None else {})
    match task.format:
        case "anthropic":
            kind: Any = anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic
            return kind(api_key=KEY, **given)
        case "bedrock":
            kind = anthropic.AsyncAnthropicBedrock if asynchronous else anthropic.AnthropicBedrock
            keys = {"aws_access_key": bedrock.ACCESS_KEY, "aws_secret_key": bedrock.SECRET_KEY}
            return kind(aws_region=bedrock.REGION, **keys, **given)
        case _:
            kind = anthropic.AsyncAnthropicVertex if asynchronous else anthropic.AnthropicVertex
            return kind(region="us-east5", project_id=bedrock.PROJECT, access_token=KEY, **given)


class Chat:
    """The list that a user keeps, and one turn after the other."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.messages: list[Any] = []

    def run(self, url: str) -> Ran:
        texts = []
        with _client(self.task, url, asynchronous=False) as client:
            for prompt in self.task.prompts:
                self._ask(prompt)
                while self._goes_on(message := self._turn(client)):
                    pass
                texts.append(message.content[-1].text)
        return Ran(texts, _plain(self.messages))

    async def arun(self, url: str) -> Ran:
        texts = []
        async with _client(self.task, url, asynchronous=True) as client:
            for prompt in self.task.prompts:
                self._ask(prompt)
                while self._goes_on(message := await client.messages.create(**self._body())):
                    pass
                texts.append(message.content[-1].text)
        return Ran(texts, _plain(self.messages))

    def _turn(self, client: Any) -> Any:
        if self.task.mode == "sync":
            return client.messages.create(**self._body())
        with client.messages.stream(**self._body()) as stream:
            return stream.get_final_message()

    def _body(self) -> dict[str, Any]:
        model = bedrock.MODEL if self.task.format == "bedrock" else "claude-sonnet-4-5"
        return {"model": model, "max_tokens": 1000, "system": "Be careful.", "tools": [TOOL], "messages": self.messages}

    def _ask(self, prompt: str) -> None:
        said: list[Any] = [{"type": "text", "text": prompt}]
        if not self.messages and self.task.image is not None:
            data = base64.b64encode(self.task.image).decode()
            said.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
        self.messages.append({"role": "user", "content": said})

    def _goes_on(self, message: Any) -> bool:
        self.messages.append({"role": "assistant", "content": message.content})
        results = [self._result(block) for block in message.content if block.type == "tool_use"]
        if results:
            self.messages.append({"role": "user", "content": results})
        return bool(results)

    def _result(self, call: Any) -> dict[str, Any]:
        result = {"type": "tool_result", "tool_use_id": call.id}
        try:
            return {**result, "content": self.task.read(call.input["path"])}
        except Exception as error:
            return {**result, "content": repr(error), "is_error": True}


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: _plain(inside) for key, inside in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


FRAMEWORK = Anthropic()
