"""What is answered to who switches conversations off and on: `POST /ibidem/api/off` and `on`.

Only a request that says it is JSON is listened to: no form of another site can send that, beside all that is refused
before this is asked (`pages.page_refusal`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ...errors import one_line
from ...live.recognition import Conversations
from .pages import PAGE_ROOT, Page, document

MAX_ASKED_BYTES = 4096
"""Bytes that such a request may have."""

WHAT_TO_SEND = 'send {"conversation": ID} or {"all": true}'

_PATHS = {f"{PAGE_ROOT}/api/off": True, f"{PAGE_ROOT}/api/on": False}

ALL = ""
"""In place of an id."""


def asked_off(method: str, target: str) -> bool | None:
    """Whether off or on is asked for; None for anything else."""
    return _PATHS.get(target.partition("?")[0].rstrip("/")) if method == "POST" else None


def wanted(headers: Mapping[str, str], body: bytes) -> Page | str:
    """The id of a conversation, or the beginning of that, or `ALL`; or why nothing is done."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _refused(415, "this is not application/json")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return _refused(400, f"this is no JSON: {WHAT_TO_SEND}")
    if isinstance(asked, dict) and asked.keys() == {"all"} and asked["all"] is True:  # 1 equals True in Python
        return ALL
    name = asked.get("conversation") if isinstance(asked, dict) and len(asked) == 1 else None
    return name if isinstance(name, str) and name else _refused(400, WHAT_TO_SEND)


def chosen(asked: str, ids: Collection[str]) -> Page | str:
    """Which of these it is; or why nothing is done."""
    if asked == ALL or asked in ids:
        return asked
    return next(iter(ids)) if len(ids) == 1 else _refused(409 if ids else 404, _which(asked, list(ids)))


def told(found: str, off: bool) -> tuple[str, str]:
    """What happened, and to which conversation."""
    if found == ALL:
        return f"all conversations were switched {_word(off)}, and those to come", ""
    return f"switched {_word(off)}", found


def state(conversations: Conversations) -> dict[str, Any]:
    """What is off."""
    return {"all_off": conversations.all_off, "off": conversations.off}


def shown(conversations: Conversations) -> dict[str, Any]:
    """What of them the page shows beside the figures."""
    memory = {"conversations": len(conversations), "bytes": conversations.memory}
    return {**state(conversations), "lookups": conversations.lookups, "memory": memory}


def _refused(status: int, why: str) -> Page:
    return document({"error": why}, status)


def _word(off: bool) -> str:
    return "off" if off else "on"


def _which(name: str, found: list[str]) -> str:
    shown = one_line(name)[:40]
    if not found:
        return f"{shown}: no such conversation is in use: the page at {PAGE_ROOT} shows their ids"
    some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
    return f"{shown}: {len(found)} conversations begin so: {some}: say which"
