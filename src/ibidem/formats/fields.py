"""Fields of a request body that several formats have in common: tools, and what a cache is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..model import Message, to_json


def tools(head: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = head.get("tools")
    return [tool for tool in given if isinstance(tool, dict)] if isinstance(given, list) else []


def names_of(declared: Iterable[Any]) -> list[str]:
    return [each["name"] for each in declared if isinstance(each, dict) and isinstance(each.get("name"), str)]


def marked_for_an_hour(head: Mapping[str, Any], recent: Sequence[Message]) -> bool:
    """By cache marks, as Anthropic takes them and gateways that lead to it."""
    places = [head.get("system"), head.get("cache_control"), [message.wire for message in recent]]
    return '"ttl":"1h"' in to_json(places)
