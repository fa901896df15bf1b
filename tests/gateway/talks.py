"""A client and a server that say what a test has them say, through one `McpSession`."""

from __future__ import annotations

import json
from typing import Any

from ibidem.gateway.mcp_session import GatewaySettings, GatewayTotals, McpSession

LONG = "".join(f"{number}: a line of a result that is long enough\n" for number in range(20))


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def texts(*said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": each} for each in said], **more}


class Talk:
    """Ids and times go on by themselves; what a result becomes is what the client is sent."""

    def __init__(
        self, client: str | None = "an-agent", server: str = "things", no_subagents: bool = True, **settings: Any
    ) -> None:
        self.told: list[str] = []
        self.totals = GatewayTotals()
        self.session = McpSession(GatewaySettings(no_subagents=no_subagents, **settings), self.totals, self.told.append)
        self.now, self.id = 0.0, 0
        info = {} if client is None else {"clientInfo": {"name": client, "version": "1"}}
        if client is not None:
            self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, **info)
            self.answer(line(id=self.id, result={"serverInfo": {"name": server, "version": "1"}}))

    def ask(self, method: str, **params: Any) -> bytes:
        """What the client gets from us in place of the server."""
        self.id += 1
        sent = line(id=self.id, method=method, params=params)
        done = self.session.from_client(sent, self.now)
        assert done.to_server == (b"" if done.to_client else sent)
        return done.to_client

    def notify(self, method: str, **params: Any) -> None:
        sent = line(method=method, params=params)
        assert self.session.from_client(sent, self.now) == (sent, b"")

    def answer(self, data: bytes) -> bytes:
        return self.session.from_server(data, self.now)

    def call(
        self, tool: str, result: Any, meta: dict[str, Any] | None = None, took: float = 0.0, **arguments: Any
    ) -> Any:
        """The result as it arrives."""
        self.ask("tools/call", name=tool, arguments=arguments, **({"_meta": meta} if meta else {}))
        self.now += took
        return json.loads(self.answer(line(id=self.id, result=result)))["result"]

    def said(
        self, tool: str, text: str, meta: dict[str, Any] | None = None, took: float = 0.0, **arguments: Any
    ) -> str:
        """The text of the result as it arrives: a hint, or what the tool said."""
        (block,) = self.call(tool, texts(text), meta, took, **arguments)["content"]
        found: str = block["text"]
        return found

    def hinted(self, tool: str = "read", text: str = LONG, **more: Any) -> bool:
        return self.said(tool, text, **more).startswith(("[ibidem: ", "> ["))
