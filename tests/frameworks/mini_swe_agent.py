"""mini-swe-agent: its own agent and its two LiteLLM models, of which one speaks chat completions, on three wires.

It has one tool, `bash`, and ends when a command says so. So that the script of the contract fits it, a call of `read`
is parsed as a command, and a turn without calls ends the prompt.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from tests.frameworks.framework import KEY, Framework, OwnCaching, Ran, Task

ENDPOINTS = {
    "openai-chat": ("openai/gpt-4.1", "/v1"),
    "anthropic": ("anthropic/claude-sonnet-4-5", ""),
    "gemini": ("gemini/gemini-2.5-flash", "/v1beta"),
    "openai-responses": ("openai/gpt-4.1", "/v1"),
}
PICTURE = "<MSWEA_MULTIMODAL_CONTENT><CONTENT_TYPE>image_url</CONTENT_TYPE>{}</MSWEA_MULTIMODAL_CONTENT>"
VARIES = ("timestamp", "usage", "cost", "response", "created", "created_at")
"""Times, and what the provider counted."""


class Files:
    """An environment whose commands are paths."""

    def __init__(self, task: Task) -> None:
        self._read = task.read

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        try:
            return {"output": self._read(action["command"]), "returncode": 0, "exception_info": ""}
        except Exception as error:
            return {"output": "", "returncode": 1, "exception_info": f"{type(error).__name__}: {error}"}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        return kwargs

    def serialize(self) -> dict[str, Any]:
        return {}


def _actions(response: Any) -> list[dict[str, Any]]:
    """Both kinds of response."""
    if hasattr(response, "choices"):
        calls = [(call.id, call.function.arguments) for call in response.choices[0].message.tool_calls or ()]
    else:
        calls = [(item.call_id, item.arguments) for item in response.output if item.type == "function_call"]
    return [{"tool_call_id": call, "command": json.loads(arguments)["path"]} for call, arguments in calls]


def _model(task: Task) -> Any:
    from minisweagent.models import get_model
    from minisweagent.models.utils.openai_multimodal import DEFAULT_MULTIMODAL_REGEX

    model, path = ENDPOINTS[task.format]
    kind = "litellm_response" if task.format == "openai-responses" else "litellm"
    endpoint = {"api_base": f"{task.url}{path}", "api_key": KEY}
    if task.caching and task.format != "anthropic":
        endpoint |= {"prompt_cache_key": task.conversation, "prompt_cache_retention": "24h"}
    settings = {**(task.adapter or {"model_class": kind}), "model_name": model, "model_kwargs": endpoint}
    if task.image is not None:  # its cache marks take no message with a picture
        settings |= {"multimodal_regex": DEFAULT_MULTIMODAL_REGEX, "set_cache_control": None}
    made = get_model(config=settings)
    made._parse_actions = _actions
    return made


def _agent(task: Task) -> Any:
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.exceptions import Submitted

    class Reader(DefaultAgent):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            self.left = list(task.prompts[1:])
            self.texts: list[str] = []

        def execute_actions(self, message: dict[str, Any]) -> list[dict[str, Any]]:
            if message["extra"]["actions"]:
                return list(super().execute_actions(message))
            self.texts.append(_said(message))
            if not self.left:
                raise Submitted({"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}})
            return list(self.add_messages(self.model.format_message(role="user", content=self.left.pop(0))))

    first = task.prompts[0].replace("{", "{{ '{' }}")
    if task.image is not None:
        first += PICTURE.format(f"data:image/png;base64,{base64.b64encode(task.image).decode()}")
    return Reader(
        _model(task),
        Files(task),
        system_template=f"You read files.{task.system}",
        instance_template=first,
        cost_limit=0,
    )


def _said(message: dict[str, Any]) -> str:
    if "output" in message:
        return "".join(part["text"] for item in message["output"] for part in item.get("content") or ())
    return str(message["content"] or "")


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(each) for name, each in value.items() if name not in VARIES}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """A content of one text as that text: the last message has a block, for its cache mark, and later a string."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: _plain(each) for name, each in value.items()}
    match found.get("content"):
        case [{"type": "text", "text": str(text)}]:
            found["content"] = text
    return found


def by_hand() -> None:
    """Without `get_model` no mark is set, unless asked for, and none where it was said that there is to be none."""
    from ibidem.adapters.mini_swe_agent import IbidemLitellmModel

    cases: tuple[tuple[str, dict[str, Any], str | None], ...] = (
        ("anthropic", {}, None),
        ("anthropic", {"ibidem_cache": "auto"}, "default_end"),
        ("anthropic", {"ibidem_cache": "auto", "set_cache_control": None}, None),
        ("openai-chat", {"ibidem_cache": "auto"}, None),
    )
    for format, settings, expected in cases:
        made = IbidemLitellmModel(model_name=ENDPOINTS[format][0], **settings)
        assert made.config.set_cache_control == expected, (format, settings)


class MiniSweAgent(Framework):
    name: ClassVar[str] = "mini_swe_agent"
    package: ClassVar[str] = "mini-swe-agent"
    requires: ClassVar[tuple[str, ...]] = ("mini-swe-agent>=2.4,<2.5", "mcp")  # its LiteLLM fails without the latter
    seam: ClassVar[str] = "model subclasses (private method)"
    formats: ClassVar[tuple[str, ...]] = tuple(ENDPOINTS)
    modes: ClassVar[tuple[str, ...]] = ("sync",)
    caching: ClassVar[dict[str, OwnCaching]] = {
        "anthropic": OwnCaching("last message 5m", "last message 5m", grows=False),
        "openai-chat": OwnCaching("nothing", "prompt_cache_key"),
        "openai-responses": OwnCaching("nothing", "prompt_cache_key, prompt_cache_retention=24h"),
    }
    """A result that is marked is a list with one text, and a string in the next request: another result, if one goes
    by what is written."""
    example: ClassVar[str] = "with_mini_swe_agent.py"
    variables: ClassVar[dict[str, str]] = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_GLOBAL_CONFIG_DIR": str(Path(tempfile.gettempdir()) / "ibidem-mini-swe-agent"),
        "MSWEA_SILENT_STARTUP": "1",
    }

    def adapter(self, format: str, profile: str = "lossless") -> Any:
        name = "IbidemLitellmResponseModel" if format == "openai-responses" else "IbidemLitellmModel"
        return {"model_class": f"ibidem.adapters.mini_swe_agent.{name}", "ibidem_profile": profile}

    def caching_adapter(self, format: str) -> Any:
        return {**self.adapter(format), "ibidem_cache": "auto"}

    def own(self) -> dict[str, Callable[[], None]]:
        return {"a model that is made by hand": by_hand}

    def same(self, body: Any) -> Any:
        return {**body, "messages": _plain(body["messages"])} if "messages" in body else body

    def run(self, task: Task) -> Ran:
        import litellm

        litellm.suppress_debug_info = True  # it prints advice for every error
        agent = _agent(task)
        agent.run()
        return Ran(agent.texts, json.loads(json.dumps(_lasting(agent.messages))))


FRAMEWORK = MiniSweAgent()
