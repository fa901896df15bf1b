"""HTTP route to pause and resume conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from ..page import switching
from ..page.pages import Page, document

if TYPE_CHECKING:
    from .app import Proxy

BODY_SECONDS = 10.0
"""Time limit for the body, which has only a few bytes."""


async def switch(proxy: Proxy, request: web.BaseRequest, headers: Mapping[str, str], off: bool) -> Page:
    """Pause or resume one or all conversations. Access is already checked."""
    if proxy.settings.observe:
        return document({"error": "this proxy only observes, so no conversation can be paused"}, 409)
    try:
        body = await asyncio.wait_for(_body(request), BODY_SECONDS)
    except (TimeoutError, web.RequestPayloadError):
        return document({"error": "the request is incomplete"}, 400)
    if len(body) > switching.MAX_ASKED_BYTES:
        return document({"error": f"the body is too large: {switching.WHAT_TO_SEND}"}, 413)
    asked = switching.wanted(headers, body)
    if isinstance(asked, Page):
        return asked
    conversations = proxy.conversations
    ids = conversations.named(asked)
    found = switching.chosen(asked, ids)
    if isinstance(found, Page):
        return found
    if found == switching.ALL:
        conversations.turn_all(off)
    else:
        conversations.turn(found, off)
    proxy.note_pause("" if found == switching.ALL else ids[found], off)
    proxy.records.event("switch", proxy.clock.time(), *switching.told(found, off))
    own = switching.state(conversations)
    return document(own if found == switching.ALL else {**own, "conversation": found})


async def _body(request: web.BaseRequest) -> bytes:
    """Read the body, but stop when it is too large."""
    found = b""
    while len(found) <= switching.MAX_ASKED_BYTES and (data := await request.content.readany()):
        found += data
    return found
