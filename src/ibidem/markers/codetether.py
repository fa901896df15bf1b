"""The wordings of CodeTether's habits, to the byte. Strategies with them build these texts here alone."""

from __future__ import annotations

import re

UNAVAILABLE = "[tool result unavailable: elided by context management]"
UNCALLED = "[tool result removed: the call it answers is not in this conversation]"
"""Stands alone in a message that must not vanish, or two messages of one role would meet."""

SNIPPED = "[...elided"
DEDUPED = "[DEDUP]"

_REPEAT = re.compile(r"\[REPEAT of call_id=.*, \d+ bytes\]", re.DOTALL)


def same_result(first_id: str, length: int) -> str:
    return f"{DEDUPED} identical to tool_call_id={first_id} ({length} bytes)"


def snipped(length: int) -> str:
    return f"\n{SNIPPED} {length} bytes...]\n"


def same_call(first_id: str, length: int) -> str:
    return f"[REPEAT of call_id={first_id}, {length} bytes]"


def is_same_call(text: str) -> bool:
    return _REPEAT.fullmatch(text) is not None


def middle(messages: int, length: int) -> str:
    return f"[...streaming-llm trim: {messages} messages ({length} bytes) elided between sinks and recent window...]"
