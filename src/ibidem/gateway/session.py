"""One client and one server: a message in, a message out. No sockets, no clock, no threads.

Answers are matched to calls by id and direction: a server asks its client things too, with ids of its own. Where
something could not be looked at, was cancelled, or took so long that the client may have given up on it, what was
remembered of the context may be untrue, so it is forgotten, or never remembered.
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
"""Names of clients begin so whose subagents are known to call tools on the connection of the main agent."""
TELL_CONTEXTS_APART = ("codex",)
"""Of clients that say with each call whose it is. This one's model writes programs that call tools: a program would get
the hint in place of its data."""
CONTEXT_KEYS = ("sessionId", "threadId", "windowId")
"""What some clients send with a call, in `_meta`: a thread is one context, and a window is what it holds between two
compactions."""


def why_no_hints(client: str | None, *, codex: bool, no_subagents: bool) -> str:
    """One line for the user; empty where a hint can be true."""
    if client is None:
        return "hints are off: the client did not say who it is"
    name, shown = client.casefold(), one_line(client[:64])
    if name.startswith(TELL_CONTEXTS_APART):
        why = "its scripts would get them in place of data (--codex turns them on)"
        return "" if codex else f"hints are off for {shown}: {why}"
    if no_subagents:
        return ""
    known = name.startswith(SHARE_A_CONNECTION)
    why = "its subagents share this connection" if known else "it may have subagents that share this connection"
    own = "its plugin is the way there, or " if name.startswith("claude-code") else ""
    return f"hints are off for {shown}: {why} ({own}--no-subagents turns them on)"


def context_of(client: str, meta: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What one context is told apart by; None where this client's contexts are told apart, and this one is not."""
    found = tuple(f"{key}={meta[key]}" for key in CONTEXT_KEYS if isinstance(meta.get(key), str))
    if not found and client.casefold().startswith(TELL_CONTEXTS_APART):
        return None
    return found


MAX_OUTSTANDING = 1024
"""Requests whose answers are awaited; the oldest is given up first, and its answer passes."""
MAX_SECONDS = 25.0
"""An answer that took longer is not remembered: its client may no longer wait for it."""
FORGET_NOTICES = ("notifications/devboy/compact",)
"""What a host sends that has compacted its context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What the user asked for."""

    rules: GatewayRules = field(default_factory=GatewayRules)
    strip_schema: bool = False
    """Tools promise no structured content, so that hints may stand in its place."""
    offers_forget: bool = False
    """A tool by which a model, and a notification by which a host, has everything forgotten."""
    codex: bool = False
    """Also hint to Codex, whose contexts are told apart."""
    no_subagents: bool = False
    """A connection has one context: that of its client, who has no subagents."""
    name: str = ""
    """What hints call the server; empty: as it calls itself."""


@dataclass(slots=True)
class GatewayTotals:
    """What was done, for the line at the end."""

    results: int = 0
    hints: int = 0
    saved: int = 0

    def line(self) -> str:
        return (
            f"{self.results:,} result{'s' * (self.results != 1)}, {self.hints:,} hint{'s' * (self.hints != 1)}, "
            f"{self.saved:,} bytes saved"
        )


class Forwarded(NamedTuple):
    """Where the bytes of a client's message go."""

    to_server: bytes
    to_client: bytes = b""


Awaited = ForwardedCall | Literal["initialize", "list"]


class McpSession:
    """The state of one connection. Its two methods are given whole messages, and never raise."""

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
        """The client has seen a list of tools, and no promise of structured content was left in it."""
        self._promised = False
        """In an earlier part of the list that is on its way, one was."""
        self._calls = 0
        self._newest = 0
        """The number of the last call among those that were answered."""
        self._names: set[str] = set()
        self._own_tool = False

    def from_client(self, data: bytes, now: float) -> Forwarded:
        try:
            message = read_message(data)
            if isinstance(message, dict):
                return self._asked(data, message, now)
            self.unseen()  # several messages at once, or none
        except Exception as error:
            self._fault(error)
        return Forwarded(data)

    def from_server(self, data: bytes, now: float) -> bytes:
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
        """Something passed that was not looked at: what stands where is not known any more."""
        if self._contexts is not None:
            self._contexts.forget()
        if "list" in self._awaited.values():  # it may have been that one, with what its tools promise
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
            self.unseen()  # its answer will pass

    def _cancelled(self, params: Any) -> None:
        """Its answer may be on its way, or may have passed already, and is not what the model sees."""
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
        if call.number > self._newest + 1:  # one before it has no result yet: older ones are further up than counted
            self._contexts.forget()
        long = found is not None and found.chars > self._settings.rules.max_chars
        emission = self._contexts.emit(call, None if found is None or late or long else found.body, now)
        # Of calls at once, a model reads the results in the order of the calls: where they end in another, what is
        # counted here is not what it sees, and a hint could point at a result further down.
        if call.number < self._newest:
            self._contexts.forget()
            return data
        self._newest = call.number
        if found is None or emission.kind not in ("hint", "near"):
            return data
        new = with_hint(data, message, found, emission.text)
        if len(new) >= len(data) and self._settings.rules.style != "devboy":  # which sends a hint of any length
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
            self._say(f"the server has a tool {self._tool_name} of its own: ours is not offered")
        new = with_tools(data, message, strip=self._settings.strip_schema, add=add)
        changed = new is not data
        self._own_tool = (self._own_tool and not clash) or (add is not None and changed)
        self._promised = self._promised or (promises(message) and not changed)
        self._stripped = self._settings.strip_schema and not self._promised
        return new

    @property
    def _tool_name(self) -> str:
        return "compact_pipeline_cache" if self._settings.rules.style == "devboy" else "forget"

    # --- what is said -----------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        if line and line not in self._told:
            self._told.add(line)
            self._tell(line)

    def _fault(self, error: Exception) -> None:
        self.unseen()
        self._say(f"a message passed as it came: this is a fault of ibidem ({type(error).__name__})")


FORGET_TOOL: dict[str, Any] = {
    "description": (
        "Call this when earlier tool results are no longer in your context, for example after it was summarised. "
        "Results that repeat an earlier one are then sent in full again."
    ),
    "inputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
}
