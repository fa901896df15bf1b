"""Add cache breakpoints to requests that are framework objects instead of bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import formats
from ..billing.cache_ttl import TtlDecision
from ..billing.prices import Prices
from ..engine import breakpoint_placement
from ..formats.anthropic_cache import LONG
from ..formats.cache_control import FieldAddition
from ..model import Path
from ..wire.json_tree import JsonChange, apply_changes

BLOCK_FORMAT = "anthropic"
"""Format in which breakpoint positions are computed. The same positions hold for cache points of Bedrock's Converse API
and for messages that are translated to Anthropic's format."""


def with_breakpoints(
    history: list[Any], head: Mapping[str, Any], key: str, additions: Sequence[FieldAddition]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the history and the changed request parameters, with the breakpoints applied."""
    changes = [JsonChange(path, "set", value) for path, value in additions]
    request = apply_changes(_with_plain_values({**head, key: history}, [path for path, _ in additions]), changes)
    changed_fields = {path[0] for path, _ in additions}
    return request[key], {name: request[name] for name in request if name in changed_fields and name != key}


def _with_plain_values(request: Any, paths: Iterable[Path]) -> Any:
    """Replace framework objects by plain JSON values where a breakpoint must be added inside them."""
    changes = {}
    for path in paths:
        message_path, inner_path = path[:2], path[2:-1]
        if inner_path and message_path not in changes:
            value = request[message_path[0]][message_path[1]]
            if not _is_plain(value, inner_path):
                changes[message_path] = JsonChange(
                    message_path, "set", json.loads(json.dumps(value, default=_json_value))
                )
    return apply_changes(request, changes.values()) if changes else request


def _is_plain(value: Any, path: Iterable[Any]) -> bool:
    for step in path:
        if not isinstance(value, dict | list):
            return False
        value = value[step]
    return isinstance(value, dict | list)


def _json_value(value: Any) -> Any:
    """Return the JSON value of an SDK object, as the SDK would send it."""
    return value.model_dump(mode="json", exclude_unset=True, by_alias=True)


TOOLS, SYSTEM = -2, -1
"""Values of `FrameworkBreakpoint.message` that are not an index."""


class FrameworkBreakpoint(NamedTuple):
    """Position of a cache breakpoint."""

    message: int
    """Index of the message, or `TOOLS` or `SYSTEM`, which come before all messages."""
    block: int
    """Index of the block; 0 if the content is a string."""
    is_one_hour: bool
    """True for a TTL of one hour."""


def breakpoint_positions(
    ttl_decision: TtlDecision | None, model: str, head: Mapping[str, Any], messages: list[Any]
) -> list[FrameworkBreakpoint]:
    """Return the positions for cache breakpoints in a request without any.

    `head` has `system`, `tools` and `tool_choice`, and each message has a list of blocks. Both are in `BLOCK_FORMAT`.
    """
    if ttl_decision is None:
        return []
    request = {**head, "model": model, "messages": messages}
    additions = breakpoint_placement.apply_breakpoints(
        request, formats.format_named(BLOCK_FORMAT), "auto", ttl_decision, model, ""
    ).additions
    has_one_hour_ttl = Prices().of(model, BLOCK_FORMAT).caching.hour
    positions = {_position_of(path): has_one_hour_ttl and _is_one_hour(value) for path, value in additions}
    return [FrameworkBreakpoint(*place, long) for place, long in sorted(positions.items())]


def _position_of(path: Path) -> tuple[int, int]:
    if path[0] == "messages":
        return int(path[1]), int(path[3]) if len(path) > 3 else 0
    return (TOOLS if path[0] == "tools" else SYSTEM), int(path[1]) if len(path) > 1 else 0


def _is_one_hour(mark: Any) -> bool:
    return isinstance(mark, dict) and mark.get("ttl") == LONG
