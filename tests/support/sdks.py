"""The providers' own SDKs behind one small face: an agent that has a history, asks, and answers calls.

They are imported where they are used: that takes seconds, and every run collects these tests.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    import anthropic
    import openai
    from google import genai

SCHEMA = {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]}
KEY = "a-key-that-opens-nothing"


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's settings reaches the SDKs: no key, no address, and no proxy on the way to loopback."""
    for name in [*os.environ]:
        if name.startswith(("ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "*")


class Heard(NamedTuple):
    """What an SDK made of an answer."""

    text: str
    calls: list[tuple[str, str, dict[str, Any]]]
    """Id, tool, arguments."""
    thoughts: str
    input: int
    read: int
    whole: Any
    """All that the SDK knows, without usage."""


@dataclass
class Agent(ABC):
    url: str
    stream: bool = False
    history: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = self.connect()

    def close(self) -> None:
        self.client.close()

    @abstractmethod
    def connect(self) -> Any: ...

    @abstractmethod
    def say(self, text: str) -> None: ...

    @abstractmethod
    def ask(self) -> Heard:
        """Sends the history, and puts the answer at its end."""

    @abstractmethod
    def answer(self, results: list[tuple[str, str, str]]) -> None:
        """Id, tool and text of each result."""


class Anthropic(Agent):
    def connect(self) -> anthropic.Anthropic:
        import anthropic

        return anthropic.Anthropic(base_url=self.url, api_key=KEY, max_retries=0)

    def say(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def ask(self) -> Heard:
        tool: Any = {"name": "Read", "description": "reads", "input_schema": SCHEMA}
        asked: Any = {"model": "claude-test", "max_tokens": 999, "tools": [tool], "messages": self.history}
        asked["cache_control"] = {"type": "ephemeral"}
        if self.stream:
            with self.client.messages.stream(**asked) as events:
                message = events.get_final_message()
        else:
            message = self.client.messages.create(**asked)
        whole = message.model_dump(exclude={"usage"}, exclude_none=True)
        content = [{key: block[key] for key in block if key != "parsed_output"} for block in whole["content"]]
        self.history.append({"role": "assistant", "content": content})
        usage = message.usage
        read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        return Heard(
            "".join(block["text"] for block in content if block["type"] == "text"),
            [(b["id"], b["name"], b["input"]) for b in content if b["type"] == "tool_use"],
            "".join(block["thinking"] for block in content if block["type"] == "thinking"),
            usage.input_tokens + read + written,
            read,
            whole,
        )

    def answer(self, results: list[tuple[str, str, str]]) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, _, text in results]
        self.history.append({"role": "user", "content": blocks})


class OpenAIChat(Agent):
    def connect(self) -> openai.OpenAI:
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEY, max_retries=0)

    def say(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def ask(self) -> Heard:
        tool = {"type": "function", "function": {"name": "Read", "parameters": SCHEMA}}
        asked: Any = {"model": "gpt-test", "tools": [tool], "messages": self.history}
        if self.stream:
            with self.client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
                completion: Any = events.get_final_completion()
        else:
            completion = self.client.chat.completions.create(**asked)
        message = completion.choices[0].message
        calls = [(call.id, "Read", json.loads(call.function.arguments)) for call in message.tool_calls or []]
        said: dict[str, Any] = {"role": "assistant", "content": message.content}
        if message.tool_calls:
            kept = {"id", "type", "function"}
            said["tool_calls"] = [call.model_dump(include=kept, exclude_none=True) for call in message.tool_calls]
            for call in said["tool_calls"]:
                call["function"].pop("parsed_arguments", None)
        self.history.append(said)
        usage = completion.usage
        return Heard(
            message.content or "",
            calls,
            getattr(message, "reasoning_content", "") or "",
            usage.prompt_tokens,
            usage.prompt_tokens_details.cached_tokens,
            completion.model_dump(exclude={"usage"}, exclude_none=True),
        )

    def answer(self, results: list[tuple[str, str, str]]) -> None:
        self.history.extend({"role": "tool", "tool_call_id": ident, "content": text} for ident, _, text in results)


class OpenAIResponses(Agent):
    def connect(self) -> openai.OpenAI:
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEY, max_retries=0)

    def say(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def ask(self) -> Heard:
        tool = {"type": "function", "name": "Read", "parameters": SCHEMA, "strict": False}
        asked: Any = {"model": "gpt-test", "tools": [tool], "input": self.history, "store": False}
        if self.stream:
            with self.client.responses.stream(**asked) as events:
                response: Any = events.get_final_response()
        else:
            response = self.client.responses.create(**asked)
        output = response.model_dump(exclude_none=True)["output"]
        self.history.extend({k: v for k, v in item.items() if k != "parsed_arguments"} for item in output)
        calls = [item for item in output if item["type"] == "function_call"]
        return Heard(
            response.output_text,
            [(call["call_id"], call["name"], json.loads(call["arguments"])) for call in calls],
            "".join(item["summary"][0]["text"] for item in output if item["type"] == "reasoning"),
            response.usage.input_tokens,
            response.usage.input_tokens_details.cached_tokens,
            response.model_dump(exclude={"usage"}, exclude_none=True),
        )

    def answer(self, results: list[tuple[str, str, str]]) -> None:
        for ident, _, text in results:
            self.history.append({"type": "function_call_output", "call_id": ident, "output": text})


class Gemini(Agent):
    def connect(self) -> genai.Client:
        from google import genai

        return genai.Client(api_key=KEY, http_options=genai.types.HttpOptions(base_url=self.url))

    def say(self, text: str) -> None:
        self.history.append({"role": "user", "parts": [{"text": text}]})

    def ask(self) -> Heard:
        tool = {"function_declarations": [{"name": "Read", "parameters_json_schema": SCHEMA}]}
        off = {"disable": True}
        asked: Any = {"model": "gemini-2.5-test", "contents": self.history}
        asked["config"] = {"tools": [tool], "automatic_function_calling": off}
        if self.stream:
            chunks = list(self.client.models.generate_content_stream(**asked))
        else:
            chunks = [self.client.models.generate_content(**asked)]
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
        self.history.append({"role": "model", "parts": [part.model_dump(exclude_none=True) for part in parts]})
        usage = chunks[-1].usage_metadata
        left_out = {"usage_metadata", "sdk_http_response"}
        return Heard(
            "".join(part.text for part in parts if part.text and not part.thought),
            [(p.function_call.id, p.function_call.name, p.function_call.args) for p in parts if p.function_call],
            "".join(part.text for part in parts if part.thought),
            usage.prompt_token_count,
            usage.cached_content_token_count or 0,
            [chunk.model_dump(exclude=left_out, exclude_none=True) for chunk in chunks],
        )

    def answer(self, results: list[tuple[str, str, str]]) -> None:
        responses = [{"id": ident, "name": tool, "response": {"output": text}} for ident, tool, text in results]
        self.history.append({"role": "user", "parts": [{"function_response": made} for made in responses]})


AGENTS: dict[str, type[Agent]] = {
    "anthropic": Anthropic,
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "gemini": Gemini,
}


PATHS = {
    "anthropic": "/v1/messages?beta=true",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-test:streamGenerateContent?alt=sse&key=k",
}
BODIES: dict[str, Any] = {
    "anthropic": {"model": "claude-test", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]},
    "openai-chat": {"model": "gpt-test", "messages": [{"role": "user", "content": "go"}]},
    "openai-responses": {"model": "gpt-test", "input": "go"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "go"}]}]},
}
"""The shortest request of each, for clients that are no SDK."""


def dechunked(answer: bytes) -> bytes:
    """What was in the chunks of an answer, the last of which may be cut."""
    left, whole = answer.partition(b"\r\n\r\n")[2], b""
    while left:
        size, _, left = left.partition(b"\r\n")
        whole, left = whole + left[: int(size, 16)], left[int(size, 16) + 2 :]
    return whole
