"""OpenHands SDK: its agent in a local conversation, on both calls of its `LLM`; chat completions on three wires."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from tests.frameworks.framework import DESCRIPTION, KEY, MAX_TURNS, Framework, Ran, Task

ENDPOINTS = {
    "openai-chat": ("openai/gpt-4.1", "/v1"),
    "anthropic": ("anthropic/claude-sonnet-4-5", ""),
    "gemini": ("gemini/gemini-2.5-flash", "/v1beta"),
    "openai-responses": ("openai/gpt-4.1", "/v1"),
}
VARIES = ("id", "timestamp", "parent_id", "action_id", "llm_response_id", "key", "value")
"""Of events: random ids, times, and what was counted."""

READERS: dict[str, Callable[[str], str]] = {}
"""The tool of each run: OpenHands makes tools from their names and plain settings."""


@cache
def tool_named() -> str:
    """The tool, defined once: classes are registered by name."""
    from openhands.sdk.tool import Action, Observation, ToolDefinition, ToolExecutor, register_tool

    class ReadAction(Action):
        path: str

    class ReadObservation(Observation):
        pass

    class Reader(ToolExecutor):
        def __init__(self, read: Callable[[str], str]) -> None:
            self._read = read

        def __call__(self, action: Any, conversation: Any = None) -> Any:
            return ReadObservation.from_text(self._read(action.path))

    class ReadTool(ToolDefinition[ReadAction, ReadObservation]):
        @classmethod
        def create(cls, conv_state: Any = None, **params: Any) -> Sequence[Any]:
            made = {"action_type": ReadAction, "observation_type": ReadObservation}
            return [cls(description=DESCRIPTION, executor=Reader(READERS[params["reader"]]), **made)]

    register_tool("ReadTool", ReadTool)
    return "ReadTool"


def _conversation(task: Task) -> Any:
    from openhands.sdk import LLM, Agent, Conversation, Tool

    model, path = ENDPOINTS[task.format]
    streams = task.mode == "stream"
    mode = "responses" if task.format == "openai-responses" else "chat"
    settings = {"model": model, "base_url": f"{task.url}{path}", "api_key": KEY, "api_mode": mode, "stream": streams}
    llm = (task.adapter or LLM)(**settings, usage_id="agent", retry_min_wait=0, retry_max_wait=1)
    reader = f"{task.url} {task.conversation}"
    READERS[reader] = task.read
    return Conversation(
        agent=Agent(
            llm=llm,
            tools=[Tool(name=tool_named(), params={"reader": reader})],
            include_default_tools=[],
            system_prompt="You read files.",
        ),
        workspace=tempfile.gettempdir(),
        conversation_id=uuid5(NAMESPACE_URL, task.conversation),
        token_callbacks=[lambda chunk: None] if streams else None,
        visualizer=None,
        stuck_detection=False,
        max_iteration_per_run=MAX_TURNS,
    )


def _message(text: str, image: bytes | None) -> Any:
    from openhands.sdk import ImageContent, Message, TextContent

    content: list[Any] = [TextContent(text=text)]
    if image is not None:
        content.append(ImageContent(image_urls=[f"data:image/png;base64,{base64.b64encode(image).decode()}"]))
    return Message(role="user", content=content)


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(each) for name, each in value.items() if name not in VARIES}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


class OpenHands(Framework):
    name: ClassVar[str] = "openhands"
    package: ClassVar[str] = "openhands-sdk"
    requires: ClassVar[tuple[str, ...]] = ("openhands-sdk>=1.58,<1.59",)
    seam: ClassVar[str] = "LLM subclass: _transport_call, _prepare_responses_params (private)"
    formats: ClassVar[tuple[str, ...]] = tuple(ENDPOINTS)
    python: ClassVar[tuple[int, int]] = (3, 12)
    example: ClassVar[str] = "with_openhands.py"
    variables: ClassVar[dict[str, str]] = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LOG_LEVEL": "CRITICAL",  # it prints what a tool raised
        "OPENHANDS_SUPPRESS_BANNER": "1",
    }

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        from functools import partial

        from ibidem.adapters.openhands import IbidemLLM

        return partial(IbidemLLM, ibidem_profile=profile)

    def run(self, task: Task) -> Ran:
        from openhands.sdk.conversation.response_utils import get_agent_final_response

        conversation, texts = _conversation(task), []
        for number, text in enumerate(task.prompts):
            conversation.send_message(_message(text, task.image if number == 0 else None))
            if task.mode == "sync":
                conversation.run()
            else:
                asyncio.run(conversation.arun())
            texts.append(get_agent_final_response(conversation.state.events))
        events = [event.model_dump(mode="json") for event in conversation.state.events]
        conversation.close()
        return Ran(texts, json.loads(json.dumps(_lasting(events))))


FRAMEWORK = OpenHands()
