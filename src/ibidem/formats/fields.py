"""Fields of a request body that several formats have in common: tools, and what a cache is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model import Message, to_json


def tool_names(head: Mapping[str, Any]) -> list[str]:
    """The tools that a request offers, in every format's way of naming them: gateways mix these."""
    given = head.get("tools")
    names: list[str] = []
    for tool in given if isinstance(given, list) else ():
        inside = tool if isinstance(tool, dict) else {}
        declared = inside.get("functionDeclarations") or inside.get("function_declarations")
        named = (inside, inside.get("function"), *(declared if isinstance(declared, list) else ()))
        names += [one["name"] for one in named if isinstance(one, dict) and isinstance(one.get("name"), str)]
    return names


def marked_for_an_hour(head: Mapping[str, Any], recent: Sequence[Message]) -> bool:
    """By cache marks, as Anthropic takes them and gateways that lead to it."""
    places = [head.get("system"), head.get("cache_control"), [message.wire for message in recent]]
    return '"ttl":"1h"' in to_json(places)
