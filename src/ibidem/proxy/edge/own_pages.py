"""The page and its API: who asks is answered with what all processes of this proxy know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..page import pages, switching
from .client_side import page_response
from .hooked import hook, is_hook
from .peers import Answers, Question
from .switched import heard, switch

if TYPE_CHECKING:
    from .app import Proxy

STATE_SECONDS, KEEPALIVE_SECONDS = 0.5, 15.0
"""Seconds between two states that a page is told, and after which it is told that we are still there."""


async def answered(
    proxy: Proxy, request: web.BaseRequest, target: str, headers: Mapping[str, str]
) -> web.StreamResponse:
    found = pages.page_refusal(proxy.settings, target, headers)
    texts = pages.may_see_texts(proxy.settings, target, headers)
    if found is None and request.method == "GET" and target.partition("?")[0] == pages.LIVE_PATH:
        return await _live(proxy, request, texts)
    off = switching.asked_off(request.method, target)
    if found is None and off is not None:
        found = await switch(proxy, request, headers, off)
    if found is None and is_hook(request.method, target):
        found = await hook(proxy, request)
    if found is None:
        found = await _found(proxy, request.method, target, texts)
    answer = page_response(found)
    if request.body_exists:
        answer.force_close()
    return answer


async def _found(proxy: Proxy, method: str, target: str, texts: bool) -> pages.Page:
    try:
        if pages.is_slow(target):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, proxy.pages.answer, method, target, texts)
        question = pages.question(target, texts)
        others = await proxy.peers.ask(question) if question is not None else Answers()
        return proxy.pages.answer(method, target, texts, others.found, others.fleet)
    except Exception as error:
        proxy.report_fault(error, "page")
        return pages.text(500, "an error in the proxy itself: it is in its log\n")


async def _live(proxy: Proxy, request: web.BaseRequest, texts: bool) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    seen, quiet = None, 0.0
    while not proxy.stopping.is_set():
        others = await proxy.peers.ask({"what": "changes"})
        changes = proxy.records.changes, others
        if changes != seen:
            seen, quiet = changes, 0.0
            told = await proxy.peers.ask({"what": "state", "texts": texts})
            state = proxy.pages.state(texts, told.found, told.fleet)
            await response.write(f"event: state\ndata: {json.dumps(state)}\n\n".encode())
        elif quiet >= KEEPALIVE_SECONDS:
            quiet = 0.0
            await response.write(b": still here\n\n")
        with suppress(TimeoutError):
            await asyncio.wait_for(proxy.stopping.wait(), STATE_SECONDS)
        quiet += STATE_SECONDS
    return response


def answer_peer(proxy: Proxy, question: Question) -> Any:
    """What another process of this proxy asks for: it has seen to it that who asked there may know."""
    what = question["what"]
    if what == "changes":
        return proxy.records.changes
    if what == "ids":
        return proxy.conversations.named(question["id"])
    if what == "switch":
        heard(proxy.conversations, question)
        return switching.state(proxy.conversations)
    return proxy.pages.told(question)
