"""Build a history of OpenAI chat messages from log events in any order."""

from __future__ import annotations

import json
from typing import Any

from ..billing.usage import Usage
from .recording import Json, RecordedRequest, RecordedSegment


class ChatBuilder:
    """Builder that puts messages in wire order: a message between a call and its result is moved after the result."""

    def __init__(self) -> None:
        self.segment = RecordedSegment()
        self.due_calls: set[str] = set()
        self.waiting_messages: list[Json] = []

    @property
    def history(self) -> list[Json]:
        return self.segment.history

    def add_message(self, role: str, content: Any) -> None:
        (self.waiting_messages if self.due_calls else self.history).append({"role": role, "content": content})

    def add_response(
        self,
        content: Any,
        calls: list[Json] | None = None,
        *,
        model: str = "",
        at: float | None = None,
        answered_at: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Add a response of the model and the request for it, also if the response is empty.

        `calls` are in wire format, or have the form `{id, name, arguments}`.
        """
        self._release_waiting()
        if self.history:
            self.segment.requests.append(RecordedRequest(len(self.history), model, at, answered_at, usage))
        message = {"role": "assistant", "content": content}
        if calls:
            self.history.append({**message, "tool_calls": [_wire_call(call) for call in calls]})
        elif content is not None:
            self.history.append(message)
        self.due_calls = {call["id"] for call in calls or ()}

    def add_result(self, call: str, content: Any, name: str | None = None) -> None:
        name_field = {"name": name} if name else {}
        self.history.append({"role": "tool", "tool_call_id": call, **name_field, "content": content})
        self.due_calls.discard(call)
        if not self.due_calls:
            self._release_waiting()

    def finish(self) -> RecordedSegment:
        self._release_waiting()
        return self.segment

    def _release_waiting(self) -> None:
        self.history.extend(self.waiting_messages)
        self.waiting_messages, self.due_calls = [], set()


def _wire_call(call: Json) -> Json:
    if "custom" in call:
        return call
    function = call.get("function", call)
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": text}}


def content_text(content: Any) -> str:
    """Return the text of message content, which is a string or a list of parts."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part, dict) and "text" in part)
    return content if isinstance(content, str) else ""
