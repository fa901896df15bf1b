"""HTTP route to pause and resume conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from ..page import pause_control
from ..page.admin_pages import AdminPage, json_page

if TYPE_CHECKING:
    from .app import Proxy

BODY_SECONDS = 10.0
"""Time limit for the body, which has only a few bytes."""


async def handle_pause(proxy: Proxy, request: web.BaseRequest, headers: Mapping[str, str], off: bool) -> AdminPage:
    """Pause or resume one or all conversations. Access is already checked."""
    if proxy.settings.observe:
        return json_page({"error": "this proxy only observes, so no conversation can be paused"}, 409)
    try:
        body = await asyncio.wait_for(_read_body(request), BODY_SECONDS)
    except (TimeoutError, web.RequestPayloadError):
        return json_page({"error": "the request is incomplete"}, 400)
    if len(body) > pause_control.MAX_BODY_BYTES:
        return json_page({"error": f"the body is too large: {pause_control.WHAT_TO_SEND}"}, 413)
    requested = pause_control.requested_id(headers, body)
    if isinstance(requested, AdminPage):
        return requested
    conversations = proxy.conversations
    ids = conversations.names_by_id(requested)
    match = pause_control.match_id(requested, ids)
    if isinstance(match, AdminPage):
        return match
    if match == pause_control.ALL:
        conversations.set_all_paused(off)
    else:
        conversations.set_paused(match, off)
    proxy.store_pause("" if match == pause_control.ALL else ids[match], off)
    proxy.stats.add_event("switch", proxy.clock.time(), *pause_control.pause_message(match, off))
    paused_state = pause_control.paused_conversations(conversations)
    return json_page(paused_state if match == pause_control.ALL else {**paused_state, "conversation": match})


async def _read_body(request: web.BaseRequest) -> bytes:
    """Read the body, but stop when it is too large."""
    body = b""
    while len(body) <= pause_control.MAX_BODY_BYTES and (data := await request.content.readany()):
        body += data
    return body
