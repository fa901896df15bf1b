"""Cache directives of a client's request, and digests of the parts that a provider's cache is keyed by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from .. import formats
from ..formats import Format
from ..formats.marks import CacheMark
from ..wire import Scanned

MAX_LOOKED_AT = 40
"""Number of last messages to inspect if no message is known to have been sent before."""

MARK_FIELD = "cache_control"
"""Field of a cache breakpoint in tools and system text."""

MARK_KEY = re.compile(rb'"cache_control"\s*:')
"""The field as a JSON key. Quotes in tool output are escaped, so tool output cannot match and cause a full read."""

TOOLS, SYSTEM = ("tools",), ("system", "instructions", "systemInstruction", "system_instruction")


MAX_DIGESTS = 1000
"""Maximum number of cached digests."""

_DIGESTS: dict[tuple[tuple[str, ...], int, int], str] = {}
"""Digests by field names, length, and Python's hash, which is salted per process and so cannot be attacked."""


class CacheAsked(NamedTuple):
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


class _Beside(NamedTuple):
    """Directives and digests of the request parameters."""

    marks: Sequence[CacheMark]
    tools: str
    system: str


def _beside(dialect: Format, head: Mapping[str, Any]) -> _Beside:
    """Read the directives of the request parameters. Most requests repeat them, so the result is cached with them."""
    notes: dict[Hashable, Any] = getattr(head, "notes", {})
    found: _Beside | None = notes.get(dialect.name)
    if found is None:
        marks = dialect.marks.in_head(head)
        found = notes[dialect.name] = _Beside(marks, _digest(head, TOOLS), _digest(head, SYSTEM))
    return found


def cache_asked(scanned: Scanned, format: str, first_new: int, closely: bool = False) -> CacheAsked:
    """Read the cache directives of a request. Only new messages are searched for breakpoints; with `closely`, a
    search without a hit continues with all messages."""
    dialect, head, length = formats.named(format), scanned.head, len(scanned)
    start = max(first_new, length - MAX_LOOKED_AT)
    new = [scanned.value(index) for index in range(start, length)]
    inside = [mark for index, each in enumerate(new, start) for mark in dialect.marks.in_message(index, each)]
    beside = _beside(dialect, head)
    marks = [*beside.marks, *inside, *dialect.marks.at_end(head, length)]
    found = [(mark.message, mark.long) for mark in marks]
    if closely and not found and start and MARK_KEY.search(scanned.given):
        whole = [scanned.value(index) for index in range(length)]
        found = [(mark.message, mark.long) for mark in dialect.marks.found(head, whole)]
    return CacheAsked(
        tuple([(_share(scanned, message), long) for message, long in found]),
        beside.tools,
        beside.system,
        sum(map(_blocks, new)) if 0 < first_new == start else None,
        _share(scanned, first_new - 1) if first_new else 0.0,
    )


def _share(scanned: Scanned, message: int) -> float:
    """Share of a request up to the end of a message, or of the request parameters (-1), which providers put first."""
    known, size = scanned.known, len(scanned.given)
    if known is None or not known.spans or not size:
        return 1.0
    first, last = known.spans[0][0], known.spans[-1][1]
    head = size - (last - first)
    return (head + (known.spans[message][1] - first if message >= 0 else 0)) / size


def _blocks(message: Any) -> int:
    content = message.get("content", message.get("parts")) if isinstance(message, dict) else None
    return len(content) if isinstance(content, list) else 1


def _digest(head: Any, names: tuple[str, ...]) -> str:
    """Digest some fields. Tools and system text are large and repeat in every request, so digests are cached."""
    raw = getattr(head, "raw", None)
    if raw is None:
        return _digest_of(head, names)
    written = tuple(map(raw, names))
    if not any(written):
        return ""
    key = names, sum(map(len, written)), hash(written)
    found = _DIGESTS.get(key)
    if found is None:
        if len(_DIGESTS) >= MAX_DIGESTS:
            _DIGESTS.clear()
        found = _DIGESTS[key] = _digest_of(head, names)
    return found


def _digest_of(head: Any, names: tuple[str, ...]) -> str:
    found = next((head[name] for name in names if head.get(name)), None)
    if found is None:
        return ""
    try:
        return hashlib.blake2b(msgspec.json.encode(_unmarked(found)), digest_size=8).hexdigest()
    except (TypeError, ValueError, RecursionError):  # JSON that only the standard library accepts
        return ""


def _unmarked(value: Any) -> Any:
    """Remove breakpoints from a list of blocks: moving a breakpoint does not change the content."""
    return [_without_mark(each) for each in value] if isinstance(value, list) else value


def _without_mark(block: Any) -> Any:
    marked = isinstance(block, dict) and MARK_FIELD in block
    return {name: each for name, each in block.items() if name != MARK_FIELD} if marked else block
