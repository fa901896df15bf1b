"""HTTP route for hook events of Claude Code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from ..claude_hooks import HOOKS_PATH, MAX_EVENT_BYTES, parse_event
from ..page.admin_pages import AdminPage, json_page

if TYPE_CHECKING:
    from .app import Proxy

BODY_SECONDS = 10.0
LARGE_EVENT = 2**18
"""Size above which an event is parsed in a thread, so that it does not block the event loop."""


def is_hook(method: str, target: str) -> bool:
    return method == "POST" and target.partition("?")[0] == HOOKS_PATH


async def handle_hook(proxy: Proxy, request: web.BaseRequest) -> AdminPage:
    """Handle an event. Errors give an empty response too, so that the client continues. Access is already checked."""
    if proxy.settings.observe or proxy.settings.reuse_port or proxy.conversations.all_off:
        proxy.hooks.clear_memory()  # hooks may be on again later, and this missed event may be a compaction
        return json_page({})
    if request.content_type != "application/json":  # HTML forms of other sites cannot send this type
        return json_page({})
    try:
        body = await asyncio.wait_for(_read_body(request), BODY_SECONDS)
        loop = asyncio.get_running_loop()
        large = len(body) > LARGE_EVENT
        event = await loop.run_in_executor(None, parse_event, body) if large else parse_event(body)
        return json_page(proxy.hooks.handle_event(event, proxy.clock.monotonic()))
    except (TimeoutError, web.RequestPayloadError):
        return json_page({})
    except Exception as error:
        proxy.report_fault(error, "hook")
        return json_page({})


async def _read_body(request: web.BaseRequest) -> bytes:
    """Read the body, but stop when it is too large."""
    body = bytearray()
    while len(body) <= MAX_EVENT_BYTES and (data := await request.content.readany()):
        body += data
    return bytes(body)
