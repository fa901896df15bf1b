"""Cache directives of a client's request, and digests of the parts that a provider's cache is keyed by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from .. import formats
from ..formats import Format
from ..formats.cache_control import CacheBreakpoint
from ..wire import ScannedRequest

MAX_INSPECTED_MESSAGES = 40
"""Number of last messages to inspect if no message is known to have been sent before."""

BREAKPOINT_FIELD = "cache_control"
"""Field of a cache breakpoint in tools and system text."""

BREAKPOINT_KEY = re.compile(rb'"cache_control"\s*:')
"""The field as a JSON key. Quotes in tool output are escaped, so tool output cannot match and cause a full read."""

TOOLS, SYSTEM = ("tools",), ("system", "instructions", "systemInstruction", "system_instruction")


MAX_DIGESTS = 1000
"""Maximum number of cached digests."""

_DIGESTS: dict[tuple[tuple[str, ...], int, int], str] = {}
"""Digests by field names, length, and Python's hash, which is salted per process and so cannot be attacked."""


class CacheDirectives(NamedTuple):
    """Cache directives of one request, as the client sent it."""

    marks: tuple[tuple[float, bool], ...] = ()
    """Cache breakpoints in order: approximate position as a share of the request, and whether the TTL is an hour."""
    tools: str = ""
    system: str = ""
    """Digests of tools and system text without breakpoints; empty if the request has none."""
    blocks: int | None = None
    """Number of new content blocks; None if unknown."""
    shared: float = 0.0
    """Approximate share of the request that was sent before."""

    @property
    def head(self) -> tuple[str, str]:
        return self.tools, self.system


class _RequestDirectives(NamedTuple):
    """Directives and digests of the request parameters."""

    marks: Sequence[CacheBreakpoint]
    tools: str
    system: str


def _request_directives(dialect: Format, head: Mapping[str, Any]) -> _RequestDirectives:
    """Read the directives of the request parameters. Most requests repeat them, so the result is cached with them."""
    notes: dict[Hashable, Any] = getattr(head, "notes", {})
    directives: _RequestDirectives | None = notes.get(dialect.name)
    if directives is None:
        marks = dialect.cache_control.breakpoints_in_head(head)
        directives = notes[dialect.name] = _RequestDirectives(
            marks, _digest_fields(head, TOOLS), _digest_fields(head, SYSTEM)
        )
    return directives


def read_directives(request: ScannedRequest, format: str, first_new: int, closely: bool = False) -> CacheDirectives:
    """Read the cache directives of a request. Only new messages are searched for breakpoints; with `closely`, a
    search without a hit continues with all messages."""
    dialect, head, length = formats.format_named(format), request.params, len(request)
    start = max(first_new, length - MAX_INSPECTED_MESSAGES)
    new = [request.message_at(index) for index in range(start, length)]
    inside = [
        mark
        for index, each in enumerate(new, start)
        for mark in dialect.cache_control.breakpoints_in_message(index, each)
    ]
    parameters = _request_directives(dialect, head)
    marks = [*parameters.marks, *inside, *dialect.cache_control.breakpoints_at_end(head, length)]
    positions = [(mark.message, mark.long) for mark in marks]
    if closely and not positions and start and BREAKPOINT_KEY.search(request.original):
        whole = [request.message_at(index) for index in range(length)]
        positions = [(mark.message, mark.long) for mark in dialect.cache_control.all_breakpoints(head, whole)]
    return CacheDirectives(
        tuple([(_position_share(request, message), long) for message, long in positions]),
        parameters.tools,
        parameters.system,
        sum(map(_count_blocks, new)) if 0 < first_new == start else None,
        _position_share(request, first_new - 1) if first_new else 0.0,
    )


def _position_share(request: ScannedRequest, message: int) -> float:
    """Share of a request up to the end of a message, or of the request parameters (-1), which providers put first."""
    state, size = request.scan_state, len(request.original)
    if state is None or not state.spans or not size:
        return 1.0
    first, last = state.spans[0][0], state.spans[-1][1]
    head = size - (last - first)
    return (head + (state.spans[message][1] - first if message >= 0 else 0)) / size


def _count_blocks(message: Any) -> int:
    content = message.get("content", message.get("parts")) if isinstance(message, dict) else None
    return len(content) if isinstance(content, list) else 1


def _digest_fields(head: Any, names: tuple[str, ...]) -> str:
    """Digest some fields. Tools and system text are large and repeat in every request, so digests are cached."""
    raw = getattr(head, "raw", None)
    if raw is None:
        return _compute_digest(head, names)
    raw_fields = tuple(map(raw, names))
    if not any(raw_fields):
        return ""
    key = names, sum(map(len, raw_fields)), hash(raw_fields)
    digest = _DIGESTS.get(key)
    if digest is None:
        if len(_DIGESTS) >= MAX_DIGESTS:
            _DIGESTS.clear()
        digest = _DIGESTS[key] = _compute_digest(head, names)
    return digest


def _compute_digest(head: Any, names: tuple[str, ...]) -> str:
    value = next((head[name] for name in names if head.get(name)), None)
    if value is None:
        return ""
    try:
        return hashlib.blake2b(msgspec.json.encode(_strip_breakpoints(value)), digest_size=8).hexdigest()
    except (TypeError, ValueError, RecursionError):  # JSON that only the standard library accepts
        return ""


def _strip_breakpoints(value: Any) -> Any:
    """Remove breakpoints from a list of blocks: moving a breakpoint does not change the content."""
    return [_strip_breakpoint(each) for each in value] if isinstance(value, list) else value


def _strip_breakpoint(block: Any) -> Any:
    has_breakpoint = isinstance(block, dict) and BREAKPOINT_FIELD in block
    return {name: each for name, each in block.items() if name != BREAKPOINT_FIELD} if has_breakpoint else block
