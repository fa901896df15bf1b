"""Whether a conversation begins with words of the user, for adapters whose framework translates what they see.

Markers have their tag from these words. Without any another text counts, and which one that is differs from wire to
wire, as blank texts are left out of some and system texts stand elsewhere: such histories are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BESIDE = ("system", "developer")


def has_words(history: Sequence[Any]) -> bool:
    """Of a history in any of the wire formats."""
    said = [*_said(history)]
    return bool(said) and all(map(str.strip, said))


def _said(history: Sequence[Any]) -> Iterator[str]:
    """The texts of the user before the first answer; what the model says before them is none."""
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
