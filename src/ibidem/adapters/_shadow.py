"""A history of a framework's own classes, written once more in a wire format: its shadow.

The shadow is compacted in place of the history, and where a result comes out changed, the adapter copies the
framework's message with the new text. So that what a marker says is true on the wire, the shadow has every message that
the wire has, in its order: the user's words (they name the conversation), what the model said and called (it may be
quoted), and one result for each result of the wire, with as many texts.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..model import Path
from ._words import has_words

if TYPE_CHECKING:
    from ..plan import Edit

BOUND_TEXT: dict[str, Any] = {"annotations": [{}]}
BOUND_CALL: dict[str, Any] = {"extra_content": {"shadow": True}}
"""Marks of the wire format on what must stay as it is: an adapter gives back results alone."""

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
        message: dict[str, Any] = {"role": "assistant", "content": text, **BOUND_TEXT}
        if made := [_call(*each) for each in calls]:
            message["tool_calls"] = made
        self.history.append(message)

    def result(self, call: str, texts: str | Sequence[str | None], place: Hashable) -> None:
        """What a tool returned. `place` is given back if it changes: whatever the adapter finds its message by."""
        self._places[len(self.history)] = place
        self.history.append({"role": "tool", "tool_call_id": call, "content": _content(texts)})

    @property
    def named(self) -> bool:
        """Whether the user's first words are sure to be the same on every wire. A conversation is known by them, and
        markers are; some packages leave out blank ones, and where there are none another text counts."""
        return has_words(self.history)

    def changed(self, edits: Iterable[Edit]) -> dict[Hashable, list[str]]:
        """The texts of results with the edits made, by place. None is left out of them.

        ValueError where an edit does anything else: a shadow cannot give that back.
        """
        made: dict[int, dict[Path, str]] = {}
        for edit in edits:
            if edit.op != "set" or edit.value is not None or edit.message not in self._places:
                raise ValueError("this profile changes more than results: use it with the transport or the proxy")
            made.setdefault(edit.message, {})[edit.path] = edit.added
        return {self._places[index]: _texts(self.history[index]["content"], new) for index, new in made.items()}


def _content(texts: str | Sequence[str | None]) -> Any:
    if isinstance(texts, str):
        return texts
    return [{"type": "image_url"} if text is None else {"type": "text", "text": text} for text in texts]


def _call(ident: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else _spelled(arguments)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": text}, **BOUND_CALL}


_spelled = json.JSONEncoder(ensure_ascii=False).encode


def _texts(content: Any, new: dict[Path, str]) -> list[str]:
    if isinstance(content, str):
        return [new[("content",)]]
    blocks = ((at, block["text"]) for at, block in enumerate(content) if block["type"] == "text")
    return [new.get(("content", at, "text"), text) for at, text in blocks]
