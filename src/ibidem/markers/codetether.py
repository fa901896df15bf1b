"""The wordings of CodeTether's habits, to the byte. Strategies with them build these texts here alone."""

from __future__ import annotations

UNAVAILABLE = "[tool result unavailable: elided by context management]"
UNCALLED = "[tool result removed: the call it answers is not in this conversation]"
"""Stands alone in a message that must not vanish, or two messages of one role would meet."""

SNIPPED = "[...elided"
DEDUPED = "[DEDUP]"
REPEATED = "[REPEAT"


def same_result(first_id: str, length: int) -> str:
    return f"{DEDUPED} identical to tool_call_id={first_id} ({length} bytes)"


def snipped(length: int) -> str:
    return f"\n{SNIPPED} {length} bytes...]\n"


def same_call(first_id: str, length: int) -> str:
    return f"{REPEATED} of call_id={first_id}, {length} bytes]"


def middle(messages: int, length: int) -> str:
    return f"[...streaming-llm trim: {messages} messages ({length} bytes) elided between sinks and recent window...]"
