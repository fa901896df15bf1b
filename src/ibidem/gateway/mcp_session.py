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
from .contexts import ContextOutputs, ForwardedCall, truncate_arguments
from .jsonrpc import (
    CLIENT_INFO,
    SERVER_INFO,
    RequestId,
    change_tools,
    ends_call,
    has_structured_output,
    info_name,
    listed_tools,
    message_meta,
    parse_text_result,
    read_message,
    replace_by_hint,
    request_id,
    request_params,
    tool_response,
)
from .tool_rules import GatewayRules

SHARED_CONNECTION_CLIENTS = ("claude-code", "cursor", "gemini-cli", "goose", "opencode", "visual studio code")
"""Prefixes of the names of clients whose subagents call tools on the connection of the main agent."""
CONTEXT_ID_CLIENTS = ("codex",)
"""Prefixes of the names of clients that send the context with each call.

Codex's model writes programs that call tools. Such a program would get the hint in place of its data.
"""
CONTEXT_KEYS = ("sessionId", "threadId", "windowId")
"""Keys in the `_meta` of a call that identify a context. A thread gets a new window with each compaction."""


def why_no_hints(client: str | None, *, codex: bool, no_subagents: bool) -> str:
    """Return why this client gets no hints, as one line for the user; empty if it gets hints."""
    if client is None:
        return "hints are off: the client did not send its name"
    name, client_text = client.casefold(), one_line(client[:64])
    if name.startswith(CONTEXT_ID_CLIENTS):
        why = "its scripts would get hints in place of data (--codex turns them on)"
        return "" if codex else f"hints are off for {client_text}: {why}"
    if no_subagents:
        return ""
    is_shared = name.startswith(SHARED_CONNECTION_CLIENTS)
    why = "its subagents share this connection" if is_shared else "it may have subagents that share this connection"
    plugin_advice = "use its plugin instead, or " if name.startswith("claude-code") else ""
    return f"hints are off for {client_text}: {why} ({plugin_advice}--no-subagents turns them on)"


def identify_context(client: str, meta: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return what identifies the context of a call. None if this client identifies contexts, but not for this call."""
    keys = tuple(f"{key}={meta[key]}" for key in CONTEXT_KEYS if isinstance(meta.get(key), str))
    if not keys and client.casefold().startswith(CONTEXT_ID_CLIENTS):
        return None
    return keys


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

    def summary_line(self) -> str:
        """Return the summary line."""
        return (
            f"{self.results:,} result{'s' * (self.results != 1)}, {self.hints:,} hint{'s' * (self.hints != 1)}, "
            f"{self.saved:,} bytes saved"
        )


class ForwardTarget(NamedTuple):
    """Bytes to send on after a client's message."""

    to_server: bytes
    to_client: bytes = b""


PendingRequest = ForwardedCall | Literal["initialize", "list"]


class McpSession:
    """State of one connection. `from_client` and `from_server` take whole messages and never raise."""

    def __init__(
        self, settings: GatewaySettings, totals: GatewayTotals, tell: Callable[[str], None] = lambda line: None
    ) -> None:
        self._settings = settings
        self._totals = totals
        self._tell = tell
        self._reported: set[str] = set()
        self._pending: OrderedDict[RequestId, PendingRequest] = OrderedDict()
        self._client: str | None = None
        self._server = ""
        self._contexts: ContextOutputs | None = None
        self._has_no_schemas = False
        """True if the client has a list of tools without any `outputSchema`."""
        self._has_earlier_schema = False
        """True if an earlier page of the current list of tools still had an `outputSchema`."""
        self._calls = 0
        self._newest_answered = 0
        """Highest number of a call that has its result."""
        self._names: set[str] = set()
        self._own_tool = False

    def from_client(self, data: bytes, now: float) -> ForwardTarget:
        """Return what to send for a message of the client: the same bytes to the server, or our own response."""
        try:
            message = read_message(data)
            if isinstance(message, dict):
                return self._handle_request(data, message, now)
            self.clear_memory()  # a batch of messages, or not a message
        except Exception as error:
            self._report_fault(error)
        return ForwardTarget(data)

    def from_server(self, data: bytes, now: float) -> bytes:
        """Return the bytes to send to the client for a message of the server."""
        if not self._pending:
            return data
        try:
            message = read_message(data)
            if isinstance(message, dict):
                return self._handle_response(data, message, now)
            self.clear_memory()
        except Exception as error:
            self._report_fault(error)
        return data

    def clear_memory(self) -> None:
        """Clear the memory, because a message was forwarded unread and may have changed what a context contains."""
        if self._contexts is not None:
            self._contexts.clear_memory()
        if "list" in self._pending.values():  # the unread message may be the list, with its `outputSchema`
            self._has_no_schemas, self._has_earlier_schema = False, True

    # --- from the client --------------------------------------------------------------------------

    def _handle_request(self, data: bytes, message: dict[str, Any], now: float) -> ForwardTarget:
        method, params = message.get("method"), request_params(message)
        self._client = info_name(message_meta(params).get(CLIENT_INFO)) or self._client
        if method == "notifications/cancelled":
            self._handle_cancellation(params)
        elif method in FORGET_NOTICES and self._settings.offers_forget:
            self.clear_memory()
        id = request_id(message.get("id"))
        if id is None:
            return ForwardTarget(data)
        if method == "initialize":
            self._client = info_name(params.get("clientInfo"))
            self.clear_memory()
            self._await_response(id, "initialize")
        elif method == "tools/list" and (self._settings.strip_schema or self._settings.offers_forget):
            if "cursor" not in params:
                self._names.clear()
                self._has_earlier_schema = False
            self._await_response(id, "list")
        elif method == "tools/call":
            return self._handle_call(data, message, id, now)
        return ForwardTarget(data)

    def _handle_call(self, data: bytes, message: dict[str, Any], id: RequestId, now: float) -> ForwardTarget:
        params = request_params(message)
        tool = params.get("name")
        if self._own_tool and tool == self._tool_name:
            self.clear_memory()
            return ForwardTarget(b"", tool_response(message, "Forgotten: what comes next is sent in full."))
        why = why_no_hints(self._client, codex=self._settings.codex, no_subagents=self._settings.no_subagents)
        context = identify_context(self._client or "", message_meta(params))
        if why or context is None or not isinstance(tool, str):
            self._tell_once(why)
            self._await_response(id, ForwardedCall("", "", None, None, now))
        else:
            arguments = truncate_arguments(params.get("arguments"), len(data))
            self._calls += 1
            self._await_response(id, ForwardedCall(str(id[1]), tool, arguments, context, now, self._calls))
        return ForwardTarget(data)

    def _await_response(self, id: RequestId, what: PendingRequest) -> None:
        self._pending.pop(id, None)
        self._pending[id] = what
        if len(self._pending) > MAX_OUTSTANDING:
            self._pending.popitem(last=False)
            self.clear_memory()  # the response of the dropped request will be forwarded unread

    def _handle_cancellation(self, params: Any) -> None:
        """Forget a canceled request. Its response may still arrive, or was forwarded, but the model does not see it."""
        id = request_id(params.get("requestId"))
        if id is not None:
            self._pending.pop(id, None)
        self.clear_memory()

    # --- from the server --------------------------------------------------------------------------

    def _handle_response(self, data: bytes, message: dict[str, Any], now: float) -> bytes:
        id = request_id(message.get("id"))
        if id is None or "method" in message:
            return data
        request = self._pending.pop(id, None)
        if request is None:
            return data
        result = message.get("result")
        if isinstance(result, dict):
            info = message_meta(result).get(SERVER_INFO) or (request == "initialize" and result.get("serverInfo"))
            self._server = info_name(info) or self._server
        if request == "list":
            return self._rewrite_tool_list(data, message)
        return self._rewrite_result(data, message, request, now) if isinstance(request, ForwardedCall) else data

    def _rewrite_result(self, data: bytes, message: dict[str, Any], call: ForwardedCall, now: float) -> bytes:
        if not ends_call(message):
            return data
        self._totals.results += 1
        if call.context is None:
            return data
        if self._contexts is None:
            self._contexts = ContextOutputs(self._settings.rules, self._settings.name or self._server or "server")
        text = parse_text_result(message, structured=self._has_no_schemas)
        late = not 0 <= now - call.at <= MAX_SECONDS
        if (
            call.number > self._newest_answered + 1
        ):  # an earlier call has no result yet, so distances to older results are off
            self._contexts.clear_memory()
        long = text is not None and text.chars > self._settings.rules.max_chars
        emission = self._contexts.emit_output(call, None if text is None or late or long else text.body, now)
        # A model reads the results of parallel calls in the order of the calls. If they arrive in another order, our
        # count differs from what the model sees, and a hint could point at a later result.
        if call.number < self._newest_answered:
            self._contexts.clear_memory()
            return data
        self._newest_answered = call.number
        if text is None or emission.kind not in ("hint", "near"):
            return data
        new = replace_by_hint(data, message, text, emission.text)
        if len(new) >= len(data) and self._settings.rules.style != "devboy":  # devboy sends longer hints too
            self._contexts.undo_hint(call)
            return data
        self._totals.hints += 1
        self._totals.saved += max(0, len(data) - len(new))
        return new

    def _rewrite_tool_list(self, data: bytes, message: dict[str, Any]) -> bytes:
        tools = listed_tools(message)
        if tools is None:
            return data
        self._names |= {name for name in map(info_name, tools) if name is not None}
        last = not message["result"].get("nextCursor")
        clash = self._tool_name in self._names
        add = FORGET_TOOL | {"name": self._tool_name} if self._settings.offers_forget and last and not clash else None
        if self._settings.offers_forget and clash:
            self._tell_once(f"the server already has a tool {self._tool_name}, so the gateway does not offer its own")
        new = change_tools(data, message, strip=self._settings.strip_schema, add=add)
        changed = new is not data
        self._own_tool = (self._own_tool and not clash) or (add is not None and changed)
        self._has_earlier_schema = self._has_earlier_schema or (has_structured_output(message) and not changed)
        self._has_no_schemas = self._settings.strip_schema and not self._has_earlier_schema
        return new

    @property
    def _tool_name(self) -> str:
        return "compact_pipeline_cache" if self._settings.rules.style == "devboy" else "forget"

    # --- messages for the user --------------------------------------------------------------------

    def _tell_once(self, line: str) -> None:
        if line and line not in self._reported:
            self._reported.add(line)
            self._tell(line)

    def _report_fault(self, error: Exception) -> None:
        self.clear_memory()
        self._tell_once(
            f"a message was forwarded unchanged after a bug in ibidem ({type(error).__name__}). Please report it"
        )


FORGET_TOOL: dict[str, Any] = {
    "description": (
        "Call this when earlier tool results are no longer in your context, for example after it was summarised. "
        "Results that repeat an earlier one are then sent in full again."
    ),
    "inputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
}
