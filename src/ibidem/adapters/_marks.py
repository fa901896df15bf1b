"""Add cache breakpoints to requests that are framework objects instead of bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import formats
from ..billing.lifetimes import Kept
from ..billing.prices import Prices
from ..engine import marking
from ..formats.anthropic_marks import LONG
from ..formats.marks import Addition
from ..model import Path
from ..wire.tree import Change, rebuild

BLOCKS = "anthropic"
"""Format in which breakpoint positions are computed. The same positions hold for cache points of Bedrock's Converse API
and for messages that are translated to Anthropic's format."""


def with_marks(
    history: list[Any], head: Mapping[str, Any], key: str, marks: Sequence[Addition]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the history and the changed request parameters, with the breakpoints applied."""
    changes = [Change(path, "set", value) for path, value in marks]
    whole = rebuild(_opened({**head, key: history}, [path for path, _ in marks]), changes)
    touched = {path[0] for path, _ in marks}
    return whole[key], {name: whole[name] for name in whole if name in touched and name != key}


def _opened(request: Any, paths: Iterable[Path]) -> Any:
    """Replace framework objects by plain JSON values where a breakpoint must be added inside them."""
    changes = {}
    for path in paths:
        place, way = path[:2], path[2:-1]
        if way and place not in changes:
            value = request[place[0]][place[1]]
            if not _is_plain(value, way):
                changes[place] = Change(place, "set", json.loads(json.dumps(value, default=_as_sent)))
    return rebuild(request, changes.values()) if changes else request


def _is_plain(value: Any, way: Iterable[Any]) -> bool:
    for step in way:
        if not isinstance(value, dict | list):
            return False
        value = value[step]
    return isinstance(value, dict | list)


def _as_sent(value: Any) -> Any:
    """Return the JSON value of an SDK object, as the SDK would send it."""
    return value.model_dump(mode="json", exclude_unset=True, by_alias=True)


TOOLS, SYSTEM = -2, -1
"""Values of `FrameworkBreakpoint.message` that are not an index."""


class Spot(NamedTuple):
    """Position of a cache breakpoint."""

    message: int
    """Index of the message, or `TOOLS` or `SYSTEM`, which come before all messages."""
    block: int
    """Index of the block; 0 if the content is a string."""
    long: bool
    """True for a TTL of one hour."""


def spots(kept: Kept | None, model: str, head: Mapping[str, Any], messages: list[Any]) -> list[Spot]:
    """Return the positions for cache breakpoints in a request without any.

    `head` has `system`, `tools` and `tool_choice`, and each message has a list of blocks. Both are in `BLOCK_FORMAT`.
    """
    if kept is None:
        return []
    request = {**head, "model": model, "messages": messages}
    found = marking.marked(request, formats.named(BLOCKS), "auto", kept, model, "").additions
    hour = Prices().of(model, BLOCKS).caching.hour
    known = {_place(path): hour and _is_long(value) for path, value in found}
    return [Spot(*place, long) for place, long in sorted(known.items())]


def _place(path: Path) -> tuple[int, int]:
    if path[0] == "messages":
        return int(path[1]), int(path[3]) if len(path) > 3 else 0
    return (TOOLS if path[0] == "tools" else SYSTEM), int(path[1]) if len(path) > 1 else 0


def _is_long(mark: Any) -> bool:
    return isinstance(mark, dict) and mark.get("ttl") == LONG
