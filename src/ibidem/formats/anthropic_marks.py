"""Marks of Anthropic Messages: on a tool, a part of the system text, or a block of a message; or one for all of it.

Each says that everything up to it is to be kept. The provider takes four, looks back from each over twenty blocks for
what it kept before, and wants those for an hour before those for five minutes
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
"""Blocks that surely may carry one. Thinking never may, and of what is not known it is not known."""
SPEAKERS = frozenset({"user", "assistant"})
"""Instructions between messages are left alone."""

MAX_STEPS = 32
"""Messages that are looked at, from the end, for one that fits: a history may have any number of those that do not."""

TOOLS, SYSTEM = -2, -1


class _Place(NamedTuple):
    """Where a mark may stand."""

    message: int
    """`TOOLS` and `SYSTEM` stand before all messages."""
    path: Path
    plain: bool = False
    """There is a bare text, which has to become a block to carry one."""

    def marked(self, long: bool, hour: bool) -> Addition:
        """Whoever sends it on should know it as ours: hardly anybody writes the lifetime first."""
        mark = {"ttl": LONG if long else SHORT, "type": KIND} if hour else {"type": KIND}
        if self.plain:
            return Addition(self.path, [{"type": "text", "text": ..., FIELD: mark}])
        return Addition((*self.path, FIELD), mark)


class BlockMarks(Marks):
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
        """A client that asks for both lifetimes knows what it wants; one that asks in words unknown here may.

        What is changed is known as ours from then on, as what is added."""
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
    """On it, and on what a result is made of."""
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
    """Of the model, and where it begins: what stands before it was sent with the request before."""
    for index in range(len(history) - 1, max(-1, len(history) - 1 - MAX_STEPS), -1):
        if _role(history[index]) == "assistant":
            while index and _role(history[index - 1]) == "assistant":
                index -= 1
            return index
    return None


def _role(message: Any) -> str:
    return string(message.get("role")) if isinstance(message, dict) else ""


def _is_agent(head: Mapping[str, Any]) -> bool:
    """Whether more requests are likely to follow a first one: tools are offered, and none is forced."""
    choice = head.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return bool(head.get("tools")) and kind in (None, "auto")


def _carrier(history: Sent, end: int) -> _Place | None:
    """The last block before message `end` that can carry a mark."""
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
    """That the model is shown from the start."""
    for at, tool in reversed(list(enumerate(_each(head.get("tools"))))):
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and not tool.get("defer_loading"):
            return _Place(TOOLS, ("tools", at))
    return None


def _is_long(head: Mapping[str, Any], history: Sent, place: _Place, minimum: int) -> bool:
    """Whether what stands before a place is enough to be kept, about."""
    missing = minimum * BYTES_PER_TOKEN
    for size in _sizes(head, history, place.message):
        if missing <= 0:
            break
        missing -= size
    return missing <= 0


def _sizes(head: Mapping[str, Any], history: Sent, last: int) -> Iterator[int]:
    """Bytes of what the prefix is made of, up to a message."""
    yield from map(_size, _each(head.get("tools")))
    if last >= SYSTEM:
        yield from map(_size, _each(head.get("system")))
    yield from (history.size(index) for index in range(last + 1))


def _each(field: Any) -> list[Any]:
    return field if isinstance(field, list) else [field] if isinstance(field, str) else []


def _size(value: Any) -> int:
    text = value.get("text") if isinstance(value, dict) else value
    return len(text) if isinstance(text, str) else len(to_json(value))
