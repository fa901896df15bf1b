"""Edit request bodies, as Python objects or as JSON bytes.

A change names a path. In an object, only the containers along the path are copied. In bytes, only the named tokens are
replaced, by offset. Every other byte is forwarded unchanged: number formats, escapes, duplicate keys, whitespace.
So a value that no change names cannot change, even if the parser read it differently.

- `Document`: a body of either kind. `json_tree` edits objects, `splice` edits bytes.
- `request_scan`: parses the messages of a body one by one, and only the new ones of a continued conversation.
  `request_params`: the other fields of the body.
- `sdk_objects`: reads message objects of an SDK as their JSON.
- `json_style`: escapes and whitespace of JSON text. `json_text`: the JSON parser.
- `content_encoding`, `zstd`: compressed bodies.

This package does not interpret messages. Any input bytes are either reproduced exactly or rejected with an error.
tests/wire/test_wire.py checks that with random input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import IbidemError
from .json_style import no_larger, surely_no_larger
from .json_text import parse
from .json_tree import JsonChange, Op, apply_changes
from .request_scan import ScannedRequest, scan
from .sdk_objects import dump_request
from .splice import splice

__all__ = [
    "Document",
    "JsonChange",
    "Op",
    "ScannedRequest",
    "apply_changes",
    "no_larger",
    "open_document",
    "parse",
    "scan",
    "splice",
    "surely_no_larger",
]


@dataclass(frozen=True, slots=True)
class Document:
    """A request in the caller's own type, with its parsed value. In the value, SDK objects are JSON."""

    original: Any
    value: Any

    def write(self, changes: Sequence[JsonChange]) -> Any:
        """Return the changed request in the caller's own type; the same object if there are no changes."""
        if not changes:
            return self.original
        if isinstance(self.original, str):
            data, raw = _encode_request(self.original)
            return splice(data, self.value, changes, raw_surrogates=raw).decode("utf-8", "surrogatepass")
        if isinstance(self.original, bytes | bytearray | memoryview):
            return splice(bytes(self.original), self.value, changes)
        return apply_changes(self.original, changes)


def _encode_request(text: str) -> tuple[bytes, bool]:
    """Encode a request, and report whether it has lone surrogates. Their bytes are not valid UTF-8."""
    try:
        return text.encode(), False
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass"), True


def open_document(request: Any) -> Document:
    """Open a request that is a parsed value or JSON text. Raises IbidemError with the line if it is invalid JSON."""
    if isinstance(request, str | bytes | bytearray | memoryview):
        try:
            return Document(request, parse(request if isinstance(request, str) else bytes(request)))
        except IbidemError as error:
            if isinstance(request, str) and not request.lstrip().startswith(("{", "[")):
                advice = "A string is read as JSON: pass a request body, or a list of messages"
                raise IbidemError(f"{error}. {advice}") from None
            raise
    return Document(request, dump_request(request))
