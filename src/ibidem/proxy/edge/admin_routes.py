"""Admin routes: the page, its API, pauses and hooks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from ..page import admin_pages, pause_control
from .hook_route import handle_hook, is_hook
from .pause_route import handle_pause
from .response_writer import page_response

if TYPE_CHECKING:
    from .app import Proxy

STATE_SECONDS, KEEPALIVE_SECONDS = 0.5, 15.0
"""Minimum time between two states for a page, and time without news until it gets a sign of life."""


async def handle_admin(
    proxy: Proxy, request: web.BaseRequest, target: str, headers: Mapping[str, str]
) -> web.StreamResponse:
    page = admin_pages.deny_page(proxy.settings, target, headers)
    texts = admin_pages.may_see_texts(proxy.settings, target, headers)
    if page is None and request.method == "GET" and target.partition("?")[0] == admin_pages.LIVE_PATH:
        return await _stream_state(proxy, request, texts)
    pauses = pause_control.parse_pause_path(request.method, target)
    if page is None and pauses is not None:
        page = await handle_pause(proxy, request, headers, pauses)
    if page is None and is_hook(request.method, target):
        page = await handle_hook(proxy, request)
    if page is None:
        page = await _respond_page(proxy, request.method, target, texts)
    answer = page_response(page)
    # Another process on this port may have the conversation. Only a new connection can reach that process.
    if request.body_exists or (page.status == 404 and proxy.settings.reuse_port):
        answer.force_close()
    return answer


async def _respond_page(proxy: Proxy, method: str, target: str, texts: bool) -> admin_pages.AdminPage:
    try:
        if admin_pages.needs_disk(target):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, proxy.pages.respond, method, target, texts)
        return proxy.pages.respond(method, target, texts)
    except Exception as error:
        proxy.report_fault(error, "page")
        return admin_pages.text_page(500, "error in the proxy: see its log\n")


async def _stream_state(proxy: Proxy, request: web.BaseRequest, texts: bool) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    seen, quiet = None, 0.0
    while not proxy.stopping.is_set():
        if proxy.stats.changes != seen:
            seen, quiet = proxy.stats.changes, 0.0
            state = proxy.pages.state(texts)
            await response.write(f"event: state\ndata: {json.dumps(state)}\n\n".encode())
        elif quiet >= KEEPALIVE_SECONDS:
            quiet = 0.0
            await response.write(b": still here\n\n")
        with suppress(TimeoutError):
            await asyncio.wait_for(proxy.stopping.wait(), STATE_SECONDS)
        quiet += STATE_SECONDS
    return response
