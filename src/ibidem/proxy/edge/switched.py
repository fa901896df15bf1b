"""The body of a request that switches conversations off or on, and what is done then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from ..conversation import LiveConversation
from ..conversations import Conversations
from ..page import switching
from ..page.pages import Page, document
from .peers import Question

if TYPE_CHECKING:
    from .app import Proxy

BODY_SECONDS = 10.0
"""Seconds that its few bytes may take."""


async def switch(proxy: Proxy, request: web.BaseRequest, headers: Mapping[str, str], off: bool) -> Page:
    """Who asks may: that was looked at before."""
    if proxy.settings.observe:
        return document({"error": "nothing is rewritten here: this proxy observes"}, 409)
    try:
        body = await asyncio.wait_for(_body(request), BODY_SECONDS)
    except (TimeoutError, web.RequestPayloadError):
        return document({"error": "the request did not complete"}, 400)
    if len(body) > switching.MAX_ASKED_BYTES:
        return document({"error": f"this is too large: {switching.WHAT_TO_SEND}"}, 413)
    asked = switching.wanted(headers, body)
    if isinstance(asked, Page):
        return asked
    ids, conversations = await _ids(proxy, asked), proxy.conversations
    found = switching.chosen(asked, ids)
    if isinstance(found, Page):
        return found
    names = [*ids.values()] if found == switching.ALL else [ids[found]]
    if found == switching.ALL:
        conversations.turn_all(off)
    elif not conversations.turn(found, off):  # another process has it
        conversations.hear(names, off)
    for name in [""] if found == switching.ALL else names:
        proxy.note_pause(name, off)
    proxy.records.event("switch", proxy.clock.time(), *switching.told(found, off))
    others = await proxy.peers.ask(_question(found, names, off))
    own = switching.state(conversations)
    own["off"] += [each for other in others.found if other for each in other["off"]]
    return document(own if found == switching.ALL else {**own, "conversation": found})


async def _ids(proxy: Proxy, asked: str) -> dict[str, str]:
    """Of all processes: conversations that may be meant, and their names in the store."""
    found = proxy.conversations.named(asked)
    for other in (await proxy.peers.ask({"what": "ids", "id": asked})).found:
        found.update(other or {})
    return found


def _question(id: str, names: Sequence[str], off: bool) -> Question:
    return {"what": "switch", "id": id, "all": id == switching.ALL, "names": names, "off": off}


def heard(conversations: Conversations, question: Question) -> None:
    """Another process was told to switch something."""
    if question["all"]:
        conversations.hear_all(question["names"], question["off"])
    elif not conversations.turn(question["id"], question["off"]):
        conversations.hear(question["names"], question["off"])


def hear_first_words(proxy: Proxy) -> None:
    """What was switched before this process began."""
    conversations, first = proxy.conversations, proxy.peers.first
    if first is None:
        return
    if first.all_off:
        conversations.turn_all(True)
    conversations.hear(first.off, True)


def tell_peers(proxy: Proxy, found: LiveConversation) -> None:
    """Other processes of this proxy learn that a request switched its conversation. Called in any thread."""
    if proxy.peers.first is not None:
        question = _question(found.id, [found.name], found.off)
        proxy.loop.call_soon_threadsafe(proxy.peers.tell, question)


async def _body(request: web.BaseRequest) -> bytes:
    """No more than is needed to see that it is too much."""
    found = b""
    while len(found) <= switching.MAX_ASKED_BYTES and (data := await request.content.readany()):
        found += data
    return found
