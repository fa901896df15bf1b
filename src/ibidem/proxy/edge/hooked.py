"""An event of Claude Code, posted to the proxy: read, and answered with what its model is to see."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from ..hooks import HOOKS_PATH, MAX_EVENT_BYTES, parse_event
from ..page.pages import Page, document

if TYPE_CHECKING:
    from .app import Proxy

BODY_SECONDS = 10.0
LARGE_EVENT = 2**18
"""Bytes from which on an event is read aside, so that nobody waits for it."""


def is_hook(method: str, target: str) -> bool:
    return method == "POST" and target.partition("?")[0] == HOOKS_PATH


async def hook(proxy: Proxy, request: web.BaseRequest) -> Page:
    """Whatever it is, the answer is one that the client goes on with. Who asks may: that was looked at before."""
    if proxy.settings.observe or proxy.settings.reuse_port or proxy.conversations.all_off:
        proxy.hooks.forget()  # it may be on again later, and this event may be that a context was compacted
        return document({})
    if request.content_type != "application/json":  # no form of another site can send that
        return document({})
    try:
        body = await asyncio.wait_for(_body(request), BODY_SECONDS)
        loop = asyncio.get_running_loop()
        large = len(body) > LARGE_EVENT
        event = await loop.run_in_executor(None, parse_event, body) if large else parse_event(body)
        return document(proxy.hooks.answer(event, proxy.clock.monotonic()))
    except (TimeoutError, web.RequestPayloadError):
        return document({})
    except Exception as error:
        proxy.report_fault(error, "hook")
        return document({})


async def _body(request: web.BaseRequest) -> bytes:
    """No more than is needed to see that it is too much."""
    found = bytearray()
    while len(found) <= MAX_EVENT_BYTES and (data := await request.content.readany()):
        found += data
    return bytes(found)
