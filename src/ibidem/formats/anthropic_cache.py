"""Cache breakpoints of Anthropic Messages: on a tool, a part of the system text or a block; or one for the whole
request.

Each caches everything before it. The provider accepts four, searches up to twenty blocks before each for an earlier
cache entry, and requires those with one hour before those with five minutes
(https://platform.claude.com/docs/en/build-with-claude/prompt-caching).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..model import Path, string_or_empty, to_json
from ..tokens import BYTES_PER_TOKEN
from ..wire.json_tree import KeyedValue
from .cache_control import CacheBreakpoint, CacheControl, CacheOffer, FieldAddition, LazyMessages

FIELD, HISTORY = "cache_control", "messages"
MAX_BREAKPOINTS = 4
KIND, LONG, SHORT = "ephemeral", "1h", "5m"

CARRIERS = frozenset({"text", "image", "document", "search_result", "tool_use", "tool_result"})
"""Blocks that can have a breakpoint. Thinking cannot, and for unknown blocks it is not documented."""
MESSAGE_ROLES = frozenset({"user", "assistant"})
"""Roles whose messages can get breakpoints. Instructions between messages are not changed."""

MAX_STEPS = 32
"""Maximum number of messages searched, from the end, for a suitable one. A history may have any number of others."""

TOOLS, SYSTEM = -2, -1


class _BreakpointPosition(NamedTuple):
    """A position where a breakpoint is possible."""

    message: int
    """Message index. `TOOLS` and `SYSTEM` are before all messages."""
    path: Path
    plain: bool = False
    """True for a plain string, which must become a block to get a breakpoint."""

    def make_addition(self, long: bool, hour: bool) -> FieldAddition:
        """Return the field that adds a breakpoint. The TTL comes first, which almost no other client does, so that
        Ibidem's own breakpoints are recognized."""
        directive = {"ttl": LONG if long else SHORT, "type": KIND} if hour else {"type": KIND}
        if self.plain:
            return FieldAddition(self.path, [{"type": "text", "text": ..., FIELD: directive}])
        return FieldAddition((*self.path, FIELD), directive)


class BlockCacheControl(CacheControl):
    """Cache breakpoints as `cache_control` fields of blocks."""

    def breakpoints_in_head(self, head: Mapping[str, Any]) -> list[CacheBreakpoint]:
        return [mark for name in ("tools", "system") for mark in _breakpoints_in_blocks(head.get(name), (name,), -1)]

    def breakpoints_in_message(self, index: int, message: Any) -> list[CacheBreakpoint]:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            return []
        breakpoints: list[CacheBreakpoint] = []
        for at, block in enumerate(content):
            if isinstance(block, dict) and (FIELD in block or isinstance(block.get("content"), list)):
                breakpoints += _breakpoints_in_block(block, (HISTORY, index, "content", at), index)
        return breakpoints

    def breakpoints_at_end(self, head: Mapping[str, Any], length: int) -> list[CacheBreakpoint]:
        return _breakpoint_on({FIELD: head.get(FIELD)}, (), max(0, length - 1))

    def additions_for(
        self, head: Mapping[str, Any], history: LazyMessages, long: int, offer: CacheOffer
    ) -> list[FieldAddition]:
        last_response = _last_response(history)
        if not offer.accepts_breakpoints or not len(history) or (last_response is None and not _is_agent(head)):
            return []
        ends = [len(history), long if 0 < long < len(history) else 0, last_response or 0]
        candidates = [
            *(_last_position_before(history, end) for end in ends),
            _last_text(head.get("system")),
            _last_tool(head),
        ]
        places = dict.fromkeys(
            place for place in candidates if place and _is_long(head, history, place, offer.min_tokens)
        )
        positions = sorted(list(places)[:MAX_BREAKPOINTS])
        return [place.make_addition(_needs_hour(place.message, long), offer.accepts_ttl) for place in positions]

    def ttl_changes(self, marks: Sequence[CacheBreakpoint], long: int) -> list[FieldAddition]:
        """Return changes of TTLs; none if the client uses both TTLs or unknown fields, because it has chosen them
        itself.

        A changed breakpoint is recognized as Ibidem's own from then on, like an added one.
        """
        if not all(mark.is_known and not mark.is_ours for mark in marks) or len({mark.long for mark in marks}) > 1:
            return []
        wrong = [mark for mark in marks if mark.long != _needs_hour(mark.message, long)]
        return [
            FieldAddition((*mark.path, FIELD, "ttl"), KeyedValue(0, SHORT if mark.long else LONG)) for mark in wrong
        ]


def _needs_hour(message: int, long: int) -> bool:
    return long >= 0 if message < 0 else message < long


def _breakpoints_in_blocks(blocks: Any, path: Path, message: int) -> Iterator[CacheBreakpoint]:
    for at, block in enumerate(blocks if isinstance(blocks, list) else ()):
        yield from _breakpoint_on(block, (*path, at), message)


def _breakpoints_in_block(block: Any, path: Path, message: int) -> Iterator[CacheBreakpoint]:
    """Yield the breakpoints on a block and inside a result."""
    yield from _breakpoint_on(block, path, message)
    inner = block.get("content") if isinstance(block, dict) else None
    if isinstance(inner, list):
        yield from _breakpoints_in_blocks(inner, (*path, "content"), message)


def _breakpoint_on(block: Any, path: Path, message: int) -> list[CacheBreakpoint]:
    directive = block.get(FIELD) if isinstance(block, dict) else None
    if directive is None:
        return []
    ttl = directive.get("ttl") if isinstance(directive, dict) else None
    is_known = isinstance(directive, dict) and directive.get("type") == KIND and ttl in (None, SHORT, LONG)
    return [CacheBreakpoint(path, message, ttl == LONG, ttl, is_known, is_known and next(iter(directive)) == "ttl")]


def _last_response(history: LazyMessages) -> int | None:
    """Return the index where the model's last response starts. All messages before it were in the previous request."""
    for index in range(len(history) - 1, max(-1, len(history) - 1 - MAX_STEPS), -1):
        if _role_of(history[index]) == "assistant":
            while index and _role_of(history[index - 1]) == "assistant":
                index -= 1
            return index
    return None


def _role_of(message: Any) -> str:
    return string_or_empty(message.get("role")) if isinstance(message, dict) else ""


def _is_agent(head: Mapping[str, Any]) -> bool:
    """Return True if more requests are likely to follow: tools are offered, and none is forced."""
    choice = head.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return bool(head.get("tools")) and kind in (None, "auto")


def _last_position_before(history: LazyMessages, end: int) -> _BreakpointPosition | None:
    """Return the last position before message `end` for a breakpoint."""
    for index in range(end - 1, max(-1, end - 1 - MAX_STEPS), -1):
        message = history[index]
        if _role_of(message) in MESSAGE_ROLES:
            place = _last_position_in(message.get("content"), (HISTORY, index, "content"), index)
            if place is not None:
                return place
    return None


def _last_position_in(content: Any, path: Path, message: int) -> _BreakpointPosition | None:
    if isinstance(content, str):
        return _BreakpointPosition(message, path, plain=True) if content.strip() else None
    for at in range(len(content) - 1, -1, -1) if isinstance(content, list) else ():
        if _can_carry(content[at]):
            return _BreakpointPosition(message, (*path, at))
    return None


def _can_carry(block: Any) -> bool:
    if not isinstance(block, dict) or string_or_empty(block.get("type")) not in CARRIERS:
        return False
    content = {"text": block.get("text"), "tool_result": block.get("content")}.get(block["type"], True)
    return bool(content.strip() if isinstance(content, str) else content)


def _last_text(system: Any) -> _BreakpointPosition | None:
    return _last_position_in(system, ("system",), SYSTEM)


def _last_tool(head: Mapping[str, Any]) -> _BreakpointPosition | None:
    """Return the last tool that the model sees from the start."""
    for at, tool in reversed(list(enumerate(_as_items(head.get("tools"))))):
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and not tool.get("defer_loading"):
            return _BreakpointPosition(TOOLS, ("tools", at))
    return None


def _is_long(head: Mapping[str, Any], history: LazyMessages, place: _BreakpointPosition, minimum: int) -> bool:
    """Return True if the prefix before a position is roughly long enough to be cached."""
    missing = minimum * BYTES_PER_TOKEN
    for size in _prefix_sizes(head, history, place.message):
        if missing <= 0:
            break
        missing -= size
    return missing <= 0


def _prefix_sizes(head: Mapping[str, Any], history: LazyMessages, last: int) -> Iterator[int]:
    """Yield the sizes in bytes of the prefix's parts, up to a message."""
    yield from map(_text_size, _as_items(head.get("tools")))
    if last >= SYSTEM:
        yield from map(_text_size, _as_items(head.get("system")))
    yield from (history.size(index) for index in range(last + 1))


def _as_items(field: Any) -> list[Any]:
    return field if isinstance(field, list) else [field] if isinstance(field, str) else []


def _text_size(value: Any) -> int:
    text = value.get("text") if isinstance(value, dict) else value
    return len(text) if isinstance(text, str) else len(to_json(value))
