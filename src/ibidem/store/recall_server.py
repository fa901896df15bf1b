"""MCP server with one tool, `recall`, which returns an evicted text byte for byte, with its positions.

It only reads. It opens the store for each call, so it also finds a store that is created later. It does not use the
`mcp` package, because that takes a second to import. A tool that is added after the first request would change the
prefix that the provider has cached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from ..errors import IbidemError
from .references import REFERENCE_DIGITS

DESCRIPTION = (
    "Get back a text that was left out of this conversation. Where it stood there is a line like "
    "[ibidem 123 3f9a1c0b77de: 340 lines left out, …]; ref is the 12 digits in it."
)

TOOL: dict[str, Any] = {
    "name": "recall",
    "description": DESCRIPTION,
    "inputSchema": {
        "type": "object",
        "properties": {"ref": {"type": "string", "description": "the 12 digits, or the whole line"}},
        "required": ["ref"],
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
    "_meta": {"anthropic/maxResultSizeChars": 500_000},  # without it, Claude Code writes long results to a file
}
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Supported versions of MCP, with the same messages. A client of a later version starts with an unknown method, and
falls back to the last of these."""

MAX_LINE = 2**20
"""Maximum bytes of a message. A valid one is much shorter."""

NOT_JSON, NO_REQUEST, NO_METHOD, WRONG_PARAMS = -32700, -32600, -32601, -32602
"""Error codes of JSON-RPC."""

_REFERENCE = re.compile(rf"(?<![0-9a-f+])[0-9a-f]{{{REFERENCE_DIGITS}}}(?![0-9a-f])")
"""A reference. After a plus it is the reference of a record, which is not readable text."""


class RecalledText(NamedTuple):
    """An evicted text from the store, with its positions in conversations."""

    ref: str
    text: str
    places: tuple[str, ...]

    @property
    def position_note(self) -> str:
        """Note for the model on the text's position. The model reads the text elsewhere, and it may be outdated."""
        lines = self.text.count("\n") + 1
        where = f"These {lines} lines" if lines > 1 else "This line"
        sentence = f"{where} stood where the marker with {self.ref} is"
        return f"({sentence}: {' or '.join(self.places)}.)" if self.places else f"({sentence}.)"


def fetch_original(ref: str, target: str) -> RecalledText:
    """Fetch the text of a reference, or of a whole marker. Raises IbidemError, whose message is for the model."""
    refs = set(_REFERENCE.findall(ref.lower()))
    if len(refs) != 1:
        raise IbidemError(f"this is no reference: give the {REFERENCE_DIGITS} digits that stand in the marker")
    (reference,) = refs
    recalled_text = _read_store(reference, target)
    if recalled_text is None:
        raise IbidemError(f"{reference} is not in the store: use the tool that gave the text again")
    return recalled_text


def _read_store(ref: str, target: str) -> RecalledText | None:
    from . import is_missing, open_store

    if is_missing(target):
        return None  # opening the store would create it
    with open_store(target) as store:
        text = store.get([ref]).get(ref)
        return None if text is None else RecalledText(ref, text, tuple(store.places(ref)))


def serve_messages(target: str, lines: Iterable[bytes], write: Callable[[bytes], object], version: str) -> None:
    """Handle JSON-RPC messages, one per line, and write the responses."""
    for line in lines:
        if (response := handle_message(line, target, version)) is not None:
            write(json.dumps(response, separators=(",", ":")).encode() + b"\n")


def bounded_lines(stream: BinaryIO, max_bytes: int = MAX_LINE) -> Iterator[bytes]:
    """Yield the lines of a stream, truncated to `max_bytes`. A truncated line is not valid JSON and is rejected."""
    while line := stream.readline(max_bytes):
        yield line
        while len(line) == max_bytes and not line.endswith(b"\n"):
            line = stream.readline(max_bytes)


def handle_message(line: bytes, target: str, version: str = "") -> dict[str, Any] | None:
    """Return the response to a message, or None for notifications and responses."""
    try:
        message = json.loads(line) if line.strip() else {}
    except (ValueError, RecursionError):
        return _error_response(None, NOT_JSON, "not valid JSON")
    if not isinstance(message, dict):
        return _error_response(None, NO_REQUEST, "a message must be a JSON object")
    method, number, params = message.get("method"), message.get("id"), message.get("params")
    if not isinstance(method, str) or number is None:
        return None
    if not isinstance(number, str | int) or isinstance(number, bool):
        return _error_response(None, NO_REQUEST, "an id must be a string or a number")
    param_values = params if isinstance(params, dict) else {}
    match method:
        case "initialize":
            return _success_response(number, _server_info(param_values.get("protocolVersion"), version))
        case "ping":
            return _success_response(number, {})
        case "tools/list":
            return _success_response(number, {"tools": [TOOL]})
        case "tools/call" if param_values.get("name") == TOOL["name"]:
            arguments = param_values.get("arguments")
            return _success_response(number, _recall_result(arguments if isinstance(arguments, dict) else {}, target))
        case "tools/call":
            return _error_response(number, WRONG_PARAMS, f"unknown tool: the only one is {TOOL['name']}")
        case _:
            return _error_response(number, NO_METHOD, "unknown method")


def _server_info(requested_version: Any, version: str) -> dict[str, Any]:
    return {
        "protocolVersion": requested_version if requested_version in VERSIONS else VERSIONS[-1],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "ibidem", "version": version},
        "instructions": DESCRIPTION,
    }


def _recall_result(arguments: dict[str, Any], target: str) -> dict[str, Any]:
    """Return the result of a tool call. Errors are results too, so that the model can read them."""
    ref = arguments.get("ref")
    try:
        if not isinstance(ref, str):
            raise IbidemError(f"ref is missing: give the {REFERENCE_DIGITS} digits that stand in the marker")
        recalled_text = fetch_original(ref, target)
        recalled_text.text.encode()
    except UnicodeEncodeError:
        return _text_result(
            f"it has characters that cannot be sent this way: run `ibidem recall {recalled_text.ref}`", is_error=True
        )
    except IbidemError as error:
        return _text_result(str(error), is_error=True)
    return _text_result(recalled_text.text, recalled_text.position_note)


def _text_result(*texts: str, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts], "isError": is_error}


def _success_response(number: str | int, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _error_response(number: str | int | None, code: int, why: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": why}}
