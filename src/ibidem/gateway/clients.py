"""Whom a hint would be true for.

A gateway sees one connection, and not who asks on it. Where several contexts of a client share it, subagents or chats
of a desktop program, a text that one of them was sent is hinted at in another that never saw it. Clients tell their
name when they connect. Of one of them it is known that it tells its contexts apart; of none, that it has only one. So
whoever runs a client that has only one has to say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import one_line

SHARE_A_CONNECTION = ("claude-code", "cursor", "gemini-cli", "goose", "opencode", "visual studio code")
"""Names of clients begin so whose subagents are known to call tools on the connection of the main agent."""
TELL_CONTEXTS_APART = ("codex",)
"""Of clients that say with each call whose it is. This one's model writes programs that call tools: a program would get
the hint in place of its data."""
CONTEXT_KEYS = ("sessionId", "threadId", "windowId")
"""What some clients send with a call, in `_meta`: a thread is one context, and a window is what it holds between two
compactions."""


def why_no_hints(client: str | None, *, codex: bool, no_subagents: bool) -> str:
    """One line for the user; empty where a hint can be true."""
    if client is None:
        return "hints are off: the client did not say who it is"
    name, shown = client.casefold(), one_line(client[:64])
    if name.startswith(TELL_CONTEXTS_APART):
        why = "its scripts would get them in place of data (--codex turns them on)"
        return "" if codex else f"hints are off for {shown}: {why}"
    if no_subagents:
        return ""
    known = name.startswith(SHARE_A_CONNECTION)
    why = "its subagents share this connection" if known else "it may have subagents that share this connection"
    own = "its plugin is the way there, or " if name.startswith("claude-code") else ""
    return f"hints are off for {shown}: {why} ({own}--no-subagents turns them on)"


def context_of(client: str, meta: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What one context is told apart by; None where this client's contexts are told apart, and this one is not."""
    found = tuple(f"{key}={meta[key]}" for key in CONTEXT_KEYS if isinstance(meta.get(key), str))
    if not found and client.casefold().startswith(TELL_CONTEXTS_APART):
        return None
    return found
