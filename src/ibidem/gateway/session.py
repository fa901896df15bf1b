"""MCP session of one client and one server: a message in, a message out. No sockets, no clock, no threads.

Responses are matched to calls by id and direction, because a server also sends requests with its own ids. If a message
could not be read, was canceled, or took so long that the client may have given up, the stored outputs may be wrong. In
these cases they are deleted, or not stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..errors import one_line
from .contexts import Contexts, ForwardedCall, kept_arguments
from .messages import (
    CLIENT_INFO,
    SERVER_INFO,
    RequestId,
    answer,
    counts,
    meta_of,
    name_in,
    params_of,
    promises,
    read_message,
    request_id,
    text_result,
    tools_of,
    with_hint,
    with_tools,
)
from .rules import GatewayRules

SHARE_A_CONNECTION = ("claude-code", "cursor", "gemini-cli", "goose", "opencode", "visual studio code")
"""Prefixes of the names of clients whose subagents call tools on the connection of the main agent."""
TELL_CONTEXTS_APART = ("codex",)
"""Prefixes of the names of clients that send the context with each call.

Codex's model writes programs that call tools. Such a program would get the hint in place of its data.
"""
CONTEXT_KEYS = ("sessionId", "threadId", "windowId")
"""Keys in the `_meta` of a call that identify a context. A thread gets a new window with each compaction."""


def why_no_hints(client: str | None, *, codex: bool, no_subagents: bool) -> str:
    """Return why this client gets no hints, as one line for the user; empty if it gets hints."""
    if client is None:
        return "hints are off: the client did not send its name"
    name, shown = client.casefold(), one_line(client[:64])
    if name.startswith(TELL_CONTEXTS_APART):
        why = "its scripts would get hints in place of data (--codex turns them on)"
        return "" if codex else f"hints are off for {shown}: {why}"
    if no_subagents:
        return ""
    known = name.startswith(SHARE_A_CONNECTION)
    why = "its subagents share this connection" if known else "it may have subagents that share this connection"
    own = "use its plugin instead, or " if name.startswith("claude-code") else ""
    return f"hints are off for {shown}: {why} ({own}--no-subagents turns them on)"


def context_of(client: str, meta: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return what identifies the context of a call. None if this client identifies contexts, but not for this call."""
    found = tuple(f"{key}={meta[key]}" for key in CONTEXT_KEYS if isinstance(meta.get(key), str))
    if not found and client.casefold().startswith(TELL_CONTEXTS_APART):
        return None
    return found


MAX_OUTSTANDING = 1024
"""Maximum requests that wait for a response. The oldest is dropped first, and its response is forwarded unread."""
MAX_SECONDS = 25.0
"""A response that took longer is not stored, because its client may no longer wait for it."""
FORGET_NOTICES = ("notifications/devboy/compact",)
"""Notifications from a host that has compacted its context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Options of `ibidem mcp`."""

    rules: GatewayRules = field(default_factory=GatewayRules)
    strip_schema: bool = False
    """Remove `outputSchema` from tools, so that hints can replace structured content."""
    offers_forget: bool = False
    """Offer a tool to the model, and a notification to the host, that clears the memory."""
    codex: bool = False
    """Also send hints to Codex, whose calls identify their context."""
    no_subagents: bool = False
    """The client has no subagents, so a connection has one context."""
    name: str = ""
    """Server name in hints. Empty: the server's own name."""


@dataclass(slots=True)
class GatewayTotals:
    """Counts for the summary line at exit."""

    results: int = 0
    hints: int = 0
    saved: int = 0

    def line(self) -> str:
        """Return the summary line."""
        return (
            f"{self.results:,} result{'s' * (self.results != 1)}, {self.hints:,} hint{'s' * (self.hints != 1)}, "
            f"{self.saved:,} bytes saved"
        )


class Forwarded(NamedTuple):
    """Bytes to send on after a client's message."""

    to_server: bytes
    to_client: bytes = b""


Awaited = ForwardedCall | Literal["initialize", "list"]


class McpSession:
    """State of one connection. `from_client` and `from_server` take whole messages and never raise."""

    def __init__(
        self, settings: GatewaySettings, totals: GatewayTotals, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self._settings = settings
        self._totals = totals
        self._tell = tell
        self._told: set[str] = set()
        self._awaited: OrderedDict[RequestId, Awaited] = OrderedDict()
        self._client: str | None = None
        self._server = ""
        self._contexts: Contexts | None = None
        self._stripped = False
        """True if the client has a list of tools without any `outputSchema`."""
        self._promised = False
        """True if an earlier page of the current list of tools still had an `outputSchema`."""
        self._calls = 0
        self._newest = 0
        """Highest number of a call that has its result."""
        self._names: set[str] = set()
        self._own_tool = False

    def from_client(self, data: bytes, now: float) -> Forwarded:
        """Return what to send for a message of the client: the same bytes to the server, or our own response."""
        try:
            message = read_message(data)
            if isinstance(message, dict):
                return self._asked(data, message, now)
            self.unseen()  # a batch of messages, or not a message
        except Exception as error:
            self._fault(error)
        return Forwarded(data)

    def from_server(self, data: bytes, now: float) -> bytes:
        """Return the bytes to send to the client for a message of the server."""
        if not self._awaited:
            return data
        try:
            message = read_message(data)
            if isinstance(message, dict):
                return self._answered(data, message, now)
            self.unseen()
        except Exception as error:
            self._fault(error)
        return data

    def unseen(self) -> None:
        """Clear the memory, because a message was forwarded unread and may have changed what a context contains."""
        if self._contexts is not None:
            self._contexts.forget()
        if "list" in self._awaited.values():  # the unread message may be the list, with its `outputSchema`
            self._stripped, self._promised = False, True

    # --- from the client --------------------------------------------------------------------------

    def _asked(self, data: bytes, message: dict[str, Any], now: float) -> Forwarded:
        method, params = message.get("method"), params_of(message)
        self._client = name_in(meta_of(params).get(CLIENT_INFO)) or self._client
        if method == "notifications/cancelled":
            self._cancelled(params)
        elif method in FORGET_NOTICES and self._settings.offers_forget:
            self.unseen()
        id = request_id(message.get("id"))
        if id is None:
            return Forwarded(data)
        if method == "initialize":
            self._client = name_in(params.get("clientInfo"))
            self.unseen()
            self._await(id, "initialize")
        elif method == "tools/list" and (self._settings.strip_schema or self._settings.offers_forget):
            if "cursor" not in params:
                self._names.clear()
                self._promised = False
            self._await(id, "list")
        elif method == "tools/call":
            return self._called(data, message, id, now)
        return Forwarded(data)

    def _called(self, data: bytes, message: dict[str, Any], id: RequestId, now: float) -> Forwarded:
        params = params_of(message)
        tool = params.get("name")
        if self._own_tool and tool == self._tool_name:
            self.unseen()
            return Forwarded(b"", answer(message, "Forgotten: what comes next is sent in full."))
        why = why_no_hints(self._client, codex=self._settings.codex, no_subagents=self._settings.no_subagents)
        context = context_of(self._client or "", meta_of(params))
        if why or context is None or not isinstance(tool, str):
            self._say(why)
            self._await(id, ForwardedCall("", "", None, None, now))
        else:
            arguments = kept_arguments(params.get("arguments"), len(data))
            self._calls += 1
            self._await(id, ForwardedCall(str(id[1]), tool, arguments, context, now, self._calls))
        return Forwarded(data)

    def _await(self, id: RequestId, what: Awaited) -> None:
        self._awaited.pop(id, None)
        self._awaited[id] = what
        if len(self._awaited) > MAX_OUTSTANDING:
            self._awaited.popitem(last=False)
            self.unseen()  # the response of the dropped request will be forwarded unread

    def _cancelled(self, params: Any) -> None:
        """Forget a canceled request. Its response may still arrive, or was forwarded, but the model does not see it."""
        id = request_id(params.get("requestId"))
        if id is not None:
            self._awaited.pop(id, None)
        self.unseen()

    # --- from the server --------------------------------------------------------------------------

    def _answered(self, data: bytes, message: dict[str, Any], now: float) -> bytes:
        id = request_id(message.get("id"))
        if id is None or "method" in message:
            return data
        awaited = self._awaited.pop(id, None)
        if awaited is None:
            return data
        result = message.get("result")
        if isinstance(result, dict):
            info = meta_of(result).get(SERVER_INFO) or (awaited == "initialize" and result.get("serverInfo"))
            self._server = name_in(info) or self._server
        if awaited == "list":
            return self._listed(data, message)
        return self._result(data, message, awaited, now) if isinstance(awaited, ForwardedCall) else data

    def _result(self, data: bytes, message: dict[str, Any], call: ForwardedCall, now: float) -> bytes:
        if not counts(message):
            return data
        self._totals.results += 1
        if call.context is None:
            return data
        if self._contexts is None:
            self._contexts = Contexts(self._settings.rules, self._settings.name or self._server or "server")
        found = text_result(message, structured=self._stripped)
        late = not 0 <= now - call.at <= MAX_SECONDS
        if call.number > self._newest + 1:  # an earlier call has no result yet, so distances to older results are off
            self._contexts.forget()
        long = found is not None and found.chars > self._settings.rules.max_chars
        emission = self._contexts.emit(call, None if found is None or late or long else found.body, now)
        # A model reads the results of parallel calls in the order of the calls. If they arrive in another order, our
        # count differs from what the model sees, and a hint could point at a later result.
        if call.number < self._newest:
            self._contexts.forget()
            return data
        self._newest = call.number
        if found is None or emission.kind not in ("hint", "near"):
            return data
        new = with_hint(data, message, found, emission.text)
        if len(new) >= len(data) and self._settings.rules.style != "devboy":  # devboy sends longer hints too
            self._contexts.take_back(call)
            return data
        self._totals.hints += 1
        self._totals.saved += max(0, len(data) - len(new))
        return new

    def _listed(self, data: bytes, message: dict[str, Any]) -> bytes:
        tools = tools_of(message)
        if tools is None:
            return data
        self._names |= {name for name in map(name_in, tools) if name is not None}
        last = not message["result"].get("nextCursor")
        clash = self._tool_name in self._names
        add = FORGET_TOOL | {"name": self._tool_name} if self._settings.offers_forget and last and not clash else None
        if self._settings.offers_forget and clash:
            self._say(f"the server already has a tool {self._tool_name}, so the gateway does not offer its own")
        new = with_tools(data, message, strip=self._settings.strip_schema, add=add)
        changed = new is not data
        self._own_tool = (self._own_tool and not clash) or (add is not None and changed)
        self._promised = self._promised or (promises(message) and not changed)
        self._stripped = self._settings.strip_schema and not self._promised
        return new

    @property
    def _tool_name(self) -> str:
        return "compact_pipeline_cache" if self._settings.rules.style == "devboy" else "forget"

    # --- messages for the user --------------------------------------------------------------------

    def _say(self, line: str) -> None:
        if line and line not in self._told:
            self._told.add(line)
            self._tell(line)

    def _fault(self, error: Exception) -> None:
        self.unseen()
        self._say(f"a message was forwarded unchanged after a bug in ibidem ({type(error).__name__}). Please report it")


FORGET_TOOL: dict[str, Any] = {
    "description": (
        "Call this when earlier tool results are no longer in your context, for example after it was summarised. "
        "Results that repeat an earlier one are then sent in full again."
    ),
    "inputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
}
