"""Build a history of OpenAI chat messages from log events in any order."""

from __future__ import annotations

import json
from typing import Any

from ..billing.usage import Usage
from .recording import Json, RecordedRequest, RecordedSegment


class Chat:
    """Builder that puts messages in wire order: a message between a call and its result is moved after the result."""

    def __init__(self) -> None:
        self.segment = RecordedSegment()
        self.due: set[str] = set()
        self.waiting: list[Json] = []

    @property
    def history(self) -> list[Json]:
        return self.segment.history

    def say(self, role: str, content: Any) -> None:
        (self.waiting if self.due else self.history).append({"role": role, "content": content})

    def answer(
        self,
        content: Any,
        calls: list[Json] | None = None,
        *,
        model: str = "",
        at: float | None = None,
        answered: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Add a response of the model and the request for it, also if the response is empty.

        `calls` are in wire format, or have the form `{id, name, arguments}`.
        """
        self._release()
        if self.history:
            self.segment.requests.append(RecordedRequest(len(self.history), model, at, answered, usage))
        message = {"role": "assistant", "content": content}
        if calls:
            self.history.append({**message, "tool_calls": [_wire(call) for call in calls]})
        elif content is not None:
            self.history.append(message)
        self.due = {call["id"] for call in calls or ()}

    def result(self, call: str, content: Any, name: str | None = None) -> None:
        named = {"name": name} if name else {}
        self.history.append({"role": "tool", "tool_call_id": call, **named, "content": content})
        self.due.discard(call)
        if not self.due:
            self._release()

    def done(self) -> RecordedSegment:
        self._release()
        return self.segment

    def _release(self) -> None:
        self.history.extend(self.waiting)
        self.waiting, self.due = [], set()


def _wire(call: Json) -> Json:
    if "custom" in call:
        return call
    function = call.get("function", call)
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": text}}


def text_of(content: Any) -> str:
    """Return the text of message content, which is a string or a list of parts."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part, dict) and "text" in part)
    return content if isinstance(content, str) else ""
