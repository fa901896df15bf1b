"""Check that a conversation starts with text of the user, for adapters whose framework translates messages.

The tag in markers is computed from this text. Without it, another text would be used, which differs between wire
formats: some drop blank texts, and system texts have different positions. Such histories are not rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

INSTRUCTION_ROLES = ("system", "developer")


def starts_with_user_text(history: Sequence[Any]) -> bool:
    """Return True if a history in any wire format has user text before the first response, and no blank one."""
    texts = [*_first_user_texts(history)]
    return bool(texts) and all(map(str.strip, texts))


def _first_user_texts(history: Sequence[Any]) -> Iterator[str]:
    """Yield the user's texts before the first response. Model text before the first user text is not a response."""
    has_user_text = False
    for message in history:
        role = message.get("role") if isinstance(message, Mapping) else None
        if role == "user":
            for text in _message_texts(message.get("content", message.get("parts"))):
                has_user_text = True
                yield text
        elif role not in INSTRUCTION_ROLES and (has_user_text or role != "assistant" or message.get("tool_calls")):
            return


def _message_texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = [block for block in content or () if isinstance(block, Mapping)]
    return [block["text"] for block in blocks if isinstance(block.get("text"), str)]
