"""Request bodies and how they are changed: as Python objects, or as the very bytes that came.

A change names a path. In an object only the containers along the path are copied. In bytes only the named tokens are
replaced, by offset, and everything else is passed on as it came: number spelling, escapes, duplicate keys, whitespace.
So a value that no change names cannot change, whatever the parser made of it.

- `Document`: a body of either kind. `tree`, `splice`: the changes in each.
- `scan`: messages of a body one by one, and of a longer one only those that are new. `head`: what stands beside them.
- `sdk_objects`: messages that are objects of an SDK, read as their JSON.
- `spelling`, `text`: how a string is spelled, and JSON text as values. `zstd`: bytes that are packed.

Nothing here knows what a message says. Whatever bytes come, they come back or are refused: tests/wire/test_wire.py
tries them at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import IbidemError
from .scan import Scanned, scan
from .sdk_objects import dump_request
from .spelling import no_larger, surely_no_larger
from .splice import splice
from .text import parse
from .tree import Change, Op, rebuild

__all__ = [
    "Change",
    "Document",
    "Op",
    "Scanned",
    "no_larger",
    "open_document",
    "parse",
    "rebuild",
    "scan",
    "splice",
    "surely_no_larger",
]


@dataclass(frozen=True, slots=True)
class Document:
    """A request as it was given, and its value, in which objects of an SDK are JSON."""

    given: Any
    value: Any

    def write(self, changes: Sequence[Change]) -> Any:
        """The request with these changes, in the type it was given in; the same object if there are none."""
        if not changes:
            return self.given
        if isinstance(self.given, str):
            data, raw = _encoded(self.given)
            return splice(data, self.value, changes, raw_surrogates=raw).decode("utf-8", "surrogatepass")
        if isinstance(self.given, bytes | bytearray | memoryview):
            return splice(bytes(self.given), self.value, changes)
        return rebuild(self.given, changes)


def _encoded(text: str) -> tuple[bytes, bool]:
    """UTF-8 of a request, and whether lone surrogates in it were encoded too, which makes it no UTF-8."""
    try:
        return text.encode(), False
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass"), True


def open_document(request: Any) -> Document:
    """Accept a request as a parsed value or as JSON text; text that is no JSON is an error with its line."""
    if isinstance(request, str | bytes | bytearray | memoryview):
        try:
            return Document(request, parse(request if isinstance(request, str) else bytes(request)))
        except IbidemError as error:
            if isinstance(request, str) and not request.lstrip().startswith(("{", "[")):
                advice = "A string is read as JSON: pass a request body, or a list of messages"
                raise IbidemError(f"{error}. {advice}") from None
            raise
    return Document(request, dump_request(request))
