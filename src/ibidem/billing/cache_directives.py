"""What a request asks its provider to keep, as its client wrote it, and what a cache finds it by."""

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
"""Messages, the last ones, that are looked at where none is known to have been sent before."""

MARK_FIELD = "cache_control"
"""On what stands before the messages."""

MARK_KEY = re.compile(rb'"cache_control"\s*:')
"""As a key. What a tool prints is in a string, where quotes are escaped: it makes nobody read all of a history."""

TOOLS, SYSTEM = ("tools",), ("system", "instructions", "systemInstruction", "system_instruction")


MAX_DIGESTS = 1000
"""Digests that are remembered."""

_DIGESTS: dict[tuple[tuple[str, ...], int, int], str] = {}
"""By the fields, their length, and Python's own hash of them, which nobody outside this process can aim at."""


class CacheAsked(NamedTuple):
    """Of one request, as it came."""

    marks: tuple[tuple[float, bool], ...] = ()
    """Where each mark stands, as a share of the request, about; and whether it is for an hour. In order."""
    tools: str = ""
    """A digest, without marks; empty where there are none."""
    system: str = ""
    blocks: int | None = None
    """Content blocks that were not sent before; None if unknown."""
    shared: float = 0.0
    """The share of the request that was sent before, about."""

    @property
    def head(self) -> tuple[str, str]:
        return self.tools, self.system


class _Beside(NamedTuple):
    """What is asked, and found by, beside the messages."""

    marks: Sequence[CacheMark]
    tools: str
    system: str


def _beside(dialect: Format, head: Mapping[str, Any]) -> _Beside:
    """It is the same in most requests, and then found out once."""
    notes: dict[Hashable, Any] = getattr(head, "notes", {})
    found: _Beside | None = notes.get(dialect.name)
    if found is None:
        marks = dialect.marks.in_head(head)
        found = notes[dialect.name] = _Beside(marks, _digest(head, TOOLS), _digest(head, SYSTEM))
    return found


def cache_asked(scanned: Scanned, format: str, first_new: int, closely: bool = False) -> CacheAsked:
    """Marks are looked for in what is new; `closely`: where none is there, in all of it."""
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
    """Up to the end of a message, -1 for what stands before all of them: providers see that first, wherever it is."""
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
    """Tools and system are most of what many clients send, and the same in every request: they are read once."""
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
    except (TypeError, ValueError, RecursionError):  # what only the standard library reads
        return ""


def _unmarked(value: Any) -> Any:
    """A mark that moves changes nothing of what it stands on."""
    return [_without_mark(each) for each in value] if isinstance(value, list) else value


def _without_mark(block: Any) -> Any:
    marked = isinstance(block, dict) and MARK_FIELD in block
    return {name: each for name, each in block.items() if name != MARK_FIELD} if marked else block
