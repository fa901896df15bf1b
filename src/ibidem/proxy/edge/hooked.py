"""HTTP route for hook events of Claude Code."""

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
"""Size above which an event is parsed in a thread, so that it does not block the event loop."""


def is_hook(method: str, target: str) -> bool:
    return method == "POST" and target.partition("?")[0] == HOOKS_PATH


async def hook(proxy: Proxy, request: web.BaseRequest) -> Page:
    """Handle an event. Errors give an empty response too, so that the client continues. Access is already checked."""
    if proxy.settings.observe or proxy.settings.reuse_port or proxy.conversations.all_off:
        proxy.hooks.forget()  # hooks may be on again later, and this missed event may be a compaction
        return document({})
    if request.content_type != "application/json":  # HTML forms of other sites cannot send this type
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
    """Read the body, but stop when it is too large."""
    found = bytearray()
    while len(found) <= MAX_EVENT_BYTES and (data := await request.content.readany()):
        found += data
    return bytes(found)
