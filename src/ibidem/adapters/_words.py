"""Check that a conversation starts with text of the user, for adapters whose framework translates messages.

The tag in markers is computed from this text. Without it, another text would be used, which differs between wire
formats: some drop blank texts, and system texts have different positions. Such histories are not rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BESIDE = ("system", "developer")


def has_words(history: Sequence[Any]) -> bool:
    """Return True if a history in any wire format has user text before the first response, and no blank one."""
    said = [*_said(history)]
    return bool(said) and all(map(str.strip, said))


def _said(history: Sequence[Any]) -> Iterator[str]:
    """Yield the user's texts before the first response. Model text before the first user text is not a response."""
    begun = False
    for message in history:
        role = message.get("role") if isinstance(message, Mapping) else None
        if role == "user":
            for text in _texts(message.get("content", message.get("parts"))):
                begun = True
                yield text
        elif role not in BESIDE and (begun or role != "assistant" or message.get("tool_calls")):
            return


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = [block for block in content or () if isinstance(block, Mapping)]
    return [block["text"] for block in blocks if isinstance(block.get("text"), str)]
