"""Requests that pause and resume conversations: `POST /ibidem/api/off` and `on`.

Only requests with the content type JSON are accepted, because HTML forms of other sites cannot send it. This is in
addition to the access checks of `admin_pages`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ...errors import one_line
from ...live.recognition import Conversations
from .pages import PAGE_ROOT, Page, document

MAX_ASKED_BYTES = 4096
"""Maximum bytes of such a request."""

WHAT_TO_SEND = 'send {"conversation": ID} or {"all": true}'

_PATHS = {f"{PAGE_ROOT}/api/off": True, f"{PAGE_ROOT}/api/on": False}

ALL = ""
"""Value in place of an id for all conversations."""


def asked_off(method: str, target: str) -> bool | None:
    """Return True for a request to pause, False for one to resume, None for any other."""
    return _PATHS.get(target.partition("?")[0].rstrip("/")) if method == "POST" else None


def wanted(headers: Mapping[str, str], body: bytes) -> Page | str:
    """Return the requested id, or its start, or `ALL`; an error response if the request is invalid."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _refused(415, "the content type must be application/json")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return _refused(400, f"not valid JSON: {WHAT_TO_SEND}")
    if isinstance(asked, dict) and asked.keys() == {"all"} and asked["all"] is True:  # 1 equals True in Python
        return ALL
    name = asked.get("conversation") if isinstance(asked, dict) and len(asked) == 1 else None
    return name if isinstance(name, str) and name else _refused(400, WHAT_TO_SEND)


def chosen(asked: str, ids: Collection[str]) -> Page | str:
    """Return the id that matches the request; an error response if none or several match."""
    if asked == ALL or asked in ids:
        return asked
    return next(iter(ids)) if len(ids) == 1 else _refused(409 if ids else 404, _which(asked, list(ids)))


def told(found: str, off: bool) -> tuple[str, str]:
    """Return the text of the event, and the id of its conversation."""
    if found == ALL:
        return f"{_word(off)} all conversations, including new ones", ""
    return f"{_word(off)}", found


def state(conversations: Conversations) -> dict[str, Any]:
    """Return the paused conversations."""
    return {"all_off": conversations.all_off, "off": conversations.off}


def shown(conversations: Conversations) -> dict[str, Any]:
    """Return the data about conversations that the page shows in addition to the statistics."""
    memory = {"conversations": len(conversations), "bytes": conversations.memory}
    return {**state(conversations), "lookups": conversations.lookups, "memory": memory}


def _refused(status: int, why: str) -> Page:
    return document({"error": why}, status)


def _word(off: bool) -> str:
    return "paused" if off else "resumed"


def _which(name: str, found: list[str]) -> str:
    shown = one_line(name)[:40]
    if not found:
        return f"{shown}: no live conversation has this id: see the ids on the page at {PAGE_ROOT}"
    some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
    return f"{shown}: {len(found)} conversations have ids that start like this: {some}. Pass more of the id"
