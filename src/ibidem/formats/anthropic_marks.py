"""Cache breakpoints of Anthropic Messages: on a tool, a part of the system text or a block; or one for the whole
request.

Each caches everything before it. The provider accepts four, searches up to twenty blocks before each for an earlier
cache entry, and requires those with one hour before those with five minutes
(https://platform.claude.com/docs/en/build-with-claude/prompt-caching).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..model import Path, string, to_json
from ..tokens import BYTES_PER_TOKEN
from ..wire.tree import Keyed
from .marks import Addition, CacheMark, CacheOffer, Marks, Sent

FIELD, HISTORY = "cache_control", "messages"
MAX_MARKS = 4
KIND, LONG, SHORT = "ephemeral", "1h", "5m"

CARRIERS = frozenset({"text", "image", "document", "search_result", "tool_use", "tool_result"})
"""Blocks that can have a breakpoint. Thinking cannot, and for unknown blocks it is not documented."""
SPEAKERS = frozenset({"user", "assistant"})
"""Roles whose messages can get breakpoints. Instructions between messages are not changed."""

MAX_STEPS = 32
"""Maximum number of messages searched, from the end, for a suitable one. A history may have any number of others."""

TOOLS, SYSTEM = -2, -1


class _Place(NamedTuple):
    """A position where a breakpoint is possible."""

    message: int
    """Message index. `TOOLS` and `SYSTEM` are before all messages."""
    path: Path
    plain: bool = False
    """True for a plain string, which must become a block to get a breakpoint."""

    def marked(self, long: bool, hour: bool) -> Addition:
        """Return the field that adds a breakpoint. The TTL comes first, which almost no other client does, so that
        Ibidem's own breakpoints are recognized."""
        mark = {"ttl": LONG if long else SHORT, "type": KIND} if hour else {"type": KIND}
        if self.plain:
            return Addition(self.path, [{"type": "text", "text": ..., FIELD: mark}])
        return Addition((*self.path, FIELD), mark)


class BlockMarks(Marks):
    """Cache breakpoints as `cache_control` fields of blocks."""

    def in_head(self, head: Mapping[str, Any]) -> list[CacheMark]:
        return [mark for name in ("tools", "system") for mark in _among(head.get(name), (name,), -1)]

    def in_message(self, index: int, message: Any) -> list[CacheMark]:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            return []
        found: list[CacheMark] = []
        for at, block in enumerate(content):
            if isinstance(block, dict) and (FIELD in block or isinstance(block.get("content"), list)):
                found += _on_block(block, (HISTORY, index, "content", at), index)
        return found

    def at_end(self, head: Mapping[str, Any], length: int) -> list[CacheMark]:
        return _on({FIELD: head.get(FIELD)}, (), max(0, length - 1))

    def added(self, head: Mapping[str, Any], history: Sent, long: int, offer: CacheOffer) -> list[Addition]:
        answer = _last_answer(history)
        if not offer.marks or not len(history) or (answer is None and not _is_agent(head)):
            return []
        ends = [len(history), long if 0 < long < len(history) else 0, answer or 0]
        wanted = [*(_carrier(history, end) for end in ends), _last_text(head.get("system")), _last_tool(head)]
        places = dict.fromkeys(place for place in wanted if place and _is_long(head, history, place, offer.minimum))
        chosen = sorted(list(places)[:MAX_MARKS])
        return [place.marked(_lasts(place.message, long), offer.hour) for place in chosen]

    def changed(self, marks: Sequence[CacheMark], long: int) -> list[Addition]:
        """Return changes of TTLs; none if the client uses both TTLs or unknown fields, because it has chosen them
        itself.

        A changed breakpoint is recognized as Ibidem's own from then on, like an added one.
        """
        if not all(mark.known and not mark.ours for mark in marks) or len({mark.long for mark in marks}) > 1:
            return []
        wrong = [mark for mark in marks if mark.long != _lasts(mark.message, long)]
        return [Addition((*mark.path, FIELD, "ttl"), Keyed(0, SHORT if mark.long else LONG)) for mark in wrong]


def _lasts(message: int, long: int) -> bool:
    return long >= 0 if message < 0 else message < long


def _among(blocks: Any, path: Path, message: int) -> Iterator[CacheMark]:
    for at, block in enumerate(blocks if isinstance(blocks, list) else ()):
        yield from _on(block, (*path, at), message)


def _on_block(block: Any, path: Path, message: int) -> Iterator[CacheMark]:
    """Yield the breakpoints on a block and inside a result."""
    yield from _on(block, path, message)
    inner = block.get("content") if isinstance(block, dict) else None
    if isinstance(inner, list):
        yield from _among(inner, (*path, "content"), message)


def _on(block: Any, path: Path, message: int) -> list[CacheMark]:
    mark = block.get(FIELD) if isinstance(block, dict) else None
    if mark is None:
        return []
    said = mark.get("ttl") if isinstance(mark, dict) else None
    known = isinstance(mark, dict) and mark.get("type") == KIND and said in (None, SHORT, LONG)
    return [CacheMark(path, message, said == LONG, said, known, known and next(iter(mark)) == "ttl")]


def _last_answer(history: Sent) -> int | None:
    """Return the index where the model's last response starts. All messages before it were in the previous request."""
    for index in range(len(history) - 1, max(-1, len(history) - 1 - MAX_STEPS), -1):
        if _role(history[index]) == "assistant":
            while index and _role(history[index - 1]) == "assistant":
                index -= 1
            return index
    return None


def _role(message: Any) -> str:
    return string(message.get("role")) if isinstance(message, dict) else ""


def _is_agent(head: Mapping[str, Any]) -> bool:
    """Return True if more requests are likely to follow: tools are offered, and none is forced."""
    choice = head.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return bool(head.get("tools")) and kind in (None, "auto")


def _carrier(history: Sent, end: int) -> _Place | None:
    """Return the last position before message `end` for a breakpoint."""
    for index in range(end - 1, max(-1, end - 1 - MAX_STEPS), -1):
        message = history[index]
        if _role(message) in SPEAKERS:
            place = _last_of(message.get("content"), (HISTORY, index, "content"), index)
            if place is not None:
                return place
    return None


def _last_of(content: Any, path: Path, message: int) -> _Place | None:
    if isinstance(content, str):
        return _Place(message, path, plain=True) if content.strip() else None
    for at in range(len(content) - 1, -1, -1) if isinstance(content, list) else ():
        if _carries(content[at]):
            return _Place(message, (*path, at))
    return None


def _carries(block: Any) -> bool:
    if not isinstance(block, dict) or string(block.get("type")) not in CARRIERS:
        return False
    said = {"text": block.get("text"), "tool_result": block.get("content")}.get(block["type"], True)
    return bool(said.strip() if isinstance(said, str) else said)


def _last_text(system: Any) -> _Place | None:
    return _last_of(system, ("system",), SYSTEM)


def _last_tool(head: Mapping[str, Any]) -> _Place | None:
    """Return the last tool that the model sees from the start."""
    for at, tool in reversed(list(enumerate(_each(head.get("tools"))))):
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and not tool.get("defer_loading"):
            return _Place(TOOLS, ("tools", at))
    return None


def _is_long(head: Mapping[str, Any], history: Sent, place: _Place, minimum: int) -> bool:
    """Return True if the prefix before a position is roughly long enough to be cached."""
    missing = minimum * BYTES_PER_TOKEN
    for size in _sizes(head, history, place.message):
        if missing <= 0:
            break
        missing -= size
    return missing <= 0


def _sizes(head: Mapping[str, Any], history: Sent, last: int) -> Iterator[int]:
    """Yield the sizes in bytes of the prefix's parts, up to a message."""
    yield from map(_size, _each(head.get("tools")))
    if last >= SYSTEM:
        yield from map(_size, _each(head.get("system")))
    yield from (history.size(index) for index in range(last + 1))


def _each(field: Any) -> list[Any]:
    return field if isinstance(field, list) else [field] if isinstance(field, str) else []


def _size(value: Any) -> int:
    text = value.get("text") if isinstance(value, dict) else value
    return len(text) if isinstance(text, str) else len(to_json(value))
