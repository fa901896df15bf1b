"""OpenAI Responses over a WebSocket, as Codex uses it, in front of the mock provider, which knows HTTP only.

Each frame has only the new items of a conversation and the id of the response before them. The front keeps the items,
sends whole requests to the mock provider, and each event of its response as one frame.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from aiohttp import ClientSession, web

from .gate import PATIENCE

Json = dict[str, Any]


class WebSocketFront:
    """`frames` are the messages of the client."""

    def __init__(self, upstream: str) -> None:
        self.url = ""
        self.frames: list[str] = []
        self._upstream = upstream
        self._history: dict[str, list[Any]] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="websocket", daemon=True)

    def __enter__(self) -> WebSocketFront:
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the WebSocket front did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.router.add_get("/{path:.*}", self._talk)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _talk(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        async with ClientSession() as session:
            async for message in socket:
                self.frames.append(message.data)
                await self._respond(socket, session, request.path, json.loads(message.data))
        return socket

    async def _respond(self, socket: web.WebSocketResponse, session: ClientSession, path: str, frame: Json) -> None:
        own = ("type", "previous_response_id", "generate", "input")
        body = {name: value for name, value in frame.items() if name not in own}
        items = self._history.get(frame.get("previous_response_id") or "", []) + frame.get("input", [])
        if frame.get("generate") is False:
            ident = f"resp_opened_{len(self.frames)}"
            self._history[ident] = items
            for kind in ("response.created", "response.completed"):
                await socket.send_json({"type": kind, "response": {"id": ident, "output": [], "usage": None}})
            return
        async with session.post(self._upstream + path, json={**body, "input": items, "stream": True}) as response:
            async for line in response.content:
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line[6:])
                if event["type"] == "response.completed":
                    self._history[event["response"]["id"]] = items + event["response"]["output"]
                await socket.send_json(event)
