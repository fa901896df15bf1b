"""One JSON-RPC message: what it is, what of it a model reads, and how it is changed. Nothing is remembered here.

A result may be touched only where nothing but a text is lost: it is no error and complete, and its content is text
blocks that say nothing beside their text. All else passes as the bytes that came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cache.parts import too_many_parts
from ..errors import IbidemError
from ..wire import Change, parse, splice

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
"""Where the stateless protocol has them, in the `_meta` of every request and result."""

RequestId = tuple[type, str | int | float]


@dataclass(frozen=True, slots=True)
class TextResult:
    """What a result says, if it says it in text alone."""

    body: str
    chars: int
    """In whichever way a client shows it, at most."""
    blocks: int
    structured: bool


def read_message(data: bytes) -> Any:
    """The value of a message; None where it is not JSON, or nothing can be said of it."""
    if too_many_parts(data):
        return None
    try:
        return parse(data)
    except (IbidemError, ValueError, RecursionError):
        return None


def request_id(value: Any) -> RequestId | None:
    """Equal for an answer and its request: 1 and "1" are two ids."""
    if isinstance(value, str):
        return str, value
    return (float, value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def params_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return _table(message.get("params"))


def meta_of(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return _table(container.get("_meta"))


def name_in(info: Any) -> str | None:
    found = _table(info).get("name")
    return found if isinstance(found, str) and found else None


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def counts(message: Mapping[str, Any]) -> bool:
    """Whether a model takes this answer for the end of its call: not if the server only asks for more."""
    return _table(message.get("result")).get("resultType") in (None, "complete")


def text_result(message: Mapping[str, Any], *, structured: bool) -> TextResult | None:
    """What the result says; None if it is not ours to touch. `structured` allows for structured content."""
    result = message.get("result")
    if not isinstance(result, dict) or "error" in message or not counts(message):
        return None
    if result.get("isError", False) is not False:
        return None
    also = result.get("structuredContent")
    if also is not None and not structured:
        return None
    texts = _texts(result.get("content"))
    if texts is None:
        return None
    shown = sum(map(len, texts)), 0 if also is None else len(json.dumps(also, ensure_ascii=False))
    return TextResult(_body(texts, also), max(shown), len(texts), "structuredContent" in result)


def _texts(content: Any) -> list[str] | None:
    if not isinstance(content, list) or not content:
        return None
    for block in content:
        if not isinstance(block, dict) or block.keys() != {"type", "text"} or block["type"] != "text":
            return None
        if not isinstance(block["text"], str):
            return None
    return [block["text"] for block in content]


def _body(texts: Sequence[str], structured: Any) -> str:
    """Equal only for results of which all is equal, whichever part of it a client shows."""
    plain = len(texts) == 1 and not texts[0].startswith("\0")  # else it could pass for what is made below
    if plain and (structured is None or _says(texts[0], structured)):
        return texts[0]
    return "\0".join(["", json.dumps(texts), "" if structured is None else json.dumps(structured)])


def _says(text: str, structured: Any) -> bool:
    """The text is the structured content once more, as servers are asked to have it."""
    if structured == {"result": text}:
        return True
    try:  # by what they are written as: to Python, 1 equals True
        return json.dumps(json.loads(text), sort_keys=True) == json.dumps(structured, sort_keys=True)
    except (ValueError, RecursionError):
        return False


def with_hint(data: bytes, message: Any, found: TextResult, hint: str) -> bytes:
    """The answer with a hint in place of what it says, every other byte as it came; or all of it as it came."""
    content = ("result", "content")
    changes = [Change((*content, 0, "text"), "set", hint)]
    changes += [Change((*content, number), "drop") for number in range(1, found.blocks)]
    if found.structured:
        changes.append(Change(("result", "structuredContent"), "drop"))
    return _spliced(data, message, changes)


def _spliced(data: bytes, message: Any, changes: Sequence[Change]) -> bytes:
    try:
        return splice(data, message, changes)
    except (IbidemError, LookupError, TypeError):  # a key stands in it twice: which of them counts is not for us to say
        return data


def tools_of(message: Mapping[str, Any]) -> list[Any] | None:
    found = _table(message.get("result")).get("tools")
    return found if isinstance(found, list) else None


def promises(message: Mapping[str, Any]) -> bool:
    """Whether a list of tools has one that promises structured content."""
    return any("outputSchema" in _table(tool) for tool in tools_of(message) or [])


def with_tools(data: bytes, message: Any, *, strip: bool, add: Mapping[str, Any] | None) -> bytes:
    """The list of tools without what they promise of structured content, and with one more; or all as it came."""
    tools = tools_of(message) or []
    changes = [
        Change(("result", "tools", number, "outputSchema"), "drop")
        for number, tool in enumerate(tools)
        if strip and isinstance(tool, dict) and "outputSchema" in tool
    ]
    if add is not None:
        changes.append(Change(("result", "tools", len(tools)), "before", dict(add)))
    return _spliced(data, message, changes) if changes else data


def answer(request: Mapping[str, Any], text: str) -> bytes:
    """The result of a tool of our own, in the words of either protocol."""
    result = {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}
    if CLIENT_INFO not in meta_of(params_of(request)):
        del result["resultType"]
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n"
