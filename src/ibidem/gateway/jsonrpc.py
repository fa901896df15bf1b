"""Parse one JSON-RPC message, find the text that the model reads, and replace it. This module has no state.

A result may be changed only if it is complete and not an error, and its content consists of text blocks without other
fields. Any other message is forwarded byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cache.json_limits import has_too_many_values
from ..errors import IbidemError
from ..wire import JsonChange, parse, splice

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
"""Keys of client and server info in the `_meta` of every request and result, in the stateless protocol."""

RequestId = tuple[type, str | int | float]


@dataclass(frozen=True, slots=True)
class TextResult:
    """Tool result that consists only of text."""

    body: str
    """Text that identifies the result: equal for equal results."""
    chars: int
    """Characters that a client shows at most: the text, or the structured content."""
    blocks: int
    structured: bool
    """True if the result has a `structuredContent` field."""


def read_message(data: bytes) -> Any:
    """Parse a message. None if it is not JSON or has too many parts."""
    if has_too_many_values(data):
        return None
    try:
        return parse(data)
    except (IbidemError, ValueError, RecursionError):
        return None


def request_id(value: Any) -> RequestId | None:
    """Return a key that is equal for a request and its response. 1 and "1" are different ids."""
    if isinstance(value, str):
        return str, value
    return (float, value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def request_params(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object_or_empty(message.get("params"))


def message_meta(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object_or_empty(container.get("_meta"))


def info_name(info: Any) -> str | None:
    name = _object_or_empty(info).get("name")
    return name if isinstance(name, str) and name else None


def _object_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def ends_call(message: Mapping[str, Any]) -> bool:
    """Return whether this response completes its call. It does not if the server only requests more input."""
    return _object_or_empty(message.get("result")).get("resultType") in (None, "complete")


def parse_text_result(message: Mapping[str, Any], *, structured: bool) -> TextResult | None:
    """Return the text of a result, or None if it must not be changed. `structured` allows structured content."""
    result = message.get("result")
    if not isinstance(result, dict) or "error" in message or not ends_call(message):
        return None
    if result.get("isError", False) is not False:
        return None
    structured_content = result.get("structuredContent")
    if structured_content is not None and not structured:
        return None
    texts = _block_texts(result.get("content"))
    if texts is None:
        return None
    sizes = (
        sum(map(len, texts)),
        0 if structured_content is None else len(json.dumps(structured_content, ensure_ascii=False)),
    )
    return TextResult(
        _result_identity(texts, structured_content), max(sizes), len(texts), "structuredContent" in result
    )


def _block_texts(content: Any) -> list[str] | None:
    if not isinstance(content, list) or not content:
        return None
    for block in content:
        if not isinstance(block, dict) or block.keys() != {"type", "text"} or block["type"] != "text":
            return None
        if not isinstance(block["text"], str):
            return None
    return [block["text"] for block in content]


def _result_identity(texts: Sequence[str], structured: Any) -> str:
    """Return a text that is equal only for results with equal text and equal structured content.

    Clients differ in which of the two they show to the model.
    """
    is_plain = len(texts) == 1 and not texts[0].startswith("\0")  # "\0" starts the combined text below
    if is_plain and (structured is None or _repeats_structured(texts[0], structured)):
        return texts[0]
    return "\0".join(["", json.dumps(texts), "" if structured is None else json.dumps(structured)])


def _repeats_structured(text: str, structured: Any) -> bool:
    """Return whether the text repeats the structured content, as the protocol recommends."""
    if structured == {"result": text}:
        return True
    try:  # compare the JSON texts, because 1 == True in Python
        return json.dumps(json.loads(text), sort_keys=True) == json.dumps(structured, sort_keys=True)
    except (ValueError, RecursionError):
        return False


def replace_by_hint(data: bytes, message: Any, result: TextResult, hint: str) -> bytes:
    """Return the response with a hint in place of its content. Other bytes stay; on failure all bytes stay."""
    content = ("result", "content")
    changes = [JsonChange((*content, 0, "text"), "set", hint)]
    changes += [JsonChange((*content, number), "drop") for number in range(1, result.blocks)]
    if result.structured:
        changes.append(JsonChange(("result", "structuredContent"), "drop"))
    return _splice_or_keep(data, message, changes)


def _splice_or_keep(data: bytes, message: Any, changes: Sequence[JsonChange]) -> bytes:
    try:
        return splice(data, message, changes)
    except (IbidemError, LookupError, TypeError):  # a duplicate key: clients differ in which of the two they read
        return data


def listed_tools(message: Mapping[str, Any]) -> list[Any] | None:
    tools = _object_or_empty(message.get("result")).get("tools")
    return tools if isinstance(tools, list) else None


def has_structured_output(message: Mapping[str, Any]) -> bool:
    """Return whether a list of tools declares structured content for one of them (`outputSchema`)."""
    return any("outputSchema" in _object_or_empty(tool) for tool in listed_tools(message) or [])


def change_tools(data: bytes, message: Any, *, strip: bool, add: Mapping[str, Any] | None) -> bytes:
    """Return the list of tools without their `outputSchema` (`strip`), and with one more tool (`add`).

    If the list cannot be changed, the same bytes are returned.
    """
    tools = listed_tools(message) or []
    changes = [
        JsonChange(("result", "tools", number, "outputSchema"), "drop")
        for number, tool in enumerate(tools)
        if strip and isinstance(tool, dict) and "outputSchema" in tool
    ]
    if add is not None:
        changes.append(JsonChange(("result", "tools", len(tools)), "before", dict(add)))
    return _splice_or_keep(data, message, changes) if changes else data


def tool_response(request: Mapping[str, Any], text: str) -> bytes:
    """Return the response of the gateway's own tool, in the protocol version of the request."""
    result = {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}
    if CLIENT_INFO not in message_meta(request_params(request)):
        del result["resultType"]
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n"
