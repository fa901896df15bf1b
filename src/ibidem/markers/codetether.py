"""The wording of CodeTether's markers, byte for byte. Its strategies only take these texts from here."""

from __future__ import annotations

UNAVAILABLE = "[tool result unavailable: elided by context management]"
UNCALLED = "[tool result removed: the call it answers is not in this conversation]"
"""For a message that must not be empty: without it, two messages of one role would be adjacent."""

SNIPPED = "[...elided"
DEDUPED = "[DEDUP]"
REPEATED = "[REPEAT"


def same_result(first_id: str, length: int) -> str:
    """Return CodeTether's marker for a result that is identical to an earlier one."""
    return f"{DEDUPED} identical to tool_call_id={first_id} ({length} bytes)"


def snip_marker(length: int) -> str:
    """Return CodeTether's marker for the removed middle of a text."""
    return f"\n{SNIPPED} {length} bytes...]\n"


def same_call(first_id: str, length: int) -> str:
    """Return CodeTether's marker for a repeated call."""
    return f"{REPEATED} of call_id={first_id}, {length} bytes]"


def trim_marker(messages: int, length: int) -> str:
    """Return CodeTether's marker for messages removed between the first and the last ones."""
    return f"[...streaming-llm trim: {messages} messages ({length} bytes) elided between sinks and recent window...]"
