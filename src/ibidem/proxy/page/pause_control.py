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
from .admin_pages import PAGE_ROOT, AdminPage, json_page

MAX_BODY_BYTES = 4096
"""Maximum bytes of such a request."""

WHAT_TO_SEND = 'send {"conversation": ID} or {"all": true}'

_PATHS = {f"{PAGE_ROOT}/api/off": True, f"{PAGE_ROOT}/api/on": False}

ALL = ""
"""Value in place of an id for all conversations."""


def parse_pause_path(method: str, target: str) -> bool | None:
    """Return True for a request to pause, False for one to resume, None for any other."""
    return _PATHS.get(target.partition("?")[0].rstrip("/")) if method == "POST" else None


def requested_id(headers: Mapping[str, str], body: bytes) -> AdminPage | str:
    """Return the requested id, or its start, or `ALL`; an error response if the request is invalid."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _error_page(415, "the content type must be application/json")
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return _error_page(400, f"not valid JSON: {WHAT_TO_SEND}")
    if isinstance(request, dict) and request.keys() == {"all"} and request["all"] is True:  # 1 equals True in Python
        return ALL
    name = request.get("conversation") if isinstance(request, dict) and len(request) == 1 else None
    return name if isinstance(name, str) and name else _error_page(400, WHAT_TO_SEND)


def match_id(requested: str, ids: Collection[str]) -> AdminPage | str:
    """Return the id that matches the request; an error response if none or several match."""
    if requested == ALL or requested in ids:
        return requested
    return (
        next(iter(ids)) if len(ids) == 1 else _error_page(409 if ids else 404, _ambiguous_message(requested, list(ids)))
    )


def pause_message(conversation: str, off: bool) -> tuple[str, str]:
    """Return the text of the event, and the id of its conversation."""
    if conversation == ALL:
        return f"{_state_word(off)} all conversations, including new ones", ""
    return f"{_state_word(off)}", conversation


def paused_conversations(conversations: Conversations) -> dict[str, Any]:
    """Return the paused conversations."""
    return {"all_off": conversations.all_off, "off": conversations.paused_ids}


def conversation_state(conversations: Conversations) -> dict[str, Any]:
    """Return the data about conversations that the page shows in addition to the statistics."""
    memory = {"conversations": len(conversations), "bytes": conversations.total_bytes}
    return {**paused_conversations(conversations), "lookups": conversations.lookup_counts, "memory": memory}


def _error_page(status: int, why: str) -> AdminPage:
    return json_page({"error": why}, status)


def _state_word(off: bool) -> str:
    return "paused" if off else "resumed"


def _ambiguous_message(name: str, ids: list[str]) -> str:
    name_text = one_line(name)[:40]
    if not ids:
        return f"{name_text}: no live conversation has this id: see the ids on the page at {PAGE_ROOT}"
    id_list = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
    return f"{name_text}: {len(ids)} conversations have ids that start like this: {id_list}. Pass more of the id"
