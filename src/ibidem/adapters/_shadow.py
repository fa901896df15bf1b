"""A history of a framework's own classes, written once more in a wire format: its shadow.

The shadow is compacted in place of the history, and where a result comes out changed, the adapter copies the
framework's message with the new text. So that what a marker says is true on the wire, the shadow has every message that
the wire has, in its order: the user's words (they name the conversation), what the model said and called (it may be
quoted), and one result for each result of the wire, with as many texts.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

ShadowCall = tuple[str, str, Any]
"""Id, name, and arguments: an object, or the JSON text of one."""


class Shadow:
    """Filled in the order of the wire. It keeps no reference to the framework's objects but the places given."""

    format = "openai-chat"

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self._places: dict[int, Hashable] = {}
        """Of results, by index in the history."""

    def system(self, text: str) -> None:
        self.history.append({"role": "system", "content": text})

    def user(self, texts: str | Sequence[str | None]) -> None:
        """None stands for what is no text: a picture, a file."""
        self.history.append({"role": "user", "content": _content(texts)})

    def assistant(self, text: str | None = None, calls: Iterable[ShadowCall] = ()) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if made := [_call(*each) for each in calls]:
            message["tool_calls"] = made
        self.history.append(message)

    def result(self, call: str, texts: str | Sequence[str | None], place: Hashable) -> None:
        """What a tool returned. `place` is given back if it changes: whatever the adapter finds its message by."""
        self._places[len(self.history)] = place
        self.history.append({"role": "tool", "tool_call_id": call, "content": _content(texts)})

    def changed(self, history: Sequence[Any]) -> dict[Hashable, list[str]]:
        """The texts of results that are not the same any more, by place. None is left out of them."""
        if history is self.history:
            return {}
        return {
            place: _texts(history[index])
            for index, place in self._places.items()
            if history[index] is not self.history[index]
        }


def _content(texts: str | Sequence[str | None]) -> Any:
    if isinstance(texts, str):
        return texts
    return [{"type": "image_url"} if text is None else {"type": "text", "text": text} for text in texts]


def _call(ident: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": text}}


def _texts(message: Any) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [block["text"] for block in content if block["type"] == "text"]
