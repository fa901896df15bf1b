"""Mirror of a history: framework messages written in a wire format, so that they can be compacted.

`compact` runs on the mirror. If a result changes, the adapter copies the framework's message with the new text. Markers
refer to messages by number, so the mirror must have every message that is sent, in the same order: the user's texts,
which identify the conversation, the texts and calls of the model, which markers may refer to, and each result with the
same number of texts.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..model import Path
from ._user_text import starts_with_user_text

if TYPE_CHECKING:
    from ..plan import Edit

FIXED_TEXT: dict[str, Any] = {"annotations": [{}]}
FIXED_CALL: dict[str, Any] = {"extra_content": {"shadow": True}}
"""Fields that make texts and calls of the model uneditable, because an adapter can change only results."""

MirrorCall = tuple[str, str, Any]
"""Id, name and arguments of a call. The arguments are an object or its JSON text."""


class WireMirror:
    """History in a wire format, added message by message. It stores no framework objects, only positions of results."""

    format = "openai-chat"

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self._positions: dict[int, Hashable] = {}
        """Positions of results, by index in the history."""

    def add_system(self, text: str) -> None:
        """Add a system message."""
        self.history.append({"role": "system", "content": text})

    def add_user(self, texts: str | Sequence[str | None]) -> None:
        """Add a user message. None is a placeholder for content that is not text, such as an image or a file."""
        self.history.append({"role": "user", "content": _message_content(texts)})

    def add_assistant(self, text: str | None = None, calls: Iterable[MirrorCall] = ()) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": text, **FIXED_TEXT}
        if wire_calls := [_wire_call(*each) for each in calls]:
            message["tool_calls"] = wire_calls
        self.history.append(message)

    def add_result(self, call: str, texts: str | Sequence[str | None], position: Hashable) -> None:
        """Add a tool result. If it changes, `position` identifies the message for the adapter."""
        self._positions[len(self.history)] = position
        self.history.append({"role": "tool", "tool_call_id": call, "content": _message_content(texts)})

    @property
    def is_identifiable(self) -> bool:
        """True if the first texts of the user are the same in every wire format.

        They identify the conversation and its tag. Some packages drop blank texts, and without user text another text
        would identify it.
        """
        return starts_with_user_text(self.history)

    def changed_texts(self, edits: Iterable[Edit]) -> dict[Hashable, list[str]]:
        """Return the new texts of edited results by position, without the placeholders.

        Raises ValueError if an edit changes anything except a result, which an adapter cannot apply.
        """
        new_texts: dict[int, dict[Path, str]] = {}
        for edit in edits:
            if edit.op != "set" or edit.value is not None or edit.message not in self._positions:
                raise ValueError("this profile changes more than results: use it with the transport or the proxy")
            new_texts.setdefault(edit.message, {})[edit.path] = edit.added
        return {
            self._positions[index]: _edited_texts(self.history[index]["content"], new)
            for index, new in new_texts.items()
        }


def _message_content(texts: str | Sequence[str | None]) -> Any:
    if isinstance(texts, str):
        return texts
    return [{"type": "image_url"} if text is None else {"type": "text", "text": text} for text in texts]


def _wire_call(ident: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else _encode_arguments(arguments)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": text}, **FIXED_CALL}


_encode_arguments = json.JSONEncoder(ensure_ascii=False).encode


def _edited_texts(content: Any, new: dict[Path, str]) -> list[str]:
    if isinstance(content, str):
        return [new[("content",)]]
    blocks = ((at, block["text"]) for at, block in enumerate(content) if block["type"] == "text")
    return [new.get(("content", at, "text"), text) for at, text in blocks]
